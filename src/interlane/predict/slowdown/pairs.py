"""Co-runs as columns: who ran beside whom on which GPU, and what of its speed it kept.

A pair is *ordered*: the victim is the one whose speed is told, the aggressor the one beside
it.  ``retained`` is co-run speed over solo speed (for latencies solo over co-run), so that 1
is undisturbed and 0.5 is half as fast, whatever is measured.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.model import InvalidField, UnknownName

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

SHARES: Final = frozenset(
    {
        "sm_active",
        "sm_occupancy",
        "tensor_active",
        "dram_active",
        "l2_active",
        "pcie",
        "memory",
        "host_cpu",
    }
)
"""Counters that are parts of a whole: two of them can add up to more than there is."""

THROUGHPUT_LEAST, THROUGHPUT_MOST = 0.01, 3.0
"""What a measured ratio may be; co-runs a little faster than solo are noise, thrice is not."""


@dataclass(frozen=True, eq=False)
class Profiles:
    """What is known of workloads from solo runs, one row per workload on each GPU type."""

    names: tuple[str, ...]
    families: tuple[str, ...]
    gpu_types: tuple[str, ...]
    counters: tuple[str, ...]
    values: Floats
    """GPU type x workload x counter; NaN where a counter was not taken."""

    def __post_init__(self) -> None:
        shape = (len(self.gpu_types), len(self.names), len(self.counters))
        if self.values.shape != shape:
            raise InvalidField("values", self.values.shape, f"they must have shape {shape}")
        if len(self.families) != len(self.names):
            raise InvalidField("families", len(self.families), "every workload has one")
        if len(set(self.names)) != len(self.names):
            raise InvalidField("names", "repeated", "every workload has a name of its own")
        if np.isinf(self.values).any():
            raise InvalidField("values", "inf", "counters are finite, or NaN when not taken")

    def __len__(self) -> int:
        return len(self.names)

    def number(self, name: str) -> int:
        """Return the row of a workload."""
        if name not in self._numbers:
            raise UnknownName("workload", name, self.names)
        return self._numbers[name]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.names)}

    @cached_property
    def missing(self) -> Mask:
        """Which workloads lack a counter somewhere."""
        return np.asarray(np.isnan(self.values).any(axis=(0, 2)))

    @cached_property
    def filled(self) -> Floats:
        """The values with holes filled: the family's middle, else everybody's, else 0."""
        families = np.array(self.families)
        filled = self.values.copy()
        for family in dict.fromkeys(self.families):
            there = families == family
            filled[:, there] = _with_middles(filled[:, there])
        filled = np.nan_to_num(_with_middles(filled), nan=0.0)
        return filled

    @cached_property
    def family_numbers(self) -> Ints:
        """Each workload's family as a number."""
        known = {family: place for place, family in enumerate(dict.fromkeys(self.families))}
        return np.array([known[family] for family in self.families], np.int64)


def _with_middles(values: Floats) -> Floats:
    """Fill holes with the middle over workloads, on the same GPU type where it is known."""
    for axes in ((1,), (0, 1)):
        holes = np.isnan(values)
        if holes.any():
            middles = np.broadcast_to(_nanmedian(values, axes), values.shape)
            values = np.where(holes, middles, values)
    return values


def _nanmedian(values: Floats, axes: tuple[int, ...]) -> Floats:
    # Where there is nothing to take the middle of, the answer is NaN and no warning.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmedian(values, axis=axes, keepdims=True), np.float64)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Ordered pairs, one value in every column; ``retained`` is NaN where it is not known."""

    profiles: Profiles
    gpu: Ints
    victim: Ints
    aggressor: Ints
    throughput: Floats

    def __post_init__(self) -> None:
        height = len(self.gpu)
        for name in ("victim", "aggressor", "throughput"):
            if len(getattr(self, name)) != height:
                raise InvalidField(name, len(getattr(self, name)), f"it needs {height} values")
        bad = (self.throughput < THROUGHPUT_LEAST) | (self.throughput > THROUGHPUT_MOST)
        if bad.any():
            value = float(self.throughput[int(np.argmax(bad))])
            rule = f"it must be {THROUGHPUT_LEAST} to {THROUGHPUT_MOST}, or NaN when not known"
            raise InvalidField("retained", value, rule)

    def __len__(self) -> int:
        return len(self.gpu)

    def where(self, mask: Mask) -> "Pairs":
        """Return the pairs of a mask, in the same order."""
        return self.take(np.flatnonzero(mask))

    def take(self, places: Ints) -> "Pairs":
        """Return the pairs at these places."""
        return replace(
            self,
            gpu=self.gpu[places],
            victim=self.victim[places],
            aggressor=self.aggressor[places],
            throughput=self.throughput[places],
        )

    @cached_property
    def log_throughput(self) -> Floats:
        """The logarithm, in which slowdowns of several causes add up."""
        return np.log(self.throughput)

    @cached_property
    def couples(self) -> Ints:
        """A number for each unordered pair on a GPU type: both directions have the same."""
        low = np.minimum(self.victim, self.aggressor)
        high = np.maximum(self.victim, self.aggressor)
        return (self.gpu * len(self.profiles) + low) * len(self.profiles) + high

    def sides(self, values: Floats) -> tuple[Floats, Floats]:
        """Return rows of a table over GPU type and workload: the victim's, the aggressor's."""
        return values[self.gpu, self.victim], values[self.gpu, self.aggressor]


def every_pair(profiles: Profiles) -> Pairs:
    """Return all ordered pairs on all GPU types, none of them measured."""
    count = len(profiles)
    gpu, victim, aggressor = np.indices((len(profiles.gpu_types), count, count)).reshape(3, -1)
    return Pairs(profiles, gpu, victim, aggressor, np.full(len(gpu), np.nan))


def pairs_of(profiles: Profiles, rows: Iterable[tuple[str, str, str, float]]) -> Pairs:
    """Return pairs of rows of GPU type, victim, aggressor and retained speed.

    Of several rows about the same pair the first counts.
    """
    types = {name: place for place, name in enumerate(profiles.gpu_types)}
    firsts: dict[tuple[str, str, str], float] = {}
    for gpu_type, victim, aggressor, throughput in rows:
        firsts.setdefault((gpu_type, victim, aggressor), throughput)
    return Pairs(
        profiles,
        np.array([types[gpu_type] for gpu_type, _, _ in firsts], np.int64),
        np.array([profiles.number(victim) for _, victim, _ in firsts], np.int64),
        np.array([profiles.number(aggressor) for _, _, aggressor in firsts], np.int64),
        np.array(list(firsts.values()), np.float64),
    )
