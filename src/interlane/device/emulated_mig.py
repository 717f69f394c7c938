"""GPUs that are not there and can be cut up: NVIDIA's rules for slices, over parts of the CPU.

What they are, and how they are cut, is a file, so that a server and whoever cuts them see the
same; it changes in one go, after the time that a change takes.  Programs know their slice as
programs on NVIDIA's do, by ``CUDA_VISIBLE_DEVICES``, and hold it as long as they run.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from interlane.mig.interpolation import compute_share
from interlane.mig.layouts import SlicePlace, broken_rule
from interlane.mig.partition import GpuMode, GpuState, SliceState, gpu_named
from interlane.mig.profiles import MigProfile, gpu_model
from interlane.mig.transition.run import StepFailed
from interlane.model import MILLI, InvalidField, InvalidFile, amounts
from interlane.model.machine import GPUS_PER_MACHINE_MAX

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
KIND: Final = "mig"
FILE: Final = "mig.json"
"""What the file is called in the folder of a server's state."""
WRITTEN: Final = "mig:A100-40GB:4 or mig:A100-40GB:4,memory=8GB,create=1,destroy=1,mode=5"


@dataclass(frozen=True, slots=True)
class EmulatedTimes:
    """Seconds that changes take."""

    create: float = 0.3
    destroy: float = 0.3
    mode: float = 2.0


@dataclass(frozen=True, slots=True)
class EmulatedSettings:
    """What GPUs are emulated."""

    model: str
    count: int
    memory_mib: int
    """Of a whole GPU; slices have their part of it."""
    times: EmulatedTimes = field(default_factory=EmulatedTimes)

    def memory_of(self, profile: MigProfile) -> int:
        """Return the memory of a slice, in MiB."""
        return self.memory_mib * profile.memory_mib // gpu_model(self.model).whole.memory_mib


def settings_of(word: str) -> EmulatedSettings:
    """Return what ``mig:MODEL:COUNT,KEY=VALUE...`` says."""
    first, *options = word.split(",")
    kind, _, rest = first.partition(":")
    name, _, count = rest.rpartition(":")
    is_count = count.isascii() and count.isdigit() and len(count) < 4
    if kind != KIND or not name or not is_count or not 1 <= int(count) <= GPUS_PER_MACHINE_MAX:
        raise InvalidField("devices", word, f"emulated MIG GPUs read like {WRITTEN}")
    memory_mib, times = gpu_model(name).whole.memory_mib, dict[str, float]()
    for option in options:
        key, _, value = option.partition("=")
        if key == "memory":
            memory_mib = amounts.memory_mib("devices", value)
        elif key in {one.name for one in fields(EmulatedTimes)}:
            times[key] = amounts.seconds("devices", value)
        else:
            raise InvalidField("devices", word, f"it reads like {WRITTEN}")
    return EmulatedSettings(name, int(count), memory_mib, EmulatedTimes(**times))


def compute_milli(model: str, profile: str | None) -> int:
    """Return the part of a GPU's compute that a slice has; all of it for a whole GPU."""
    if profile is None:
        return MILLI
    known = gpu_model(model)
    return int(MILLI * compute_share(known, known.profile(profile)))


class EmulatedGpus:
    """Emulated GPUs that a file keeps; see ``mig.partition.Partitioner``."""

    def __init__(self, path: Path, sleep: Callable[[float], None] = time.sleep) -> None:
        """Take up what a file says; raises ``InvalidFile`` for one that cannot be read."""
        self._path = path
        self._sleep = sleep
        self._token = sha256(os.fsencode(path.absolute())).hexdigest()[:8]
        """Tells these GPUs from those of other servers on this machine."""
        self.settings, _ = self._read()

    @classmethod
    def made(
        cls,
        path: Path,
        settings: EmulatedSettings,
        sleep: Callable[[float], None] = time.sleep,
    ) -> "EmulatedGpus":
        """Make GPUs, all of them whole; those of a file that is there stay as they are cut."""
        cuts: list[tuple[SlicePlace, ...] | None] = [None] * settings.count
        if path.exists():
            before, kept = cls(path)._read()
            if (before.model, before.count) == (settings.model, settings.count):
                cuts = kept
        _write(path, settings, cuts)
        return cls(path, sleep)

    # -- reading ----------------------------------------------------------------------

    def look(self) -> tuple[GpuState, ...]:
        """Return the GPUs as they are cut, and who holds them."""
        settings, cuts = self._read()
        holders = _holders()
        return tuple(self._state(at, cut, settings, holders) for at, cut in enumerate(cuts))

    def _state(
        self,
        index: int,
        cut: tuple[SlicePlace, ...] | None,
        settings: EmulatedSettings,
        holders: Mapping[str, tuple[int, ...]],
    ) -> GpuState:
        mode = GpuMode.WHOLE if cut is None else GpuMode.SLICED
        uuid = f"GPU-emulated-{self._token}-{index}"
        slices = []
        for number, place in enumerate(cut or ()):
            name = f"MIG-emulated-{self._token}-{index}-{place.profile}-{place.start}"
            slices.append(SliceState(place, name, holders.get(name, ()), number))
        held = {pid for one in slices for pid in one.processes} | {*holders.get(uuid, ())}
        return GpuState(
            *(f"gpu-{index}", uuid, f"emulated {settings.model}", settings.model, mode, mode),
            slices=tuple(slices),
            processes=tuple(sorted(held)),
            emulated=True,
        )

    def _read(self) -> tuple[EmulatedSettings, list[tuple[SlicePlace, ...] | None]]:
        try:
            said = json.loads(self._path.read_text(encoding="utf-8"))
            times = EmulatedTimes(**said["times"])
            settings = EmulatedSettings(
                said["model"], int(said["count"]), int(said["memory_mib"]), times
            )
            cuts = [_cut(one) for one in said["gpus"]]
        except FileNotFoundError:
            raise InvalidFile(
                str(self._path),
                "no emulated GPUs are kept here; `interlane up --devices mig:A100-40GB:4` "
                f"makes some, in {FILE} of its --state.",
            ) from None
        except (OSError, ValueError, KeyError, TypeError):
            raise InvalidFile(
                str(self._path), "this is no file of emulated GPUs; remove or restore it."
            ) from None
        return settings, cuts

    # -- changing ---------------------------------------------------------------------

    def set_mode(self, gpu: str, mode: GpuMode) -> None:
        """Let a GPU be cut up, or not."""
        with self._changing(gpu, self.settings.times.mode) as (state, cuts, at):
            if state.processes:
                raise StepFailed(f"process {state.processes[0]} holds it.")
            if state.slices:
                raise StepFailed(f"there is {state.slices[0].place} on it.")
            cuts[at] = () if mode is GpuMode.SLICED else None

    def reset(self, gpu: str) -> None:
        """Reset a GPU: its slices are gone."""
        with self._changing(gpu, self.settings.times.mode) as (state, cuts, at):
            if state.processes:
                raise StepFailed(f"process {state.processes[0]} holds it.")
            cuts[at] = None if state.mode is GpuMode.WHOLE else ()

    def create(self, gpu: str, place: SlicePlace) -> None:
        """Cut a slice, where NVIDIA's rules allow it."""
        with self._changing(gpu, self.settings.times.create) as (state, cuts, at):
            if state.mode is GpuMode.WHOLE:
                raise StepFailed("it is whole; let it be sliced first.")
            wanted = tuple(sorted((*state.layout, place)))
            broken = broken_rule(gpu_model(state.model), wanted)
            if broken is not None:
                raise StepFailed(broken)
            cuts[at] = wanted

    def destroy(self, gpu: str, place: SlicePlace) -> None:
        """Give a slice's units back."""
        with self._changing(gpu, self.settings.times.destroy) as (state, cuts, at):
            found = state.slice_at(place)
            if found is None:
                raise StepFailed(f"there is no {place} on it.")
            if found.processes:
                raise StepFailed(f"process {found.processes[0]} runs in it.")
            cuts[at] = tuple(one for one in state.layout if one != place)

    @contextmanager
    def _changing(
        self, gpu: str, takes_s: float
    ) -> "Iterator[tuple[GpuState, list[tuple[SlicePlace, ...] | None], int]]":
        """Change a GPU after the time that it takes; meanwhile others may be changed."""
        at = int(gpu_named(self.look(), gpu).id.removeprefix("gpu-"))
        with _locked(self._path.with_name(f"{self._path.name}.{at}.lock")):
            self._sleep(takes_s)
            with _locked(self._path.with_name(f"{self._path.name}.lock")):
                settings, cuts = self._read()
                yield self._state(at, cuts[at], settings, _holders()), cuts, at
                _write(self._path, settings, cuts)


def _cut(said: list[dict[str, Any]] | None) -> tuple[SlicePlace, ...] | None:
    if said is None:
        return None
    return tuple(sorted(SlicePlace(int(one["start"]), str(one["profile"])) for one in said))


def _write(
    path: Path, settings: EmulatedSettings, cuts: list[tuple[SlicePlace, ...] | None]
) -> None:
    """Write all in one go: after a crash, the old or the new is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    gpus = [None if cut is None else [asdict(one) for one in cut] for cut in cuts]
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(json.dumps({**asdict(settings), "gpus": gpus}, indent=1) + "\n")
    beside.replace(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _holders() -> dict[str, tuple[int, ...]]:
    """Return the processes that were started for each GPU or slice."""
    found: dict[str, list[int]] = {}
    mark = f"{VISIBLE}=".encode()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            said = (process / "environ").read_bytes()
        except OSError:  # ended, or somebody else's
            continue
        for one in said.split(b"\0") if mark in said else ():
            if one.startswith(mark) and b"emulated" in one:
                for uuid in one.removeprefix(mark).decode(errors="replace").split(","):
                    found.setdefault(uuid, []).append(int(process.name))
    return {uuid: tuple(sorted(pids)) for uuid, pids in found.items()}
