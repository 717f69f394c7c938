"""Devices of this machine: emulated, or as NVIDIA's library would tell; there is none here."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from interlane.device.inventory import EMULATED, devices_of
from interlane.device.lane_request import REQUEST_VARIABLE
from interlane.device.lanes import Lanes, LaneSettings
from interlane.device.specs import CUDA_CONTEXT_BYTES
from interlane.engines.local.launch import JobBounds, Secrets, order_of
from interlane.live.files.job import read_spec
from interlane.mig.layouts import SlicePlace
from interlane.model import InvalidInput, Placement, Spot
from interlane.testing.live import launch_of
from interlane.testing.nvidia import NvidiaHost

GIB = 1 << 30
THREES = [SlicePlace(0, "3g.40gb"), SlicePlace(4, "3g.40gb")]


@pytest.fixture
def mixed(nvidia: NvidiaHost) -> NvidiaHost:
    """A whole A100, one that is cut in two, and a T4."""
    nvidia.add("A100-80GB", memory_mib=80 << 10, uuid="GPU-a")
    nvidia.add("A100-80GB", sliced=True, layout=THREES)
    nvidia.add(None, uuid="GPU-t")
    return nvidia


def test_whole_gpus_and_slices_are_told_apart_by_type(mixed: NvidiaHost) -> None:
    found = devices_of("nvml")

    assert [(one.type, one.memory_mib) for one in found.machine.devices] == [
        ("A100", 80 << 10),
        ("A100-3g.40gb", 40_192),
        ("A100-3g.40gb", 40_192),
        ("T4", 15 << 10),
    ]
    whole, *slices, last = found.uuids
    assert (whole, last) == ("GPU-a", "GPU-t")
    assert [one[:4] for one in slices] == ["MIG-", "MIG-"]
    assert not found.emulated
    assert {one.name for one in found.shared} == {"cuda:0"}


def test_one_kind_of_gpu_is_one_machine(nvidia: NvidiaHost) -> None:
    for _ in range(2):
        nvidia.add(None, name="NVIDIA GeForce RTX 3090", memory_mib=24 << 10)

    machine = devices_of("auto").machine

    assert (machine.gpu_type, machine.gpus, machine.devices) == ("RTX-3090", 2, ())


def test_jobs_see_their_slice_by_its_identifier_and_share_it(
    mixed: NvidiaHost, tmp_path: Path
) -> None:
    found = devices_of("nvml")
    gpu = {"count": 1, "memory": "20GiB"}
    job = read_spec({"name": "a", "run": "true", "resources": {"gpu": gpu}})
    launch = launch_of(job, Placement((Spot(found.machine.id, (2,)),)), found.machine)
    lanes = Lanes(LaneSettings(found.shared, tmp_path))

    order = order_of(launch, Secrets(tmp_path), found, lanes, JobBounds())

    (process,) = order.processes
    action = json.loads(process.env[REQUEST_VARIABLE])
    assert process.env["CUDA_VISIBLE_DEVICES"] == found.uuids[2]
    assert (process.env["INTERLANE_DEVICES"], action["device"]) == ("2", 2)
    assert action["persistent_bytes"] + CUDA_CONTEXT_BYTES == 20 * GIB


def no_driver(host: NvidiaHost) -> None:
    host.add()
    host.fail("nvmlInit", pynvml.NVML_ERROR_DRIVER_NOT_LOADED, times=-1)


def nothing(host: NvidiaHost) -> None:
    pass


def no_slices(host: NvidiaHost) -> None:
    host.add("A100-80GB", sliced=True)


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (no_driver, "the driver does not answer (Driver Not Loaded)"),
        (nothing, "there is no GPU"),
        (no_slices, "no slice of one that is cut up"),
    ],
)
def test_without_gpus_one_is_told_why_or_gets_emulated_ones(
    nvidia: NvidiaHost, there: Callable[[NvidiaHost], None], says: str
) -> None:
    there(nvidia)
    with pytest.raises(InvalidInput) as refused:
        devices_of("nvml")

    assert says in str(refused.value)
    found = devices_of("auto")
    assert (found.emulated, found.stands_in) == (True, True)
    assert found.machine.gpu_type == EMULATED
    assert found.visible((0, 1)) == ""


def test_a_gpu_that_is_lost_keeps_its_number_and_offers_nothing_until_it_is_back(
    nvidia: NvidiaHost,
) -> None:
    for at in range(2):
        nvidia.add(None, uuid=f"GPU-{at}")
    before = devices_of("nvml")
    assert before.again() is before

    nvidia.lose(0)
    lost = before.again()
    nvidia.add(None, name="NVIDIA L4", memory_mib=24 << 10, uuid="GPU-new")
    other = lost.again()
    nvidia.lose(0, lost=False)
    back = other.again()

    assert [one.compute_milli for one in lost.machine.devices] == [0, 1000]
    assert [(one.type, one.compute_milli) for one in other.machine.devices] == [
        ("T4", 0),
        ("T4", 1000),
        ("L4", 1000),
    ]
    assert other.uuids == ("GPU-0", "GPU-1", "GPU-new")
    assert [one.compute_milli for one in back.machine.devices] == [1000, 1000, 1000]


def test_an_emulated_device_is_lost_with_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    before = devices_of("cpu:2")

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1})
    lost = before.again()

    assert [one.compute_milli for one in lost.machine.devices] == [0, 1000]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert lost.again().machine == before.machine
