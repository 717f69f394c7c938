"""More than two on one GPU: what pairs do not say.

SMore adds up pairwise slowdowns, with a weight.  Measured curves bend upwards: beside the
sum, every *two* neighbours also get into each other's way, and a resource of which more is
asked than there is slows everybody.  So

    slowdown = 1 + w * sum of pairwise + c * pairs of neighbours + overflow of each resource

Weights are learned as co-runs are measured, by recursive least squares from a start at which
the rule is SMore's; one set of weights for each GPU type or class of work, as one likes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from interlane.predict.slowdown.pairs import Floats

RESOURCES: Final = ("sm_active", "dram_active", "pcie", "host_cpu")
FREE_UNTIL: Final = 1.0
"""Summed use of a resource from which it is short."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """One victim and its neighbours on a GPU."""

    pairwise: tuple[float, ...]
    """Slowdown by each neighbour alone, 1 for none."""
    use: Mapping[str, float] = field(default_factory=dict)
    """Summed solo use of resources, victim included; what is not known is left out."""


@dataclass
class WeightedSum:
    """SMore's rule: pairwise slowdowns add up, with a weight learned online."""

    weight: float = 1.0
    _seen: float = 1e-2

    def slow_down(self, crowd: Crowd) -> float:
        """Return 1 plus the weighted sum."""
        return self.total(_excess(crowd))

    def total(self, excess: float, worst: float = 0.0, neighbours: int = 0) -> float:
        """Return the same of a sum of pairwise slowdowns less 1."""
        return 1.0 + self.weight * excess

    def learn(self, crowd: Crowd, slow_down: float) -> None:
        """Move the weight towards what was measured."""
        excess = _excess(crowd)
        self._seen += excess**2
        off = slow_down - self.slow_down(crowd)
        self.weight += off * excess / self._seen

    def snapshot(self) -> Floats:
        """Return what was learned."""
        return np.array([self.weight, self._seen])

    def restore(self, learned: Floats) -> None:
        """Go on from what was learned."""
        self.weight, self._seen = learned.tolist()


@dataclass
class SuperAdditive:
    """Ours: the sum, pairs of neighbours, and overflow of each resource."""

    weights: Floats = field(init=False)
    covariance: Floats = field(init=False)
    noise: float = 0.05
    forgetting: float = 1.0
    _weight: float = field(init=False, repr=False)
    _crowding: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.weights = np.array([1.0, 0.0, *(0.0 for _ in RESOURCES)])
        # Sums are nearly right; how neighbours meet each other is not known beforehand.
        self.covariance = np.diag(np.square([0.05, 0.2, *(0.05 for _ in RESOURCES)]))
        self._weight, self._crowding = 1.0, 0.0

    def slow_down(self, crowd: Crowd) -> float:
        """Return the slowdown: never below that by the worst neighbour alone."""
        told = 1.0 + float(self.weights @ _terms(crowd))
        return max(told, 1.0, *crowd.pairwise)

    def total(self, excess: float, worst: float, neighbours: int) -> float:
        """Return the same where use of resources is not known, of plain numbers.

        ``excess`` is the sum and ``worst`` the largest of pairwise slowdowns less 1.
        """
        told = self._weight * excess + self._crowding * neighbours * (neighbours - 1) / 2
        return 1.0 + max(told, worst)

    def learn(self, crowd: Crowd, slow_down: float) -> None:
        """Move the weights towards what was measured."""
        terms = _terms(crowd)
        towards = self.covariance @ terms
        gain = towards / (self.forgetting * self.noise**2 + terms @ towards)
        self.weights = self.weights + gain * (slow_down - 1.0 - self.weights @ terms)
        self.covariance = (self.covariance - np.outer(gain, towards)) / self.forgetting
        self._weight, self._crowding = self.weights[:2].tolist()

    def snapshot(self) -> Floats:
        """Return what was learned: weights, then their covariance."""
        return np.vstack([self.weights, self.covariance])

    def restore(self, learned: Floats) -> None:
        """Go on from what was learned."""
        self.weights, self.covariance = learned[0].copy(), learned[1:].copy()
        self._weight, self._crowding = self.weights[:2].tolist()


def fits(memory: Sequence[float], host_threads: Sequence[int], cores: int) -> bool:
    """Tell whether work may share a GPU at all: memory sums up, threads do not crowd the host.

    More threads than cores made four engines collapse to a fifth of their speed; no weight
    of a rule should have to learn that.
    """
    return sum(memory) <= 1.0 and sum(host_threads) <= cores


def _excess(crowd: Crowd) -> float:
    return sum(one - 1.0 for one in crowd.pairwise)


def _terms(crowd: Crowd) -> Floats:
    neighbours = len(crowd.pairwise)
    over = [max(0.0, crowd.use.get(name, 0.0) - FREE_UNTIL) ** 2 for name in RESOURCES]
    if neighbours < 2:
        # What two do to each other is in their pairwise figure already.
        over = [0.0] * len(RESOURCES)
    return np.array([_excess(crowd), neighbours * (neighbours - 1) / 2, *over])
