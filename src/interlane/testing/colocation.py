"""Builders of slowdown tables and GPUs for tests of colocators."""

from collections.abc import Mapping, Sequence

import numpy as np

from interlane.model import GpuRef, MachineId
from interlane.model.function import Function
from interlane.policy.colocate.gpus import ColocatedGpu, Gpus
from interlane.policy.colocate.slowdown import SharingTables, Slowdowns
from interlane.predict.slowdown.models import SlowdownEstimate
from interlane.predict.slowdown.pairs import Profiles
from interlane.predict.slowdown.table import CellBasis, SlowdownTable


def flat_table(
    names: Sequence[str], kept: Mapping[tuple[str, str], float], *, spread: float = 1e-6
) -> SlowdownTable:
    """Return a table: pairs retain what is given, all others everything.

    Bounds lie one ``spread`` below, as a logarithm.
    """
    count = len(names)
    profiles = Profiles(
        tuple(names), tuple(names), ("T4",), ("sm_active",), np.full((1, count, 1), 0.5)
    )
    mean = np.zeros((count, count))
    for (victim, aggressor), throughput in kept.items():
        mean[names.index(victim), names.index(aggressor)] = np.log(throughput)
    estimate = SlowdownEstimate(mean.ravel(), np.full(count**2, spread))
    return SlowdownTable(
        profiles, estimate, np.ones(1), np.full(count**2, CellBasis.PREDICTED, np.int8)
    )


def flat_slowdowns(
    names: Sequence[str],
    kept: Mapping[tuple[str, str], float],
    *,
    spread: float = 1e-6,
    cautious: bool = True,
) -> Slowdowns:
    """Return slowdowns of one mode by ``flat_table``."""
    table = flat_table(names, kept, spread=spread)
    return Slowdowns({"side-by-side": SharingTables(table, table)}, cautious=cautious)


def gpu_ref(number: int) -> GpuRef:
    """Return a GPU of ``gpus_with``."""
    return GpuRef(MachineId("m"), number)


def gpus_with(trainers: Sequence[str | None], *, memory_mib: int = 1000) -> Gpus:
    """Return GPUs of one machine with these training jobs and this much memory left."""
    return Gpus(
        [
            ColocatedGpu(gpu_ref(number), "T4", memory_mib, trainer=trainer)
            for number, trainer in enumerate(trainers)
        ]
    )


def function(name: str = "f", *, memory_mib: int = 100, number: int = 0) -> Function:
    """Return a replica of a function."""
    return Function(f"{name}/{number}", name, memory_mib)
