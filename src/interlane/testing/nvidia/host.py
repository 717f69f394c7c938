"""A host with NVIDIA GPUs: a file of GPUs, the library and the program over it.

The library is built with the system's compiler, once per folder.  A process that was started
with ``environment`` finds it as it finds NVIDIA's own; one that runs already loads it with
``load``, after which ``pynvml`` finds it by its name.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pynvml

from interlane.mig.layouts import SlicePlace
from interlane.mig.profiles import GpuModel, MigProfile, ProfileKind, gpu_model

STATE: Final = "INTERLANE_NVML_STATE"
LIBRARY: Final = "libnvidia-ml.so.1"
DRIVER: Final = "580.95.05-stand-in"
"""A version by which whoever reports it says what it is."""
CUDA: Final = 13000

_HERE: Final = Path(__file__).parent
_SLOTS: Final[Mapping[ProfileKind, Mapping[int, int]]] = {
    ProfileKind.BASE: {1: 0, 2: 1, 3: 2, 4: 3, 7: 4},
    ProfileKind.MEDIA: {1: 7, 2: 8},
    ProfileKind.DOUBLE_MEMORY: {1: 9},
    ProfileKind.GRAPHICS: {1: 10, 2: 11, 4: 12},
    ProfileKind.NO_MEDIA: {1: 13, 2: 14},
    ProfileKind.MEDIA_ALL: {1: 15, 2: 16},
}
"""By which number NVML asks for a profile: kind -> compute slices -> number."""

_NAMES: Final = {
    "A30-24GB": "NVIDIA A30",
    "A100-40GB": "NVIDIA A100-SXM4-40GB",
    "A100-80GB": "NVIDIA A100-SXM4-80GB",
    "H100-80GB-SXM5": "NVIDIA H100 80GB HBM3",
}


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU of the host; the fields of its line, in order."""

    uuid: str
    bus: str
    pci: int
    name: str
    memory_mib: int
    capable: bool = False
    """Whether it can be cut up."""
    sliced: bool = False
    pending: bool = False
    resets: bool = False
    """Whether a change of its mode waits for a reset."""
    lost: bool = False
    busy: int = 0
    memory_busy: int = 0
    power_mw: int = 60_000
    used_mib: int = 0
    grid: int = 0

    @property
    def line(self) -> str:
        """Its line in the file."""
        values = (getattr(self, name) for name in self.__slots__)
        return _line("gpu", *(int(one) if isinstance(one, bool) else one for one in values))


class NvidiaHost:
    """GPUs in a folder."""

    def __init__(self, folder: Path, library: Path | None = None) -> None:
        """Keep GPUs in a folder, under a library that is built there unless it is given."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._library = library
        self.state = folder / "gpus"
        self.state.write_text(_line("driver", DRIVER, CUDA) + "\n")

    # -- what there is ----------------------------------------------------------------

    def add(
        self,
        model: str | None = "A100-40GB",
        *,
        name: str | None = None,
        memory_mib: int | None = None,
        sliced: bool = False,
        resets: bool = False,
        uuid: str | None = None,
        used_mib: int = 0,
        layout: Sequence[SlicePlace] = (),
    ) -> int:
        """Put a GPU into the host; return its index.

        Args:
            model: what the catalogue calls it; None for one that cannot be cut up.
            name: what the driver calls it.
            memory_mib: its memory, where the catalogue does not say.
            sliced: whether it is in MIG mode.
            resets: whether a change of mode waits for a reset.
            uuid: its identifier.
            used_mib: memory that somebody has who is not listed.
            layout: the instances on it, with one compute instance each.
        """
        index = len(self._cards())
        known = None if model is None else gpu_model(model)
        card = Card(
            uuid or f"GPU-{index:08x}-0000-4000-8000-000000000000",
            f"00000000:{index + 1:02X}:00.0",
            int(known.pci[0], 16) if known else 0x1EB810DE,
            name or _NAMES.get(model or "", "Tesla T4"),
            memory_mib or (known.whole.memory_mib + 768 if known else 15_360),
            capable=known is not None,
            sliced=sliced,
            pending=sliced,
            resets=resets,
            used_mib=used_mib,
            grid=known.grid if known else 0,
        )
        lines = self._lines()
        lines.insert(1 + index, card.line)
        if known is not None:
            lines += [_profile_line(index, one) for one in known.profiles]
            lines += [line for place in layout for line in _instance(index, known, place)]
        self._write(lines)
        return index

    def change(self, index: int, **values: object) -> None:
        """Change fields of a GPU's line."""
        lines, card = self._lines(), self._cards()[index]
        lines[1 + index] = replace(card, **values).line  # type: ignore[arg-type]
        self._write(lines)

    def lose(self, index: int, *, lost: bool = True) -> None:
        """Let a GPU fall off its bus, or come back."""
        self.change(index, lost=lost)

    def hold(self, index: int, pid: int, memory_mib: int = 100, gi: int = -1) -> None:
        """Let a process use a GPU, or one of its instances, until it ends."""
        ci = -1 if gi < 0 else 0
        self._write([*self._lines(), _line("process", index, pid, memory_mib, gi, ci)])

    def fail(self, symbol: str, error: int, times: int = 1, after: int = 0) -> None:
        """Let calls of a symbol fail with an error of NVML, so often (-1: always).

        Args:
            symbol: without a version, as in ``nvmlDeviceGetName``; ``*`` for any.
            error: NVML's number.
            times: how often.
            after: calls that go well before.
        """
        self._write([*self._lines(), _line("fail", symbol, error, times, after)])

    def obey(self) -> None:
        """Let no call fail any more."""
        self._write([line for line in self._lines() if not line.startswith("fail\t")])

    def note_calls(self) -> None:
        """Let the library write down which calls are made from here on."""
        self.state.with_name("gpus.calls").write_text("")

    @property
    def calls(self) -> list[str]:
        """The calls that were made since ``note_calls``."""
        return self.state.with_name("gpus.calls").read_text().split()

    def instances(self) -> list[tuple[int, str, int]]:
        """Return GPU, profile and start of every instance that has a compute instance."""
        rows = [line.split("\t") for line in self._lines()]
        named = {(row[1], row[3]): row[4] for row in rows if row[0] == "profile"}
        whole = {(row[1], row[2]) for row in rows if row[0] == "ci"}
        return sorted(
            (int(row[1]), named[row[1], row[3]], int(row[4]))
            for row in rows
            if row[0] == "gi" and (row[1], row[2]) in whole
        )

    def modes(self) -> list[tuple[bool, bool]]:
        """Return the mode of every GPU, and the one after a reset."""
        return [(card.sliced, card.pending) for card in self._cards()]

    # -- who sees it ------------------------------------------------------------------

    def load(self) -> None:
        """Load the library into this process: who asks for it by name then gets it."""
        ctypes.CDLL(str(self.library))

    @property
    def library(self) -> Path:
        """The shared library, built if need be."""
        path = self._library or self.folder / "lib" / LIBRARY
        if not path.exists():
            build_library(path)
        return path

    @property
    def program(self) -> Path:
        """The folder in which ``nvidia-smi`` lies."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        path = folder / "nvidia-smi"
        path.write_text(
            f"#!/bin/sh\nLD_LIBRARY_PATH={self.library.parent} {STATE}={self.state} "
            f"PYTHONPATH={Path(pynvml.__file__).parent} "
            f'exec {sys.executable} -S {_HERE / "smi.py"} "$@"\n'
        )
        path.chmod(0o755)
        return folder

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which a process sees these GPUs and no others."""
        return {
            STATE: str(self.state),
            "LD_LIBRARY_PATH": str(self.library.parent),
            "PATH": f"{self.program}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        }

    # -- the file ---------------------------------------------------------------------

    def _lines(self) -> list[str]:
        return self.state.read_text().splitlines()

    def _write(self, lines: Sequence[str]) -> None:
        beside = self.state.with_name("gpus.test")
        beside.write_text("\n".join(lines) + "\n")
        beside.replace(self.state)

    def _cards(self) -> list[Card]:
        return [_card(line) for line in self._lines() if line.startswith("gpu\t")]


def build_library(path: Path) -> None:
    """Build the library with the system's compiler."""
    path.parent.mkdir(parents=True, exist_ok=True)
    compiler = shutil.which("cc") or shutil.which("gcc") or "cc"
    subprocess.run(
        [
            *(compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"),
            *(f"-Wl,-soname,{LIBRARY}", "-o", str(path), str(_HERE / "nvml.c")),
        ],
        check=True,
    )


def _line(*values: object) -> str:
    return "\t".join(map(str, values))


def _card(line: str) -> Card:
    uuid, bus, pci, name, *numbers = line.split("\t")[1:]
    memory, *flags = map(int, numbers)
    booleans = [bool(one) for one in flags[:5]]
    return Card(uuid, bus, int(pci), name, memory, *booleans, *flags[5:])


def _profile_line(index: int, one: MigProfile) -> str:
    engines = (one.sm, one.copy_engines, one.nvdec, one.nvenc, one.jpeg, one.ofa)
    return _line(
        *("profile", index, _SLOTS[one.kind][one.compute_slices], one.profile_id, one.name),
        *(one.compute_slices, one.size, one.max_count, one.memory_mib),
        *(amount or 0 for amount in engines),
        int(one.kind in (ProfileKind.MEDIA, ProfileKind.MEDIA_ALL)),
        ",".join(map(str, one.starts)),
    )


def _instance(index: int, model: GpuModel, place: SlicePlace) -> Iterator[str]:
    profile = model.profile(place.profile)
    number = model.grid // profile.size - 1 + place.start // profile.size
    yield _line("gi", index, number, profile.profile_id, place.start, profile.size)
    yield _line("ci", index, number, 0, profile.compute_slices)
