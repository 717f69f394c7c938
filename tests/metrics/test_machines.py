"""Figures count the machines that were there."""

from dataclasses import replace

import numpy as np
import pytest

from interlane.metrics.attempts import attempts
from interlane.metrics.kinds import Kinds
from interlane.metrics.level import allocation_spread
from interlane.metrics.log import EventLog, LogEvent
from interlane.metrics.machines import gpu_milli_s, periods
from interlane.metrics.replay import fragmentation_ratio
from interlane.metrics.summary import RunSpan, gpu_allocated_ratio
from interlane.model import (
    Cluster,
    Device,
    Job,
    Machine,
    MachineChanged,
    MachineDrained,
    MachineEvent,
    MachineId,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineReturned,
    MachineUndrained,
    Occupied,
    Placement,
    Spot,
    TakenGpu,
    with_devices,
)
from interlane.testing.build import cluster, demand, job, machine

A, B = MachineId("a"), MachineId("b")


def log_of(
    *happened: tuple[float, MachineEvent], on: Cluster | None = None, jobs: tuple[Job, ...] = ()
) -> EventLog:
    log = EventLog(on or cluster(machine("a", gpus=2), machine("b", gpus=4)), jobs)
    for at_s, event in happened:
        log.add_machine(at_s, event)
    return log


def runs(log: EventLog, number: int, spot: Spot, begin_s: float, end_s: float) -> None:
    log.add_start(begin_s, number, Placement((spot,)))
    log.add(end_s, LogEvent.FINISHED, number)


def gpu_s(log: EventLog, end_s: float = 100.0) -> float:
    return gpu_milli_s(log, 0.0, end_s) / 1000


def fragments(log: EventLog, kinds: Kinds, end_s: float = 100.0) -> float:
    return fragmentation_ratio(log, attempts(log), kinds, begin_s=0.0, end_s=end_s)


# 2 GPUs on a, 4 on b, for 100 s.
THERE = {
    "nothing happens": ((), 600.0),
    "a machine is lost for good": (((50.0, MachineLost(B)),), 400.0),
    "a machine returns": (((50.0, MachineLost(B)), (75.0, MachineReturned(B))), 500.0),
    "a machine leaves": (((25.0, MachineLeft(B)),), 300.0),
    "a machine joins": (((90.0, MachineJoined(machine("c", gpus=8))),), 680.0),
    "one that left joins again": (
        ((0.0, MachineLeft(B)), (50.0, MachineJoined(machine("b", gpus=1)))),
        250.0,
    ),
    "a machine changes": (((50.0, MachineChanged(machine("b", gpus=2))),), 500.0),
    "a drained machine is still there": (((50.0, MachineDrained(B)),), 600.0),
    "others take half a GPU": (((0.0, Occupied(B, gpus=(TakenGpu(1, 500),))),), 550.0),
    "others give it back": (
        ((0.0, Occupied(B, gpus=(TakenGpu(1, 500),))), (50.0, Occupied(B))),
        575.0,
    ),
    "a machine shrinks while others have a part of it": (
        (
            (0.0, Occupied(B, gpus=(TakenGpu(0, 500), TakenGpu(3, 500)))),
            (50.0, MachineChanged(machine("b", gpus=2))),
        ),
        200.0 + 150.0 + 75.0,
    ),
    "a lost machine changes": (
        ((50.0, MachineLost(B)), (60.0, MachineChanged(machine("b", gpus=1)))),
        400.0,
    ),
}


@pytest.mark.parametrize("case", THERE)
def test_gpu_time_is_that_of_machines_while_they_are_there(case: str) -> None:
    events, expected_s = THERE[case]

    assert gpu_s(log_of(*events)) == pytest.approx(expected_s)


def test_a_lost_device_is_not_there() -> None:
    whole = Device("T4", 16_384)
    broken = with_devices(B, [whole, replace(whole, compute_milli=0)])

    assert gpu_s(log_of((50.0, MachineChanged(broken)))) == pytest.approx(200 + 200 + 50)


def test_allocation_is_a_share_of_what_was_there() -> None:
    log = log_of((50.0, MachineLeft(B)), jobs=(job("x", gpus=2),))
    runs(log, 0, Spot(A, (0, 1)), 0.0, 100.0)

    # 2 GPUs for 100 s, of 2 for 100 s and 4 for 50 s.
    ratio = gpu_allocated_ratio(log, attempts(log), RunSpan(0.0, 100.0))
    assert ratio == pytest.approx(200 / 400)


def test_without_gpus_there_is_no_allocation() -> None:
    log = log_of((0.0, MachineLeft(B)), on=cluster(machine("b", gpus=4)))

    assert gpu_allocated_ratio(log, attempts(log), RunSpan(0.0, 100.0)) is None


def test_periods_follow_each_machine_in_order() -> None:
    log = log_of(
        (10.0, MachineDrained(A)),
        (20.0, MachineJoined(machine("c", gpus=1))),
        (30.0, MachineUndrained(A)),
        (40.0, MachineLeft(B)),
    )

    told = [(one.machine.id, one.begin_s, one.end_s, one.is_drained) for one in periods(log)]
    assert told == [
        ("a", -np.inf, 10.0, False),
        ("a", 10.0, 30.0, True),
        ("a", 30.0, np.inf, False),
        ("b", -np.inf, 40.0, False),
        ("c", 20.0, np.inf, False),
    ]


# -- fragmentation ------------------------------------------------------------------------

WIDE: Kinds = ((demand(gpus=4), 1.0),)
NARROW: Kinds = ((demand(gpus=1), 1.0),)


def test_idle_gpus_of_a_machine_that_is_away_are_no_fragments() -> None:
    # a's two GPUs are too few for anybody: 2 of 6 are fragments, and 2 of 2 without b.
    assert fragments(log_of(), WIDE) == pytest.approx(2 / 6)
    assert fragments(log_of((50.0, MachineLost(B))), WIDE) == pytest.approx((2 / 6 + 1) / 2)


@pytest.mark.parametrize("event", [MachineDrained(A), MachineLeft(A), MachineLost(A)])
def test_idle_gpus_that_nobody_may_have_are_no_fragments(event: MachineEvent) -> None:
    assert fragments(log_of((0.0, event)), WIDE) == 0.0


def test_a_job_holds_its_place_on_a_machine_that_changes() -> None:
    smaller = machine("b", gpus=2)
    jobs = (job("x", gpus=1, gpu_milli=600),)
    log = log_of((50.0, MachineChanged(smaller)), jobs=jobs)
    runs(log, 0, Spot(B, (0,)), 0.0, 100.0)

    # 400 thousandths are left beside it all the time, of 5.4 GPUs and then of 3.4.
    expected = (0.4 / 5.4 + 0.4 / 3.4) / 2
    assert fragments(log, NARROW) == pytest.approx(expected)


def test_what_others_have_is_not_idle() -> None:
    log = log_of((0.0, Occupied(B, gpus=(TakenGpu(0, 600), TakenGpu(1, 1000)))))

    # 0.4 of one GPU, beside two whole ones of b and two of a.
    assert fragments(log, NARROW) == pytest.approx(0.4 / 4.4)


def test_others_may_take_more_than_is_free() -> None:
    log = log_of((0.0, Occupied(B, gpus=(TakenGpu(0, 1000),))), jobs=(job("x", gpus=1),))
    runs(log, 0, Spot(B, (0,)), 0.0, 100.0)

    assert fragments(log, NARROW) == 0.0


def test_gpus_of_other_types_in_the_same_machine_cannot_be_used() -> None:
    mixed = with_devices(A, [Device("T4"), Device("T4"), Device("A100")], cpu_milli=96_000)
    log = log_of(on=Cluster("one", (mixed,)))

    assert fragments(log, ((demand(gpus=1, types=["T4"]), 1.0),)) == pytest.approx(1 / 3)
    assert fragments(log, ((demand(gpus=3, types=["T4"]), 1.0),)) == 1.0
    assert fragments(log, ((demand(gpus=3), 1.0),)) == 0.0


def test_gpus_behind_labels_and_taints_cannot_be_used() -> None:
    tainted = replace(machine("a", gpus=1), taints=(("team", "x"),))
    labelled = replace(machine("b", gpus=1), labels=(("zone", "z"),))
    log = log_of(on=cluster(tainted, labelled))
    anybody = demand(gpus=1)

    assert fragments(log, ((anybody, 1.0),)) == 0.5
    assert (
        fragments(log, ((replace(anybody, tolerations=frozenset({("team", "x")})), 1.0),)) == 0
    )
    assert (
        fragments(log, ((replace(anybody, selectors=frozenset({("zone", "z")})), 1.0),)) == 0.5
    )
    assert fragments(log, ((replace(anybody, selectors=frozenset({("zone", "y")})), 1.0),)) == 1


# -- level --------------------------------------------------------------------------------


def equal(name: str) -> Machine:
    return machine(name, gpus=2, cpus=0, memory_mib=0)


def test_machines_that_are_away_are_not_compared() -> None:
    log = log_of(
        (50.0, MachineLeft(B)), on=cluster(equal("a"), equal("b")), jobs=(job("x", gpus=2),)
    )
    runs(log, 0, Spot(A, (0, 1)), 0.0, 100.0)

    # One full and one empty machine, and then a single one.
    assert allocation_spread(log, {"T4"}, begin_s=0.0, end_s=100.0) == pytest.approx(0.5 / 2)


def test_nobody_is_compared_with_nobody() -> None:
    log = log_of((50.0, MachineLeft(A)), on=cluster(equal("a")))

    assert allocation_spread(log, {"T4"}, begin_s=0.0, end_s=100.0) == 0.0
