"""How long a turn lasts, and when a holder counts as hung."""

from dataclasses import dataclass
from statistics import median_low

from interlane.model import InvalidField

_KEPT = 31
"""Measured switches that the median is taken over."""


@dataclass(frozen=True, slots=True)
class TurnRule:
    """Turns long enough for switches to cost ``overhead`` of the time, within bounds."""

    overhead: float = 0.02
    least_s: float = 0.001
    most_s: float = 30.0
    switch_cost_s: float = 0.001
    """Assumed until it is measured, and of a turn too short to show how slowly it began: that
    makes the next ones longer."""

    def __post_init__(self) -> None:
        if not 0 < self.overhead < 1:
            raise InvalidField("overhead", self.overhead, "it must be between 0 and 1")
        if not 0 < self.least_s <= self.most_s:
            raise InvalidField("least_s", self.least_s, "it must be above 0 and at most most_s")

    def quantum_s(self, switch_cost_s: float) -> float:
        """Return the shortest turn that keeps the overhead."""
        return min(self.most_s, max(self.least_s, switch_cost_s / self.overhead))


class Quantum:
    """The turn of one domain, from the median of its latest switches."""

    def __init__(self, rule: TurnRule) -> None:
        self._rule = rule
        self._costs_s: list[float] = []
        self.turn_s = rule.quantum_s(rule.switch_cost_s)

    def learn(self, way_s: float, warm_up_s: float | None) -> None:
        """Take a measured switch into account."""
        cost_s = way_s + (self._rule.switch_cost_s if warm_up_s is None else warm_up_s)
        self._costs_s = [*self._costs_s[1 - _KEPT :], max(0.0, cost_s)]
        self.turn_s = self._rule.quantum_s(median_low(self._costs_s))


@dataclass(frozen=True, slots=True)
class HangRule:
    """A holder that was asked to stop is hung when its boundary is overdue by this much."""

    iterations: float = 10.0
    """Of its own usual length."""
    least_s: float = 5.0
    first_s: float = 120.0
    """For a job that has not finished an iteration yet, whose first may be slow."""

    def allowed_s(self, iteration_s: float | None) -> float:
        """Return how long a boundary may take from the request on."""
        if iteration_s is None:
            return self.first_s
        return max(self.least_s, self.iterations * iteration_s)
