"""Figures of one function: how many, how fast, how often cold."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

BUCKETS_S: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
NEWEST: Final = 2_048
"""Latencies that quantiles are taken from."""


@dataclass(slots=True)
class Latencies:
    """Latencies of answered requests: all of them in buckets, the newest one by one."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    sum_s: float = 0.0
    count: int = 0
    _newest: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, latency_s: float) -> None:
        """Count one."""
        self.buckets[bisect_left(BUCKETS_S, latency_s)] += 1
        self.sum_s += latency_s
        if len(self._newest) < NEWEST:
            self._newest.append(latency_s)
        else:
            self._newest[self.count % NEWEST] = latency_s
        self.count += 1

    def quantiles(self, *levels: float) -> tuple[float | None, ...]:
        """Return quantiles of the newest; None where there are none."""
        ranked = sorted(self._newest)
        return tuple(quantile(ranked, level) if ranked else None for level in levels)


def quantile(ranked: Sequence[float], level: float) -> float:
    """Return a quantile of values that are in order."""
    return ranked[round(level * (len(ranked) - 1))]


@dataclass(slots=True)
class Counts:
    """What happened to a function's requests and replicas since the server began."""

    requests: int = 0
    answered: int = 0
    cold_starts: int = 0
    """Requests that waited for a replica to load."""
    late: int = 0
    """Requests whose deadline passed."""
    raised: int = 0
    refused: int = 0
    """Requests for which there was no room in the queue, or no replica to be had."""
    lost: int = 0
    """Requests whose replica ended before it answered."""
    abandoned: int = 0
    """Requests whose caller went before they were answered."""
    loads: int = 0
    failed_loads: int = 0
    killed: int = 0
    """Replicas that hung or took too much memory."""
    evicted: int = 0
    """Replicas that had to leave a device because of jobs there."""
    warm_s: float = 0.0
    """Seconds that replicas were loaded, of all that are gone."""


class Mean:
    """A mean that forgets."""

    __slots__ = ("step", "value")

    def __init__(self, step: float = 0.1) -> None:
        self.step = step
        self.value: float | None = None

    def add(self, value: float) -> None:
        """Take one in."""
        if self.value is None:
            self.value = value
        else:
            self.value += self.step * (value - self.value)
