"""How many replicas each function should have in the slot that begins.

An advisor watches all functions at once.  It is asked at the beginning of a slot and told
afterwards how often each function was asked and how many replicas that took.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol

import numpy as np

from interlane.predict.arrivals.live import Forecaster
from interlane.predict.arrivals.rules import WarmRule
from interlane.predict.arrivals.series import Floats

LEAST: Final = 1e-9
"""A replica serves at least so much of a request."""


class Advisor(Protocol):
    """Says how many replicas to have."""

    def wanted(self) -> Floats:
        """Return the replicas of each function in the slot that begins."""
        ...

    def passed(self, counts: Floats, needs: Floats) -> None:
        """Learn the requests of the slot that ended, and the replicas they took."""
        ...


@dataclass(eq=False)
class LastSlotRule:
    """As many as the last slot took, and some more."""

    LEARNED: ClassVar = ("last_",)
    functions: int
    times: float = 1.0
    last_: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.last_ = np.zeros(self.functions)

    def wanted(self) -> Floats:
        """Return the last needs, multiplied and rounded up."""
        return np.ceil(self.last_ * self.times)

    def passed(self, counts: Floats, needs: Floats) -> None:
        """Remember the needs."""
        self.last_ = needs


@dataclass(eq=False)
class Peak:
    """As many as any of the last slots took: a keep-alive of replicas."""

    LEARNED: ClassVar = ("newest_", "at_")
    functions: int
    slots: int
    newest_: Floats = field(init=False, repr=False)
    at_: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self.newest_ = np.zeros((self.slots, self.functions))

    def wanted(self) -> Floats:
        """Return the largest of the last needs."""
        return np.asarray(self.newest_.max(axis=0))

    def passed(self, counts: Floats, needs: Floats) -> None:
        """Remember the needs."""
        self.newest_[self.at_ % self.slots] = needs
        self.at_ += 1


@dataclass(eq=False)
class Kept:
    """As many as were needed last, while a rule keeps the function warm."""

    LEARNED: ClassVar = ("last_",)
    rule: WarmRule
    functions: int
    last_: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.last_ = np.zeros(self.functions)

    @property
    def parts(self) -> Mapping[str, object]:
        """What learns inside it."""
        return {"rule": self.rule}

    def wanted(self) -> Floats:
        """Return the last needs that were not 0, where the rule says warm."""
        return np.where(self.rule.warm(), self.last_, 0.0)

    def passed(self, counts: Floats, needs: Floats) -> None:
        """Tell the rule, and remember the needs."""
        self.rule.passed(counts > 0)
        self.last_ = np.where(needs > 0, needs, self.last_)


@dataclass(eq=False)
class Hurdle:
    """None while a request is too improbable, else a quantile of the count if one comes."""

    forecast: Forecaster
    weight: Floats
    """For each function, how many idle slots a cold start is worth."""
    capacity: Floats
    """Requests in a slot that one replica can serve."""

    def wanted(self) -> Floats:
        """Return the replicas that are used with a probability above 1 / (1 + weight)."""
        chance = self.forecast.chances()
        pays = chance * (1 + self.weight) > 1
        level = 1 - 1 / np.maximum((1 + self.weight) * chance, 1.0)
        replicas = np.ceil(self.forecast.quantiles(level) / np.maximum(self.capacity, LEAST))
        return np.where(pays, np.maximum(1.0, replicas), 0.0)

    def passed(self, counts: Floats, needs: Floats) -> None:
        """Learn nothing: the forecast is told by whoever watches the functions."""
