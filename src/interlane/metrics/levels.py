"""How much was held and how many waited, at some moments of a run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from interlane.metrics.attempts import Floats, Ints, attempts, held_milli, waits
from interlane.metrics.log import EventLog, LogEvent


@dataclass(frozen=True, slots=True)
class Levels:
    """One value per moment."""

    held_milli: Ints
    """Thousandths of GPUs that jobs held."""
    waiting: Ints
    """Jobs that waited."""


@dataclass(frozen=True, slots=True)
class AttemptUse:
    """An attempt that is over, and the share of its time in which an iteration ran."""

    begin_s: float
    end_s: float
    busy: float


def used_gpus(uses: Iterable[AttemptUse], moments_s: Sequence[float]) -> list[float | None]:
    """Return how many devices were used at moments; None where no attempt tells of it."""
    ones = list(uses)
    if not ones:
        return [None] * len(moments_s)
    begin_s, end_s, busy = np.array([(one.begin_s, one.end_s, one.busy) for one in ones]).T
    moments = np.asarray(moments_s, np.float64)
    sums, counts = np.zeros(len(moments)), np.zeros(len(moments), np.int64)
    for at, moment_s in enumerate(moments):
        there = (begin_s <= moment_s) & (moment_s < end_s)
        sums[at], counts[at] = busy[there].sum(), there.sum()
    return [float(used) if count else None for used, count in zip(sums, counts, strict=True)]


def levels(log: EventLog, moments_s: Sequence[float]) -> Levels:
    """Return what was held and who waited at these moments."""
    moments = np.asarray(moments_s, np.float64)
    tries = attempts(log)
    held = held_milli(log, tries)
    begin_s, end_s = waits(log)
    ones = np.ones(len(begin_s), np.int64)
    return Levels(
        _sums(moments, tries.start_s, held) - _sums(moments, tries.end_s, held),
        _sums(moments, begin_s, ones) - _sums(moments, end_s, ones),
    )


def _sums(moments_s: Floats, at_s: Floats, amounts: Ints) -> Ints:
    """Return the sum of what came by each moment."""
    order = np.argsort(at_s, kind="stable")
    sums = np.concatenate(([0], np.cumsum(amounts[order])))
    return np.asarray(sums[np.searchsorted(at_s[order], moments_s, "right")])


def first_waits_s(log: EventLog, since_s: float) -> Floats:
    """Return how long jobs had waited that started for the first time since a moment."""
    at_s, events, subjects = log.columns()
    count = len(log.jobs)
    first_s = np.full(count, np.nan)
    starts = events == LogEvent.STARTED
    first_s[subjects[starts][::-1]] = at_s[starts][::-1]  # the first is the one that stays
    submitted_s = np.fromiter((job.submitted_s for job in log.jobs), np.float64, count)
    lately = first_s >= since_s
    return np.asarray(first_s[lately] - submitted_s[lately])
