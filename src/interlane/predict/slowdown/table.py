"""What schedulers read: for every pair the mean and the bound of what the victim retains.

A cell begins with the model's estimate.  Measured co-runs are added by their precision and
forgotten with a half-life, because the same pair measured a year later is another number.
Reading a cell is one look into an array; all arithmetic happens when something was measured.

A workload or GPU type that nobody measured has a stated fallback (``CellBasis``), never an
error: whoever asks is in the middle of a decision.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.predict.slowdown.bounds import Bounds
from interlane.predict.slowdown.models import Linear, SlowdownEstimate, SlowdownPredictor
from interlane.predict.slowdown.pairs import (
    THROUGHPUT_LEAST,
    THROUGHPUT_MOST,
    Floats,
    Pairs,
    Profiles,
    every_pair,
)

HALF_LIFE_S: Final = 86_400.0
NOISE: Final = 0.05
"""Standard deviation of one measured co-run, as a logarithm."""
PROBES_MOST: Final = 4


class CellBasis(IntEnum):
    """What a cell rests on."""

    MEASURED = 0
    """This pair was measured on this GPU type."""
    PREDICTED = 1
    """Both workloads were measured in their role, with others."""
    HINGE = 2
    """One was never measured in its role: by how far both ask for more than there is."""
    OTHER_GPU = 3
    """The GPU type was never measured: the worst of those that were."""
    UNKNOWN = 4
    """A workload that nobody has seen: the worst tenth of everything."""


@dataclass(frozen=True, slots=True)
class CellReading:
    """What is known of one pair."""

    throughput: float
    lower: float
    """What it retains at least, but for one pair in ten."""
    basis: CellBasis


class SlowdownTable:
    """Cells of one way to share: GPU type x victim x aggressor."""

    def __init__(
        self,
        profiles: Profiles,
        estimate: SlowdownEstimate,
        spreads: Floats,
        basis: NDArray[np.int8],
        *,
        half_life_s: float = HALF_LIFE_S,
    ) -> None:
        """Begin with estimates in the order of ``every_pair``; ``spreads`` one a GPU type."""
        shape = (len(profiles.gpu_types), len(profiles), len(profiles))
        self.profiles = profiles
        self.half_life_s = half_life_s
        self.spreads = spreads
        self.prior = estimate.mean.reshape(shape)
        self.prior_spread = estimate.spread.reshape(shape)
        self.basis = basis.reshape(shape)
        self.shift = np.zeros(shape)
        """What residuals of neighbouring cells say of each; see ``online``."""
        self.seen_mean = np.zeros(shape)
        self.seen_weight = np.zeros(shape)
        """Co-runs behind ``seen_mean``, faded."""
        self.seen_at_s = np.zeros(shape)
        self.mean = np.empty(shape)
        self.lower = np.empty(shape)
        for gpu in range(shape[0]):
            self.refresh(gpu)

    @cached_property
    def _gpus(self) -> Mapping[str, int]:
        return {name: place for place, name in enumerate(self.profiles.gpu_types)}

    @cached_property
    def _workloads(self) -> Mapping[str, int]:
        return {name: place for place, name in enumerate(self.profiles.names)}

    def gpu(self, gpu_type: str) -> int:
        """Return the number of a GPU type; -1 where it was never measured."""
        return self._gpus.get(gpu_type, -1)

    def workload(self, name: str) -> int:
        """Return the number of a workload; -1 where it is not known."""
        return self._workloads.get(name, -1)

    def read(self, gpu: int, victim: int, aggressor: int) -> CellReading:
        """Return a cell, or the fallback that its basis names; never raises."""
        if victim < 0 or aggressor < 0:
            worst = self._worst_tenth
            return CellReading(worst, worst, CellBasis.UNKNOWN)
        if gpu < 0:
            at = int(np.argmin(self.lower[:, victim, aggressor]))
            basis = CellBasis.OTHER_GPU
        else:
            at, basis = gpu, CellBasis(int(self.basis[gpu, victim, aggressor]))
        cell = at, victim, aggressor
        return CellReading(float(np.exp(self.mean[cell])), float(self.lower[cell]), basis)

    @cached_property
    def _worst_tenth(self) -> float:
        return float(np.quantile(self.lower, 0.1))

    def padded(self, gpu: int, *, cautious: bool = True) -> Floats:
        """Return victim x aggressor bounds, or means, with a last row and column: unknown."""
        kept = self.lower if cautious else np.exp(self.mean)
        padded = np.full((len(self.profiles) + 1, len(self.profiles) + 1), self._worst_tenth)
        padded[:-1, :-1] = kept[gpu] if gpu >= 0 else kept.min(axis=0)
        return padded

    def measured(
        self, gpu: int, victim: int, aggressor: int, throughput: float, now_s: float
    ) -> None:
        """Add one measured co-run to its cell; ``refresh`` makes it readable."""
        cell = gpu, victim, aggressor
        faded = self.seen_weight[cell] * self._fade(now_s - self.seen_at_s[cell])
        value = np.log(min(max(throughput, THROUGHPUT_LEAST), THROUGHPUT_MOST))
        self.seen_mean[cell] = (faded * self.seen_mean[cell] + value) / (faded + 1.0)
        self.seen_weight[cell] = faded + 1.0
        self.seen_at_s[cell] = now_s
        self.basis[cell] = CellBasis.MEASURED

    def refresh(self, gpu: int, now_s: float | None = None) -> None:
        """Compute what is read of one GPU type, with measurements as faded as they are now."""
        weight = self.seen_weight[gpu]
        if now_s is not None:
            weight = weight * self._fade(now_s - self.seen_at_s[gpu])
        prior_precision = 1.0 / self.prior_spread[gpu] ** 2
        seen_precision = weight / NOISE**2
        precision = prior_precision + seen_precision
        prior = self.prior[gpu] + self.shift[gpu]
        mean = (prior * prior_precision + self.seen_mean[gpu] * seen_precision) / precision
        self.mean[gpu] = mean
        self.lower[gpu] = np.exp(mean - self.spreads[gpu] / np.sqrt(precision))
        self.__dict__.pop("_worst_tenth", None)

    def _fade(self, age_s: Floats) -> Floats:
        faded: Floats = 0.5 ** (np.maximum(age_s, 0.0) / self.half_life_s)
        return faded


def complete(
    model: SlowdownPredictor, bounds: Bounds, hinge: Linear, hinge_bounds: Bounds, known: Pairs
) -> SlowdownTable:
    """Fill a table: measured cells, the model where both sides are known, else the hinge."""
    profiles = known.profiles
    every = every_pair(profiles)
    as_victim, as_aggressor = np.zeros((2, len(profiles.gpu_types), len(profiles)), bool)
    as_victim[known.gpu, known.victim] = as_aggressor[known.gpu, known.aggressor] = True
    both = as_victim[every.gpu, every.victim] & as_aggressor[every.gpu, every.aggressor]
    ours, fallback = model.predict(every), hinge.predict(every)
    gpus = range(len(profiles.gpu_types))
    spreads = np.array([bounds.spreads(gpu) for gpu in gpus])
    wider = np.array([hinge_bounds.spreads(gpu) for gpu in gpus]) / spreads
    estimate = SlowdownEstimate(
        np.where(both, ours.mean, fallback.mean),
        np.where(both, ours.spread, fallback.spread * np.maximum(wider, 0.1)[every.gpu]),
    )
    basis = np.where(both, CellBasis.PREDICTED, CellBasis.HINGE).astype(np.int8)
    table = SlowdownTable(profiles, estimate, spreads, basis)
    for row in range(len(known)):
        cell = int(known.gpu[row]), int(known.victim[row]), int(known.aggressor[row])
        table.measured(*cell, float(known.throughput[row]), now_s=0.0)
    for gpu in gpus:
        table.refresh(gpu)
    return table
