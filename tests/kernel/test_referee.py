"""A wrong policy can waste time; it can never overcommit."""

from collections import Counter

import pytest
from hypothesis import given, settings

from interlane.kernel.ledger import Ledger
from interlane.kernel.scheduler import Scheduler
from interlane.metrics.log import LogEvent
from interlane.model import Cluster, Job, JobId, Placement, Refuse, Start, Submitted, Tier
from interlane.policy.base import TypeRule
from interlane.policy.policy import Discipline
from interlane.sim.engine import Simulator
from interlane.testing.build import cluster, job, machine, make, submit
from interlane.testing.conformance import check_placement
from interlane.testing.faulty import FAULTY_PLACERS, PlainFirstFit
from interlane.testing.strategies import clusters, traces

WRITERS = {"writes to the state", "writes to the view's index"}
"""Nothing can be promised once a policy has written into the state; Python cannot lock them."""
MISPLACES = [fault for fault in FAULTY_PLACERS if fault not in WRITERS]


def check_every_moment(scheduler: Scheduler, jobs: list[Job], true_s: list[float]) -> None:
    """Play a trace and add up by plain arithmetic what every GPU holds at every moment."""
    log = Simulator(scheduler, jobs, true_s, paranoid=True).run()
    held: Counter[tuple[str, int]] = Counter()
    where: dict[int, Placement] = {}
    for line in log.lines():
        if line.placement is not None:
            before = where[line.subject].spots if line.kind is LogEvent.GROWN else ()
            where[line.subject] = all_of_it = Placement((*before, *line.placement.spots))
            check_placement(all_of_it, log.jobs[line.subject], Ledger(scheduler.cluster))
            _add(held, line.placement, log.jobs[line.subject], 1)
        elif line.kind is LogEvent.FINISHED:
            _add(held, where.pop(line.subject), log.jobs[line.subject], -1)
        assert all(milli <= 1000 for milli in held.values())
    assert not where


def _add(held: "Counter[tuple[str, int]]", placement: Placement, of: Job, sign: int) -> None:
    for spot in placement.spots:
        for gpu in spot.gpus:
            milli = of.request.tasks[spot.task].demand.gpu_milli
            held[spot.machine, gpu] += sign * spot.instances * milli


@pytest.mark.parametrize("queue", Discipline)
@pytest.mark.parametrize("fault", MISPLACES)
@settings(max_examples=20)
@given(on=clusters(most=3), trace=traces(most=8))
def test_a_faulty_placer_never_overcommits_and_the_run_ends(
    fault: str, queue: Discipline, on: Cluster, trace: tuple[list[Job], list[float]]
) -> None:
    check_every_moment(make(on, placer=FAULTY_PLACERS[fault](), queue=queue), *trace)


@given(on=clusters(most=3), trace=traces(most=8))
def test_a_placer_in_plain_python_starts_what_the_built_in_one_starts(
    on: Cluster, trace: tuple[list[Job], list[float]]
) -> None:
    check_every_moment(make(on, placer=PlainFirstFit()), *trace)


def test_a_placer_with_a_loose_type_rule_may_use_any_gpu() -> None:
    scheduler = make(placer=PlainFirstFit(TypeRule.ANY))

    (action,) = scheduler.handle(Submitted(job("a", gpus=1, types=["V100"])), 0)

    assert isinstance(action, Start)


def test_a_pooled_machine_has_a_gpu_type_too() -> None:
    on = cluster(
        machine("m0", gpus=2, type="T4", pooled=True), machine("m1", gpus=2, type="V100")
    )
    scheduler = make(on, placer=FAULTY_PLACERS["ignores GPU types"]())

    actions = scheduler.handle(Submitted(job("a", gpus=1, types=["V100"])), 0)

    assert not [action for action in actions if isinstance(action, Start)]


@pytest.mark.parametrize("how", ["asks", "chooses"])
def test_planning_for_less_than_was_asked_is_noticed(how: str) -> None:
    scheduler = make(gpus=1, placer=FAULTY_PLACERS[f"{how} for less than the job needs"]())
    submit(scheduler, job("a", gpus=1, gpu_milli=800), job("b", gpus=1, gpu_milli=800))

    scheduler.decide(0)

    # 200 of 1000 are left, whatever the placer believed it had asked for.
    assert scheduler.view.free(0).gpu_milli == (200,)
    assert scheduler.waiting == 1


def test_a_refused_proposal_is_explained_as_the_placers_fault() -> None:
    scheduler = make(gpus=2, placer=FAULTY_PLACERS["overcommits"]())
    submit(scheduler, job("a", gpus=1), job("b", gpus=1))

    (only,) = scheduler.decide(0)

    assert isinstance(only, Start)
    refusal = scheduler.explain(JobId("b"), 0)
    assert refusal is not None
    assert refusal.tier is Tier.INVALID
    assert "fault of the placer" in refusal.remedy


def test_a_job_that_the_placer_cannot_place_on_an_idle_cluster_is_refused() -> None:
    scheduler = make(cluster(gpus=[2]), placer=FAULTY_PLACERS["names a GPU twice"]())

    (action,) = scheduler.handle(Submitted(job("a", gpus=2)), 0)

    assert isinstance(action, Refuse)
    assert action.refusal.tier is Tier.NEVER_FITS
