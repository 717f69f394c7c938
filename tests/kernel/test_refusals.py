"""A refusal says how fundamental it is, why, and what would change it; and that is true."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel.ledger import Ledger
from interlane.kernel.scheduler import Scheduler
from interlane.kernel.view import LedgerView
from interlane.model import (
    Cancelled,
    Cluster,
    Finished,
    Job,
    JobId,
    Placement,
    Refusal,
    Refuse,
    Request,
    Start,
    Started,
    Submitted,
    Task,
    Tier,
)
from interlane.model.lifecycle import JobState
from interlane.policy.base import PlacementRule
from interlane.policy.policy import Discipline
from interlane.policy.scores import Score
from interlane.testing.build import (
    cluster,
    job,
    ledger_with,
    machine,
    make,
    pool,
    submit,
    task,
)
from interlane.testing.strategies import clusters, jobs, ledgers, tasks, traces


def never(scheduler: Scheduler, asked: Job) -> Refusal:
    (action,) = scheduler.handle(Submitted(asked), 0)
    assert isinstance(action, Refuse)
    assert scheduler.state(asked.id) is None
    return action.refusal


SMALL = cluster(
    machine("m0", gpus=2, type="T4", cpus=8, memory_mib=1024),
    machine("m1", gpus=1, type="V100", cpus=4, memory_mib=1024),
)

NEVER = {
    "an unknown type": (
        job(gpus=1, types=["H100"]),
        "No machine has GPU type H100.",
        "Ask for one of T4, V100.",
    ),
    "more GPUs than any machine has": (
        job(gpus=3),
        "Task worker asks for 1 x (3 GPU); no machine is large enough.",
        "Ask for fewer GPUs per instance.",
    ),
    "more CPUs than any machine has": (
        job(gpus=1, cpus=9),
        "Task worker asks for 1 x (1 GPU, 9 CPU); no machine is large enough.",
        "Ask for less CPU.",
    ),
    "too many of one type on one machine": (
        job(gpus=2, types=["V100"]),
        "Task worker asks for 1 x (2 V100 GPU); no machine is large enough.",
        "Ask for any GPU type or fewer GPUs per instance.",
    ),
    "a gang larger than the cluster": (
        job(gpus=1, instances=4),
        "Task worker asks for 4 x (1 GPU); the empty cluster has room for 3.",
        "Ask for at most 3 instances.",
    ),
    "more GPU memory than any card has": (
        job(gpus=1, gpu_memory_mib=20_000),
        "Task worker asks for 1 x (1 GPU, 20000 MiB of GPU memory each); "
        "no machine is large enough.",
        "Ask for less GPU memory.",
    ),
    "roles that together are too many": (
        job("a", task(gpus=2, role="chief"), task(gpus=1, instances=2, role="worker")),
        "Its tasks ask for 4 GPUs and 0 CPUs together; the cluster has 3 and 12.",
        "Ask for fewer instances.",
    ),
}


@pytest.mark.parametrize("case", NEVER)
def test_a_job_that_can_never_fit_is_refused_at_submission(case: str) -> None:
    asked, reason, remedy = NEVER[case]

    assert never(make(SMALL), asked) == Refusal(Tier.NEVER_FITS, reason, remedy)


def test_a_job_that_can_never_fit_is_refused_even_while_a_machine_is_away() -> None:
    ledger = ledger_with(SMALL, lost=[0, 1])

    refusal = LedgerView(ledger).why_not(job(gpus=3))

    assert refusal.tier is Tier.NEVER_FITS


def test_capacity_is_told_from_fragmentation() -> None:
    on = cluster(gpus=[1, 1])
    # 1000 of 2000 are free, half on each GPU: a whole GPU is there in sum only.
    scattered = LedgerView(ledger_with(on, [[500], [500]])).why_not(job(gpus=1))
    full = LedgerView(ledger_with(on, [[1000], [500]])).why_not(job(gpus=1))

    assert scattered == Refusal(
        Tier.FRAGMENTATION,
        "Task worker needs room for 1 x (1 GPU), found 0; "
        "enough is free in sum, but scattered.",
        "It starts when more becomes free; with smaller GPU shares it would fit now.",
    )
    assert full.tier is Tier.CAPACITY


def test_the_remedy_names_everything_that_would_help_alone() -> None:
    on = cluster(machine("m0", gpus=1, type="T4"), machine("m1", gpus=2, type="V100"))
    state = ledger_with(on, [[0], [600, 1000]])

    refusal = LedgerView(state).why_not(job(gpus=1, gpu_milli=500, types=["V100"]))

    # Any type would find the T4; a smaller share the 400 left on the V100.
    assert refusal.remedy == (
        "It starts when more becomes free; with any GPU type or smaller GPU shares "
        "it would fit now."
    )


def test_what_would_help_one_role_of_several_is_not_promised_to_help_the_job() -> None:
    on = cluster(machine("m0", gpus=2, type="T4"), machine("m1", gpus=2, type="V100"))
    state = ledger_with(on, [[0, 0], [1000, 1000]])
    roles = task(gpus=1, types=["V100"], role="chief"), task(gpus=1, types=["V100"])

    one, both = (
        LedgerView(state).why_not(job("a", roles[1])),
        LedgerView(state).why_not(job("b", *roles)),
    )

    assert one.remedy.endswith("with any GPU type it would fit now.")
    assert both.remedy == "It starts when more becomes free."


RELAX = {
    "less CPU": {"cpu_milli": 0},
    "less memory": {"memory_mib": 0},
    "less GPU memory": {"gpu_memory_mib": 0},
    "any GPU type": {"gpu_types": frozenset[str]()},
    "smaller GPU shares": {"gpu_milli": 1},
    "fewer GPUs per instance": {"gpus": 1},
}


def relaxed(asked: Task, way: str) -> Task:
    if way.startswith("at most "):
        return replace(asked, instances=int(way.split()[2]), instances_min=None)
    return replace(asked, demand=replace(asked.demand, **RELAX[way]))  # type: ignore[arg-type]


def ways(refusal: Refusal) -> list[str]:
    if "; with " in refusal.remedy:
        said = refusal.remedy.split("; with ")[1].removesuffix(" it would fit now.")
    elif refusal.remedy.startswith("Ask for ") and "one of" not in refusal.remedy:
        said = refusal.remedy.removeprefix("Ask for ").removesuffix(".")
    else:
        return []
    return [way for way in said.split(" or ") if way in RELAX or way.startswith("at most")]


def refused_role(refusal: Refusal, asked: Request) -> int:
    roles = [
        number for number, each in enumerate(asked) if f"Task {each.role} " in refusal.reason
    ]
    return roles[0]


@given(drawn=jobs(), ledger=ledgers())
def test_relaxing_what_the_remedy_names_makes_the_job_fit_now(
    drawn: Job, ledger: Ledger
) -> None:
    view = LedgerView(ledger)
    answer = view.choose(drawn, PlacementRule(Score.FIRST))
    if isinstance(answer, Placement) or answer.tier is Tier.NEVER_FITS:
        return
    for way in ways(answer):
        number = refused_role(answer, drawn.request)
        eased = list(drawn.request.tasks)
        eased[number] = relaxed(eased[number], way)
        retried = view.choose(
            replace(drawn, request=Request(tuple(eased))), PlacementRule(Score.FIRST)
        )
        assert isinstance(retried, Placement), f"{way}: {answer} then {retried}"


@given(asked=tasks(), ledger=ledgers())
def test_relaxing_what_the_remedy_names_makes_a_task_fit_the_empty_cluster(
    asked: Task, ledger: Ledger
) -> None:
    on = ledger.cluster
    refusal = LedgerView(Ledger(on)).choose(job("a", asked), PlacementRule(Score.FIRST))
    if isinstance(refusal, Placement):
        return
    assert refusal.tier is Tier.NEVER_FITS
    for way in ways(refusal):
        eased = job("b", relaxed(asked, way))
        retried = LedgerView(Ledger(on)).choose(eased, PlacementRule(Score.FIRST))
        assert isinstance(retried, Placement), f"{way}: {refusal} then {retried}"


@given(drawn=jobs(), ledger=ledgers(), data=st.data())
def test_why_not_is_what_the_choice_says(
    drawn: Job, ledger: Ledger, data: st.DataObject
) -> None:
    view = LedgerView(ledger)
    answer = view.choose(drawn, PlacementRule(Score.FIRST))
    if isinstance(answer, Refusal):
        assert view.why_not(drawn) == answer


# -- explain ------------------------------------------------------------------------------


def test_explain_says_nothing_of_jobs_that_do_not_wait() -> None:
    scheduler = make(gpus=1)
    scheduler.handle(Submitted(job("a", gpus=1)), 0)

    assert scheduler.explain(JobId("a"), 0) is None
    assert scheduler.explain(JobId("unknown"), 0) is None


def test_explain_names_the_lack_of_capacity() -> None:
    scheduler = make(gpus=1)
    submit(scheduler, job("a", gpus=1), job("b", gpus=1))
    scheduler.decide(0)

    assert scheduler.explain(JobId("b"), 0) == Refusal(
        Tier.CAPACITY,
        "Task worker needs room for 1 x (1 GPU), found 0.",
        "It starts when more becomes free.",
    )


def test_explain_in_a_strict_queue_names_the_head() -> None:
    scheduler = make(pool(2), queue=Discipline.STRICT)
    submit(scheduler, job("a", gpus=1), job("b", gpus=2), job("c", gpus=1))
    scheduler.decide(0)

    head, behind = scheduler.explain(JobId("b"), 0), scheduler.explain(JobId("c"), 0)

    assert head is not None
    assert head.tier in (Tier.CAPACITY, Tier.FRAGMENTATION)
    assert behind == Refusal(
        Tier.ORDER,
        "Job b is ahead in a strict queue and does not fit yet.",
        "It is its turn after job b has started.",
        JobId("b"),
    )


def test_explain_in_an_easy_queue_names_the_reservation() -> None:
    scheduler = make(pool(2), queue=Discipline.EASY)
    submit(
        scheduler,
        job("a", gpus=1, estimate=100),
        job("b", gpus=2, estimate=100),
        job("c", gpus=1, estimate=101),
    )
    scheduler.decide(0)

    refusal = scheduler.explain(JobId("c"), 0)

    # b is promised both GPUs when a ends at 100 s; c would end at 101 s.
    assert refusal == Refusal(
        Tier.ORDER,
        "Starting it now could delay job b, which has a reservation in 1.7 min.",
        "It starts after that job, or earlier if it is estimated to end before then or finds a "
        "place that the other does not need.",
        JobId("b"),
    )


def remove(scheduler: Scheduler, refusal: Refusal, drawn: list[Job]) -> None:
    """Take away what a refusal names: the job in the way, or all that holds capacity."""
    if refusal.tier is Tier.ORDER:
        assert refusal.blocked_by is not None
        scheduler.learn(Cancelled(refusal.blocked_by), 0.0)
    else:
        for each in drawn:
            if scheduler.state(each.id) is JobState.RUNNING:
                scheduler.learn(Finished(each.id), 0.0)
    settle(scheduler)


def settle(scheduler: Scheduler) -> None:
    """Let the kernel decide and carry its actions out, until it has none."""
    while actions := scheduler.decide(0.0):
        for action in actions:
            if isinstance(action, Start):
                scheduler.learn(Started(action.job_id, action.placement), 0.0)
        if not any(isinstance(action, Start | Refuse) for action in actions):
            return


@given(
    on=clusters(most=3),
    trace=traces(most=10, gap_s=0),
    queue=st.sampled_from(list(Discipline)),
    pick=st.integers(0, 9),
)
def test_a_job_starts_once_all_that_explain_names_in_turn_is_removed(
    on: Cluster, trace: tuple[list[Job], list[float]], queue: Discipline, pick: int
) -> None:
    scheduler = make(on, queue=queue)
    submit(scheduler, *(replace(each, submitted_s=0.0) for each in trace[0]))
    settle(scheduler)
    waiting = [each.id for each in trace[0] if scheduler.explain(each.id, 0.0) is not None]
    if not waiting:
        return
    asked = waiting[pick % len(waiting)]
    named = set()
    while (refusal := scheduler.explain(asked, 0.0)) is not None:
        assert refusal not in named or refusal.tier is not Tier.ORDER, "removed, yet named"
        named.add(refusal)
        assert len(named) <= len(trace[0]) + 1
        remove(scheduler, refusal, trace[0])
    assert scheduler.state(asked) is JobState.RUNNING


def test_explain_before_any_decision_says_so() -> None:
    scheduler = make(gpus=1)
    submit(scheduler, job("a", gpus=1))

    refusal = scheduler.explain(JobId("a"), 0)

    assert refusal is not None
    assert refusal.reason == "No decision has been made since it was submitted."


def test_a_refusal_does_not_outlive_its_cause() -> None:
    # b is refused for its roles; after a has ended, c fits but b is still explained by the
    # books as they are now, not as they were.
    scheduler = make(cluster(gpus=[2]))
    roles = (task(gpus=1, role="chief"), task(gpus=1, role="worker"))
    submit(scheduler, job("a", gpus=1), job("b", *roles))
    scheduler.decide(0)
    before = scheduler.explain(JobId("b"), 0)

    scheduler.handle(Finished(JobId("a")), 1)

    assert before is not None
    assert before.tier is Tier.FRAGMENTATION
    assert scheduler.explain(JobId("b"), 1) is None
