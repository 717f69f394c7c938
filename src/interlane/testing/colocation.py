"""Builders of slowdown tables and GPUs for tests of co-location."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from random import Random

import numpy as np

from interlane.functions.events import Held
from interlane.functions.ledger import DeviceLedger, PlacedReplica
from interlane.model import (
    Device,
    GpuRef,
    JobId,
    MachineId,
    Refusal,
    Workload,
    WorkloadKind,
    with_devices,
)
from interlane.model.function import Function
from interlane.policy.colocate.gpus import ColocatedGpu, Gpus
from interlane.policy.colocate.interference import InterferenceModel, SlowdownTarget
from interlane.policy.colocate.place import Bounded
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


class OneMachineLedger(DeviceLedger):
    """A ledger of one machine's devices, decided by bounds, and short ways to use it."""

    def __init__(self, slowdowns: Slowdowns, *, gpus: int = 1, memory_mib: int = 1000) -> None:
        tables = slowdowns.modes["side-by-side"]
        model = InterferenceModel(
            {SlowdownTarget.TRAINING: tables.training, SlowdownTarget.LATENCY: tables.latency},
            slowdowns.rule,
            cautious=slowdowns.cautious,
        )
        super().__init__(Bounded(model.slowdowns), model)
        cards = [Device("T4", memory_mib)] * gpus
        self.follow([with_devices(MachineId("m"), cards, cpu_milli=1, memory_mib=1)], 0.0)
        self._numbers = count(1)
        self._rng = Random(0)

    def train(
        self, number: int, workload: str, memory_mib: int, use: float, now_s: float
    ) -> None:
        """Let a job begin on a device."""
        name = Workload(WorkloadKind.JOB, workload)
        held = Held(JobId(workload), name, memory_mib, use)
        self.hold(gpu_ref(number), (held,), now_s)

    def end(self, number: int, now_s: float) -> None:
        """Let the job of a device end."""
        self.hold(gpu_ref(number), (), now_s)

    def put(self, function: Function, now_s: float) -> PlacedReplica | Refusal:
        """Place a replica where the policy says."""
        number = next(self._numbers)
        need = replace(function, id=str(number))
        site = self.colocator.place(need, self.gpus, 0, now_s, self._rng)
        if isinstance(site, Refusal):
            return site
        return self.place(number, function.workload, need, site, now_s)

    def drop(self, replica: PlacedReplica | Refusal, now_s: float) -> None:
        """Let a replica be gone at once."""
        assert isinstance(replica, PlacedReplica)
        self.gone(replica, now_s)
