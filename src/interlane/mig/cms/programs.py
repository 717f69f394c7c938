"""The programs of configurable machine scheduling: of blocks, and of machines for blocks.

    min   cost . y
    s.t.  sum over i of f_j(i) x_ji >= d_j       of each job
          sum over j of x_ji <= counts_i . y     of each kind of block

``x_ji`` is how many blocks of kind ``i`` job ``j`` gets, ``y`` how many machines take each
configuration.
"""

from dataclasses import dataclass

import numpy as np

from interlane.mig.cms.instance import CmsInstance, Schedule
from interlane.mig.covering import Floats, Whole
from interlane.mig.solver import ENDLESS, Column, LinearProgram


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A vertex of the linear program."""

    used: Floats
    gets: Floats
    value: float


class BlockProgram:
    """The program above, in fractions or in whole numbers."""

    def __init__(self, instance: CmsInstance) -> None:
        self._instance = instance
        self._pairs = np.argwhere(instance.amounts > 0)
        # Demands are scaled to 1, so that the solver's tolerance means the same to each.
        rows = [(1.0, ENDLESS)] * instance.jobs + [(0.0, ENDLESS)] * instance.blocks
        self._program = LinearProgram(rows)
        self._program.add(
            Column(cost, [(instance.jobs + at, float(n)) for at, n in enumerate(counts) if n])
            for cost, counts in zip(
                instance.costs.tolist(), instance.counts.tolist(), strict=True
            )
        )
        self._program.add(
            Column(
                0.0,
                [
                    (job, float(instance.amounts[job, block] / instance.demands[job])),
                    (instance.jobs + block, -1.0),
                ],
            )
            for job, block in self._pairs.tolist()
        )

    def relaxed(self) -> Relaxed:
        """Return a vertex of the linear program."""
        solved = self._program.run()
        assert solved.values is not None
        used, gets = self._parts(solved.values)
        return Relaxed(used, gets, solved.objective)

    def whole(
        self, start: Schedule, time_limit_s: float | None
    ) -> tuple[Schedule, float, bool]:
        """Return the best schedule, a bound, and whether the schedule is optimal."""
        self._program.make_whole()
        begin = start.gets[self._pairs[:, 0], self._pairs[:, 1]]
        self._program.start_from(np.concatenate([start.used, begin]).astype(np.float64))
        step = whole_step(self._instance)
        solved = self._program.run(time_limit_s, gap=0.999 * step if step else 1e-7)
        if solved.values is None:
            return start, solved.bound, False
        used, gets = self._parts(np.rint(solved.values))
        found = Schedule(used.astype(np.int64), gets.astype(np.int64))
        return found, solved.bound, not solved.is_timeout

    def _parts(self, values: Floats) -> tuple[Floats, Floats]:
        count = len(self._instance.costs)
        gets = np.zeros(self._instance.amounts.shape)
        gets[self._pairs[:, 0], self._pairs[:, 1]] = values[count:]
        return values[:count], gets


def whole_step(instance: CmsInstance) -> float:
    """Return 1 if costs are whole numbers, and so every schedule's; else 0."""
    return float((instance.costs == np.rint(instance.costs)).all())


def machines_for(
    instance: CmsInstance, blocks: Whole, start: Whole, time_limit_s: float | None = 5.0
) -> Whole:
    """Return machines that supply some blocks, at the least cost; never dearer than ``start``.

    This is a program of one column per configuration and one row per kind of block, whatever
    the number of jobs.
    """
    program = LinearProgram([(float(count), ENDLESS) for count in blocks.tolist()])
    program.add(
        Column(cost, [(at, float(n)) for at, n in enumerate(counts) if n])
        for cost, counts in zip(instance.costs.tolist(), instance.counts.tolist(), strict=True)
    )
    program.make_whole()
    program.start_from(start.astype(np.float64))
    step = whole_step(instance)
    solved = program.run(time_limit_s, gap=0.999 * step if step else 1e-7)
    if solved.values is None:
        return start
    found: Whole = np.rint(solved.values).astype(np.int64)
    good = (found @ instance.counts >= blocks).all()
    return found if good and instance.costs @ found <= instance.costs @ start else start


def with_extra(instance: CmsInstance, used: Whole, blocks: Whole) -> Whole:
    """Return machines with one more, the cheapest that has it, for each block still missing."""
    more = used.copy()
    for block in range(instance.blocks):
        having = np.flatnonzero(instance.counts[:, block] > 0)
        missing = int(blocks[block] - (more @ instance.counts)[block])
        if missing > 0:
            more[having[int(instance.costs[having].argmin())]] += missing
    return more
