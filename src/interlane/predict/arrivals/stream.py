"""The past of functions as features, slot by slot; nothing of a slot is in its own row."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from interlane.predict.arrivals import compiled
from interlane.predict.arrivals.compiled import FEATURES
from interlane.predict.arrivals.series import Arrivals, Floats, Series

HAZARD_COLUMN: Final = FEATURES - 12
"""Where a row has the share of such gaps after which the function was asked."""
LAST_COLUMN: Final = FEATURES - 1
"""Where a row has the last count that was not 0, as a logarithm."""


@dataclass(frozen=True, eq=False)
class Stream:
    """What is remembered of some functions, all of whom are at the same slot."""

    day: int
    hour: int
    states: Floats
    rings: NDArray[np.float32]

    @classmethod
    def of(cls, functions: int, *, day: int, hour: int) -> Self:
        """Return a stream that has seen nothing."""
        state = compiled.TABLES + 2 * hour + 2 * day
        ring = max(7 * day + compiled.AROUND, max(compiled.WINDOWS)) + 1
        return cls(
            day, hour, np.zeros((functions, state)), np.zeros((functions, ring), np.float32)
        )

    def copies(self, place: int, count: int) -> "Stream":
        """Return one function many times."""
        states, rings = (np.tile(one[place], (count, 1)) for one in (self.states, self.rings))
        return Stream(self.day, self.hour, states, rings)

    def rows(self, slot: int) -> Floats:
        """Return what is known before a slot, one row per function."""
        out = np.empty((len(self.states), FEATURES))
        compiled.emit_all(self.states, self.rings, slot % self.day, self.day, self.hour, out)
        return out

    def passed(self, slot: int, counts: Floats) -> None:
        """Learn how often each function was asked in a slot."""
        phase = slot % self.day
        compiled.learn_all(self.states, self.rings, phase, self.day, self.hour, counts)

    @property
    def slots(self) -> Floats:
        """How many slots of each function have passed."""
        return self.states[:, compiled.SLOTS]


def rows_of(series: Series, arrivals: Arrivals) -> Floats:
    """Return the row of every slot of a function."""
    stream = Stream.of(1, day=arrivals.day, hour=arrivals.hour)
    out = np.empty((len(series), FEATURES))
    compiled.follow(
        stream.states[0],
        stream.rings[0],
        series.first,
        stream.day,
        stream.hour,
        series.seen,
        out,
    )
    return out
