"""Keep-alive rules that everybody knows: beside them every forecaster is shown.

A rule watches many functions at once.  It answers at the beginning of a slot which of them are
warm, and is told afterwards which were asked.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Final, Protocol

import numpy as np

from interlane.predict.arrivals import compiled
from interlane.predict.arrivals.series import HOUR_S, Floats, Mask, Series

REFERENCE_SLOTS: Final = 10
"""The keep-alive that forecasters are held against: common clouds keep functions so long."""


class WarmRule(Protocol):
    """Says which functions are warm."""

    def warm(self) -> Mask:
        """Return which functions are warm in the slot that begins."""
        ...

    def passed(self, active: Mask) -> None:
        """Learn which functions were asked in the slot that ended."""
        ...

    def follow(self, series: Series) -> Mask:
        """Return for each slot of one function whether it was warm; all begins anew."""
        ...


@dataclass(eq=False)
class KeepAlive:
    """Warm for some slots after each request."""

    LEARNED: ClassVar = ("ago_",)
    slots: int
    functions: int = 1
    ago_: Floats = field(init=False, repr=False)
    """Slots since the last request, 1 for the slot that begins after it; 0 without any."""

    def __post_init__(self) -> None:
        self.ago_ = np.zeros(self.functions)

    def warm(self) -> Mask:
        """Return which functions were asked recently enough."""
        return np.asarray((self.ago_ > 0) & (self.ago_ <= self.slots))

    def passed(self, active: Mask) -> None:
        """Learn which functions were asked."""
        self.ago_ = np.where(active, 1.0, self.ago_ + (self.ago_ > 0))

    def follow(self, series: Series) -> Mask:
        """Return for each slot of one function whether it was warm."""
        slots = np.arange(len(series))
        last = np.maximum.accumulate(np.where(series.active, slots, -len(slots) - self.slots))
        return np.append(False, slots[1:] - last[:-1] <= self.slots)[: len(slots)]


@dataclass(eq=False)
class Histogram:
    """Warm between two quantiles of the gaps between requests.

    The hybrid histogram of "Serverless in the Wild" (without its ARIMA), and with a weight
    for the gaps of the last hour INFless' LSTH.
    """

    LEARNED: ClassVar = ("gaps_",)
    slot_s: float
    functions: int = 1
    head: float = 0.05
    tail: float = 0.99
    recent_weight: float = 0.0
    recent_s: float = HOUR_S
    longest_s: float = 4 * HOUR_S
    least_gaps: int = 5
    gaps_: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.gaps_ = self._nothing(self.functions)

    @property
    def _longest(self) -> int:
        return max(1, round(self.longest_s / self.slot_s))

    @property
    def _recent(self) -> int:
        return max(1, round(self.recent_s / self.slot_s))

    def _nothing(self, functions: int) -> Floats:
        return np.zeros((functions, compiled.COUNTS + 2 * self._longest + 2 + self._recent))

    @property
    def _settings(self) -> tuple[int, int, float, float, float, float]:
        quantiles = self.head, self.tail
        return (
            self._longest,
            self._recent,
            *quantiles,
            float(self.least_gaps),
            self.recent_weight,
        )

    def warm(self) -> Mask:
        """Return for which functions the slot that begins lies between the quantiles."""
        out = np.zeros(len(self.gaps_), bool)
        compiled.warm_now(self.gaps_, out)
        return out

    def passed(self, active: Mask) -> None:
        """Learn which functions were asked."""
        compiled.learn_gaps(self.gaps_, *self._settings, active)

    def follow(self, series: Series) -> Mask:
        """Return for each slot of one function whether it was warm."""
        out = np.zeros(len(series), bool)
        compiled.follow_gaps(self._nothing(1)[0], *self._settings, series.active, out)
        return out


RULES: Final[Mapping[str, Callable[[float, int], WarmRule]]] = MappingProxyType(
    {
        "keep-alive 1": lambda _, functions: KeepAlive(1, functions),
        "keep-alive 3": lambda _, functions: KeepAlive(3, functions),
        "keep-alive 10": lambda _, functions: KeepAlive(REFERENCE_SLOTS, functions),
        "keep-alive 20": lambda _, functions: KeepAlive(20, functions),
        "hybrid-histogram": lambda slot_s, functions: Histogram(slot_s, functions),
        "lsth": lambda slot_s, functions: Histogram(slot_s, functions, recent_weight=0.5),
    }
)
"""Name -> maker of a rule for slots of a width and so many functions."""
