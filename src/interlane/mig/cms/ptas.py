"""An approximation scheme: within ``1 + eps``, for few kinds of blocks in small configurations.

A *pattern* is how many blocks of each kind one job gets, enough to serve it.  The linear
program over patterns chooses machines ``y`` and, for every job, a mixture of its patterns:

    min cost . y    s.t.  blocks supplied >= blocks of patterns chosen,  one pattern a job

Its columns are generated as needed: each job's cheapest pattern under the prices of blocks is
an integer program of ``B`` variables, the number of kinds, which is fixed.

A vertex has at most ``B + n`` positive variables and every job takes one, so
``|y| + (split jobs) <= B``.  Round the mixed counts of split jobs up, kind by kind, and ``y``
up: fewer than ``split`` blocks of each kind are missing then, and each gets a machine.  So the
cost is below ``LP + A``, where ``A = max(B, 1 + B (B - 2))`` machines, whatever the number of
jobs and machines.

If the bound is ``A / eps`` or more, that is within ``1 + eps`` of it.  If not, the optimum has
a bounded number of machines, so of blocks, so of jobs, and the program in whole numbers is of
bounded size.
"""

from collections.abc import Iterator

import numpy as np

from interlane.mig.cms.instance import CmsInstance, Schedule, Solution, without_surplus
from interlane.mig.cms.programs import BlockProgram, machines_for, whole_step, with_extra
from interlane.mig.covering import Floats, Whole
from interlane.mig.knapsack import Pattern, ServiceNeed, cheapest
from interlane.mig.solver import ENDLESS, Column, LinearProgram
from interlane.model import InvalidField

_ZERO = 1e-9
_IMPROVES = 1e-7


def ptas(
    instance: CmsInstance, eps: float = 0.1, time_limit_s: float | None = None
) -> Solution:
    """Return a schedule within ``1 + eps`` of the optimum.

    Where a time limit stops the program in whole numbers, ``at_most`` says what is left of
    the guarantee.
    """
    if not eps > 0:
        raise InvalidField("eps", eps, "it must be above 0")
    master = _Master(instance)
    bound = master.solve()
    if whole_step(instance):
        bound = float(np.ceil(bound - 1e-6))
    schedule = master.rounded()
    additive = additive_machines(instance.blocks) * float(instance.costs.max())
    at_most = master.value + additive
    cost = schedule.cost(instance)
    if eps * bound >= additive or cost - bound < 1e-6:
        return Solution(schedule, cost, bound, at_most, cost - bound < 1e-6)
    best, proven, is_optimal = BlockProgram(instance).whole(schedule, time_limit_s)
    cost = best.cost(instance)
    if is_optimal:
        return Solution(best, cost, cost, cost, is_optimal=True)
    return Solution(best, cost, max(bound, min(proven, cost)), at_most, is_cut_short=True)


def additive_machines(blocks: int) -> int:
    """Return how many machines rounding adds at most, for so many kinds of blocks."""
    return max(blocks, 1 + blocks * (blocks - 2))


class _Master:
    """The program over patterns."""

    def __init__(self, instance: CmsInstance) -> None:
        self._instance = instance
        self._asks = [_ask(instance, job) for job in range(instance.jobs)]
        rows = [(0.0, ENDLESS)] * instance.blocks + [(1.0, ENDLESS)] * instance.jobs
        self._program = LinearProgram(rows)
        self._program.add(
            Column(cost, [(at, float(n)) for at, n in enumerate(counts) if n])
            for cost, counts in zip(
                instance.costs.tolist(), instance.counts.tolist(), strict=True
            )
        )
        self._patterns: list[tuple[int, Pattern]] = []
        self._join((job, one) for job, ask in enumerate(self._asks) for one in _singles(ask))
        self._values: Floats = np.zeros(0)
        self.value = 0.0

    def _join(self, listed: Iterator[tuple[int, Pattern]]) -> None:
        new = list(listed)
        self._patterns += new
        self._program.add(
            Column(
                0.0,
                [
                    *((block, -float(count)) for block, count in enumerate(pattern) if count),
                    (self._instance.blocks + job, 1.0),
                ],
            )
            for job, pattern in new
        )

    def solve(self) -> float:
        """Generate columns until none improves; return a bound that holds."""
        bound, instance = 0.0, self._instance
        while True:
            solved = self._program.run()
            assert solved.values is not None
            self._values, self.value = solved.values, solved.objective
            prices = np.maximum(solved.duals[: instance.blocks], 0.0)
            load = (instance.counts @ prices / instance.costs).max()
            priced = [cheapest([ask], prices) for ask in self._asks]
            # Prices that no machine undercuts make the sum of cheapest patterns a bound.
            bound = max(bound, sum(one.bound for one in priced) / max(1.0, float(load)))
            pays = solved.duals[instance.blocks :]
            better = [
                (job, one.pattern)
                for job, one in enumerate(priced)
                if one.cost < pays[job] - _IMPROVES and (job, one.pattern) not in self._patterns
            ]
            if not better:
                return bound
            self._join(iter(better))

    def rounded(self) -> Schedule:
        """Return the vertex, rounded up."""
        instance = self._instance
        count = len(instance.costs)
        mixed = np.zeros(instance.amounts.shape)
        for (job, pattern), value in zip(self._patterns, self._values[count:], strict=True):
            if value > _ZERO:
                mixed[job] += value * np.array(pattern)
        gets = without_surplus(instance, _ceil(mixed))
        needed = gets.sum(axis=0)
        start = with_extra(instance, _ceil(self._values[:count]), needed)
        return Schedule(machines_for(instance, needed, start), gets)


def _ceil(values: Floats) -> Whole:
    found: Whole = np.ceil(values - 1e-7).astype(np.int64)
    return found


def _ask(instance: CmsInstance, job: int) -> ServiceNeed:
    offered = instance.counts.sum(axis=0) > 0
    able = np.flatnonzero((instance.amounts[job] > 0) & offered).tolist()
    gives = tuple(instance.amounts[job, able].tolist())
    return ServiceNeed(tuple(able), gives, float(instance.demands[job]), 1, instance.blocks)


def _singles(ask: ServiceNeed) -> Iterator[Pattern]:
    """Yield the patterns of one kind of block."""
    for block, gives in zip(ask.blocks, ask.gives, strict=True):
        pattern = [0] * ask.width
        pattern[block] = int(np.ceil((ask.need - ask.short_by) / gives))
        yield tuple(pattern)
