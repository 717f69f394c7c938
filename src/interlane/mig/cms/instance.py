"""Instances of configurable machine scheduling, their schedules, and what is wrong with one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from interlane.mig.covering import Floats, Whole
from interlane.model import InvalidField, InvalidInput

SLACK: Final = 1e-6
"""Share of a demand by which sums of floating-point numbers may fall short."""


@dataclass(frozen=True, slots=True)
class CmsInstance:
    """Jobs, configurations and blocks; every job can be served.

    An amount above a job's demand is worth no more than the demand, so it is cut to that: the
    schedules that serve are the same, and the linear program's bound is better.
    """

    amounts: Floats
    """Jobs by kinds of blocks: ``f_j(i)``, at most the demand."""
    demands: Floats
    counts: Whole
    """Configurations by kinds of blocks."""
    costs: Floats
    """Of a machine in each configuration; 1 where machines are counted."""

    @property
    def jobs(self) -> int:
        """How many there are."""
        return len(self.demands)

    @property
    def blocks(self) -> int:
        """How many kinds of blocks there are."""
        return int(self.counts.shape[1])


def cms_instance(
    amounts: Sequence[Sequence[float]],
    demands: Sequence[float],
    configurations: Sequence[Sequence[int]],
    costs: Sequence[float] | None = None,
) -> CmsInstance:
    """Return an instance; refuse one that is ragged, senseless, or cannot be served."""
    f, d, counts = _table("amounts", amounts), np.array(demands), _table("", configurations)
    prices = np.ones(len(counts)) if costs is None else np.array(costs, dtype=np.float64)
    if not len(d) or not len(counts):
        raise InvalidInput("An instance needs at least one job and one configuration.")
    if f.shape != (len(d), counts.shape[1]):
        raise InvalidInput(
            f"amounts has {f.shape[0]} rows of {f.shape[1]}, but there are {len(d)} jobs and "
            f"{counts.shape[1]} kinds of blocks; give each job an amount of each block."
        )
    if len(prices) != len(counts):
        raise InvalidInput(
            f"There are {len(prices)} costs and {len(counts)} configurations; give each one."
        )
    _each("demands", d, "it must be above 0", d > 0)
    _each("amounts", f.ravel(), "it must be 0 or more", f.ravel() >= 0)
    _each("costs", prices, "it must be above 0", prices > 0)
    whole = (counts >= 0) & (counts == np.rint(counts))
    _each("configurations", counts.ravel(), "it must be a whole number", whole.ravel())
    offered = counts.sum(axis=0) > 0
    for job in range(len(d)):
        if not (f[job] > 0)[offered].any():
            raise InvalidInput(
                f"Job {job} is served by no block of any configuration; give it an amount."
            )
    return CmsInstance(np.minimum(f, d[:, None]), d, counts.astype(np.int64), prices)


def _table(name: str, rows: Sequence[Sequence[float]]) -> Floats:
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise InvalidInput(
            f"{name or 'configurations'} has rows of different lengths; make them equal."
        )
    return np.array(rows, dtype=np.float64).reshape(len(rows), widths.pop() if widths else 0)


def _each(name: str, values: Floats, rule: str, good: np.typing.NDArray[np.bool_]) -> None:
    wrong = np.flatnonzero(~(good & np.isfinite(values)))
    if len(wrong):
        raise InvalidField(f"{name} at {wrong[0]}", float(values[wrong[0]]), rule)


def up_to(sizes: Sequence[int], capacity: int) -> list[tuple[int, ...]]:
    """Return every maximal multiset of blocks of these sizes that a machine has room for."""
    ranges = [range(capacity // size + 1) for size in sizes]
    fitting = [
        counts
        for counts in product(*ranges)
        if sum(count * size for count, size in zip(counts, sizes, strict=True)) <= capacity
    ]
    smallest = min(sizes)
    return [
        counts
        for counts in fitting
        if capacity - sum(n * size for n, size in zip(counts, sizes, strict=True)) < smallest
    ]


@dataclass(frozen=True, slots=True)
class Schedule:
    """How many machines take each configuration, and which blocks each job gets."""

    used: Whole
    gets: Whole
    """Jobs by kinds of blocks."""

    def cost(self, instance: CmsInstance) -> float:
        """Return what its machines cost."""
        return float(instance.costs @ self.used)


@dataclass(frozen=True, slots=True)
class Solution:
    """A schedule, and what is known about it."""

    schedule: Schedule
    cost: float
    lower_bound: float
    """No schedule costs less."""
    at_most: float | None = None
    """What the algorithm guarantees of this instance, from the bound that it computed; None
    where it can only say it of the optimum."""
    is_optimal: bool = False
    """Whether it is proven that nothing is better."""
    is_cut_short: bool = False
    """Whether a time limit ended a search for something better."""


def faults(instance: CmsInstance, schedule: Schedule) -> Iterator[str]:
    """Yield what is wrong with a schedule."""
    if (schedule.used < 0).any() or (schedule.gets < 0).any():
        yield "A count is below 0."
    supplied, taken = schedule.used @ instance.counts, schedule.gets.sum(axis=0)
    for block in np.flatnonzero(taken > supplied).tolist():
        yield f"Block {block}: {taken[block]} are taken and {supplied[block]} are there."
    given = (instance.amounts * schedule.gets).sum(axis=1)
    for job in np.flatnonzero(given < instance.demands * (1 - SLACK)).tolist():
        yield f"Job {job} gets {given[job]:g} of {instance.demands[job]:g}."


def without_surplus(instance: CmsInstance, gets: Whole) -> Whole:
    """Return what jobs get, without blocks that they can do without; large ones first."""
    kept = gets.copy()
    for job in range(instance.jobs):
        amounts = instance.amounts[job]
        spare = float(amounts @ kept[job]) - instance.demands[job] * (1 - SLACK / 1000)
        for block in np.argsort(-amounts, kind="stable").tolist():
            if amounts[block] <= 0:
                kept[job, block] = 0
                continue
            away = min(int(kept[job, block]), int(max(spare, 0.0) // amounts[block]))
            kept[job, block] -= away
            spare -= away * amounts[block]
    return kept
