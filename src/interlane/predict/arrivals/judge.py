"""How good it is to keep functions warm, and what forecasts are worth.

Whether a function is warm is decided at the beginning of a slot, from the slots before.  A
slot with requests that is not warm is a *cold start*; a warm slot without any is *wasted*.
The cold rate is a share of the slots with requests, waste a share of all slots.

A score is judged at every threshold at once: the least waste at which no more is cold than
under a rule, and the fewest cold starts at which no more is wasted.  Functions that are busy
almost always leave nothing to decide and are left out.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.model import InvalidField, InvalidInput
from interlane.predict.arrivals.rules import WarmRule
from interlane.predict.arrivals.series import Arrivals, Floats, Mask, Series, split_at

KNOWN: Final = 0.7
"""The part of each function's slots that is learned from; the rest is judged."""
LEAST_EMPTY: Final = 0.02
"""Functions with a smaller share of empty slots are left out."""


@dataclass(frozen=True, slots=True)
class WarmTally:
    """What came of being warm at some times."""

    cold: int
    active: int
    wasted: int
    slots: int

    @property
    def cold_rate(self) -> float:
        """The share of the slots with requests that found the function cold."""
        return self.cold / self.active if self.active else 0.0

    @property
    def waste(self) -> float:
        """The share of all slots in which a function was warm and not asked."""
        return self.wasted / self.slots if self.slots else 0.0

    def cost(self, cold_weight: float) -> float:
        """Return the cost of a slot, in wasted slots; a cold start is so many of them."""
        return (cold_weight * self.cold + self.wasted) / self.slots if self.slots else 0.0


def tally(warm: Mask, active: Mask) -> WarmTally:
    """Count what came of being warm."""
    return WarmTally(
        int((active & ~warm).sum()), int(active.sum()), int((warm & ~active).sum()), len(warm)
    )


@dataclass(frozen=True, eq=False)
class Trial:
    """The functions and slots that are judged."""

    arrivals: Arrivals
    part: float = KNOWN
    least_empty: float = LEAST_EMPTY

    def __post_init__(self) -> None:
        if not 0 < self.part < 1:
            raise InvalidField("part", self.part, "it must be a part between 0 and 1")
        if not len(self.active):
            raise InvalidInput(
                "There is nothing to judge: no function has watched slots that are not "
                "almost always busy; give a longer trace or narrower slots."
            )
        if not self.active.any():
            raise InvalidInput(
                "There is nothing to judge: in the judged part no function has a request; "
                "give a longer trace or learn from a smaller part."
            )

    @property
    def judged(self) -> tuple[Series, ...]:
        """The functions that are judged."""
        return tuple(one for one in self.arrivals if one.empty_share >= self.least_empty)

    @property
    def active(self) -> Mask:
        """Whether there were requests, in the judged slots of all functions."""
        return self.over(lambda one: one.active)

    def over(self, values: Callable[[Series], Floats | Mask]) -> Mask:
        """Return what is told of each judged slot, all functions one after the other."""
        return self._joined((one, values(one)) for one in self.judged)

    def scores(self, values: Callable[[Series], Floats]) -> Floats:
        """Return the score of each judged slot."""
        return self.over(values).astype(np.float64)

    def _joined(self, told: Iterable[tuple[Series, Floats | Mask]]) -> Mask:
        parts = [values[_judged(one, self.part)] for one, values in told]
        return np.concatenate(parts) if parts else np.zeros(0, bool)

    def under(self, rule: WarmRule) -> WarmTally:
        """Return what comes of a rule."""
        return tally(self.over(rule.follow), self.active)


def _judged(series: Series, part: float) -> Mask:
    """Return which slots are judged: the newest that were watched."""
    judged = series.watched.copy()
    judged[: split_at(series, part)] = False
    return judged


@dataclass(frozen=True, eq=False)
class ThresholdCurve:
    """What comes of a score at every threshold, from the strictest on."""

    threshold: Floats
    cold_rate: Floats
    waste: Floats

    @classmethod
    def of(cls, score: Floats, active: Mask) -> "ThresholdCurve":
        """Sweep the threshold over all scores; slots with equal scores go together."""
        order = np.argsort(-score, kind="stable")
        falling, came = score[order], active[order]
        ends = np.append(falling[1:] != falling[:-1], True)
        cold = 1 - np.cumsum(came) / max(1, came.sum())
        waste = np.cumsum(~came) / len(came)
        return cls(
            np.append(np.inf, falling[ends]),
            np.append(1.0, cold[ends]),
            np.append(0.0, waste[ends]),
        )

    def waste_at(self, cold_rate: float) -> float:
        """Return the least waste at which no more is cold."""
        return float(self.waste[self.cold_rate <= cold_rate + 1e-12].min())

    def cold_at(self, waste: float) -> float:
        """Return the least cold rate at which no more is wasted."""
        return float(self.cold_rate[self.waste <= waste + 1e-12].min())
