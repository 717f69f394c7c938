"""SMore's forecaster at work: it tells slot by slot, and learns on from what it has seen."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from interlane.predict.arrivals.lslstm import (
    CHANNELS,
    LOWEST_LEVEL,
    ONLINE,
    LsLstm,
    Places,
    Windows,
    tell_of,
    weights_of,
)
from interlane.predict.arrivals.series import Arrivals, Floats

UPDATES: Final = 4
"""How often a day it learns on."""
DRAWN: Final = 0.1
"""Windows that it then draws, of those of an epoch."""


class LiveLsLstm:
    """An LS-LSTM that many functions share; it remembers the last day and a quarter."""

    LEARNED: ClassVar = (
        "_past", "_counts", "_levels", "_total", "_cases", "_seen", "slot", "weights",
    )  # fmt: skip
    """What is kept, the network's weights as it has updated them included."""

    def __init__(
        self,
        model: LsLstm,
        *,
        functions: int,
        slot_s: float,
        slot: int = 0,
        updates: bool = True,
    ) -> None:
        self.model = model
        self.slot = slot
        """The slot that begins; slot 0 begins at midnight."""
        self.updates = updates
        """Whether it learns on."""
        self._day = Arrivals(slot_s, ()).day
        self._wide = max(1, round(self._day / model.long))
        self._back = max(model.short, model.long * self._wide)
        self._every = max(1, self._day // UPDATES)
        kept = self._back + self._every
        self._past = np.zeros((functions, kept, CHANNELS))
        """Logarithms of counts and activity, the newest last."""
        self._counts = np.zeros((functions, kept))
        self._levels = np.full((functions, kept + 1), LOWEST_LEVEL)
        """By what counts were divided before each slot; the last is for the one that begins."""
        self._total, self._cases = np.zeros(functions), np.zeros(functions)
        self._seen = 0
        self._network = model.network()
        self._rng = np.random.default_rng(model.seed)
        self._told: tuple[Floats, Floats] | None = None

    @property
    def weights(self) -> Floats:
        """The network's weights, in a row."""
        kept = weights_of(self._network)
        return np.concatenate([kept[name].ravel() for name in sorted(kept)]).astype(np.float64)

    @weights.setter
    def weights(self, row: Floats) -> None:
        found, begin = weights_of(self._network), 0
        for name in sorted(found):
            shape, size = found[name].shape, found[name].size
            found[name] = row[begin : begin + size].reshape(shape).astype(np.float32)
            begin += size
        self._network = replace(self.model, weights_=found).network()
        self._told = None

    def unwatched(self, slots: int) -> None:
        """Let slots pass that nobody watched: nothing is learned from them."""
        updates, self.updates = self.updates, False
        for _ in range(min(slots, self._past.shape[1])):
            self.passed(np.zeros(len(self._past)))
        self.slot += max(0, slots - self._past.shape[1])
        self.updates = updates

    def copies(self, place: int, count: int) -> "LiveLsLstm":
        """Return one function many times: the same past, and futures of their own.

        The network stays the same one: what copies learn on, all learn.
        """
        made = copy(self)
        made._past, made._counts, made._levels, made._total, made._cases = (
            np.repeat(one[place : place + 1], count, axis=0)
            for one in (self._past, self._counts, self._levels, self._total, self._cases)
        )
        made._told = None
        return made

    def _look(self) -> tuple[Floats, Floats]:
        """Return what is told of the slot that begins; found when first asked."""
        if self._told is None:
            functions = np.arange(len(self._past))
            ends = np.full(len(functions), self._past.shape[1])
            self._told = tell_of(self._network, self._windows(functions, ends))
        return self._told

    def _windows(self, function: Places, end: Places) -> Windows:
        """Return what comes before these places of the past."""
        model, rows = self.model, function[:, None]
        level = self._levels[function, end]
        scale = np.column_stack([level, np.ones(len(level))])[:, None, :]
        near = self._past[rows, end[:, None] + np.arange(-model.short, 0)]
        far = self._past[rows, end[:, None] + np.arange(-model.long * self._wide, 0)]
        means = far.reshape(len(function), model.long, self._wide, CHANNELS).mean(axis=2)
        slot = self.slot - self._past.shape[1] + end
        angle = 2 * np.pi * (slot % self._day) / self._day
        return Windows(
            (near / scale).astype(np.float32),
            (means / scale).astype(np.float32),
            np.column_stack([np.sin(angle), np.cos(angle)]).astype(np.float32),
            level,
        )

    def chances(self) -> Floats:
        """Return the probability of a request for each function."""
        return self._look()[0]

    def quantiles(self, levels: Floats) -> Floats:
        """Return the expected count, whatever quantile is asked for."""
        return self._look()[1]

    def passed(self, counts: Floats) -> None:
        """Learn how often each function was asked; ``nan`` where nobody watched."""
        seen = np.nan_to_num(counts, nan=0.0)
        logs, active = np.log1p(seen), seen > 0
        self._total += logs
        self._cases += active
        level = np.maximum(self._total / np.maximum(self._cases, 1), LOWEST_LEVEL)
        _push(self._past, np.column_stack([logs, active]))
        _push(self._counts, seen)
        _push(self._levels, level)
        self.slot += 1
        self._seen += 1
        if self.updates and self._seen % self._every == 0:
            self._update()
        self._told = None

    def _update(self) -> None:
        """Learn on from the slots since the last time."""
        functions, kept = self._counts.shape
        places = self._rng.permutation(functions * self._every)
        few = max(self.model.batch, round(self.model.windows * DRAWN))
        function, back = np.divmod(places[:few], self._every)
        batches = self._batches(function, kept - self._every + back)
        self.model.learn(self._network, batches, self.model.rate * ONLINE)

    def _batches(self, function: Places, end: Places) -> Iterator[tuple[Windows, Floats]]:
        for begin in range(0, len(end), self.model.batch):
            here = slice(begin, begin + self.model.batch)
            yield (
                self._windows(function[here], end[here]),
                self._counts[function[here], end[here]],
            )


def _push(kept: Floats, newest: Floats) -> None:
    """Let the oldest slot go for the newest."""
    kept[:, :-1] = kept[:, 1:]
    kept[:, -1] = newest
