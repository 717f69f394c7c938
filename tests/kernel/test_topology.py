"""Gangs in one domain, in few domains and over many."""

import pytest

from interlane.kernel.scheduler import Scheduler
from interlane.model import (
    Closeness,
    Finished,
    Grow,
    InvalidInput,
    Job,
    JobId,
    Machine,
    MachineChanged,
    MachineDrained,
    MachineId,
    MachineJoined,
    Placement,
    Preempt,
    Preempted,
    Refuse,
    Start,
    Started,
    Submitted,
    Tier,
)
from interlane.policy.base import Placer
from interlane.policy.catalogue import make_order, make_placer
from interlane.policy.policy import Discipline
from interlane.testing.build import cluster, job, machine, make, task
from interlane.testing.faulty import PlainFirstFit

A, B = JobId("a"), JobId("b")
LEVELS = ("zone", "rack")
SAME_RACK = Closeness(same="rack")
PLACER_NAMES = ["first-fit", "pack", "balance", "best-fit", "random", "reserve-and-pack"]
PLACERS: dict[str, Placer] = {
    **{name: make_placer(name) for name in PLACER_NAMES},
    "plain": PlainFirstFit(),
}


def at(name: str, rack: str | None, gpus: int = 1) -> Machine:
    """Return a machine in a rack: r00 is the first rack of zone z0."""
    labels = {} if rack is None else {"rack": rack, "zone": f"z{rack[1]}"}
    return machine(name, gpus=gpus, labels=labels)


def racks(*gpus: tuple[str | None, int], placer: Placer | None = None) -> Scheduler:
    """Return a scheduler for machines m0, m1... in these racks with so many GPUs."""
    made = [at(f"m{number}", rack, count) for number, (rack, count) in enumerate(gpus)]
    return make(cluster(*made, levels=LEVELS), placer=placer)


def begin(scheduler: Scheduler, *jobs: Job, now_s: float = 0.0) -> dict[str, Placement]:
    """Submit jobs, confirm those that start and return where."""
    started = {}
    for action in scheduler.handle_all(map(Submitted, jobs), now_s):
        if isinstance(action, Start):
            scheduler.learn(Started(action.job_id, action.placement), now_s)
            started[str(action.job_id)] = action.placement
    return started


def gang(
    name: str,
    instances: int,
    near: Closeness,
    *,
    at_least: int | None = None,
    estimate: float | None = None,
) -> Job:
    return job(
        name, gpus=1, instances=instances, near=near, at_least=at_least, estimate=estimate
    )


# -- same ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLACERS)
def test_a_gang_in_one_rack_goes_where_one_rack_has_the_room(name: str) -> None:
    scheduler = racks(("r00", 1), ("r01", 1), ("r01", 1), placer=PLACERS[name])

    placed = begin(scheduler, gang("a", 2, SAME_RACK))

    assert set(placed["a"].machines) == {"m1", "m2"}
    scheduler.check()


def test_of_several_racks_the_one_that_is_left_fullest_is_taken() -> None:
    scheduler = racks(("r00", 4), ("r01", 3), ("r02", 3))

    assert begin(scheduler, gang("a", 2, SAME_RACK))["a"].machines == ("m1",)


def test_all_tasks_of_a_job_are_in_one_rack() -> None:
    scheduler = racks(("r00", 2), ("r01", 1), ("r01", 2))
    roles = task(gpus=2, role="worker"), task(gpus=1, role="chief")

    placed = begin(scheduler, job("a", *roles, near=SAME_RACK))

    assert set(placed["a"].machines) == {"m1", "m2"}


def test_one_machine_is_a_domain_that_every_cluster_has() -> None:
    scheduler = make(cluster(gpus=[1, 1, 2]))

    placed = begin(scheduler, gang("a", 2, Closeness(same="machine")))

    assert placed["a"].machines == ("m2",)


def test_a_machine_without_the_label_is_in_no_rack() -> None:
    scheduler = racks((None, 8), ("r00", 1))

    (refused,) = scheduler.handle(Submitted(gang("a", 2, SAME_RACK)), 0)

    assert isinstance(refused, Refuse)
    assert refused.refusal.tier is Tier.NEVER_FITS
    assert (
        refused.refusal.reason == "Task worker needs room for 2 x (1 GPU) in one rack; "
        "rack r00, the best, has room for 1 even when it is empty."
    )


def test_a_gang_that_fits_in_the_cluster_but_in_no_rack_waits_and_says_so() -> None:
    scheduler = racks(("r00", 2), ("r01", 2))
    begin(scheduler, job("x", gpus=1), job("y", gpus=1, selects=[("rack", "r01")]))

    assert begin(scheduler, gang("a", 2, SAME_RACK)) == {}

    why = scheduler.explain(A, 0)
    assert why is not None
    assert why.tier is Tier.FRAGMENTATION
    assert why.reason == (
        "Task worker needs room for 2 x (1 GPU) in one rack; rack r00, the best, has room for "
        "1 now; the cluster has room, but scattered."
    )
    (start,) = scheduler.handle(Finished(JobId("y")), 1)
    assert isinstance(start, Start)
    assert start.placement.machines == ("m1",)


@pytest.mark.parametrize("action", ["same", "pack", "spread"])
def test_a_level_that_the_cluster_does_not_have_is_refused_with_those_it_has(
    action: str,
) -> None:
    scheduler = racks(("r00", 2))

    (refused,) = scheduler.handle(Submitted(gang("a", 1, Closeness(**{action: "island"}))), 0)

    assert isinstance(refused, Refuse)
    assert refused.refusal.tier is Tier.INVALID
    assert refused.refusal.reason.endswith("the topology has no level island.")
    assert refused.refusal.remedy == "Use one of zone, rack, machine."


def test_a_rack_that_is_drained_is_no_place_for_a_gang() -> None:
    scheduler = racks(("r00", 2), ("r01", 2))
    scheduler.learn(MachineDrained(MachineId("m0")), 0)

    assert begin(scheduler, gang("a", 2, SAME_RACK))["a"].machines == ("m1",)


def test_an_elastic_gang_grows_in_its_own_rack_only() -> None:
    scheduler = racks(("r00", 2), ("r01", 3))
    begin(scheduler, job("x", gpus=1, selects=[("rack", "r00")]), job("y", gpus=3))
    elastic = gang("a", 3, SAME_RACK, at_least=1)
    assert begin(scheduler, elastic)["a"].machines == ("m0",)

    assert scheduler.handle(Finished(JobId("y")), 1) == ()  # three GPUs of the other rack
    (grow,) = scheduler.handle(Finished(JobId("x")), 2)

    assert isinstance(grow, Grow)
    assert grow.more.machines == ("m0",)
    scheduler.check()


def test_a_rack_that_joins_later_takes_the_gang_that_waits_for_it() -> None:
    scheduler = racks(("r00", 1), ("r01", 1))
    scheduler.learn(MachineJoined(at("new", "r01")), 0)
    begin(scheduler, job("x", gpus=1, selects=[("rack", "r01")]))
    assert begin(scheduler, gang("a", 2, SAME_RACK)) == {}

    (start,) = scheduler.handle(MachineJoined(at("newer", "r01")), 1)

    assert isinstance(start, Start)
    assert set(start.placement.machines) <= {"m1", "new", "newer"}


# -- pack and spread ----------------------------------------------------------------------


def test_packing_uses_one_rack_if_one_has_the_room_and_two_if_not() -> None:
    scheduler = racks(("r00", 1), ("r01", 2), ("r02", 3))

    placed = begin(scheduler, gang("a", 2, Closeness(pack="rack")))
    assert placed["a"].machines == ("m1",)

    placed = begin(scheduler, gang("b", 4, Closeness(pack="rack")))
    assert set(placed["b"].machines) == {"m0", "m2"}


def test_packing_is_a_action_and_machines_outside_of_all_racks_will_do() -> None:
    scheduler = racks(("r00", 1), (None, 1))

    placed = begin(scheduler, gang("a", 2, Closeness(pack="rack")))

    assert set(placed["a"].machines) == {"m0", "m1"}


@pytest.mark.parametrize("name", PLACERS)
def test_spreading_uses_as_many_racks_as_there_are(name: str) -> None:
    scheduler = racks(("r00", 4), ("r01", 4), ("r01", 4), ("r02", 4), placer=PLACERS[name])

    (placed,) = begin(scheduler, gang("a", 4, Closeness(spread="rack"))).values()

    used = {scheduler.cluster.machines[int(one[1:])].label("rack") for one in placed.machines}
    assert used == {"r00", "r01", "r02"}
    assert placed.instances == 4
    scheduler.check()


def test_spreading_two_tasks_keeps_their_roles() -> None:
    scheduler = racks(("r00", 2), ("r01", 2))
    roles = task(gpus=1, instances=2, role="worker"), task(cpus=1, instances=2, role="store")

    (placed,) = begin(scheduler, job("a", *roles, near=Closeness(spread="rack"))).values()

    assert sorted((spot.task, spot.machine, len(spot.gpus)) for spot in placed.spots) == [
        (0, "m0", 1),
        (0, "m1", 1),
        (1, "m0", 0),
        (1, "m1", 0),
    ]


def test_a_gang_may_be_spread_over_the_racks_of_one_zone() -> None:
    scheduler = racks(("r00", 2), ("r10", 2), ("r11", 2))

    (placed,) = begin(scheduler, gang("a", 4, Closeness(same="zone", spread="rack"))).values()

    assert set(placed.machines) == {"m1", "m2"}


# -- reservations and preemption ----------------------------------------------------------


def test_a_reservation_is_made_in_the_rack_that_is_ready_first() -> None:
    scheduler = make(
        cluster(at("m0", "r00", 2), at("m1", "r01", 2), levels=LEVELS),
        queue=Discipline.EASY,
        placer=make_placer("pack"),
    )
    begin(scheduler, job("x", gpus=2, estimate=100), job("y", gpus=1, estimate=10))

    # The gang waits for y, which ends at 10 on m1: whoever passes must not use m1 for longer.
    assert begin(scheduler, gang("b", 2, SAME_RACK, estimate=50)) == {}
    assert begin(scheduler, job("long", gpus=1, estimate=40), now_s=1) == {}
    behind = scheduler.explain(JobId("long"), 1)
    assert behind is not None
    assert (behind.tier, behind.blocked_by) == (Tier.ORDER, B)
    assert "reservation in 9 s" in behind.reason
    assert set(begin(scheduler, job("short", gpus=1, estimate=5), now_s=2)) == {"short"}


def test_preemption_makes_room_in_one_rack_and_stops_nobody_elsewhere() -> None:
    made = [at(f"m{number}", f"r0{number % 2}") for number in range(4)]
    scheduler = make(cluster(*made, levels=LEVELS), order=make_order("srtf"))
    begin(scheduler, *(job(f"x{number}", gpus=1, estimate=1_000) for number in range(4)))

    actions = scheduler.handle(Submitted(gang("a", 2, SAME_RACK, estimate=1)), 1)

    stopped = [action.job_id for action in actions if isinstance(action, Preempt)]
    assert stopped in (["x0", "x2"], ["x1", "x3"])
    for victim in stopped:
        scheduler.learn(Preempted(victim), 2)
    starts = [action for action in scheduler.decide(2) if isinstance(action, Start)]
    assert starts[0].job_id == A
    scheduler.check()


# -- labels that contradict each other ----------------------------------------------------


@pytest.mark.parametrize("kind", [MachineJoined, MachineChanged])
def test_a_rack_in_two_zones_is_refused_and_nothing_changes(
    kind: type[MachineJoined] | type[MachineChanged],
) -> None:
    scheduler = racks(("r00", 1), ("r00", 1))
    liar = machine("m1", gpus=9, labels={"rack": "r00", "zone": "elsewhere"})

    with pytest.raises(InvalidInput, match="rack 'r00' is in zone 'z0' by machine m0"):
        scheduler.learn(kind(liar), 0)

    assert scheduler.cluster.gpus == 2
    scheduler.check()
