"""Jobs on slices of emulated GPUs: their type, their part of the cores, their memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interlane.device.emulated_mig import FILE, EmulatedGpus
from interlane.device.inventory import Devices, devices_of
from interlane.device.lane_request import REQUEST_VARIABLE
from interlane.device.lanes import Lanes, LaneSettings
from interlane.device.repartition import repartition
from interlane.engines.local.attempt_group import AttemptGroup
from interlane.engines.local.engine import LocalEngine
from interlane.engines.local.groups import CoreSlice, GroupLimits, groups_here
from interlane.engines.local.launch import JobBounds, Secrets, order_of
from interlane.live.files.job import JobSpec, read_spec
from interlane.live.port import Attempt
from interlane.mig.partition import layout_of
from interlane.model import MILLI, InvalidInput, Placement, Spot
from interlane.model.lifecycle import JobState
from interlane.testing.live import driving, ended, launch_of
from interlane.testing.waiting import until

WORD = "mig:A100-40GB:2,memory=8GiB,create=0,destroy=0,mode=0"
CORES_MILLI = len(os.sched_getaffinity(0)) * MILLI


def cut(folder: Path, gpu: str, *places: str) -> None:
    repartition(EmulatedGpus(folder / FILE), gpu, layout_of(places) if places else None)


def offered(devices: Devices) -> list[tuple[str, int]]:
    """Return the types of devices that are there, each with its memory."""
    machine = devices.machine
    every = (machine.device(number) for number in range(machine.gpus))
    return [(one.type, one.memory_mib) for one in every if one.compute_milli]


def test_whole_gpus_become_slices_and_numbers_stay(tmp_path: Path) -> None:
    before = devices_of(WORD, tmp_path)
    assert before.again() is before

    cut(tmp_path, "gpu-1", "3g.20gb@0", "1g.5gb@4")
    after = before.again()
    cut(tmp_path, "gpu-1")
    back = after.again()

    assert before.emulated
    assert offered(before) == [("A100", 8192)] * 2
    assert offered(after) == [("A100", 8192), ("A100-3g.20gb", 4069), ("A100-1g.5gb", 991)]
    assert after.uuids[:2] == before.uuids
    assert after.machine.device(1).compute_milli == 0
    assert back.uuids == after.uuids
    assert offered(back) == offered(before)


def test_slices_have_their_part_of_the_cores(tmp_path: Path) -> None:
    devices_of(WORD, tmp_path)
    cut(tmp_path, "gpu-0", "4g.20gb@0", "2g.10gb@4", "1g.5gb@6")

    found = devices_of(WORD, tmp_path)

    each = CORES_MILLI / 2
    assert found.cpu_milli == (
        int(each * 0.571),
        int(each * 0.285),
        int(each * 0.142),
        int(each),
    )


@pytest.mark.parametrize(("paced", "pace"), [(False, 0), (True, 214)])
def test_a_job_is_started_within_its_slice(tmp_path: Path, *, paced: bool, pace: int) -> None:
    devices_of(WORD, tmp_path)
    cut(tmp_path, "gpu-0", "3g.20gb@4")
    found = devices_of(WORD, tmp_path)
    gpu = {"count": 1, "type": "A100-3g.20gb"}
    job = read_spec({"name": "a", "run": "true", "resources": {"gpu": gpu}})
    launch = launch_of(job, Placement((Spot(found.machine.id, (0,)),)), found.machine)
    lanes = Lanes(LaneSettings(found.shared, tmp_path / "lanes"))

    order = order_of(launch, Secrets(tmp_path), found, lanes, JobBounds(), paced=paced)

    (process,) = order.processes
    request = json.loads(process.env[REQUEST_VARIABLE])
    assert process.env["CUDA_VISIBLE_DEVICES"] == found.uuids[0]
    assert order.limits.slice == CoreSlice(found.uuids[0], found.cpu_milli[0])
    assert found.shared[0].capacity_bytes == 4069 << 20
    assert request["pace"] == pace


def test_only_one_machine_emulates_gpus_that_can_be_cut() -> None:
    with pytest.raises(InvalidInput, match="on one machine only"):
        devices_of(WORD)


def asking_for(kind: str, command: str) -> JobSpec:
    gpu = {"count": 1, "type": kind}
    return read_spec({"name": "sliced", "run": command, "resources": {"gpu": gpu}})


@pytest.mark.timeout(300)
def test_a_job_runs_in_its_slice_and_holds_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gpus = devices_of(WORD, tmp_path)
    engine = LocalEngine(tmp_path, gpus, look_s=0.1)
    command = f"echo $CUDA_VISIBLE_DEVICES; until [ -e {gate} ]; do sleep 0.1; done"
    with driving(tmp_path, engine=engine) as driver:
        cut(tmp_path, "gpu-1", "3g.20gb@0", "2g.10gb@4")
        until(lambda: engine.devices.machine.gpus == 4, "the slices")
        record = driver.submit(asking_for("A100-2g.10gb", command), "ann").result(60)
        until(lambda: bool(EmulatedGpus(tmp_path / FILE).look()[1].processes), "its start")
        with pytest.raises(InvalidInput, match="held by process"):
            cut(tmp_path, "gpu-1")
        gate.touch()
        assert ended(driver, record).state is JobState.SUCCEEDED
        cut(tmp_path, "gpu-1")
        output = engine.output(Attempt(record.id, 1, record.uid), 0, 1 << 16).data.decode()

    assert output.strip() == engine.devices.uuids[3]


# -- cores by control group -----------------------------------------------------------

BUSY = """
import time
begin_s, used_s = time.monotonic(), time.process_time()
while time.monotonic() - begin_s < 2.0:
    pass
print(time.process_time() - used_s)
"""


def started(group: AttemptGroup) -> subprocess.Popen[str]:
    """Keep a core busy for two seconds, as a member of a group."""
    return subprocess.Popen(
        [sys.executable, "-S", "-c", BUSY],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=group.join,
    )


def test_cores_of_slices_are_bounded_together_and_differ_by_size(tmp_path: Path) -> None:
    groups = groups_here(tmp_path)
    if "cpu" not in groups.limits:
        pytest.skip("the cores of control groups cannot be limited here")
    sizes = {"small": CoreSlice("small", 20), "large": CoreSlice("large", 80)}
    made = {
        name: groups.make(name, GroupLimits(slice=sizes[name.split()[0]]))
        for name in ("small", "large", "large too")
    }

    running = {name: started(group) for name, group in made.items()}
    used_s = {name: float(process.communicate()[0]) for name, process in running.items()}
    for group in made.values():
        group.end()
    groups.tidy(-1.0)

    # Two seconds of a fiftieth of a core, and of two twenty-fifths for both others together.
    assert used_s["small"] < 2 * 0.04
    assert used_s["large"] + used_s["large too"] < 2 * 0.16
    assert used_s["large"] + used_s["large too"] > 2 * used_s["small"]
    left = [
        folder for base in groups.bases.values() for folder in base.glob(f"{groups.prefix}*")
    ]
    assert left == []
