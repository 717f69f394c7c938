"""The machines, and what was measured on them while instances ran there."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.model import Cluster, Machine
from interlane.model.units import MIB_PER_GIB, MILLI
from interlane.traces.clusters import load_cluster
from interlane.traces.synth_pai import shares as of
from interlane.traces.synth_pai.deal import Floats, Ints, Rng

Singles = NDArray[np.float32]

MEASURED: Final = {
    # GPUs of a machine -> percent used at quantiles over machines at a time (figure 6).
    0: ((0.0, 0.5, 0.9, 1.0), (2.0, 20.0, 55.0, 95.0), (0.0, 0.0, 0.0, 0.0)),
    2: ((0.0, 0.5, 0.9, 1.0), (1.0, 9.9, 37.5, 90.0), (0.0, 10.6, 78.0, 100.0)),
    8: ((0.0, 0.5, 0.9, 1.0), (4.0, 32.5, 76.0, 99.0), (0.0, 21.7, 89.0, 100.0)),
}
FOLLOWS: Final = 0.5
SMOOTH: Final = 0.97
"""How much a machine's measured use follows that of the instances known to have run there."""
HEAT_HOURS: Final = 6
HEAT_LASTS: Final = 0.97
"""From one period of six hours to the next: what else a machine does changes in days."""

BANDWIDTH: Final = {0: 1.25e9, 2: 1.25e9, 8: 3.125e9}
"""Guaranteed bytes per second, by GPUs of the machine."""


@dataclass(frozen=True)
class MachineColumns:
    """One entry per machine in every column, ordered by kind."""

    kind: Ints
    gpus: Ints
    cpus: Ints
    memory_gib: Ints

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.kind)


def part_of_cluster(scale: float) -> Cluster:
    """Return a cluster of the published machines, each kind scaled down."""
    return Cluster(f"pai2020-x{scale:g}", tuple(_scaled(scale)))


def make_machines(scale: float) -> MachineColumns:
    """Return the published machines, each kind scaled, at least one of each."""
    kinds = {kind: number for number, kind in enumerate(of.KINDS)}
    rows = [
        (kinds[one.gpu_type], one.gpus, one.cpu_milli // MILLI, one.memory_mib // MIB_PER_GIB)
        for one in _scaled(scale)
    ]
    columns = np.array(rows, np.int64).T
    return MachineColumns(*columns)


def _scaled(scale: float) -> Iterator[Machine]:
    """Yield so many times the machines of each kind, the weakest kind first."""
    by_kind: dict[str, list[Machine]] = {kind: [] for kind in of.KINDS}
    for one in load_cluster("pai2020"):
        by_kind[one.gpu_type].append(one)
    for have in by_kind.values():
        count = max(1, round(scale * len(have)))
        yield from (have[at * len(have) // count] for at in range(count))


def draw_heat(rng: Rng, machines: MachineColumns, hours: int) -> Singles:
    """Draw, per machine and period, how busy it is with what the tables do not show."""
    periods = hours // HEAT_HOURS + 1
    heat = np.empty((machines.count, periods), np.float32)
    heat[:, 0] = rng.standard_normal(machines.count)
    fresh = np.sqrt(1 - HEAT_LASTS**2)
    for period in range(1, periods):
        heat[:, period] = HEAT_LASTS * heat[:, period - 1]
        heat[:, period] += fresh * rng.standard_normal(machines.count)
    return heat


class UsageMeter:
    """Adds up what instances use, by machine and hour."""

    def __init__(self, machines: int, begin_s: int, hours: int) -> None:
        self._begin_s = begin_s
        self._hours = hours
        # CPU, GPU and instances; one hour more, where what lasts to the end is taken off.
        self._sums = np.zeros((3, machines, hours + 1), np.float32)

    def add(self, machine: Ints, start_s: Ints, end_s: Ints, cpu: Floats, gpu: Floats) -> None:
        """Spread the use of instances over the hours in which they ran."""
        begin = (start_s - self._begin_s) / of.HOUR_S
        end = (end_s - self._begin_s) / of.HOUR_S
        first, last = begin.astype(np.int64), end.astype(np.int64)
        # As differences: a level from the first hour on, mended where hours are not whole.
        steps = (
            (first, 1.0 - (begin - first)),
            (first + 1, begin - first),
            (last, -(1.0 - (end - last))),
            (last + 1, -(end - last)),
        )
        for level, amount in zip(self._sums, (cpu, gpu, np.ones(len(cpu))), strict=True):
            flat = level.reshape(-1)
            for hour, part in steps:
                inside = np.minimum(hour, self._hours)
                np.add.at(flat, machine * (self._hours + 1) + inside, amount * part)

    def levels(self) -> tuple[Singles, Singles, Singles]:
        """Return mean CPU, GPU and instances of every machine in every hour."""
        cpu, gpu, instances = np.maximum(np.cumsum(self._sums, axis=2), 0)[:, :, :-1]
        return cpu, gpu, instances


def measured(
    machines: MachineColumns, heat: Singles, cpu: Singles, gpu: Singles, running: Singles
) -> tuple[Singles, Singles]:
    """Return the percent of CPU and GPU in use on every machine in every hour.

    Machines are ranked in every hour by what ran on them of late and by what the tables do
    not show; the published quantiles over machines are then read at these ranks.
    """
    hours = cpu.shape[1]
    unseen = heat[:, np.arange(hours) // HEAT_HOURS]
    found_cpu, found_gpu = np.zeros_like(cpu), np.zeros_like(gpu)
    for gpus, (at, cpu_percent, gpu_percent) in MEASURED.items():
        some = machines.gpus == gpus
        if not some.any():
            continue
        for level, percent, found in (
            (cpu, cpu_percent, found_cpu),
            (gpu, gpu_percent, found_gpu),
        ):
            score = FOLLOWS * _scores(_of_late(level[some]))
            score += np.sqrt(1 - FOLLOWS**2) * unseen[some]
            found[some] = np.interp(_ranks_among(score, running[some] > 0.1), at, percent)
    return found_cpu, found_gpu


def _of_late(level: Singles) -> Singles:
    """Return the level with each hour blended into those before it."""
    blended = level.copy()
    for hour in range(1, level.shape[1]):
        blended[:, hour] = SMOOTH * blended[:, hour - 1] + (1 - SMOOTH) * level[:, hour]
    return blended


def _ranks(level: Singles) -> Floats:
    order = np.argsort(np.argsort(level, axis=0), axis=0)
    return np.asarray((order + 0.5) / len(level))


def _ranks_among(level: Singles, among: NDArray[np.bool_]) -> Floats:
    """Return ranks among some machines in each hour; the others come before them all."""
    behind = np.where(among, level, -np.inf)
    order = np.argsort(np.argsort(behind, axis=0), axis=0)
    others = (~among).sum(axis=0)
    return np.asarray((order - others + 0.5) / np.maximum(among.sum(axis=0), 1))


def _scores(level: Singles) -> Singles:
    """Return ranks as if normally distributed (Tukey's lambda, close enough to the normal)."""
    rank = _ranks(level)
    return np.asarray(4.91 * (rank**0.14 - (1 - rank) ** 0.14), np.float32)


def mean_over(level: Singles, machine: Ints, first: Ints, last: Ints) -> Floats:
    """Return the mean of a machine's level over hours ``first`` to ``last``, both in."""
    reached = np.zeros((level.shape[0], level.shape[1] + 1), np.float64)
    np.cumsum(level, axis=1, out=reached[:, 1:])
    return np.asarray(
        (reached[machine, last + 1] - reached[machine, first]) / (last + 1 - first)
    )
