"""Machines join, change, drain and leave, and others occupy a part of them."""

from dataclasses import replace

import pytest

from interlane.kernel.scheduler import Scheduler
from interlane.model import (
    Action,
    Cluster,
    Event,
    Finished,
    Grow,
    InvalidInput,
    JobId,
    MachineChanged,
    MachineDrained,
    MachineId,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineReturned,
    MachineUndrained,
    Occupied,
    Placement,
    Refuse,
    Requeue,
    Spot,
    Start,
    Started,
    Submitted,
    TakenGpu,
    Tier,
)
from interlane.model.lifecycle import JobState
from interlane.policy import place
from interlane.policy.policy import Discipline
from interlane.testing.build import cluster, job, machine, make, submit

A, B = JobId("a"), JobId("b")
M0, M1 = MachineId("m0"), MachineId("m1")
NOTHING = Cluster("empty", ())


def on(machine_id: str, *gpus: int) -> Placement:
    return Placement((Spot(MachineId(machine_id), gpus),))


def running(scheduler: Scheduler, *actions: Action, now_s: float = 0.0) -> None:
    """Confirm every start among some actions."""
    for action in actions:
        if isinstance(action, Start):
            scheduler.learn(Started(action.job_id, action.placement), now_s)


# -- join ---------------------------------------------------------------------------------


def test_a_scheduler_may_begin_without_machines_and_jobs_wait_for_them() -> None:
    scheduler = make(NOTHING)

    assert scheduler.handle(Submitted(job("a", gpus=2)), 0) == ()
    refusal = scheduler.explain(A, 0)
    assert refusal is not None
    assert refusal.reason == "The cluster has no machines."

    (start,) = scheduler.handle(MachineJoined(machine("m0", gpus=2)), 1)
    assert start == Start(A, on("m0", 0, 1))
    assert [one.id for one in scheduler.cluster] == ["m0"]


@pytest.mark.parametrize("placer", [place.first_fit(), place.pack(), place.balance()], ids=repr)
def test_many_machines_may_join_one_after_the_other(placer: place.RulePlacer) -> None:
    scheduler = make(NOTHING, placer=placer)
    names = [f"m{number}" for number in range(37)]
    for number, name in enumerate(names):
        scheduler.learn(Submitted(job(f"j{number:02}", gpus=1 + number % 3)), 0)
        scheduler.learn(MachineJoined(machine(name, gpus=1 + number % 3)), 0)
        scheduler.check()

    actions = scheduler.decide(1)

    assert len(actions) == len(names)
    assert [one.id for one in scheduler.cluster] == names
    scheduler.check()


def test_a_job_for_a_type_that_nobody_had_is_refused_until_a_machine_of_it_joins() -> None:
    scheduler = make(cluster(gpus=[1]))
    asked = job("a", gpus=1, types=["H100"])

    (refused,) = scheduler.handle(Submitted(asked), 0)
    assert isinstance(refused, Refuse)
    scheduler.learn(MachineJoined(machine("new", gpus=1, type="H100")), 1)
    (start,) = scheduler.handle(Submitted(asked), 2)

    assert start == Start(A, on("new", 0))


def test_a_machine_wider_than_all_others_may_join_while_jobs_run() -> None:
    scheduler = make(cluster(gpus=[2]))
    running(scheduler, *scheduler.handle(Submitted(job("a", gpus=1, gpu_milli=500)), 0))

    scheduler.learn(MachineJoined(machine("wide", gpus=8)), 1)
    (start,) = scheduler.handle(Submitted(job("b", gpus=8)), 1)

    assert isinstance(start, Start)
    assert start.placement.machines == ("wide",)
    scheduler.check()
    for name in (A, B):
        scheduler.learn(Finished(name), 2)
    scheduler.check()


def test_a_machine_that_joins_anew_is_empty_and_its_jobs_wait_again() -> None:
    scheduler = make(cluster(gpus=[1]))
    running(scheduler, *scheduler.handle(Submitted(job("a", gpus=1)), 0))

    told, start = scheduler.handle(MachineJoined(machine("m0", gpus=2)), 4)

    assert told == Requeue(A, "Machine m0 joined anew, and nothing runs there.", 4)
    assert start == Start(A, on("m0", 0))
    assert scheduler.cluster.gpus == 2
    scheduler.check()


def test_joining_twice_is_joining_once_and_does_not_undrain() -> None:
    scheduler = make(NOTHING)
    joined = MachineJoined(machine("m0", gpus=1))
    for event in (joined, joined, MachineDrained(M0), MachineDrained(M0), joined):
        scheduler.learn(event, 0)

    assert scheduler.handle(Submitted(job("a", gpus=1)), 0) == ()
    (start,) = scheduler.handle(MachineUndrained(M0), 1)
    assert start == Start(A, on("m0", 0))


# -- change -------------------------------------------------------------------------------


def test_a_machine_that_grows_takes_more() -> None:
    scheduler = make(cluster(gpus=[1]))
    scheduler.handle_all([Submitted(job("a", gpus=1)), Submitted(job("b", gpus=1))], 0)

    (start,) = scheduler.handle(MachineChanged(machine("m0", gpus=2)), 1)

    assert start == Start(B, on("m0", 1))
    scheduler.check()


def test_who_no_longer_fits_on_a_machine_that_shrinks_waits_again_the_newest_first() -> None:
    scheduler = make(cluster(machine("m0", gpus=2, cpus=8)))
    running(scheduler, *scheduler.handle(Submitted(job("a", gpus=1, cpus=4)), 0))
    running(scheduler, *scheduler.handle(Submitted(job("b", gpus=1, cpus=4)), 5), now_s=5)

    (told,) = scheduler.handle(MachineChanged(machine("m0", gpus=2, cpus=6)), 8)

    assert told == Requeue(
        B, "Machine m0 changed, and no longer has what the job held there.", 3
    )
    assert scheduler.state(A) is JobState.RUNNING
    scheduler.check()


def test_a_gang_leaves_all_its_machines_when_one_no_longer_holds_it() -> None:
    scheduler = make(cluster(gpus=[1, 1]))
    running(scheduler, *scheduler.handle(Submitted(job("a", gpus=1, instances=2)), 0))

    scheduler.learn(MachineChanged(machine("m1")), 1)
    actions = scheduler.handle(Submitted(job("b", gpus=1, serial=0)), 1)

    assert [type(action) for action in actions] == [Requeue, Start]
    assert scheduler.placement(B) == on("m0", 0)
    scheduler.check()


# -- drain --------------------------------------------------------------------------------


def test_a_drained_machine_takes_nothing_new_and_what_runs_goes_on() -> None:
    scheduler = make(cluster(gpus=[2, 1]))
    running(scheduler, *scheduler.handle(Submitted(job("a", gpus=1)), 0))

    scheduler.learn(MachineDrained(M0), 1)
    (start,) = scheduler.handle(Submitted(job("b", gpus=1)), 1)

    assert start == Start(B, on("m1", 0))
    assert scheduler.state(A) is JobState.RUNNING
    assert scheduler.handle(Finished(A), 2) == ()
    scheduler.check()


def test_a_gang_does_not_grow_onto_a_drained_machine() -> None:
    scheduler = make(cluster(gpus=[1, 1]))
    scheduler.learn(MachineDrained(M1), 0)
    gang = job("a", gpus=1, instances=2, at_least=1)
    running(scheduler, *scheduler.handle(Submitted(gang), 0))
    assert scheduler.decide(0) == ()

    (grow,) = scheduler.handle(MachineUndrained(M1), 1)

    assert grow == Grow(A, on("m1", 0))


def test_a_machine_that_was_drained_and_lost_returns_drained() -> None:
    scheduler = make(cluster(gpus=[1]))
    for event in (MachineDrained(M0), MachineLost(M0), MachineReturned(M0)):
        scheduler.learn(event, 0)

    assert scheduler.handle(Submitted(job("a", gpus=1)), 0) == ()
    (start,) = scheduler.handle(MachineUndrained(M0), 1)
    assert isinstance(start, Start)


# -- leave --------------------------------------------------------------------------------


def test_a_machine_that_leaves_puts_its_jobs_back_and_others_may_take_its_place() -> None:
    scheduler = make(cluster(gpus=[1, 1]))
    running(scheduler, *scheduler.handle(Submitted(job("a", gpus=1)), 0))

    (told, start) = scheduler.handle(MachineLeft(M0), 3)

    assert told == Requeue(A, "Machine m0 has left.", 3)
    assert start == Start(A, on("m1", 0))
    assert [one.id for one in scheduler.cluster] == ["m1"]
    scheduler.learn(MachineJoined(machine("other", gpus=1)), 4)
    (start,) = scheduler.handle(Submitted(job("b", gpus=1)), 4)
    assert start == Start(B, on("other", 0))
    scheduler.check()


def test_a_job_that_waits_is_not_refused_because_machines_left() -> None:
    scheduler = make(cluster(gpus=[2, 1]))
    running(scheduler, *scheduler.handle(Submitted(job("a", gpus=2)), 0))

    assert [type(action) for action in scheduler.handle(MachineLeft(M0), 1)] == [Requeue]
    assert scheduler.decide(2) == ()
    why = scheduler.explain(A, 2)
    assert why is not None
    assert why.tier is Tier.NEVER_FITS

    (start,) = scheduler.handle(MachineJoined(machine("m0", gpus=2)), 3)
    assert start == Start(A, on("m0", 0, 1))


def test_a_machine_that_left_is_not_known_any_more() -> None:
    scheduler = make(cluster(gpus=[1, 1]))
    scheduler.learn(MachineLeft(M0), 0)

    with pytest.raises(InvalidInput, match="Machine m0 is not known; the cluster has 1 others"):
        scheduler.learn(MachineReturned(M0), 1)


# -- others -------------------------------------------------------------------------------


def test_what_others_occupy_is_not_given_away() -> None:
    scheduler = make(cluster(gpus=[2]))
    scheduler.learn(Occupied(M0, gpus=(TakenGpu(0, 600),)), 0)

    (start,) = scheduler.handle(Submitted(job("a", gpus=1)), 0)
    assert start == Start(A, on("m0", 1))
    scheduler.check()
    assert scheduler.view.free(0).gpu_milli == (400, 0)

    (start,) = scheduler.handle_all([Occupied(M0), Submitted(job("b", gpus=1))], 1)
    assert start == Start(B, on("m0", 0))
    scheduler.check()


def test_others_may_take_more_than_is_free_and_nobody_is_thrown_out() -> None:
    scheduler = make(cluster(machine("m0", gpus=1, cpus=4)))
    running(scheduler, *scheduler.handle(Submitted(job("a", gpus=1, gpu_milli=500, cpus=3)), 0))

    actions = scheduler.handle(Occupied(M0, cpu_milli=3_000, gpus=(TakenGpu(0, 900),)), 1)

    assert actions == ()
    assert scheduler.state(A) is JobState.RUNNING
    scheduler.check()
    free = scheduler.view.free(0)
    assert (free.cpu_milli, free.gpu_milli) == (0, (0,))
    # Once the job has ended, 1 CPU and a tenth of the GPU are left beside others.
    scheduler.learn(Finished(A), 2)
    scheduler.check()
    free = scheduler.view.free(0)
    assert (free.cpu_milli, free.gpu_milli) == (1_000, (100,))


def test_who_needs_no_cpu_is_placed_where_others_took_too_much_of_it() -> None:
    scheduler = make(cluster(machine("m0", gpus=2, cpus=4)))
    running(scheduler, *scheduler.handle(Submitted(job("a", gpus=1, cpus=3)), 0))
    scheduler.learn(Occupied(M0, cpu_milli=4_000), 1)

    (start,) = scheduler.handle(Submitted(job("b", gpus=1)), 1)

    assert start == Start(B, on("m0", 1))
    scheduler.check()


def test_a_job_waits_and_is_not_refused_while_others_have_what_it_needs() -> None:
    scheduler = make(cluster(gpus=[1]))
    scheduler.learn(Occupied(M0, gpus=(TakenGpu(0, 1000),)), 0)

    assert scheduler.handle(Submitted(job("a", gpus=1)), 0) == ()
    assert scheduler.state(A) is JobState.QUEUED

    (start,) = scheduler.handle(Occupied(M0), 5)
    assert isinstance(start, Start)


# -- bad input ----------------------------------------------------------------------------

UNKNOWN: dict[str, Event] = {
    "change": MachineChanged(machine("ghost", gpus=1)),
    "drain": MachineDrained(MachineId("ghost")),
    "undrain": MachineUndrained(MachineId("ghost")),
    "lose": MachineLost(MachineId("ghost")),
    "return": MachineReturned(MachineId("ghost")),
    "leave": MachineLeft(MachineId("ghost")),
    "occupy": Occupied(MachineId("ghost"), cpu_milli=1),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_an_event_about_a_machine_that_is_not_there_changes_nothing(what: str) -> None:
    scheduler = make(cluster(gpus=[1]))

    with pytest.raises(InvalidInput, match="Machine ghost is not known"):
        scheduler.learn(UNKNOWN[what], 0)

    scheduler.check()
    assert [one.id for one in scheduler.cluster] == ["m0"]
    assert isinstance(scheduler.handle(Submitted(job("a", gpus=1)), 0)[0], Start)


@pytest.mark.parametrize(
    "sight",
    [
        Occupied(M0, gpus=(TakenGpu(1, 5),)),
        Occupied(M0, cpu_milli=-1),
        Occupied(M0, gpus=(TakenGpu(0, -5),)),
    ],
    ids=str,
)
def test_a_sight_that_cannot_be_is_refused_and_the_former_one_stays(sight: Occupied) -> None:
    scheduler = make(cluster(gpus=[1]))
    scheduler.learn(Occupied(M0, gpus=(TakenGpu(0, 300),)), 0)

    with pytest.raises(InvalidInput, match="of machine m0 is"):
        scheduler.learn(sight, 1)

    assert scheduler.view.free(0).gpu_milli == (700,)
    scheduler.check()


def test_a_promise_is_made_anew_when_machines_change() -> None:
    scheduler = make(cluster(gpus=[1, 1]), queue=Discipline.EASY, placer=place.pack())
    submit(
        scheduler, job("a", gpus=1, estimate=100), job("b", gpus=1, instances=2, estimate=10)
    )
    running(scheduler, *scheduler.decide(0))

    for event in (
        MachineJoined(machine("m2", gpus=4)),
        MachineChanged(replace(machine("m2", gpus=1), cpu_milli=1)),
        MachineLeft(MachineId("m2")),
    ):
        running(scheduler, *scheduler.handle(event, 1), now_s=1)
        scheduler.check()
