"""The optimum for few jobs: integer conic combinations of what one machine can give.

With ``n`` jobs, what one machine gives is a point in ``n`` dimensions, one for each way to hand
its blocks out.  Only points that no other beats matter.  A schedule is a multiset of these
points whose sum reaches the demands; the least such multiset is an integer program of ``n``
rows, and for fixed ``n`` and kinds of blocks the number of points is polynomial in the size of
configurations.  Jobs are few when the points are: beyond ``MOST_POINTS`` the method refuses.
"""

from collections.abc import Iterator
from math import comb, prod
from typing import Final

import numpy as np

from interlane.mig.cms.greedy import log_greedy
from interlane.mig.cms.instance import CmsInstance, Schedule, Solution, without_surplus
from interlane.mig.cms.programs import whole_step
from interlane.mig.covering import Floats, Whole
from interlane.mig.solver import ENDLESS, Column, Program
from interlane.model import InvalidInput

MOST_POINTS: Final = 20_000


def few_jobs(instance: CmsInstance, time_limit_s: float | None = None) -> Solution:
    """Return the optimum; refuse an instance of too many jobs and blocks."""
    configurations, gets, points = _all_points(instance)
    program = Program([(1.0, ENDLESS)] * instance.jobs)
    program.add(
        Column(
            float(instance.costs[number]),
            [(job, float(share)) for job, share in enumerate(point) if share > 0],
        )
        for number, point in zip(configurations.tolist(), points, strict=True)
    )
    program.make_whole()
    step = whole_step(instance)
    solved = program.run(time_limit_s, gap=0.999 * step if step else 1e-7)
    if solved.values is None:
        return log_greedy(instance)
    times = np.rint(solved.values).astype(np.int64)
    used: Whole = np.zeros(len(instance.costs), dtype=np.int64)
    np.add.at(used, configurations, times)
    total = (gets * times[:, None, None]).sum(axis=0)
    schedule = Schedule(used, without_surplus(instance, total))
    cost = schedule.cost(instance)
    if solved.is_timeout:
        return Solution(schedule, cost, min(max(solved.bound, 0.0), cost), is_cut_short=True)
    return Solution(schedule, cost, cost, cost, is_optimal=True)


def _all_points(instance: CmsInstance) -> tuple[Whole, Whole, Floats]:
    """Return the points that matter: configuration, blocks by job, share of each demand."""
    ways = sum(_ways(instance.jobs, counts) for counts in instance.counts.tolist())
    if ways > MOST_POINTS:
        raise InvalidInput(
            f"{instance.jobs} jobs are too many for this method: one machine can serve them in "
            f"{ways} ways, and {MOST_POINTS} are looked at; take lp_rounding or ptas."
        )
    configurations: list[int] = []
    gets: list[Whole] = []
    for number, counts in enumerate(instance.counts.tolist()):
        for one in _handed_out(instance.jobs, counts):
            configurations.append(number)
            gets.append(one)
    blocks = np.array(gets)
    shares = (blocks * instance.amounts).sum(axis=2) / instance.demands
    points = np.minimum(shares, 1.0)
    kept = _unbeaten(points, instance.costs[configurations])
    return np.array(configurations)[kept], blocks[kept], points[kept]


def _ways(jobs: int, counts: list[int]) -> int:
    """Return in how many ways the blocks of a configuration can be handed out."""
    return prod(comb(count + jobs - 1, count) for count in counts)


def _handed_out(jobs: int, counts: list[int]) -> Iterator[Whole]:
    """Yield every way to give all blocks of a configuration to jobs."""

    def walk(block: int, sofar: list[tuple[int, ...]]) -> Iterator[Whole]:
        if block == len(counts):
            yield np.array(sofar, dtype=np.int64).T
            return
        for split in _splits(counts[block], jobs):
            yield from walk(block + 1, [*sofar, split])

    return walk(0, [])


def _splits(count: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (count,)
        return
    for first in range(count + 1):
        for rest in _splits(count - first, parts - 1):
            yield (first, *rest)


def _unbeaten(points: Floats, costs: Floats) -> Whole:
    """Return the points that no other reaches for the same cost or less."""
    order = np.lexsort((costs, -points.sum(axis=1)))
    kept: list[int] = []
    for at in order.tolist():
        rivals = np.array(kept, dtype=np.int64)
        beaten = (points[rivals] >= points[at]).all(axis=1) & (costs[rivals] <= costs[at])
        if points[at].any() and not beaten.any():
            kept.append(at)
    return np.array(kept, dtype=np.int64)
