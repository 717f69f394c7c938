"""How much jobs slow functions down, as measured.

What a call takes of a replica, for one item of its batch, is learned while no job of the device
works, and set against what calls take while some do.  Two figures are compared: the mean, and
the 99th percentile, or as near to it as leaves ``BEYOND`` calls beyond it on either side, so
that no single call decides.

The device daemon tells of jobs up to a second late.  So calls between two looks belong to what
both this look and the next one say of jobs; where these differ, they tell nothing.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

from interlane.live.functions.figures import quantile
from interlane.live.functions.interference import AtWork
from interlane.model import GpuRef, JobId, Workload

LEAST_CALLS: Final = 32
"""On either side, for a comparison to mean anything."""
NEWEST: Final = 1_024
"""Calls of either side that are kept, the newest of them."""
AT_ONCE: Final = 64
"""Calls between two looks that count, so that a burst is not all that is known."""
LEVEL: Final = 0.99
BEYOND: Final = 2
LIMIT: Final = 2.0
"""Times what it takes alone that a function may take at least, whatever its deadline."""


class Place(NamedTuple):
    """A function on a device."""

    function: Workload
    gpu: GpuRef


@dataclass(frozen=True, slots=True)
class Slowed:
    """What a function suffers from jobs on a device, as times what it is beside none."""

    jobs: frozenset[JobId]
    calls: int
    """Of the side that has fewer."""
    alone_s: float
    """What a call takes beside none, the mean."""
    mean: float
    p99: float
    limit: float
    """What the latter may be."""

    @property
    def is_p99(self) -> bool:
        """Whether there were calls enough for a 99th percentile."""
        return _level(self.calls) == LEVEL


def _calls() -> deque[float]:
    return deque(maxlen=NEWEST)


@dataclass(slots=True)
class _Beside:
    """Calls beside the same jobs."""

    jobs: frozenset[JobId]
    calls: deque[float] = field(default_factory=_calls)


class Services:
    """Looks at calls again and again, and compares at the end of each slot."""

    def __init__(self, gpu_types: Mapping[GpuRef, str]) -> None:
        self._gpu_types = gpu_types
        """Of devices: what is learned on one holds for others of its type."""
        self._most_s: dict[Workload, float] = {}
        """Function -> what a call may take for one item."""
        self._alone: dict[tuple[Workload, str], deque[float]] = {}
        """Function and type -> calls beside no job at work."""
        self._beside: dict[Place, _Beside] = {}
        self._undecided: dict[Place, Sequence[float]] = {}
        """Calls of the last look."""
        self._at_work: AtWork = {}

    def watch(self, function: Workload, most_s: float) -> None:
        """Begin to compare a function, one of which nothing is known."""
        self.forget(function)
        self._most_s[function] = most_s

    def forget(self, function: Workload) -> None:
        """Compare a function no longer."""
        self._most_s.pop(function, None)
        self._alone = {key: one for key, one in self._alone.items() if key[0] != function}
        for kept in (self._beside, self._undecided):
            for place in [one for one in kept if one.function == function]:
                del kept[place]

    def look(self, calls: Mapping[Place, Sequence[float]], at_work: AtWork) -> None:
        """Take in what calls took since the look before, and which jobs worked."""
        for place, taken in self._undecided.items():
            jobs = at_work.get(place.gpu)
            if jobs is not None and jobs == self._at_work.get(place.gpu):
                self._learn(place, taken, jobs)
        self._undecided, self._at_work = dict(calls), at_work

    def _learn(self, place: Place, calls: Sequence[float], jobs: frozenset[JobId]) -> None:
        spread = calls[:: max(1, ceil(len(calls) / AT_ONCE))]
        if not jobs:
            self._alone.setdefault(self._key(place), _calls()).extend(spread)
            return
        kept = self._beside.get(place)
        if kept is None or kept.jobs != jobs:
            kept = self._beside[place] = _Beside(jobs)
        kept.calls.extend(spread)

    def end_slot(self) -> dict[Place, Slowed]:
        """Return what functions suffer, wherever enough was measured since it was told last."""
        found = {}
        for place, kept in list(self._beside.items()):
            alone = self._alone.get(self._key(place), ())
            if min(len(alone), len(kept.calls)) >= LEAST_CALLS:
                most_s = self._most_s[place.function]
                found[place] = compared(alone, kept.calls, kept.jobs, most_s)
                del self._beside[place]
        return found

    def limit(self, function: Workload) -> float:
        """Return how many times what it takes alone a function may take."""
        alone_s = [
            _quantile(calls, len(calls))
            for (name, _), calls in self._alone.items()
            if name == function and len(calls) >= LEAST_CALLS
        ]
        return _limit(self._most_s[function], max(alone_s)) if alone_s else LIMIT

    def _key(self, place: Place) -> tuple[Workload, str]:
        return place.function, self._gpu_types[place.gpu]


def compared(
    alone: Sequence[float], beside: Sequence[float], jobs: frozenset[JobId], most_s: float
) -> Slowed:
    """Compare what calls took, which may be ``most_s``."""
    fewer = min(len(alone), len(beside))
    mean_s, p99_s = _mean(alone), _quantile(alone, fewer)
    return Slowed(
        jobs,
        fewer,
        mean_s,
        _mean(beside) / mean_s,
        _quantile(beside, fewer) / p99_s,
        _limit(most_s, p99_s),
    )


def _limit(most_s: float, alone_s: float) -> float:
    return max(LIMIT, most_s / alone_s)


def _quantile(calls: Sequence[float], fewer: int) -> float:
    return quantile(sorted(calls), _level(fewer))


def _level(calls: int) -> float:
    return min(LEVEL, 1.0 - BEYOND / calls)


def _mean(calls: Sequence[float]) -> float:
    return sum(calls) / len(calls)
