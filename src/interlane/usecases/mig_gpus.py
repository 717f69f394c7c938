"""The GPUs that are there: how they are cut, and cutting one of them now."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from interlane.device.emulated_mig import FILE, EmulatedGpus
from interlane.device.nvidia_gpus import NvidiaGpus
from interlane.device.repartition import DrainWait, repartition
from interlane.mig.partition import (
    GpuMode,
    GpuState,
    Partitioner,
    layout_of,
    state_document,
)
from interlane.migctl.host_lock import host_locked
from interlane.model import InvalidInput
from interlane.usecases.reporter import SILENT, Reporter

NVIDIA: Final = "nvidia"
"""The GPUs of this host."""


def gpus_of(word: str) -> Partitioner:
    """Return NVIDIA's GPUs, or those that a server emulates: its folder, or the file there."""
    if word == NVIDIA:
        return NvidiaGpus()
    path = Path(word)
    return EmulatedGpus(path / FILE if path.is_dir() else path)


@dataclass(frozen=True, slots=True)
class GpusNow:
    """What is there now."""

    gpus: tuple[GpuState, ...]

    @property
    def document(self) -> dict[str, Any]:
        """What ``mig transition --from`` reads."""
        return state_document(self.gpus)

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """One row per slice, or per GPU that has none: head and rows."""
        head = ["gpu", "model", "mode", "slice", "identifier", "processes"]
        return head, [row for gpu in self.gpus for row in _rows(gpu)]


def _rows(gpu: GpuState) -> list[list[str]]:
    mode = gpu.mode.value
    if gpu.pending is not gpu.mode:
        mode = f"{mode}, {gpu.pending.value} after a reset"
    model = gpu.model or gpu.name
    first = [gpu.id, f"{model} (emulated)" if gpu.emulated else model, mode]
    if gpu.mode is GpuMode.WHOLE or not gpu.slices:
        return [[*first, "-", gpu.uuid, _listed(gpu.processes)]]
    return [
        [*first, str(one.place), one.uuid or "half-made", _listed(one.processes)]
        for one in gpu.slices
    ]


def _listed(processes: Sequence[int]) -> str:
    return " ".join(map(str, processes)) or "-"


def state(word: str = NVIDIA) -> GpusNow:
    """Look at the GPUs."""
    return GpusNow(gpus_of(word).look())


def cut(
    gpu: str,
    places: Sequence[str],
    *,
    whole: bool = False,
    gpus: str = NVIDIA,
    wait_s: float = 0.0,
    reporter: Reporter = SILENT,
) -> GpusNow:
    """Cut a GPU into slices, or make it whole; what fails half-way is undone."""
    if whole == bool(places):
        raise InvalidInput(
            "A GPU is cut into places, as in 3g.20gb@0 3g.20gb@4, or is --whole; name one."
        )
    target = None if whole else layout_of(places)
    with host_locked() if gpus == NVIDIA else nullcontext():
        found = repartition(gpus_of(gpus), gpu, target, DrainWait(wait_s), reporter.note)
    return GpusNow((found,))
