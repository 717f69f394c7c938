"""The GPUs of one machine may differ in type, memory and compute."""

import pytest

from interlane.model import (
    Demand,
    Device,
    JobId,
    Machine,
    MachineChanged,
    Placement,
    Refuse,
    Requeue,
    Spot,
    Start,
    Started,
    Submitted,
)
from interlane.model.lifecycle import JobState
from interlane.policy.base import Placer, TypicalDemand
from interlane.policy.catalogue import PLACERS, make_placer
from interlane.testing.build import cluster, job, machine, make

A = JobId("a")
MIXED = machine(
    "m0", devices=[Device("T4", 16_000), Device("A100", 80_000), Device("T4", 16_000)]
)
TYPICAL = (TypicalDemand(Demand(1, 500, cpu_milli=1_000), 1.0),)


def on(*gpus: int) -> Placement:
    return Placement((Spot(MIXED.id, gpus),))


@pytest.mark.parametrize("name", PLACERS)
def test_every_placer_gives_gpus_of_the_named_type_only(name: str) -> None:
    placer: Placer = make_placer(name, TYPICAL)
    wants = ["V100"] if name.startswith("pai") else ["A100"]  # the published rule binds V100s
    devices = [Device("T4", 16_000), Device(wants[0], 16_000), Device("T4", 16_000)]
    scheduler = make(cluster(machine("m0", devices=devices)), placer=placer)

    (start,) = scheduler.handle(Submitted(job("a", gpus=1, gpu_milli=500, types=wants)), 0)

    assert start == Start(A, on(1))
    (refused,) = scheduler.handle(Submitted(job("b", gpus=2, types=wants)), 0)
    assert isinstance(refused, Refuse)


def test_several_gpus_of_one_type_are_found_among_others() -> None:
    scheduler = make(cluster(MIXED))

    (start,) = scheduler.handle(Submitted(job("a", gpus=2, types=["T4"])), 0)

    assert start == Start(A, on(0, 2))


def test_memory_is_that_of_each_device() -> None:
    scheduler = make(cluster(MIXED))

    (start,) = scheduler.handle(Submitted(job("a", gpus=1, gpu_memory_mib=40_000)), 0)

    assert start == Start(A, on(1))


def test_a_share_never_exceeds_what_a_slice_has() -> None:
    slices = machine("m0", devices=[Device("A100", 10_000, 428), Device("A100", 20_000, 571)])
    scheduler = make(cluster(slices))

    (start,) = scheduler.handle(Submitted(job("a", gpus=1, gpu_milli=500)), 0)
    assert start == Start(A, on(1))

    (refused,) = scheduler.handle(Submitted(job("b", gpus=1, gpu_milli=600)), 0)
    assert isinstance(refused, Refuse)
    assert "no machine is large enough" in refused.refusal.reason


def with_a_lost_device(number: int) -> Machine:
    devices = [Device("T4", 16_000, 0 if at == number else 1000) for at in range(2)]
    return machine("m0", devices=devices)


def test_a_device_that_is_lost_puts_its_jobs_back_and_takes_nothing_until_it_returns() -> None:
    whole = machine("m0", devices=[Device("T4", 16_000)] * 2)
    scheduler = make(cluster(whole))
    for name in ("a", "b"):
        for action in scheduler.handle(Submitted(job(name, gpus=1)), 0):
            assert isinstance(action, Start)
            scheduler.learn(Started(action.job_id, action.placement), 0)

    (told,) = scheduler.handle(MachineChanged(with_a_lost_device(0)), 7)

    assert isinstance(told, Requeue)
    assert (told.job_id, told.work_lost_s) == (A, 7)
    assert scheduler.state(JobId("b")) is JobState.RUNNING
    scheduler.check()
    (start,) = scheduler.handle(MachineChanged(whole), 9)
    assert start == Start(A, on(0))
    scheduler.check()


def test_work_without_gpus_stays_on_a_machine_that_lost_a_device() -> None:
    scheduler = make(cluster(machine("m0", devices=[Device("T4", 16_000)] * 2)))
    (start,) = scheduler.handle(Submitted(job("a", cpus=2)), 0)
    assert isinstance(start, Start)

    assert scheduler.handle(MachineChanged(with_a_lost_device(0)), 1) == ()
