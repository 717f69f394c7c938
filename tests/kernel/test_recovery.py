"""A kernel that is told what an earlier one knew has the same books."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel.scheduler import Scheduler
from interlane.model import (
    Cluster,
    Finished,
    GrowFailed,
    IllegalTransition,
    Job,
    JobId,
    MachineDrained,
    MachineId,
    MachineJoined,
    MachineLost,
    Occupied,
    Placement,
    Recovered,
    Refuse,
    Requeue,
    Spot,
    Start,
    TakenGpu,
)
from interlane.model.lifecycle import HOLDING, JobState
from interlane.policy.catalogue import ORDERS, make_order, make_placer
from interlane.policy.policy import Discipline, Policy
from interlane.sim.engine import Simulator
from interlane.testing.build import cluster, job, machine, make, submit
from interlane.testing.strategies import clusters, traces

POLICIES = {
    **{name: Policy(make_order(name), make_placer("pack")) for name in ORDERS},
    "strict": Policy(make_order("fifo"), make_placer("pack"), Discipline.STRICT),
    "easy": Policy(make_order("fifo"), make_placer("balance"), Discipline.EASY),
    "reserve-and-lend": Policy(make_order("fifo"), make_placer("reserve-and-lend")),
}


def recovered(old: Scheduler, now_s: float) -> Scheduler:
    """Return a fresh scheduler that was told what the old one knows, and nothing else."""
    fresh = Scheduler(old.cluster, old.policy)
    for entry in old._state.entries.values():
        event = Recovered(entry.job, entry.ran_s, entry.placement, entry.started_s)
        fresh.learn(event, now_s)
    return fresh


@pytest.mark.parametrize("name", POLICIES)
@given(on=clusters(most=3), trace=traces(most=10), until_s=st.sampled_from([1.0, 50.0, 400.0]))
def test_a_recovered_kernel_holds_what_the_old_one_held(
    name: str, on: Cluster, trace: tuple[list[Job], list[float]], until_s: float
) -> None:
    engine = Simulator(Scheduler(on, POLICIES[name]), *trace)
    engine.run(until_s)
    old = engine.scheduler

    fresh = recovered(old, engine.now_s)

    fresh.check()
    for each in trace[0]:
        assert fresh.state(each.id) is old.state(each.id)
        assert fresh.placement(each.id) == old.placement(each.id)
    for holder in [each for each in trace[0] if old.state(each.id) in HOLDING]:
        fresh.learn(Finished(holder.id), engine.now_s)
    fresh.check()


@given(on=clusters(most=3), trace=traces(most=10))
def test_a_recovered_kernel_actions_nothing_that_the_old_one_did_not(
    on: Cluster, trace: tuple[list[Job], list[float]]
) -> None:
    engine = Simulator(Scheduler(on, POLICIES["fifo"]), *trace)
    engine.run(until_s=50)

    assert recovered(engine.scheduler, engine.now_s).decide(engine.now_s) == ()


def test_progress_of_earlier_attempts_is_recovered() -> None:
    scheduler = make(cluster(machine(gpus=1)), order=make_order("las"))
    submit(scheduler, job("new", gpus=1))
    scheduler.learn(Recovered(job("old", gpus=1), ran_s=500.0), now_s=0.0)

    starts = [action.job_id for action in scheduler.decide(0.0) if isinstance(action, Start)]

    assert starts == ["new"]


def test_a_job_that_waits_and_no_longer_fits_is_refused() -> None:
    scheduler = make(cluster(machine(gpus=1)))

    (action,) = scheduler.handle(Recovered(job("wide", gpus=2)), now_s=0.0)

    assert isinstance(action, Refuse)
    assert scheduler.state(JobId("wide")) is None


@pytest.mark.parametrize(
    ("spot", "why"),
    [
        (Spot(MachineId("gone"), (0,)), "The job ran on gone, which is not there any more."),
        (Spot(MachineId("m0"), (1,)), "The job ran on m0, which has no such room any more."),
    ],
    ids=str,
)
def test_a_job_that_ran_where_there_is_no_room_any_more_waits_and_says_why(
    spot: Spot, why: str
) -> None:
    scheduler = make(cluster(machine("m0", gpus=1)))
    submit(scheduler, job("first", gpus=1))
    scheduler.decide(0.0)
    ran = job("a", gpus=1, checkpoint_s=10)

    told = scheduler.handle(Recovered(ran, 100.0, Placement((spot,)), started_s=0.0), 25.0)

    assert Requeue(JobId("a"), why, work_lost_s=5.0) in told
    assert scheduler.state(JobId("a")) is JobState.QUEUED
    assert scheduler._state.entries[JobId("a")].ran_s == 120.0
    scheduler.check()


def test_a_job_whose_machine_was_the_only_one_for_it_waits_and_is_not_refused() -> None:
    scheduler = make(cluster(machine("m0", gpus=1)))
    there = Placement((Spot(MachineId("wide"), (0, 1)),))

    (told,) = scheduler.handle(Recovered(job("a", gpus=2), placement=there), now_s=0.0)

    assert isinstance(told, Requeue)
    assert scheduler.decide(1.0) == ()
    (start,) = scheduler.handle(MachineJoined(machine("wide", gpus=2)), 2.0)
    assert start == Start(JobId("a"), there)


def test_two_jobs_are_not_recovered_onto_one_place() -> None:
    scheduler = make(cluster(machine("m0", gpus=1)))
    there = Placement((Spot(MachineId("m0"), (0,)),))
    scheduler.learn(Recovered(job("a", gpus=1), placement=there), now_s=0.0)

    (told,) = scheduler.handle(Recovered(job("b", gpus=1), placement=there), now_s=0.0)

    assert isinstance(told, Requeue)
    assert scheduler.placement(JobId("a")) == there
    assert scheduler.state(JobId("b")) is JobState.QUEUED
    scheduler.check()


def test_a_job_is_recovered_onto_a_drained_and_occupied_machine_but_not_onto_a_lost_one() -> (
    None
):
    scheduler = make(cluster(machine("m0", gpus=1), machine("m1", gpus=1)))
    for event in (
        MachineDrained(MachineId("m0")),
        Occupied(MachineId("m0"), gpus=(TakenGpu(0, 1000),)),
        MachineLost(MachineId("m1")),
    ):
        scheduler.learn(event, 0.0)
    on = {name: Placement((Spot(MachineId(name), (0,)),)) for name in ("m0", "m1")}

    scheduler.learn(Recovered(job("a", gpus=1), placement=on["m0"]), 0.0)
    scheduler.learn(Recovered(job("b", gpus=1), placement=on["m1"]), 0.0)

    assert scheduler.state(JobId("a")) is JobState.RUNNING
    assert scheduler.state(JobId("b")) is JobState.QUEUED
    scheduler.check()
    scheduler.learn(Finished(JobId("a")), 1.0)
    scheduler.check()


def test_a_job_is_recovered_once() -> None:
    scheduler = make(cluster(machine("m0", gpus=1)))
    scheduler.learn(Recovered(job("a", gpus=1)), now_s=0.0)

    with pytest.raises(IllegalTransition):
        scheduler.learn(Recovered(job("a", gpus=1)), now_s=0.0)

    assert scheduler.state(JobId("a")) is JobState.QUEUED


def test_a_gang_that_was_growing_is_recovered_with_what_it_may_have_to_give_back() -> None:
    scheduler = make(cluster(machine("m0", gpus=2)))
    gang = job("gang", gpus=1, instances=2, at_least=1)
    both = Placement((Spot(MachineId("m0"), (0,)), Spot(MachineId("m0"), (1,))))

    scheduler.learn(Recovered(gang, placement=both, growing=1), 0.0)

    assert scheduler.state(gang.id) is JobState.GROWING
    scheduler.learn(GrowFailed(gang.id, "no room"), 1.0)
    assert scheduler.placement(gang.id) == Placement(both.spots[:1])
    scheduler.check()
