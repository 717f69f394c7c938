"""The life of a job: every pair of state and event is either listed or refused."""

from itertools import product

import pytest

from interlane.kernel.scheduler import Scheduler
from interlane.model import (
    Cancelled,
    Event,
    Finished,
    GrowFailed,
    Grown,
    IllegalTransition,
    InterlaneError,
    InvalidInput,
    JobId,
    MachineId,
    MachineLost,
    MachineReturned,
    Placement,
    Preempted,
    Recovered,
    Requeue,
    Spot,
    Start,
    Started,
    StartFailed,
    Submitted,
    Ticked,
)
from interlane.model.lifecycle import APART, ENDED, HOLDING, NEXT, JobState, advance
from interlane.policy.order import ShortestRemainingFirst
from interlane.policy.preempt import Preemption
from interlane.testing.build import cluster, job, make, submit

A = JobId("a")
KNOWN = [state for state in JobState if state not in APART]
"""States in which a scheduler knows a job."""

DONE = (JobState.SUCCEEDED, JobState.FAILED)
EVENTS: list[type[Event]] = [
    Submitted, Recovered, Started, StartFailed, Grown, GrowFailed, Preempted, Finished,
    Cancelled, MachineLost, MachineReturned, Ticked,
]  # fmt: skip


@pytest.mark.parametrize(("state", "event"), list(product(JobState, EVENTS)))
def test_every_pair_of_state_and_event_is_listed_or_refused(
    state: JobState, event: type[Event]
) -> None:
    if (state, event) in NEXT:
        assert advance(A, state, event) is NEXT[state, event]
        return

    with pytest.raises(IllegalTransition) as refused:
        advance(A, state, event)

    assert (
        str(refused.value) == f"Job a is {state.value}, where {event.__name__} cannot happen."
    )


def test_nothing_happens_to_a_job_that_has_ended() -> None:
    assert not [pair for pair in NEXT if pair[0] in ENDED]


def test_only_holders_can_be_interrupted() -> None:
    for (state, event), after in NEXT.items():
        if event in (Started, StartFailed, Grown, GrowFailed, Preempted, Finished, MachineLost):
            assert state in HOLDING
        if after is JobState.QUEUED:
            assert state in HOLDING


PLACEMENT = Placement((Spot(MachineId("m0"), (0,)),))
JOB_EVENTS: dict[type[Event], Event] = {
    Submitted: Submitted(job("a", gpus=1)),
    Started: Started(A, PLACEMENT),
    StartFailed: StartFailed(A, "no image"),
    Grown: Grown(A, PLACEMENT),
    GrowFailed: GrowFailed(A, "no image"),
    Preempted: Preempted(A),
    Finished: Finished(A),
    Cancelled: Cancelled(A),
    MachineLost: MachineLost(MachineId("m0")),
}


def in_state(state: JobState) -> Scheduler:
    """Return a scheduler with one GPU, or two to grow on, and job a in this state."""
    if state is JobState.GROWING:
        scheduler = make(gpus=2)
        scheduler.handle(Submitted(job("0", gpus=1)), 0)
        scheduler.handle(Submitted(job("a", gpus=1, instances=2, at_least=1)), 0)
        scheduler.handle(Started(A, PLACEMENT), 0)
        scheduler.handle(Finished(JobId("0")), 1)
        return scheduler
    scheduler = make(order=ShortestRemainingFirst(), preemption=Preemption(min_run_s=0), gpus=1)
    if state is JobState.REFUSED:
        submit(scheduler, job("a", gpus=2))
        return scheduler
    blocker = job("0", gpus=1, estimate=1)
    if state is JobState.QUEUED:
        scheduler.handle(Submitted(blocker), 0)
    scheduler.handle(Submitted(job("a", gpus=1, estimate=100)), 0)
    if state in (JobState.RUNNING, JobState.STOPPING, *DONE):
        scheduler.handle(Started(A, PLACEMENT), 0)
    if state is JobState.STOPPING:
        scheduler.handle(Submitted(blocker), 1)
    if state in DONE:
        scheduler.handle(Finished(A), 1)
    if state is JobState.CANCELLED:
        scheduler.handle(Cancelled(A), 1)
    return scheduler


@pytest.mark.parametrize(
    ("state", "event"), list(product(KNOWN, [f for f in JOB_EVENTS if f is not Submitted]))
)
def test_the_scheduler_keeps_the_table(state: JobState, event: type[Event]) -> None:
    scheduler = in_state(state)
    assert scheduler.state(A) is (None if state in ENDED else state)
    if event is MachineLost and (state, event) not in NEXT:
        return  # a machine may always be lost; jobs that hold nothing do not mind

    if (state, event) in NEXT:
        scheduler.learn(JOB_EVENTS[event], 2)
        after = NEXT[state, event]
        assert scheduler.state(A) is (None if after in ENDED else after)
    else:
        with pytest.raises(InterlaneError, match=r"^Job a is .*\.$"):
            scheduler.learn(JOB_EVENTS[event], 2)
        assert scheduler.state(A) is (None if state in ENDED else state)
    scheduler.check()


@pytest.mark.parametrize("state", [state for state in KNOWN if state not in ENDED])
def test_a_job_cannot_be_submitted_twice(state: JobState) -> None:
    scheduler = in_state(state)

    with pytest.raises(IllegalTransition, match=f"Job a is {state.value}, where Submitted"):
        scheduler.learn(Submitted(job("a", gpus=1)), 2)


def test_an_unknown_job_is_named() -> None:
    with pytest.raises(InvalidInput, match="Job a is not known"):
        make().learn(Finished(A), 0)


@pytest.mark.parametrize("event", [MachineLost, MachineReturned])
def test_an_unknown_machine_is_named(event: type[MachineLost | MachineReturned]) -> None:
    with pytest.raises(InvalidInput, match="Machine nowhere is not known"):
        make().learn(event(MachineId("nowhere")), 0)


def test_a_start_that_failed_gives_back_what_was_held_and_waits_again() -> None:
    scheduler = make(gpus=1)
    scheduler.handle(Submitted(job("a", gpus=1)), 0)
    assert scheduler.waiting == 0

    (again,) = scheduler.handle(StartFailed(A, "no image"), 1)

    assert isinstance(again, Start)
    assert again.job_id == A
    scheduler.check()


def test_a_cancelled_job_makes_room_for_the_next() -> None:
    scheduler = make(gpus=1)
    submit(scheduler, job("a", gpus=1), job("b", gpus=1))
    (first,) = scheduler.decide(0)
    assert isinstance(first, Start)

    (second,) = scheduler.handle(Cancelled(A), 1)

    assert second == Start(JobId("b"), first.placement)


def test_a_cancelled_job_does_not_start_later() -> None:
    scheduler = make(gpus=1)
    submit(scheduler, job("a", gpus=1), job("b", gpus=1))
    scheduler.decide(0)

    scheduler.handle(Cancelled(JobId("b")), 1)

    assert scheduler.handle(Finished(A), 2) == ()
    assert scheduler.waiting == 0


def test_a_lost_machine_throws_its_jobs_back_and_takes_no_others() -> None:
    scheduler = make(cluster(gpus=[1, 1]))
    submit(scheduler, job("a", gpus=1), job("b", gpus=1))
    scheduler.decide(0)

    (told,) = scheduler.handle(MachineLost(MachineId("m0")), 5)
    assert told == Requeue(A, "Machine m0 was lost.", work_lost_s=5)
    assert scheduler.state(A) is JobState.QUEUED
    assert scheduler.state(JobId("b")) is JobState.STARTING

    (start,) = scheduler.handle(MachineReturned(MachineId("m0")), 9)
    assert start == Start(A, PLACEMENT)
    scheduler.check()


def test_a_gang_that_loses_one_machine_lets_go_of_the_others() -> None:
    scheduler = make(cluster(gpus=[1, 1]))
    scheduler.handle(Submitted(job("a", gpus=1, instances=2)), 0)

    scheduler.handle(MachineLost(MachineId("m1")), 1)
    actions = scheduler.handle(Submitted(job("b", gpus=1)), 1)

    assert actions == (Start(JobId("b"), PLACEMENT),)


def test_losing_a_machine_twice_is_losing_it_once() -> None:
    scheduler = make(cluster(gpus=[1, 1]))
    lost = MachineLost(MachineId("m0"))

    assert scheduler.handle_all([lost, lost], 0) == ()

    scheduler.learn(MachineReturned(MachineId("m0")), 1)
    actions = scheduler.handle(Submitted(job("a", gpus=1)), 1)
    assert actions == (Start(A, PLACEMENT),)
