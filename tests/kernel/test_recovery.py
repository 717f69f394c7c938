"""A kernel that is told what an earlier one knew has the same books."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel.lifecycle import HOLDING, JobState
from interlane.kernel.scheduler import Scheduler
from interlane.model import (
    Cluster,
    Finished,
    IllegalTransition,
    InvalidInput,
    Job,
    JobId,
    MachineId,
    Placement,
    Recovered,
    Refuse,
    Spot,
    Start,
)
from interlane.policy.catalogue import ORDERS, make_order, make_placer
from interlane.policy.policy import Discipline, Policy
from interlane.sim.engine import Engine
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
    for entry in old._entries.values():
        fact = Recovered(entry.job, entry.ran_s, entry.placement, entry.started_s)
        fresh.learn(fact, now_s)
    return fresh


@pytest.mark.parametrize("name", POLICIES)
@given(on=clusters(most=3), trace=traces(most=10), until_s=st.sampled_from([1.0, 50.0, 400.0]))
def test_a_recovered_kernel_holds_what_the_old_one_held(
    name: str, on: Cluster, trace: tuple[list[Job], list[float]], until_s: float
) -> None:
    engine = Engine(Scheduler(on, POLICIES[name]), *trace)
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
def test_a_recovered_kernel_wishes_nothing_that_the_old_one_did_not(
    on: Cluster, trace: tuple[list[Job], list[float]]
) -> None:
    engine = Engine(Scheduler(on, POLICIES["fifo"]), *trace)
    engine.run(until_s=50)

    assert recovered(engine.scheduler, engine.now_s).decide(engine.now_s) == ()


def test_progress_of_earlier_attempts_is_recovered() -> None:
    scheduler = make(cluster(machine(gpus=1)), order=make_order("las"))
    submit(scheduler, job("new", gpus=1))
    scheduler.learn(Recovered(job("old", gpus=1), ran_s=500.0), now_s=0.0)

    starts = [wish.job_id for wish in scheduler.decide(0.0) if isinstance(wish, Start)]

    assert starts == ["new"]


def test_a_job_that_waits_and_no_longer_fits_is_refused() -> None:
    scheduler = make(cluster(machine(gpus=1)))

    (wish,) = scheduler.handle(Recovered(job("wide", gpus=2)), now_s=0.0)

    assert isinstance(wish, Refuse)
    assert scheduler.state(JobId("wide")) is None


@pytest.mark.parametrize(
    "spot", [Spot(MachineId("gone"), (0,)), Spot(MachineId("m0"), (1,))], ids=str
)
def test_a_job_that_runs_where_there_is_no_room_is_an_error(spot: Spot) -> None:
    scheduler = make(cluster(machine("m0", gpus=1)))

    with pytest.raises(InvalidInput, match="keep the machines it had"):
        scheduler.learn(Recovered(job("a", gpus=1), placement=Placement((spot,))), now_s=0.0)

    scheduler.check()


def test_two_jobs_are_not_recovered_onto_one_place() -> None:
    scheduler = make(cluster(machine("m0", gpus=1)))
    there = Placement((Spot(MachineId("m0"), (0,)),))
    scheduler.learn(Recovered(job("a", gpus=1), placement=there), now_s=0.0)

    with pytest.raises(InvalidInput):
        scheduler.learn(Recovered(job("b", gpus=1), placement=there), now_s=0.0)

    scheduler.check()


def test_a_job_is_recovered_once() -> None:
    scheduler = make(cluster(machine("m0", gpus=1)))
    scheduler.learn(Recovered(job("a", gpus=1)), now_s=0.0)

    with pytest.raises(IllegalTransition):
        scheduler.learn(Recovered(job("a", gpus=1)), now_s=0.0)

    assert scheduler.state(JobId("a")) is JobState.QUEUED
