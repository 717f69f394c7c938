"""Bands of start times that hold as often as they say.

A simulation that plays the queue forward knows its own doubts: how long jobs run.  It does not
know what it leaves out, such as jobs that are yet to come and overtake.  So its bands are
stretched or drawn in, on a logarithmic scale of waiting times, to where the starts of the last
jobs lay: an edge is passed as often as it was among them.  Before enough jobs have started,
edges are those of simulated weeks, and wide.

Jobs that have not started count, too, by how long they have waited so far: whoever learned from
those alone that have started would learn from the early ones, most of all while the machine
slows down.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.model import JobId

Floats = NDArray[np.float64]

LEVELS: Final = (0.05, 0.5, 0.9, 0.95)
FIRST_EDGES: Final = (-2.2, 0.0, 2.0, 2.8)
"""Where the edges stand before anything was learned, in widths; from simulated weeks."""

LAST: Final = 400
"""Starts that edges are learned from: the newest."""

ENOUGH: Final = 20
"""Starts from which on they alone count; before, starts as in simulated weeks stand in."""

GRAIN_S: Final = 30.0
"""Waiting times that differ by less are much the same."""

WIDTH_MIN: Final = 0.25
REMEMBERED_MAX: Final = 10_000
"""Jobs whose start is awaited at most."""


@dataclass(frozen=True, slots=True)
class StartBand:
    """When a job is likely to start: nine times in ten from ``low_s`` to ``high_s``."""

    low_s: float
    p50_s: float
    p90_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class _Told:
    """What was told of a job, to be compared with its start."""

    now_s: float
    middle: float
    width: float

    def passed(self, at_s: float) -> float:
        """Return where a moment lies, in widths from the middle of what was told."""
        waited = log(max(0.0, at_s - self.now_s) + GRAIN_S)
        return (waited - self.middle) / self.width


class Calibrated:
    """Turns start times that were played into bands, and learns from true starts."""

    def __init__(self) -> None:
        self._passed: deque[float] = deque(maxlen=LAST)
        """Where the last jobs started, in widths from the middle of what was told."""
        self._told: dict[JobId, _Told] = {}
        self.compared = 0
        """True starts that were learned from."""
        self._stand: tuple[float, ...] = FIRST_EDGES
        self._known = (0.0, 0, 0)
        """The moment, starts and jobs awaited that edges stand for: all who wait are asked
        about at one moment."""

    @property
    def awaited(self) -> tuple[JobId, ...]:
        """Jobs of which a band was noted and no start is known."""
        return tuple(self._told)

    def band(self, starts_s: Sequence[float], now_s: float) -> StartBand:
        """Return the band for start times that were played, in order."""
        told = self._of(starts_s, now_s)
        edges = self._edges(now_s)
        waits_s = [exp(told.middle + edge * told.width) - GRAIN_S for edge in edges]
        low_s, p50_s, p90_s, high_s = (now_s + max(0.0, wait_s) for wait_s in waits_s)
        return StartBand(low_s, p50_s, p90_s, high_s)

    def note(self, job_id: JobId, starts_s: Sequence[float], now_s: float) -> None:
        """Remember what was told of a job; the first time counts."""
        if job_id not in self._told and len(self._told) < REMEMBERED_MAX:
            self._told[job_id] = self._of(starts_s, now_s)

    def started(self, job_id: JobId, at_s: float) -> None:
        """Learn when a job really started."""
        told = self._told.pop(job_id, None)
        if told is None:
            return
        self._passed.append(told.passed(at_s))
        self.compared += 1

    def forget(self, job_id: JobId) -> None:
        """Drop a job that will not start."""
        self._told.pop(job_id, None)

    def _of(self, starts_s: Sequence[float], now_s: float) -> _Told:
        """Return middle and width of the waits, in logarithms."""
        last = len(starts_s) - 1
        middle, upper = (
            log(max(0.0, starts_s[round(level * last)] - now_s) + GRAIN_S)
            for level in (0.5, 0.9)
        )
        return _Told(now_s, middle, max(upper - middle, WIDTH_MIN))

    def _edges(self, now_s: float) -> tuple[float, ...]:
        """Return where edges stand, so that each is passed as often as it says."""
        if not self._passed:
            return FIRST_EDGES
        if self._known != (now_s, self.compared, len(self._told)):
            seen = [*_supposed(ENOUGH - len(self._passed)), *self._passed]
            # A copy, for others may note jobs meanwhile.
            waiting = [told.passed(now_s) for told in tuple(self._told.values())]
            self._known = (now_s, self.compared, len(self._told))
            self._stand = _quantiles(np.sort(seen), np.sort(waiting))
        return self._stand


def _quantiles(seen: Floats, waiting: Floats) -> tuple[float, ...]:
    """Return where the levels lie if some are known only to lie beyond where they are now.

    Kaplan and Meier's estimate with the next job among those at risk: without anybody waiting
    each place among n starts is as likely for it, in (n + 1) parts.
    """
    count = len(seen)
    beyond = len(waiting) - np.searchsorted(waiting, seen, side="left")
    at_risk = count - np.arange(count) + beyond + 1
    share_below = 1.0 - np.cumprod(1.0 - 1.0 / at_risk)
    last = max(seen[-1], waiting[-1]) if len(waiting) else seen[-1]
    edges = np.interp(LEVELS, [*share_below, share_below[-1]], [*seen, last])
    return tuple(float(edge) for edge in edges)


def _supposed(count: int) -> list[float]:
    """Return so many starts as simulated weeks had them, in widths; none if negative."""
    levels = [(place + 0.5) / count for place in range(max(0, count))]
    ends = (0.0, *LEVELS, 1.0), (FIRST_EDGES[0] - 0.3, *FIRST_EDGES, FIRST_EDGES[-1] + 0.3)
    return [float(one) for one in np.interp(levels, *ends)]
