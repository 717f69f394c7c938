"""Forecasts while slots pass: asked at the beginning of a slot, told at its end."""

from copy import copy
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from interlane.predict.arrivals import compiled
from interlane.predict.arrivals.chance import LOWEST, Chance, hazards
from interlane.predict.arrivals.series import Arrivals, Floats
from interlane.predict.arrivals.size import LEVELS, Size, first_marks
from interlane.predict.arrivals.stream import Stream


class Forecaster(Protocol):
    """Tells of many functions what the next slot brings."""

    def chances(self) -> Floats:
        """Return the probability of a request for each function."""
        ...

    def quantiles(self, levels: Floats) -> Floats:
        """Return a quantile of each function's count, if it is not 0."""
        ...

    def passed(self, counts: Floats) -> None:
        """Learn how often each function was asked in the slot that ended."""
        ...


@dataclass
class Trees:
    """Ours: the probability of a request, and the count if there is one."""

    chance: Chance = field(default_factory=Chance)
    size: Size = field(default_factory=Size)

    def fit(self, arrivals: Arrivals) -> Self:
        """Forget everything and learn from a trace."""
        self.chance.fit(arrivals)
        self.size.fit(arrivals)
        return self


class OnlineForecaster:
    """Trees at work; what is learned of a function stays here, the trees stay as they are."""

    LEARNED: ClassVar = ("slot", "states", "rings", "_weights", "_marks")

    def __init__(self, model: Trees, *, functions: int, slot_s: float, slot: int = 0) -> None:
        shape = Arrivals(slot_s, ())
        self.model = model
        self.slot = slot
        """The slot that begins; slot 0 begins at midnight."""
        self.stream = Stream.of(functions, day=shape.day, hour=shape.hour)
        self._weights = np.tile(model.chance.first_weights(), (functions, 1))
        self._marks = first_marks(functions)
        self._look()

    def copies(self, place: int, count: int) -> "OnlineForecaster":
        """Return one function many times: the same past, and futures of their own."""
        made = copy(self)
        made.stream = self.stream.copies(place, count)
        made._weights = np.tile(self._weights[place], (count, 1))
        made._marks = np.tile(self._marks[place], (count, 1))
        made._look()
        return made

    @property
    def states(self) -> Floats:
        """What the stream remembers."""
        return self.stream.states

    @states.setter
    def states(self, states: Floats) -> None:
        self.stream.states[...] = states

    @property
    def rings(self) -> NDArray[np.float32]:
        """The newest counts."""
        return self.stream.rings

    @rings.setter
    def rings(self, rings: NDArray[np.float32]) -> None:
        self.stream.rings[...] = rings

    def unwatched(self, slots: int) -> None:
        """Let slots pass that nobody watched: nothing is learned from them."""
        for _ in range(slots):
            self.stream.passed(self.slot, np.zeros(len(self._weights)))
            self.slot += 1
        self._look()

    def _look(self) -> None:
        rows = self.stream.rows(self.slot)
        self._told = self.model.chance.logits(rows), hazards(rows)
        self._middles = self.model.size.middles(rows)

    def chances(self) -> Floats:
        """Return the probability of a request for each function."""
        out = np.empty(len(self._weights))
        compiled.corrected_all(*self._told, self._weights, out)
        return np.clip(out, LOWEST, 1 - LOWEST)

    def quantiles(self, levels: Floats) -> Floats:
        """Return a quantile of each function's count, if it is not 0."""
        out = np.empty(len(self._marks))
        compiled.quantiles_all(self._middles, levels, self._marks, LEVELS, out)
        return np.asarray(np.expm1(np.clip(out, 0.0, 30.0)))

    def passed(self, counts: Floats) -> None:
        """Learn how often each function was asked; ``nan`` where nobody watched."""
        step = self.model.chance.step
        compiled.correct_all(*self._told, self._weights, step, counts)
        compiled.track_all(self._middles, self._marks, LEVELS, self.model.size.step, counts)
        self.stream.passed(self.slot, np.nan_to_num(counts, nan=0.0))
        self.slot += 1
        self._look()


class RecordedForecasts:
    """What a forecaster told of every slot, played back: one row per slot, one column each."""

    def __init__(self, chances: Floats, sizes: Floats) -> None:
        self._chances = chances
        self._sizes = sizes
        self._at = 0

    def chances(self) -> Floats:
        """Return the probability of a request for each function."""
        return np.asarray(self._chances[self._at])

    def quantiles(self, levels: Floats) -> Floats:
        """Return the count that was told, whatever quantile is asked for."""
        return np.asarray(self._sizes[self._at])

    def passed(self, counts: Floats) -> None:
        """Go on to the next slot; after the last one, nothing new is told."""
        self._at = min(self._at + 1, len(self._chances) - 1)
