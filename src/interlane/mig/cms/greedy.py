"""Greedy covering: within a logarithm of the optimum, whatever the configurations.

The potential is the sum over jobs of the share of its demand that it has, at most 1 each.
Every step adds the machine whose blocks raise it most for its cost.  To fill one configuration
best is hard itself (welfare with budgets), but giving block after block to whoever gains most
reaches half of it.

*Guarantee.*  Let ``c`` be the optimum and ``R`` what the potential lacks.  The optimum's
machines together raise it by ``R``, so one of them raises it by ``R / c`` a unit of cost, and
the step by half of that.  After a cost of ``2 c ln(2n)``, ``R`` is below 1/2: no job has less
than half of its demand.  Every machine once more, and all have the whole.  So the cost is at
most ``4 c ln(2n) + 2 dearest``.  In practice to go on step by step is nearly always cheaper;
both are done, and the cheaper one is returned.
"""

import numpy as np

from interlane.mig.cms.instance import CmsInstance, Schedule, Solution, without_surplus
from interlane.mig.covering import Floats, Whole

_DONE = 1e-9


def log_greedy(instance: CmsInstance, lower_bound: float = 0.0) -> Solution:
    """Return a greedy cover; ``lower_bound`` is of the optimum, if one is known."""
    shares = instance.amounts / instance.demands[:, None]
    left = np.ones(instance.jobs)
    used: Whole = np.zeros(len(instance.costs), dtype=np.int64)
    gets: Whole = np.zeros(instance.amounts.shape, dtype=np.int64)
    half: Schedule | None = None
    while (left > _DONE).any():
        if half is None and (left <= 0.5).all():
            half = Schedule(2 * used, 2 * gets)
        chosen, given = _best_machine(instance, shares, left)
        used[chosen] += 1
        gets += given
        left = np.maximum(left - (shares * given).sum(axis=1), 0.0)
    found = Schedule(used, without_surplus(instance, gets))
    if half is not None and half.cost(instance) < found.cost(instance):
        found = Schedule(half.used, without_surplus(instance, half.gets))
    cost = found.cost(instance)
    return Solution(found, cost, lower_bound, is_optimal=cost - lower_bound < 1e-6)


def _best_machine(instance: CmsInstance, shares: Floats, left: Floats) -> tuple[int, Whole]:
    best, chosen = -1.0, 0
    filled: Whole = np.zeros(shares.shape, dtype=np.int64)
    for number, counts in enumerate(instance.counts):
        gain, given = _filled(counts, shares, left)
        if gain / instance.costs[number] > best:
            best, chosen, filled = gain / float(instance.costs[number]), number, given
    return chosen, filled


def _filled(counts: Whole, shares: Floats, left: Floats) -> tuple[float, Whole]:
    """Give block after block to whoever gains most."""
    now, total = left.copy(), 0.0
    given: Whole = np.zeros(shares.shape, dtype=np.int64)
    kinds = np.flatnonzero(counts)
    for block in kinds[np.argsort(-shares[:, kinds].max(axis=0), kind="stable")].tolist():
        for _ in range(int(counts[block])):
            gains = np.minimum(shares[:, block], now)
            job = int(gains.argmax())
            if gains[job] <= 0.0:
                break
            total += float(gains[job])
            now[job] -= gains[job]
            given[job, block] += 1
    return total, given
