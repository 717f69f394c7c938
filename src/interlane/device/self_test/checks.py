"""What the self-test tries: what the driver tells, trainings in lanes, a memory cap, MPS, MIG.

A check holds, or does not, or was not tried, and says why.  Nothing on the machine is changed.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from interlane import __version__
from interlane.device.launch import status
from interlane.device.link import NoDaemon
from interlane.device.nvml import installed, there
from interlane.mig.profiles import GpuModel, MigProfile, gpu_models
from interlane.model import InterlaneError, InvalidInput

FORMAT: Final = "interlane gpu report 1"
STAND_IN: Final = "stand-in"
"""Says in the version of a driver that there is no GPU behind it."""
ALONE_S: Final = 10.0
LIMIT_S: Final = 240.0
"""Seconds after which a part of the test is given up."""
CAP_MIB: Final = 256
CUDA_MIB: Final = 4096
_HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Checked:
    """What one check came to."""

    name: str
    holds: bool | None
    """None if it was not tried."""
    here: str
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuReport:
    """All that is sent back: nothing of it says whose machine it was."""

    stand_in: bool
    """Whether a stand-in answered instead of NVIDIA's driver."""
    device: str
    """Where trainings ran."""
    gpus: tuple[dict[str, Any], ...]
    checks: tuple[Checked, ...]

    @property
    def document(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "format": FORMAT,
            "interlane": __version__,
            "python": platform.python_version(),
            "torch": _version("torch"),
            "kernel": platform.release(),
            **asdict(self),
        }


Tell = Callable[[str], None]


def self_test(tell: Tell, *, train_s: float = ALONE_S) -> GpuReport:
    """Try everything, in about two minutes."""
    gpus, driver = read_gpus()
    device = "cuda:0" if _sees_cuda() else "cpu"
    checks: list[Checked] = []

    def note(one: Checked) -> None:
        checks.append(one)
        tell(f"{one.name}: {one.here}")

    note(_driver(gpus, driver))
    note(_catalogue(gpus))
    with _daemon(device) as path:
        alone = _trained(path, device, 1, train_s)
        note(_lanes(path, device, alone, train_s))
        note(_cap(path, device))
    note(_mps())
    for one in _slices(gpus, device):
        note(one)
    stand_in = STAND_IN in driver
    return GpuReport(stand_in, device, tuple(_anonymous(gpus)), tuple(checks))


# -- what the driver tells ------------------------------------------------------------


def read_gpus() -> tuple[list[dict[str, Any]], str]:
    """Return all that the driver tells of its GPUs, or why not; and its version."""
    nvml: Any = installed()
    if nvml is None:
        raise InvalidInput(
            "GPUs are read through nvidia-ml-py, which is not installed: pip install "
            "'interlane[gpu]'."
        )
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise InvalidInput(
            f"NVIDIA's driver does not answer ({error}); --gpu is for machines with a GPU."
        ) from None
    try:
        found = [gpu for _, gpu in there(nvml, lambda at, handle: _fields(nvml, at, handle))]
        return found, str(nvml.nvmlSystemGetDriverVersion())
    finally:
        nvml.nvmlShutdown()


def _fields(nvml: Any, index: int, handle: Any) -> dict[str, Any]:  # noqa: ANN401 - opaque
    asked: dict[str, Callable[[], Any]] = {
        "name": lambda: nvml.nvmlDeviceGetName(handle),
        "uuid": lambda: nvml.nvmlDeviceGetUUID(handle),
        "pci_id": lambda: f"0x{nvml.nvmlDeviceGetPciInfo(handle).pciDeviceId:08X}",
        "memory_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
        "used_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used >> 20,
        "busy_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "power_mw": lambda: nvml.nvmlDeviceGetPowerUsage(handle),
        "celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, 0),
        "capability": lambda: list(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        "processes": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        "mig_mode": lambda: list(nvml.nvmlDeviceGetMigMode(handle)),
        "slices": lambda: _slice_ids(nvml, handle),
        "profiles": lambda: _profiles(nvml, handle),
        "cuda": nvml.nvmlSystemGetCudaDriverVersion,
    }
    found: dict[str, Any] = {"index": index, "missing": {}}
    for name, ask in asked.items():
        try:
            found[name] = ask()
        except nvml.NVMLError as error:
            found["missing"][name] = str(error)
    return found


def _slice_ids(nvml: Any, handle: Any) -> list[str]:  # noqa: ANN401
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError:
            continue
        found.append(nvml.nvmlDeviceGetUUID(part))
    return found


def _profiles(nvml: Any, handle: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """Return the slices that the driver offers, as it describes them."""
    import ctypes

    found = []
    for slot in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            one = nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, slot)
            room = (nvml.c_nvmlGpuInstancePlacement_t * 32)()
            count = ctypes.c_uint(32)
            nvml.nvmlDeviceGetGpuInstancePossiblePlacements(
                handle, one.id, room, ctypes.byref(count)
            )
        except nvml.NVMLError:
            continue
        name = one.name.decode() if isinstance(one.name, bytes) else str(one.name)
        found.append(
            {
                "name": name.removeprefix("MIG "),
                "profile_id": one.id,
                "sm": one.multiprocessorCount,
                "memory_mib": one.memorySizeMB,
                "max_count": one.instanceCount,
                "starts": [room[at].start for at in range(count.value)],
                "size": room[0].size,
            }
        )
    return found


NEEDED: Final = ("name", "uuid", "memory_mib", "processes")


def _driver(gpus: Sequence[dict[str, Any]], driver: str) -> Checked:
    named = [f"{gpu.get('name', '?')} {gpu.get('memory_mib', 0) >> 10} GiB" for gpu in gpus]
    lacking = sorted({one for gpu in gpus for one in NEEDED if one in gpu["missing"]})
    here = f"driver {driver}: {'; '.join(named) or 'no GPU'}"
    if lacking:
        here += f"; it does not tell {', '.join(lacking)}"
    return Checked("driver", bool(gpus) and not lacking, here)


def _catalogue(gpus: Sequence[dict[str, Any]]) -> Checked:
    """Compare the slices that drivers offer with those that plans count on."""
    known = {pci: model for model in gpu_models().values() for pci in model.pci}
    able = [gpu for gpu in gpus if gpu.get("profiles")]
    if not able:
        return Checked("mig profiles", None, "no GPU here can be cut up")
    wrong: list[str] = []
    for gpu in able:
        model = known.get(str(gpu.get("pci_id")))
        if model is None:
            wrong.append(f"{gpu['name']} is not in the catalogue; its profiles are in the file")
        else:
            wrong += differences(model, gpu["profiles"])
    if wrong:
        return Checked("mig profiles", False, "; ".join(wrong[:3]), {"differences": wrong})
    return Checked("mig profiles", True, f"as in the catalogue, on {len(able)} GPUs")


def differences(model: GpuModel, told: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield in what a driver and the catalogue differ."""
    by_name = {one["name"]: one for one in told}
    for profile in model.profiles:
        one = by_name.pop(profile.name, None)
        if one is None:
            yield f"{model.name} does not offer {profile.name}"
            continue
        for name, ours in _expected(profile).items():
            if ours is not None and one[name] != ours:
                yield f"{profile.name} of {model.name}: {name} is {one[name]}, not {ours}"
    for name in by_name:
        yield f"{model.name} offers {name}, which the catalogue does not have"


def _expected(profile: MigProfile) -> dict[str, Any]:
    return {
        "profile_id": profile.profile_id,
        "sm": profile.sm,
        "memory_mib": profile.memory_mib,
        "max_count": profile.max_count,
        "starts": list(profile.starts),
        "size": profile.size,
    }


# -- lanes ----------------------------------------------------------------------------


def _sees_cuda() -> bool:
    """Tell whether PyTorch has a GPU here; asked in another process, which then has none."""
    code = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    return done.returncode == 0


@contextmanager
def _daemon(device: str) -> Iterator[Path]:
    """Run a device daemon of our own."""
    with tempfile.TemporaryDirectory(prefix="interlane-gpu-") as folder:
        path = Path(folder) / "share.sock"
        word = "cpu:2GiB" if device == "cpu" else f"{device}:{CUDA_MIB}MiB"
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "interlane", "share", "daemon", "--device", word),
                *("--sharing", "turns", "--socket", str(path)),
            ],
            stderr=subprocess.DEVNULL,
        )
        try:
            _await(path, process)
            yield path
        finally:
            process.terminate()
            process.wait()


def _await(path: Path, process: "subprocess.Popen[bytes]") -> None:
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s and process.poll() is None:
        try:
            status(path)
        except (NoDaemon, OSError):
            time.sleep(0.05)
        else:
            return
    raise InterlaneError("the device daemon did not start; see 'interlane doctor'.")


def _started(
    path: Path, script: str, words: Sequence[str], memory: str
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "interlane", "share", "run", "--socket", str(path)),
            *("--memory", memory, "--", sys.executable, str(_HERE / script), *words),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Wait for a program; return its exit code, and the last line that it printed."""
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return -1, f"it took more than {LIMIT_S:g} s"
    lines = (out if process.returncode == 0 else err).strip().splitlines() or [""]
    return process.returncode, lines[-1]


def _trained(path: Path, device: str, count: int, seconds: float) -> list[dict[str, Any]] | str:
    """Train so many models at once; return what each saw, or why one failed."""
    words = (device, str(seconds))
    jobs = [_started(path, "train.py", words, "200MiB+200MiB") for _ in range(count)]
    ends = [_ended(job) for job in jobs]
    for code, said in ends:
        if code:
            return f"a training ended with {code}: {said}"
    return [json.loads(said) for _, said in ends]


def _lanes(
    path: Path, device: str, alone: list[dict[str, Any]] | str, seconds: float
) -> Checked:
    both = _trained(path, device, 2, seconds)
    for seen in (alone, both):
        if isinstance(seen, str):
            return Checked("lanes", False, seen)
    assert not isinstance(alone, str)
    assert not isinstance(both, str)
    (report,) = status(path).devices
    together = overlaps([one["times"] for one in both])
    steps = [one["steps"] for one in both]
    figures = {
        "steps_alone": alone[0]["steps"],
        "steps_shared": steps,
        "switches": report.switches,
        "overlaps": together,
        "shared_over_alone": round(sum(steps) / max(1, alone[0]["steps"]), 3),
    }
    holds = all(steps) and report.switches > 0 and not together
    word = "took turns" if holds else "did not take turns"
    here = (
        f"two trainings on {device} {word}: {report.switches} hand-overs, {together} overlaps, "
        f"{figures['shared_over_alone']:.0%} of the steps of one alone"
    )
    return Checked("lanes", holds, here, figures)


def overlaps(times: Sequence[Sequence[Sequence[float]]]) -> int:
    """Return how often one job was at work while another was."""
    every = sorted((begin, end, job) for job, one in enumerate(times) for begin, end in one)
    return sum(
        job != other and begin < end for (_, end, job), (begin, _, other) in pairwise(every)
    )


def _cap(path: Path, device: str) -> Checked:
    job = _started(path, "outgrow.py", (device, str(4 * CAP_MIB)), f"{CAP_MIB}MiB")
    code, said = _ended(job)
    holds = code == 0 and said.startswith("refused")
    here = f"a job with {CAP_MIB} MiB that wanted {4 * CAP_MIB}: {said or f'ended with {code}'}"
    return Checked("memory cap", holds, here)


# -- MPS and MIG, where they are in use -----------------------------------------------


def _mps() -> Checked:
    program = shutil.which("nvidia-cuda-mps-control")
    if program is None:
        return Checked("mps", None, "nvidia-cuda-mps-control is not on the PATH")
    done = subprocess.run(
        [program], input="get_server_list\n", capture_output=True, text=True, check=False
    )
    if done.returncode:
        return Checked("mps", None, "its control daemon does not run")
    servers = len(done.stdout.split())
    return Checked("mps", True, f"its control daemon runs, with {servers} servers")


def _slices(gpus: Sequence[dict[str, Any]], device: str) -> Iterator[Checked]:
    """Run something in every slice that there is."""
    uuids = [one for gpu in gpus for one in gpu.get("slices", ())]
    if not uuids:
        yield Checked("mig slices", None, "no GPU here is cut up")
        return
    if device == "cpu":
        yield Checked("mig slices", None, f"{len(uuids)}, but PyTorch sees no GPU")
        return
    for number, uuid in enumerate(uuids):
        process = subprocess.Popen(
            [sys.executable, str(_HERE / "slice.py")],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        code, said = _ended(process)
        yield Checked(f"mig slice {number}", code == 0, said or f"ended with {code}")


def _anonymous(gpus: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield GPUs without what tells one owner's from another's."""
    for gpu in gpus:
        digest = sha256(str(gpu.get("uuid", "")).encode()).hexdigest()[:12]
        yield {**gpu, "uuid": digest, "slices": len(gpu.get("slices", ()))}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
