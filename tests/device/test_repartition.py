"""One GPU is cut up anew: NVIDIA's, as the stand-ins for its library and program have it, and
emulated ones, by one protocol."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from interlane.device.emulated_mig import (
    VISIBLE,
    EmulatedGpus,
    EmulatedSettings,
    compute_milli,
    settings_of,
)
from interlane.device.nvidia_gpus import NvidiaGpus
from interlane.device.repartition import DrainWait, PartitionFailed, repartition
from interlane.mig.documents import read_state
from interlane.mig.layouts import Layout
from interlane.mig.partition import (
    GpuMode,
    GpuState,
    Partitioner,
    changes_to,
    gpu_named,
    layout_of,
    state_document,
)
from interlane.mig.transition.run import StepFailed
from interlane.model import InvalidInput
from interlane.testing.nvidia import NvidiaHost

Hold = Callable[[int, str], subprocess.Popen[bytes]]
"""Lets a process hold a GPU, or the slice of a place on it."""

HALVES = layout_of(["3g.20gb@0", "3g.20gb@4"])
MIXED = layout_of(["3g.20gb@0", "2g.10gb@4", "1g.5gb@6"])


class Rig:
    """GPUs of one kind, and processes on them."""

    def __init__(self, gpus: Partitioner, hold: Hold) -> None:
        self.gpus, self.hold = gpus, hold

    def gpu(self, index: int = 0) -> GpuState:
        return gpu_named(self.gpus.look(), f"gpu-{index}")


@pytest.fixture
def started() -> Iterator[Callable[[dict[str, str]], subprocess.Popen[bytes]]]:
    """Start processes that wait to be ended, and end those that are left."""
    running: list[subprocess.Popen[bytes]] = []

    def start(environment: dict[str, str]) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-S", "-c", "print(flush=True); input()"]
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        running.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture(params=["nvidia", "emulated"])
def rig(
    request: pytest.FixtureRequest,
    nvidia: NvidiaHost,
    tmp_path: Path,
    started: Callable[[dict[str, str]], subprocess.Popen[bytes]],
) -> Rig:
    if request.param == "nvidia":
        for _ in range(2):
            nvidia.add("A100-40GB")

        def hold(index: int, place: str) -> subprocess.Popen[bytes]:
            process = started({})
            found = next(
                (one for one in made.gpu(index).slices if str(one.place) == place), None
            )
            nvidia.hold(index, process.pid, gi=-1 if found is None else found.number)
            return process

        made = Rig(NvidiaGpus(), hold)
        return made
    settings = EmulatedSettings("A100-40GB", 2, 40_000)
    emulated = EmulatedGpus.made(tmp_path / "mig.json", settings, sleep=lambda s: None)

    def hold_emulated(index: int, place: str) -> subprocess.Popen[bytes]:
        gpu = made.gpu(index)
        uuids = {str(one.place): one.uuid for one in gpu.slices}
        return started({VISIBLE: uuids.get(place, gpu.uuid)})

    made = Rig(emulated, hold_emulated)
    return made


def test_a_whole_gpu_is_cut_cut_anew_and_made_whole(rig: Rig) -> None:
    said: list[str] = []

    halves = repartition(rig.gpus, "gpu-0", HALVES, tell=said.append)
    kept = {str(one.place): one.uuid for one in halves.slices}
    mixed = repartition(rig.gpus, "0", MIXED)
    whole = repartition(rig.gpus, mixed.uuid, None)

    assert (halves.mode, halves.layout) == (GpuMode.SLICED, HALVES)
    assert said == [
        "let gpu-0 be sliced",
        "create 3g.20gb@0 on gpu-0",
        "create 3g.20gb@4 on gpu-0",
    ]
    assert mixed.layout == MIXED
    stayed = mixed.slice_at(MIXED[0])
    assert stayed is not None
    assert stayed.uuid == kept["3g.20gb@0"]
    assert (whole.mode, whole.pending, whole.slices) == (GpuMode.WHOLE, GpuMode.WHOLE, ())
    assert rig.gpu(1).mode is GpuMode.WHOLE


def test_every_slice_has_an_identifier_of_its_own(rig: Rig) -> None:
    sevenths = layout_of([f"1g.5gb@{start}" for start in range(7)])
    for index in range(2):
        repartition(rig.gpus, f"gpu-{index}", sevenths)

    uuids = [one.uuid for gpu in rig.gpus.look() for one in gpu.slices]

    assert len(set(uuids)) == len(uuids) == 14


@pytest.mark.parametrize(
    ("places", "says"),
    [
        (["3g.20gb@1"], "cannot start at 1"),
        (["4g.20gb@0", "3g.20gb@0"], "overlaps"),
        (["3g.71gb@0"], "3g.71gb"),
        (["7g.40gb@0", "1g.5gb@6"], "overlaps"),
    ],
)
def test_what_no_gpu_can_be_is_refused_and_nothing_changes(
    rig: Rig, places: list[str], says: str
) -> None:
    repartition(rig.gpus, "gpu-0", HALVES)

    with pytest.raises(InvalidInput, match=says):
        repartition(rig.gpus, "gpu-0", layout_of(places))

    assert rig.gpu().layout == HALVES


def test_a_gpu_that_is_not_there_is_named(rig: Rig) -> None:
    with pytest.raises(InvalidInput, match="gpu-9"):
        repartition(rig.gpus, "gpu-9", HALVES)


@pytest.mark.parametrize(
    ("before", "held", "target"),
    [
        (None, "", HALVES),
        (HALVES, "3g.20gb@4", None),
        (HALVES, "3g.20gb@4", MIXED),
    ],
    ids=["entering MIG mode", "leaving MIG mode", "destroying the slice"],
)
def test_a_process_that_holds_what_must_change_is_named_and_nothing_changes(
    rig: Rig, before: Layout | None, held: str, target: Layout | None
) -> None:
    if before is not None:
        repartition(rig.gpus, "gpu-0", before)
    process = rig.hold(0, held)
    was = rig.gpu()

    with pytest.raises(InvalidInput, match=f"held by process {process.pid}, so that nothing"):
        repartition(rig.gpus, "gpu-0", target)

    assert rig.gpu() == was


def test_a_process_in_a_slice_that_stays_is_not_disturbed(rig: Rig) -> None:
    repartition(rig.gpus, "gpu-0", HALVES)
    process = rig.hold(0, "3g.20gb@0")

    mixed = repartition(rig.gpus, "gpu-0", MIXED)

    assert mixed.layout == MIXED
    assert mixed.slices[0].processes == (process.pid,)


def test_processes_that_leave_in_time_are_waited_for(rig: Rig) -> None:
    repartition(rig.gpus, "gpu-0", HALVES)
    process = rig.hold(0, "3g.20gb@4")
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        process.kill()
        process.wait()

    waiting = DrainWait(60.0, clock=lambda: float(len(looks)), sleep=sleep)
    said: list[str] = []
    found = repartition(rig.gpus, "gpu-0", None, waiting, said.append)

    assert found.mode is GpuMode.WHOLE
    assert len(looks) == 1
    assert said[0] == f"gpu-0 is held by process {process.pid}; waiting for the end of that."


def test_what_is_read_is_what_transitions_begin_with(rig: Rig) -> None:
    repartition(rig.gpus, "gpu-1", MIXED)

    document = state_document(rig.gpus.look())

    plan = read_state(document, "state")
    assert [(gpu.id, gpu.model, gpu.layout) for gpu in plan.gpus] == [
        ("gpu-0", "A100-40GB", ()),
        ("gpu-1", "A100-40GB", MIXED),
    ]


# -- a driver that refuses ------------------------------------------------------------

CALLS = (
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlComputeInstanceDestroy",
    "nvmlGpuInstanceDestroy",
)


@pytest.mark.parametrize("symbol", CALLS)
def test_a_driver_that_refuses_once_is_asked_again(nvidia: NvidiaHost, symbol: str) -> None:
    nvidia.add("A100-40GB")
    gpus = NvidiaGpus()
    if "Destroy" in symbol:
        repartition(gpus, "gpu-0", HALVES)
    nvidia.fail(symbol, pynvml.NVML_ERROR_UNKNOWN)

    found = repartition(gpus, "gpu-0", MIXED)

    assert found.layout == MIXED
    assert all(one.uuid for one in found.slices)


@pytest.mark.parametrize("symbol", CALLS)
@pytest.mark.parametrize("after", [0, 1])
def test_a_driver_that_goes_on_refusing_finds_all_as_it_was(
    nvidia: NvidiaHost, symbol: str, after: int
) -> None:
    nvidia.add("A100-40GB")
    gpus = NvidiaGpus()
    before = HALVES if "Destroy" in symbol else None
    target = layout_of(["4g.20gb@0", "2g.10gb@4"])
    if before is not None:
        repartition(gpus, "gpu-0", before)
    # As often as it is tried; what undoes the rest is obeyed.
    nvidia.fail(symbol, pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES, times=2, after=after)
    was = [(one.mode, one.pending, one.layout) for one in gpus.look()]

    if symbol == "nvmlDeviceSetMigMode" and after:
        repartition(gpus, "gpu-0", target)  # it is called once only
        return
    with pytest.raises(PartitionFailed, match=r"gpu-0 is as it was before\."):
        repartition(gpus, "gpu-0", target)

    assert [(one.mode, one.pending, one.layout) for one in gpus.look()] == was
    assert all(one.uuid for gpu in gpus.look() for one in gpu.slices)


def test_one_that_refuses_for_ever_says_what_is_there_and_can_be_gone_on_with(
    nvidia: NvidiaHost,
) -> None:
    nvidia.add("A100-40GB", sliced=True, layout=HALVES)
    gpus = NvidiaGpus()
    nvidia.fail("nvmlGpuInstanceCreateComputeInstance", pynvml.NVML_ERROR_UNKNOWN, times=-1)

    with pytest.raises(PartitionFailed) as failed:
        repartition(gpus, "gpu-0", MIXED)

    assert "cannot be made again either" in str(failed.value)
    assert "gpu-0 is sliced with" in str(failed.value)
    nvidia.obey()
    assert repartition(gpus, "gpu-0", MIXED).layout == MIXED


def test_a_mode_that_waits_for_a_reset_is_activated(nvidia: NvidiaHost) -> None:
    nvidia.add("A30-24GB", resets=True)
    gpus = NvidiaGpus()

    found = repartition(gpus, "gpu-0", layout_of(["4g.24gb@0"]))

    assert nvidia.modes() == [(True, True)]
    assert found.layout == layout_of(["4g.24gb@0"])


def test_nvidia_smi_that_says_all_done_though_the_mode_is_pending_is_not_believed(
    nvidia: NvidiaHost,
) -> None:
    """A process comes between the look and the change: nvidia-smi warns, and exits with 0."""
    nvidia.add("A100-40GB")
    gpus = NvidiaGpus()
    nvidia.hold(0, os.getpid())

    with pytest.raises(StepFailed, match=f"still whole: process {os.getpid()} holds it"):
        gpus.set_mode("gpu-0", GpuMode.SLICED)

    assert nvidia.modes() == [(False, True)]
    left = changes_to(gpu_named(gpus.look(), "gpu-0"), None)
    assert [str(one) for one in left] == ["let gpu-0 be whole"]


def test_a_gpu_that_is_lost_on_the_way_is_named(nvidia: NvidiaHost) -> None:
    nvidia.add("A100-40GB")
    gpus = NvidiaGpus()

    def tell(said: str) -> None:
        nvidia.lose(0)

    with pytest.raises(PartitionFailed, match="gpu-0 is lost"):
        repartition(gpus, "gpu-0", HALVES, tell=tell)


def test_a_gpu_without_mig_is_refused(nvidia: NvidiaHost) -> None:
    nvidia.add(None)

    with pytest.raises(InvalidInput, match="Tesla T4, of which no MIG profiles are known"):
        repartition(NvidiaGpus(), "gpu-0", HALVES)


def test_without_a_driver_one_sentence_says_so(nvidia: NvidiaHost) -> None:
    nvidia.fail("nvmlInit", pynvml.NVML_ERROR_DRIVER_NOT_LOADED, times=-1)

    with pytest.raises(InvalidInput, match=r"cannot be read \(Driver Not Loaded\)"):
        NvidiaGpus().look()


# -- emulated GPUs --------------------------------------------------------------------


def test_emulated_gpus_take_as_long_as_they_are_told(tmp_path: Path) -> None:
    settings = settings_of("mig:A100-40GB:1,memory=8GB,create=3,destroy=2,mode=7")
    slept: list[float] = []
    gpus = EmulatedGpus.made(tmp_path / "mig.json", settings, slept.append)

    repartition(gpus, "gpu-0", HALVES)
    repartition(gpus, "gpu-0", None)

    assert slept == [7.0, 3.0, 3.0, 2.0, 2.0, 7.0]


def test_emulated_gpus_stay_as_they_are_cut_when_their_server_comes_back(
    tmp_path: Path,
) -> None:
    settings = settings_of("mig:A100-40GB:2,create=0,destroy=0,mode=0")
    repartition(EmulatedGpus.made(tmp_path / "mig.json", settings), "gpu-1", MIXED)

    again = EmulatedGpus.made(tmp_path / "mig.json", settings).look()
    others = EmulatedGpus.made(tmp_path / "mig.json", settings_of("mig:H100-80GB-SXM5:2"))

    assert [one.layout for one in again] == [(), MIXED]
    assert [(one.model, one.mode) for one in others.look()] == [
        ("H100-80GB-SXM5", GpuMode.WHOLE)
    ] * 2


def test_what_a_slice_has_of_its_gpu_follows_the_catalogue() -> None:
    sizes = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")

    assert [compute_milli("A100-40GB", one) for one in sizes] == [142, 285, 428, 571, 1000]
    assert compute_milli("H100-80GB-SXM5", "3g.40gb") == 454  # 60 of 132 SMs
    assert compute_milli("A100-40GB", None) == 1000


@pytest.mark.parametrize(
    "word",
    [
        "mig",
        "mig:A100-40GB",
        "mig:A100-40GB:0",
        "mig:A100-40GB:x",
        "mig:A101:2",
        "mig:A100-40GB:2,speed=3",
        "mig:A100-40GB:2,create=soon",
    ],
)
def test_a_word_that_means_no_emulated_gpus_is_refused(word: str) -> None:
    with pytest.raises(InvalidInput):
        settings_of(word)


def test_a_file_that_is_none_of_emulated_gpus_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mig.json"
    with pytest.raises(InvalidInput, match="no emulated GPUs are kept here"):
        EmulatedGpus(file)
    file.write_text("[]")
    with pytest.raises(InvalidInput, match="no file of emulated GPUs"):
        EmulatedGpus(file)
