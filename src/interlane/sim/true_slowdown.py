"""How much jobs and functions really slow each other down: as it was measured.

No policy reads this.  Pairs are those of a set of measured co-runs; how more than two add up is
a public curve, point by point.  What schedulers think of pairs is ``policy/colocate``, which
has seen a part of them at most, and how several add up is another rule there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self
from zlib import crc32

import numpy as np

from interlane.model import InvalidField, Job
from interlane.predict.slowdown.pairs import Floats, Pairs
from interlane.traces.colocation.multiway import MultiwayCurve

SERVES_BELOW: Final = 0.45
"""Workloads that keep a GPU less busy than this serve as functions, every second of them."""
ALONE: Final = "alone"
"""The one workload of a world in which all are alike."""


@dataclass(frozen=True, eq=False)
class TrueSlowdowns:
    """See the module's text."""

    name: str
    workloads: tuple[str, ...]
    excess: Sequence[Sequence[float]]
    """Slowdown less 1, by victim and neighbour."""
    use: tuple[float, ...]
    """Share of a GPU that each workload keeps busy alone."""
    memory: tuple[float, ...]
    """Share of a GPU's memory that it takes."""
    trains: tuple[int, ...]
    """Workloads that jobs may be."""
    serves: tuple[int, ...]
    """Workloads that functions may be."""
    crowd: tuple[float, ...] = (1.0,)
    """By neighbours, from one on: the slowdown over the sum of pairwise ones, each less 1."""

    @cached_property
    def places(self) -> dict[str, int]:
        """Workload -> its number."""
        return {name: place for place, name in enumerate(self.workloads)}

    def slowdown(self, victim: int, beside: Iterable[tuple[int, float]]) -> float:
        """Return how much slower a workload is beside others, busy for a part of the time."""
        row, total, worst, neighbours = self.excess[victim], 0.0, 0.0, 0
        for other, busy in beside:
            cost = busy * row[other]
            total += cost
            worst = max(worst, cost)
            neighbours += 1
        if not neighbours:
            return 1.0
        factor = self.crowd[min(neighbours, len(self.crowd)) - 1]
        return 1.0 + max(factor * total, worst)

    def trained_by(self, job: Job, seed: int) -> int:
        """Return what a job trains: the same for jobs of one program, else drawn."""
        return self._drawn(self.trains, job.program or job.id, seed)

    def served_by(self, function: str, seed: int) -> int:
        """Return what a function serves."""
        return self._drawn(self.serves, function, seed)

    def _drawn(self, among: Sequence[int], name: str, seed: int) -> int:
        return among[crc32(f"{seed}/{name}".encode()) % len(among)]

    @classmethod
    def alike(cls, share: float) -> Self:
        """Return a world in which every neighbour costs the same share."""
        if not 0 <= share <= 1:
            raise InvalidField("truth", f"share:{share:g}", "the share must be from 0 to 1")
        return cls(f"share:{share:g}", (ALONE,), ((share,),), (0.5,), (0.25,), (0,), (0,))

    @classmethod
    def measured(cls, name: str, pairs: Pairs, curve: MultiwayCurve | None = None) -> Self:
        """Return the world of measured pairs, on their first GPU type."""
        profiles = pairs.profiles
        use = np.minimum(1.0, profiles.filled[0, :, profiles.counters.index("sm_active")])
        memory = np.minimum(1.0, profiles.filled[0, :, profiles.counters.index("memory")])
        victims = np.unique(pairs.victim)
        light = [
            int(one) for one in victims[np.argsort(use[victims])] if use[one] < SERVES_BELOW
        ]
        serves = tuple(light[::2]) or (int(victims[np.argmin(use[victims])]),)
        trains = tuple(int(one) for one in victims if int(one) not in serves)
        return cls(
            name,
            profiles.names,
            (true_slowdown(pairs) - 1.0).tolist(),
            tuple(use.tolist()),
            tuple(memory.tolist()),
            trains or serves,
            serves,
            (1.0,) if curve is None else crowd_factors(curve),
        )


def true_slowdown(pairs: Pairs) -> Floats:
    """Return slowdown by victim and neighbour, from 1 on, as it was measured.

    A pair that was not measured is what its two sides are elsewhere.
    """
    count = len(pairs.profiles)
    logs = np.full((count, count), np.nan)
    logs[pairs.victim, pairs.aggressor] = pairs.log_throughput
    known = ~np.isnan(logs)
    middle = float(pairs.log_throughput.mean())
    off = np.where(known, logs - middle, 0.0)
    sensitivity = off.sum(1) / np.maximum(known.sum(1), 1)
    pressure = off.sum(0) / np.maximum(known.sum(0), 1)
    logs = np.where(known, logs, middle + sensitivity[:, None] + pressure)
    return np.asarray(np.exp(-np.minimum(logs, 0.0)))


def crowd_factors(curve: MultiwayCurve) -> tuple[float, ...]:
    """Return by how much more than their sum neighbours cost, from one neighbour on."""
    neighbours = np.array(curve.engines[1:]) - 1
    excess = np.array(curve.slow_down[1:]) - 1.0
    over = excess / (neighbours * excess[0])
    every = np.interp(np.arange(1, neighbours[-1] + 1), neighbours, over)
    return tuple(every.tolist())
