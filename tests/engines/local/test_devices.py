"""Devices of this machine: emulated, or as NVIDIA's library would tell; there is none here."""

import json
import os
from pathlib import Path

import pytest

from interlane.device.inject import REQUEST_VARIABLE
from interlane.device.inventory import EMULATED, devices_of
from interlane.device.lanes import Lanes, LaneSettings
from interlane.device.specs import CUDA_CONTEXT_BYTES
from interlane.engines.local.launch import JobBounds, Secrets, order_of
from interlane.live.files.job import read_spec
from interlane.model import InvalidInput, Placement, Spot
from interlane.testing.live import launch_of
from interlane.testing.nvml import Card, CardSlice, FakeNvml

GIB = 1 << 30
MIXED = FakeNvml(
    [
        Card("NVIDIA A100-SXM4-80GB", 80 * GIB, 0, False, "GPU-a"),
        Card(
            "NVIDIA A100-SXM4-80GB",
            80 * GIB,
            0,
            True,
            "GPU-b",
            (
                CardSlice("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "MIG-b0", 40 * GIB),
                None,
                CardSlice("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "MIG-b1", 40 * GIB),
            ),
        ),
        Card("Tesla T4", 15 * GIB, 0, None, "GPU-t"),
    ]
)


class NoDriver(FakeNvml):
    def nvmlInit(self) -> None:
        raise self.NVMLError("Driver Not Loaded")


def test_whole_gpus_and_slices_are_told_apart_by_type() -> None:
    found = devices_of("nvml", MIXED)

    assert [(one.type, one.memory_mib >> 10) for one in found.machine.devices] == [
        ("A100", 80),
        ("A100-3g.40gb", 40),
        ("A100-3g.40gb", 40),
        ("T4", 15),
    ]
    assert found.uuids == ("GPU-a", "MIG-b0", "MIG-b1", "GPU-t")
    assert not found.emulated
    assert {one.name for one in found.shared} == {"cuda:0"}


def test_one_kind_of_gpu_is_one_machine() -> None:
    cards = [Card("NVIDIA GeForce RTX 3090", 24 * GIB, uuid=f"GPU-{at}") for at in range(2)]

    machine = devices_of("auto", FakeNvml(cards)).machine

    assert (machine.gpu_type, machine.gpus, machine.devices) == ("RTX-3090", 2, ())


def test_jobs_see_their_slice_by_its_identifier_and_share_it(tmp_path: Path) -> None:
    found = devices_of("nvml", MIXED)
    gpu = {"count": 1, "memory": "20GiB"}
    job = read_spec({"name": "a", "run": "true", "resources": {"gpu": gpu}})
    launch = launch_of(job, Placement((Spot(found.machine.id, (2,)),)), found.machine)
    lanes = Lanes(LaneSettings(found.shared, tmp_path))

    order = order_of(launch, Secrets(tmp_path), found, lanes, JobBounds())

    (process,) = order.processes
    action = json.loads(process.env[REQUEST_VARIABLE])
    assert process.env["CUDA_VISIBLE_DEVICES"] == "MIG-b1"
    assert (process.env["INTERLANE_DEVICES"], action["device"]) == ("2", 2)
    assert action["persistent_bytes"] + CUDA_CONTEXT_BYTES == 20 * GIB


@pytest.mark.parametrize(
    ("nvml", "says"),
    [
        (NoDriver(), "the driver does not answer (Driver Not Loaded)"),
        (FakeNvml(), "there is no GPU"),
        (FakeNvml([Card("A100", 80 * GIB, 0, True)]), "no slice of one that is cut up"),
    ],
)
def test_without_gpus_one_is_told_why_or_gets_emulated_ones(nvml: FakeNvml, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        devices_of("nvml", nvml)

    assert says in str(refused.value)
    found = devices_of("auto", nvml)
    assert (found.emulated, found.stands_in) == (True, True)
    assert found.machine.gpu_type == EMULATED
    assert found.visible((0, 1)) == ""


def test_a_gpu_that_is_lost_keeps_its_number_and_offers_nothing_until_it_is_back() -> None:
    cards = [Card("Tesla T4", 15 * GIB, 0, None, f"GPU-{at}") for at in range(2)]
    nvml = FakeNvml(cards)
    before = devices_of("nvml", nvml)
    assert before.again() is before

    nvml.cards = cards[1:]
    lost = before.again()
    nvml.cards = [Card("NVIDIA L4", 24 * GIB, 0, None, "GPU-new"), *cards[1:]]
    other = lost.again()
    nvml.cards = cards
    back = lost.again()

    assert [one.compute_milli for one in lost.machine.devices] == [0, 1000]
    assert [(one.type, one.compute_milli) for one in other.machine.devices] == [
        ("T4", 0),
        ("T4", 1000),
        ("L4", 1000),
    ]
    assert other.uuids == ("GPU-0", "GPU-1", "GPU-new")
    assert back.machine == before.machine


def test_an_emulated_device_is_lost_with_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    before = devices_of("cpu:2")

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1})
    lost = before.again()

    assert [one.compute_milli for one in lost.machine.devices] == [0, 1000]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert lost.again().machine == before.machine
