"""Plans: stages with time-outs, what a job names itself, and machines that are lent."""

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from interlane.metrics.log import LogEvent
from interlane.model import (
    Cluster,
    Finished,
    Job,
    JobId,
    Preempt,
    Start,
    Started,
    Submitted,
    Wake,
)
from interlane.policy.base import PlacementRule, PlanStage
from interlane.policy.performance import AsAsked
from interlane.policy.place import RulePlacer
from interlane.policy.reserve import reserve_and_lend, reserve_and_pack
from interlane.policy.scores import Score
from interlane.sim.engine import Simulator
from interlane.testing.build import cluster, job, machine, make
from interlane.testing.strategies import clusters, traces

V100 = frozenset({"V100"})


@dataclass(frozen=True)
class Same:
    """The same plan for everybody."""

    plan: tuple[PlanStage, ...]

    @property
    def lent(self) -> frozenset[str]:
        return frozenset(one for stage in self.plan for one in stage.lent)

    def stages(self, job: Job) -> tuple[PlanStage, ...]:
        return self.plan


def first_fit(*plan: PlanStage) -> RulePlacer:
    return RulePlacer("planned", PlacementRule(Score.FIRST), plans=Same(plan))


def two() -> Cluster:
    return cluster(
        machine("strong", gpus=1, type="V100"), machine("weak", gpus=1, type="T4", cpus=8)
    )


def where(actions: tuple[object, ...]) -> dict[str, str]:
    """Return the machine of every job that is to start."""
    return {
        str(action.job_id): str(action.placement.spots[0].machine)
        for action in actions
        if isinstance(action, Start)
    }


def test_a_job_waits_for_its_types_and_takes_others_when_the_time_is_over() -> None:
    scheduler = make(two(), placer=first_fit(PlanStage(frozenset({"T4"}), 60.0), PlanStage()))

    actions = scheduler.handle_all([Submitted(job(name, gpus=1)) for name in "ab"], 0.0)
    assert where(actions) == {"a": "weak"}
    assert Wake(60.0) in actions
    assert where(scheduler.decide(59.0)) == {}
    assert where(scheduler.decide(60.0)) == {"b": "strong"}


def test_the_types_of_a_stage_are_taken_at_once_when_they_become_free() -> None:
    scheduler = make(two(), placer=first_fit(PlanStage(frozenset({"T4"}), 60.0), PlanStage()))
    actions = scheduler.handle_all([Submitted(job(name, gpus=1)) for name in "ab"], 0.0)
    for action in actions:
        if isinstance(action, Start):
            scheduler.learn(_started(action), 0.0)

    assert where(scheduler.handle(Finished(JobId("a")), 10.0)) == {"b": "weak"}
    assert where(scheduler.decide(60.0)) == {}


def _started(action: Start) -> Started:
    return Started(action.job_id, action.placement)


def test_a_stage_without_patience_is_tried_once_in_the_same_decision() -> None:
    plan = PlanStage(frozenset({"T4"}), 0.0), PlanStage(V100, 0.0), PlanStage()
    scheduler = make(two(), placer=first_fit(*plan))

    actions = scheduler.handle_all([Submitted(job(name, gpus=1)) for name in "ab"], 0.0)

    assert where(actions) == {"a": "weak", "b": "strong"}


def test_stages_that_no_machine_could_serve_are_passed_over() -> None:
    scheduler = make(
        two(), placer=first_fit(PlanStage(frozenset({"A100"}), 1e6), PlanStage(V100))
    )

    assert where(scheduler.handle(Submitted(job(gpus=1)), 0.0)) == {"a": "strong"}


def test_what_a_job_names_is_binding_whatever_its_plan() -> None:
    scheduler = make(two(), placer=first_fit(PlanStage(V100, 60.0), PlanStage()))

    actions = scheduler.handle(Submitted(job(gpus=1, types=["T4"])), 0.0)

    assert where(actions) == {"a": "weak"}


def test_work_without_gpus_keeps_away_from_machines_that_are_spared() -> None:
    scheduler = make(
        two(), placer=first_fit(PlanStage(spared=V100, timeout_s=60.0), PlanStage())
    )

    actions = scheduler.handle_all([Submitted(job(name, cpus=8)) for name in "ab"], 0.0)

    assert where(actions) == {"a": "weak"}
    assert where(scheduler.decide(60.0)) == {"b": "strong"}


def test_a_refusal_names_the_stage() -> None:
    scheduler = make(two(), placer=first_fit(PlanStage(frozenset({"T4"}), 60.0), PlanStage()))
    scheduler.handle_all([Submitted(job(name, gpus=1)) for name in "ab"], 0.0)

    refusal = scheduler.explain(JobId("b"), 1.0)

    assert refusal is not None
    assert refusal.reason.endswith("Its plan holds it to T4 for 60 s.")


def test_tasks_that_use_much_try_strong_types_first_and_others_last() -> None:
    scheduler = make(two(), placer=reserve_and_pack())

    actions = scheduler.handle_all(
        [Submitted(job("little", gpus=1, gpu_milli=100)), Submitted(job("much", gpus=1))], 0.0
    )

    assert where(actions) == {"little": "weak", "much": "strong"}


def test_lent_machines_are_taken_back_by_who_has_a_right_to_them() -> None:
    scheduler = make(two(), placer=reserve_and_lend(high=2.0))
    actions = scheduler.handle_all([Submitted(job(name, gpus=1)) for name in "ab"], 0.0)
    assert where(actions) == {"a": "strong", "b": "weak"}
    for action in actions:
        if isinstance(action, Start):
            scheduler.learn(_started(action), 0.0)

    actions = scheduler.handle(Submitted(job("c", gpus=1, types=["V100"], at=5)), 5.0)

    assert [action for action in actions if not isinstance(action, Wake)] == [
        Preempt(JobId("a"), JobId("c"))
    ]


def test_a_borrower_does_not_take_its_place_back_from_who_reclaimed_it() -> None:
    jobs = [
        job("a", gpus=1),
        job("b", gpus=1),
        job("c", gpus=1, types=["V100"], at=5),
    ]
    scheduler = make(two(), placer=reserve_and_lend(high=2.0))

    log = Simulator(scheduler, jobs, [100.0, 100.0, 50.0], paranoid=True).run()

    events = [(line.at_s, line.kind, line.subject) for line in log.lines()]
    assert (5.0, LogEvent.PREEMPTED, 0) in events
    assert (5.0, LogEvent.STARTED, 2) in events
    assert (55.0, LogEvent.STARTED, 0) in events
    assert events[-1] == (150.0, LogEvent.FINISHED, 0)


def test_reclaiming_is_tried_again_once_who_has_a_right_gives_a_machine_back() -> None:
    # Two GPUs of two: one lent to a, one held by b by right.  c wants both, by right.
    on = cluster(machine("strong", gpus=2, type="V100"), machine("weak", gpus=1))
    jobs = [
        job("b", gpus=1, types=["V100"]),
        job("a", gpus=1, at=1),
        job("c", gpus=2, types=["V100"], at=5),
        job("d", gpus=1, at=6),
    ]

    log = Simulator(
        make(on, placer=reserve_and_lend(high=2.0)),
        jobs,
        [50.0, 500.0, 10.0, 5.0],
        paranoid=True,
    ).run()

    events = [(line.at_s, line.kind, line.subject) for line in log.lines()]
    # In vain at 5 and 6 s; at 50 s b ends, and a is stopped for c.
    assert (50.0, LogEvent.PREEMPTED, 1) in events
    assert (50.0, LogEvent.STARTED, 2) in events


def test_nobody_is_stopped_for_a_job_that_would_borrow_too() -> None:
    scheduler = make(two(), placer=reserve_and_lend(high=2.0))
    for name in "ab":
        for action in scheduler.handle(Submitted(job(name, gpus=1)), 0.0):
            if isinstance(action, Start):
                scheduler.learn(_started(action), 0.0)

    actions = scheduler.handle(Submitted(job("c", gpus=1)), 5.0)

    assert not [action for action in actions if isinstance(action, Preempt)]


def test_nobody_is_stopped_for_a_job_that_is_still_kept_from_lent_machines() -> None:
    scheduler = make(two(), placer=reserve_and_lend(high=2.0, lend_after_s=60.0))
    for name in "ab":
        scheduler.learn(Submitted(job(name, gpus=1)), 0.0)
    for now_s in (0.0, 60.0):
        for action in scheduler.decide(now_s):
            if isinstance(action, Start):
                scheduler.learn(_started(action), now_s)

    actions = scheduler.handle(Submitted(job("c", gpus=1)), 70.0)

    assert not [action for action in actions if isinstance(action, Preempt)]


TYPES = ("T4", "V100", "P100")
stages = st.builds(
    PlanStage,
    st.frozensets(st.sampled_from(TYPES), max_size=2),
    st.sampled_from([0.0, 1.0, 30.0, 1e4]),
    spared=st.frozensets(st.sampled_from(TYPES), max_size=1),
    lent=st.frozensets(st.sampled_from(TYPES), max_size=1),
)


@settings(max_examples=60, deadline=None)
@given(on=clusters(), trace=traces(), plan=st.lists(stages, min_size=1, max_size=4))
def test_under_any_plan_state_balance_and_everybody_ends(
    on: Cluster, trace: tuple[list[Job], list[float]], plan: list[PlanStage]
) -> None:
    jobs, true_s = trace
    placer = first_fit(*plan, PlanStage())

    log = Simulator(make(on, placer=placer), jobs, true_s, paranoid=True).run()

    ended = [line for line in log.lines() if line.kind in (LogEvent.FINISHED, LogEvent.REFUSED)]
    assert len(ended) == len(jobs)


def test_expected_use_counts_what_is_asked_unless_the_family_waits_for_cpus() -> None:
    whole = job(gpus=1)

    assert AsAsked().gpu_use(whole) == 1.0
    assert AsAsked().gpu_use(replace(whole, family="ctr")) == 0.1
    assert AsAsked().gpu_use(job(cpus=4)) == 0.0
