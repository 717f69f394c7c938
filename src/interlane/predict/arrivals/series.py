"""Requests counted by slot: what every forecaster of arrivals sees.

A slot that nobody watched (``nan``) is taken for an empty one where the past is looked at,
and is neither learned from nor judged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from interlane.model import InvalidField, InvalidInput

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

DAY_S: Final = 86_400.0
HOUR_S: Final = 3_600.0
MOST_SLOTS: Final = 200_000_000
"""Slots of all functions together that are counted; with more, memory would not do."""


@dataclass(frozen=True, eq=False)
class Series:
    """The requests of one function."""

    name: str
    counts: Floats
    """Requests in each slot; ``nan`` where nobody watched."""
    first: int = 0
    """The number of the first slot; slot 0 begins at midnight."""

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def seen(self) -> Floats:
        """The counts, those that nobody saw being 0."""
        return np.nan_to_num(self.counts, nan=0.0)

    @cached_property
    def active(self) -> Mask:
        """Whether there was a request."""
        return self.seen > 0

    @cached_property
    def watched(self) -> Mask:
        """Whether anybody would have seen one."""
        return ~np.isnan(self.counts)

    @property
    def empty_share(self) -> float:
        """The share of the watched slots that are empty; 1 where none was watched."""
        slots = int(self.watched.sum())
        return 1.0 - int(self.active.sum()) / slots if slots else 1.0

    def cut(self, begin: int, end: int | None = None) -> "Series":
        """Return some of the slots, counted from the first."""
        return Series(self.name, self.counts[begin:end], self.first + begin)


@dataclass(frozen=True, eq=False)
class Arrivals:
    """The requests of many functions, in slots of one width."""

    slot_s: float
    series: tuple[Series, ...]

    def __post_init__(self) -> None:
        must_be_slot(self.slot_s)

    def __len__(self) -> int:
        return len(self.series)

    def __iter__(self) -> Iterator[Series]:
        return iter(self.series)

    @property
    def day(self) -> int:
        """Slots in a day, at least one."""
        return max(1, round(DAY_S / self.slot_s))

    @property
    def hour(self) -> int:
        """Slots in an hour, at least one."""
        return max(1, round(HOUR_S / self.slot_s))

    def only(self, keep: Sequence[bool]) -> Self:
        """Return the functions that are marked."""
        kept = (one for one, wanted in zip(self.series, keep, strict=True) if wanted)
        return replace(self, series=tuple(kept))

    def busy(self, least: float) -> Self:
        """Return the functions with at least so many requests."""
        return self.only([one.seen.sum() >= least for one in self.series])

    def between(self, from_s: float, to_s: float) -> Self:
        """Return the slots that lie within a time."""
        begin, end = round(from_s / self.slot_s), round(to_s / self.slot_s)
        cut = (one.cut(max(0, begin - one.first), max(0, end - one.first)) for one in self)
        return replace(self, series=tuple(cut))

    def known(self, part: float) -> Self:
        """Return the first part of each function's slots, to learn from."""
        return replace(self, series=tuple(one.cut(0, split_at(one, part)) for one in self))


def split_at(series: Series, part: float) -> int:
    """Return the slot at which what is judged begins."""
    return int(len(series) * part)


def must_be_slot(slot_s: float) -> None:
    """Refuse a width that no slot can have."""
    if not 0 < slot_s <= DAY_S:
        raise InvalidField("slot_s", slot_s, "it must be above 0 and at most a day (86400)")


def counted(
    names: Sequence[str],
    function: NDArray[np.intp],
    at_s: Floats,
    count: Floats,
    watched: Sequence[Sequence[tuple[float, float]]],
    slot_s: float,
) -> Arrivals:
    """Count requests by slot; ``function`` is the place of each request's function in names.

    ``watched`` tells for each function from when to when requests would have been seen.
    """
    must_be_slot(slot_s)
    spans = [_slots_of(times_s, slot_s) for times_s in watched]
    total = sum(span[-1][1] - span[0][0] for span in spans)
    if total > MOST_SLOTS:
        raise InvalidInput(
            f"Slots of {slot_s:g} s would make {total:,} of them, but at most "
            f"{MOST_SLOTS:,} are counted; choose wider slots."
        )
    slots = np.floor(at_s / slot_s).astype(np.int64)
    order = np.argsort(function, kind="stable")
    bounds = np.searchsorted(function[order], np.arange(len(names) + 1))
    made = []
    for place, (name, span) in enumerate(zip(names, spans, strict=True)):
        mine = order[bounds[place] : bounds[place + 1]]
        first, last = span[0][0], span[-1][1]
        counts = np.bincount(slots[mine] - first, count[mine], last - first).astype(np.float64)
        made.append(Series(name, _unwatched(counts, span), first))
    return Arrivals(slot_s, tuple(made))


def _slots_of(times_s: Sequence[tuple[float, float]], slot_s: float) -> list[tuple[int, int]]:
    """Return spans of time as spans of slots, joined where they meet."""
    joined: list[tuple[int, int]] = []
    for from_s, to_s in sorted(times_s):
        begin = int(np.floor(from_s / slot_s))
        end = max(int(np.ceil(to_s / slot_s)), begin + 1)
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _unwatched(counts: Floats, span: list[tuple[int, int]]) -> Floats:
    """Put ``nan`` into the slots between two spans."""
    for (_, end), (begin, _) in pairwise(span):
        counts[end - span[0][0] : begin - span[0][0]] = np.nan
    return counts
