"""How far an estimate may be off: bounds that hold for the promised part of pairs.

Cross-conformal: every measured pair is estimated by a model that has not seen it (nor its other
direction), and how far it was off is counted in spreads.  The bound lies as many spreads below
the estimate as all but ``alpha`` of those needed.  GPU types are calibrated apart where enough
was measured; sharing modes and targets are, because each has a model of its own.
"""

from copy import copy
from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.model import InvalidField
from interlane.predict.slowdown.models import SlowdownEstimate, SlowdownPredictor
from interlane.predict.slowdown.pairs import Floats, Ints, Pairs
from interlane.predict.threads import one_thread

ALPHA: Final = 0.1
"""Part of pairs that may retain less than the bound says."""
FOLDS: Final = 5
APART: Final = 200
"""Measured pairs of a GPU type from which it is calibrated apart."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """How many spreads each measured pair was below its estimate, and on which GPU type."""

    scores: Floats
    gpu: Ints
    couples: Ints

    def lower(self, estimate: SlowdownEstimate, gpu: Ints, alpha: float = ALPHA) -> Floats:
        """Return what all but ``alpha`` of victims retain at least."""
        if not 0 < alpha < 1:
            raise InvalidField("alpha", alpha, "it must be a part between 0 and 1")
        needed = np.array([self.spreads(kind, alpha) for kind in range(int(gpu.max()) + 1)])
        return np.exp(estimate.mean - needed[gpu] * estimate.spread)

    def spreads(self, gpu: int, alpha: float = ALPHA) -> float:
        """Return how many spreads below its estimate the bound lies on a GPU type."""
        apart = self.gpu == gpu
        if apart.sum() < APART:
            apart = np.ones(len(self.gpu), bool)
        return _quantile(self.scores[apart], alpha, len(np.unique(self.couples[apart])))


def _quantile(scores: Floats, alpha: float, couples: int) -> float:
    """Return the score that a further one exceeds with at most chance ``alpha``.

    One standard deviation of what chance does to so few couples is added: without it the
    bound would hold in every second sample only.
    """
    part = 1.0 - alpha + np.sqrt(alpha * (1.0 - alpha) / couples)
    rank = int(np.ceil((len(scores) + 1) * part))
    return float(np.sort(scores)[min(rank, len(scores)) - 1])


def calibrated(model: SlowdownPredictor, pairs: Pairs, seed: int = 0) -> Bounds:
    """Fit a model to all pairs and return its bounds; folds learn what is quick to learn.

    On one core: matrices are so small that threads would wait for each other.
    """
    scores = np.empty(len(pairs))
    with one_thread():
        model.fit(pairs)
        for held in _folds(pairs, seed):
            estimate = copy(model).refit(pairs.where(~held)).predict(pairs.where(held))
            scores[held] = (estimate.mean - pairs.log_throughput[held]) / estimate.spread
    return Bounds(scores, pairs.gpu, pairs.couples)


def _folds(pairs: Pairs, seed: int) -> list[np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Part the pairs at random; both directions of a pair are in the same fold."""
    couples, place = np.unique(pairs.couples, return_inverse=True)
    fold = np.random.default_rng(seed).permutation(len(couples)) % min(FOLDS, len(couples))
    return [fold[place] == one for one in range(int(fold.max()) + 1)]
