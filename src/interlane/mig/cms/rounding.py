"""Rounding the linear program: twice the optimum and a constant, for few configurations.

A vertex of the program (``programs``) has at most as many positive variables as rows: jobs and
kinds of blocks.  Every job takes one, so all but ``B`` jobs, the number of kinds, use one kind
of block, and ``|y| + sum of (kinds of a job - 1) <= B``.

Round every ``x_ji`` up.  Since no block gives a job more than its demand, a job of one kind has
``x >= 1``, and so ``ceil(x) <= 2x``; the same holds for every other ``x >= 1``.  Machines
``ceil(2y)`` supply all of these, for less than ``2 LP + |y|``.  What is left are the ``x``
below 1 of jobs of several kinds, one block each, at most ``2 (B - |y|)`` of them; a machine
for each, and the sum is below

    2 LP + 2 B                      (times the dearest machine, where they differ)

That is a factor of ``2 + eps`` once the optimum has ``2B / eps`` machines.  A smaller one is
found by the program in whole numbers: it has a bounded number of machines, and in bounded
configurations also of jobs.

The machines are not doubled indeed: ``machines_for`` finds the fewest that supply the rounded
blocks, and is never worse.
"""

from dataclasses import replace

import numpy as np

from interlane.mig.cms.instance import CmsInstance, Schedule, Solution, without_surplus
from interlane.mig.cms.programs import (
    BlockProgram,
    Relaxed,
    machines_for,
    whole_step,
    with_extra,
)
from interlane.mig.covering import Floats, Whole

_ZERO = 1e-9


def lp_rounding(
    instance: CmsInstance, eps: float | None = None, time_limit_s: float | None = None
) -> Solution:
    """Round the linear program; with ``eps``, solve small instances in whole numbers.

    Without ``eps`` the guarantee is ``2 LP + 2 B``, with it ``(2 + eps)`` times the optimum,
    unless the time limit stops the program in whole numbers.
    """
    program = BlockProgram(instance)
    vertex = program.relaxed()
    schedule = rounded(instance, vertex)
    bound = _up(instance, vertex.value)
    additive = 2.0 * instance.blocks * float(instance.costs.max())
    at_most = 2.0 * vertex.value + additive
    if eps is None or eps * bound >= additive:
        return _solution(instance, schedule, bound, at_most)
    best, proven, is_optimal = program.whole(schedule, time_limit_s)
    bound = max(bound, min(_up(instance, proven), best.cost(instance)))
    if is_optimal:
        at_most = best.cost(instance)
    found = _solution(instance, best, bound, at_most)
    return replace(found, is_cut_short=not is_optimal)


def rounded(instance: CmsInstance, vertex: Relaxed) -> Schedule:
    """Return a vertex rounded up, with the fewest machines that supply it."""
    gets = _ceil(vertex.gets)
    needed = gets.sum(axis=0)
    doubled = with_extra(instance, _ceil(2.0 * vertex.used), needed)
    if float(instance.costs @ _ceil(vertex.used)) < float(instance.costs @ doubled):
        single = with_extra(instance, _ceil(vertex.used), needed)
        doubled = min(doubled, single, key=lambda used: float(instance.costs @ used))
    kept = without_surplus(instance, gets)
    return Schedule(machines_for(instance, kept.sum(axis=0), doubled), kept)


def _ceil(values: Floats) -> Whole:
    found: Whole = np.ceil(values - _ZERO).astype(np.int64)
    return found


def _up(instance: CmsInstance, bound: float) -> float:
    """Round a bound up to a whole number where every cost is one."""
    return float(np.ceil(bound - 1e-6)) if whole_step(instance) else bound


def _solution(
    instance: CmsInstance, schedule: Schedule, bound: float, at_most: float
) -> Solution:
    cost = schedule.cost(instance)
    return Solution(schedule, cost, bound, at_most, cost - bound < 1e-6)
