"""Builders of slow-down tables and GPUs for tests of colocators."""

from collections.abc import Mapping, Sequence

import numpy as np

from interlane.model import GpuRef, MachineId
from interlane.model.function import Function
from interlane.policy.colocate.gpus import Gpu, Gpus
from interlane.policy.colocate.slowdown import Mode, Tolls
from interlane.predict.degradation.models import Guess
from interlane.predict.degradation.pairs import Profiles
from interlane.predict.degradation.table import Basis, Table


def flat_table(
    names: Sequence[str], kept: Mapping[tuple[str, str], float], *, spread: float = 1e-6
) -> Table:
    """Return a table: pairs retain what is given, all others everything.

    Bounds lie one ``spread`` below, as a logarithm.
    """
    count = len(names)
    profiles = Profiles(
        tuple(names), tuple(names), ("T4",), ("sm_active",), np.full((1, count, 1), 0.5)
    )
    mean = np.zeros((count, count))
    for (victim, aggressor), retained in kept.items():
        mean[names.index(victim), names.index(aggressor)] = np.log(retained)
    guess = Guess(mean.ravel(), np.full(count**2, spread))
    return Table(profiles, guess, np.ones(1), np.full(count**2, Basis.PREDICTED, np.int8))


def flat_tolls(
    names: Sequence[str],
    kept: Mapping[tuple[str, str], float],
    *,
    spread: float = 1e-6,
    cautious: bool = True,
) -> Tolls:
    """Return tolls of one mode by ``flat_table``."""
    table = flat_table(names, kept, spread=spread)
    return Tolls({"side-by-side": Mode(table, table)}, cautious=cautious)


def gpu_ref(number: int) -> GpuRef:
    """Return a GPU of ``gpus_with``."""
    return GpuRef(MachineId("m"), number)


def gpus_with(trainers: Sequence[str | None], *, memory_mib: int = 1000) -> Gpus:
    """Return GPUs of one machine with these training jobs and this much memory left."""
    return Gpus(
        [
            Gpu(gpu_ref(number), "T4", memory_mib, trainer=trainer)
            for number, trainer in enumerate(trainers)
        ]
    )


def function(name: str = "f", *, memory_mib: int = 100, number: int = 0) -> Function:
    """Return a replica of a function."""
    return Function(f"{name}/{number}", name, memory_mib)
