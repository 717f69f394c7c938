"""Fragmentation over time, compiled: the table of machines, followed from moment to moment."""

import numpy as np

from interlane.compiling import compiled
from interlane.metrics.fragments import lost_to
from interlane.tables import CPU, FREE, GPUS
from interlane.tables.compiled import change_rows


@compiled
def _idle(free, at):
    """Return the idle GPU share of a machine; others may have taken more than was free."""
    idle = 0
    for gpu in range(free[at, GPUS]):
        idle += max(free[at, FREE + gpu], 0)
    return idle


@compiled
def _ratio(free, up, typical, weights, admits):
    """Return fragments over idle share, over all machines that take new work."""
    idle_all = 0
    lost_all = 0.0
    for at in range(free.shape[0]):
        idle = _idle(free, at) if up[at] else 0
        if idle == 0:
            continue
        idle_all += idle
        for kind in range(typical.shape[0]):
            lost = idle
            if admits[kind, at]:
                lost = lost_to(free, at, idle, free[at, CPU], typical, kind)
            lost_all += weights[kind] * lost
    return lost_all / idle_all if idle_all > 0 else 0.0


@compiled
def mean_ratio(free, up, held, typical, weights, admits):
    """Walk through the moments, changing the table by what began and ended in between.

    ``held`` are placement rows, the asks that they name, and the moment in which each begins
    and the one in which it has ended.
    """
    rows, asks, first, last = held
    # Looked at in the order of beginnings and of ends, so that each row is touched twice only.
    begins = np.argsort(first, kind="mergesort")
    ends = np.argsort(last, kind="mergesort")
    begun = 0
    ended = 0
    total = 0.0
    for moment in range(up.shape[0]):
        while ended < len(ends) and last[ends[ended]] <= moment:
            change_rows(free, asks, rows, ends[ended], ends[ended] + 1, -1)
            ended += 1
        while begun < len(begins) and first[begins[begun]] <= moment:
            change_rows(free, asks, rows, begins[begun], begins[begun] + 1, 1)
            begun += 1
        total += _ratio(free, up[moment], typical, weights, admits)
    return total / up.shape[0]
