"""Replay the log to see how well the idle GPU share could have been used.

Fragmentation is measured as FGD defines it ("Beware of Fragmentation", ATC'23, section 3):
of a machine's idle GPU share, what a typical instance could not use is a fragment.  If the
kind does not fit on the machine at all, that is the whole idle share; otherwise it is what
lies on GPUs with less left than the kind asks of each.  On pooled machines only "does not
fit" counts, because their GPUs are not told apart.

The cluster is looked at in a hundred moments only, so attempts that begin and end between
two of them never matter, and a million jobs take seconds.  The table of free amounts has one
row per machine: CPU, then the free share of each GPU (a pooled machine has one wide column).
A machine that changes has a row for each of its periods; a job that runs through several holds
something in each.  Machines that are away or take nothing new have no idle share.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.compiling import compiled
from interlane.metrics.attempts import Attempts
from interlane.metrics.fragments import unusable
from interlane.metrics.kinds import Kinds
from interlane.metrics.log import EventLog
from interlane.metrics.machines import MachinePeriods, Period, seen
from interlane.model import Demand, Machine

SAMPLES: Final = 100
"""Moments at which the cluster is looked at."""

# Columns of a holding: one spot of one attempt.
MACHINE: Final = 0
MASK: Final = 1
GPUS: Final = 2
SHARE: Final = 3
CPU: Final = 4
INSTANCES: Final = 5
FIRST: Final = 6
LAST: Final = 7
MEMORY: Final = 8
WIDTH: Final = 9

# Columns of a machine's description, and of a kind.
M_GPUS: Final = 0
M_POOLED: Final = 1
M_TYPE: Final = 2
K_GPUS: Final = 0
K_SHARE: Final = 1
K_CPU: Final = 2
K_TYPES: Final = 3

SEVERAL: Final = -1
"""The type of a machine whose GPUs are of several types."""

Table = NDArray[np.int64]


def fragmentation_ratio(
    log: EventLog, tries: Attempts, kinds: Kinds, *, begin_s: float, end_s: float
) -> float:
    """Return the mean of fragments over idle share, at a hundred moments of the run.

    The moments are the middles of a hundred equal parts of the time from ``begin_s`` to
    ``end_s``.  A moment without idle share counts as 0.
    """
    if not kinds or end_s <= begin_s:
        return 0.0
    moments_s = begin_s + (np.arange(SAMPLES) + 0.5) / SAMPLES * (end_s - begin_s)
    found = seen(log, moments_s)
    if not any(period.machine.gpus for period in found.periods):
        return 0.0
    holdings = holdings_at(log, tries, moments_s, found)
    names = sorted({kind for one in found.periods for kind in one.machine.gpu_types})
    machines, free, types = _machines(found.periods, names)
    table = _kind_rows(kinds, names)
    weights = np.array([weight for _, weight in kinds], np.float64)
    begins = np.argsort(holdings[:, FIRST], kind="stable")
    ends = np.argsort(holdings[:, LAST], kind="stable")
    up = found.there(SAMPLES, drained=False)
    admits = _admits(kinds, found.periods)
    return float(
        _mean_ratio(free, machines, types, up, holdings, begins, ends, table, weights, admits)
    )


def holdings_at(
    log: EventLog, tries: Attempts, moments_s: NDArray[np.float64], found: MachinePeriods
) -> Table:
    """Return the spots that are held in at least one moment, and from which to which.

    A spot is named by the row of its machine; it is there once for each row that it outlives.
    """
    firsts = np.searchsorted(moments_s, tries.start_s, "left")
    lasts = np.searchsorted(moments_s, tries.end_s, "left")
    rows: list[tuple[int, ...]] = []
    for at in np.nonzero(firsts < lasts)[0].tolist():
        tasks = log.jobs[tries.job[at]].request.tasks
        first, last = int(firsts[at]), int(lasts[at])
        for spot in log.placements[tries.number[at]].spots:
            demand = tasks[spot.task].demand
            mask = sum(1 << gpu for gpu in spot.gpus)
            rows += [
                (row, mask, demand.gpus, demand.gpu_milli, demand.cpu_milli, spot.instances,
                 begin, end, demand.memory_mib)
                for row, begin, end in found.overlaps(spot.machine, first, last)
            ]  # fmt: skip
    return np.array(rows, np.int64).reshape(len(rows), WIDTH)


def _machines(periods: list[Period], names: list[str]) -> tuple[Table, Table, Table]:
    """Return what machines are, what they have when idle, and the type of each GPU."""
    slots = max(_columns(period.machine) for period in periods)
    machines = np.zeros((len(periods), 3), np.int64)
    free = np.zeros((len(periods), 1 + max(slots, 1)), np.int64)
    types = np.full((len(periods), max(slots, 1)), len(names), np.int64)
    for row, period in enumerate(periods):
        machine, columns = period.machine, _columns(period.machine)
        for gpu in range(columns):
            types[row, gpu] = names.index(machine.device(gpu).type)
            milli = machine.gpu_milli if machine.pooled else machine.device(gpu).compute_milli
            free[row, 1 + gpu] = milli
        several = len(machine.gpu_types) > 1
        machines[row] = columns, machine.pooled, SEVERAL if several else types[row, 0]
        occupied = period.occupied
        free[row, 0] = machine.cpu_milli - (0 if occupied is None else occupied.cpu_milli)
        for gpu, milli in period.taken:
            free[row, 1 + gpu] -= milli
    return machines, free, types


def _columns(machine: Machine) -> int:
    """Return how many columns the GPUs of a machine take."""
    return min(machine.gpus, 1) if machine.pooled else machine.gpus


def _kind_rows(kinds: Kinds, names: list[str]) -> Table:
    table = np.empty((len(kinds), 4), np.int64)
    for row, (demand, _) in zip(table, kinds, strict=True):
        allowed = [not demand.gpu_types or name in demand.gpu_types for name in names]
        mask = sum(1 << bit for bit, allows in enumerate(allowed) if allows)
        row[:] = demand.gpus, demand.gpu_milli, demand.cpu_milli, mask
    return table


def _admits(kinds: Kinds, periods: list[Period]) -> NDArray[np.bool_]:
    """Return which kinds may go to which machines, by labels and taints."""
    admits = np.ones((len(kinds), len(periods)), np.bool_)
    for row, period in enumerate(periods):
        machine = period.machine
        for at, (demand, _) in enumerate(kinds):
            if demand.selectors or machine.taints:
                admits[at, row] = _admitted(demand, machine)
    return admits


def _admitted(demand: Demand, machine: Machine) -> bool:
    return demand.selectors.issubset(machine.labels) and demand.tolerations.issuperset(
        machine.taints
    )


@compiled
def _change(free, machines, holding, sign):
    """Take a holding (1) or give it back (-1)."""
    at = holding[MACHINE]
    instances = sign * holding[INSTANCES]
    free[at, 0] -= instances * holding[CPU]
    if machines[at, M_POOLED]:
        free[at, 1] -= instances * holding[GPUS] * holding[SHARE]
        return
    for gpu in range(machines[at, M_GPUS]):
        if (holding[MASK] >> gpu) & 1:
            free[at, 1 + gpu] -= instances * holding[SHARE]


@compiled
def _idle(free, machines, at):
    """Return the idle GPU share of a machine."""
    idle = 0
    for gpu in range(machines[at, M_GPUS]):
        idle += max(free[at, 1 + gpu], 0)
    return idle


@compiled
def _lost(free, machines, types, at, idle, kind):
    """Return the idle share that one kind cannot use on a machine."""
    gpus = kind[K_GPUS]
    here = machines[at]
    if gpus == 0 or free[at, 0] < kind[K_CPU]:
        return idle
    if here[M_TYPE] == SEVERAL:
        return _lost_among_types(free, types, at, here[M_GPUS], idle, kind)
    if not (kind[K_TYPES] >> here[M_TYPE]) & 1:
        return idle
    return unusable(free, at, 1, here[M_GPUS], here[M_POOLED], idle, gpus, kind[K_SHARE])


@compiled
def _lost_among_types(free, types, at, gpus, idle, kind):
    """Return the same of a machine whose GPUs are of several types."""
    usable = 0
    slivers = 0
    for gpu in range(gpus):
        share = free[at, 1 + gpu]
        if share >= kind[K_SHARE] and (kind[K_TYPES] >> types[at, gpu]) & 1:
            usable += 1
        elif share > 0:
            slivers += share
    return slivers if usable >= kind[K_GPUS] else idle


@compiled
def _ratio(free, machines, types, up, kinds, weights, admits):
    """Return fragments over idle share, over all machines that take new work."""
    idle_all = 0
    lost_all = 0.0
    for at in range(free.shape[0]):
        idle = _idle(free, machines, at) if up[at] else 0
        if idle == 0:
            continue
        idle_all += idle
        for kind in range(kinds.shape[0]):
            lost = idle
            if admits[kind, at]:
                lost = _lost(free, machines, types, at, idle, kinds[kind])
            lost_all += weights[kind] * lost
    return lost_all / idle_all if idle_all > 0 else 0.0


@compiled
def _mean_ratio(free, machines, types, up, holdings, begins, ends, kinds, weights, admits):
    """Walk through the moments, changing the table by what began and ended in between."""
    begun = 0
    ended = 0
    total = 0.0
    for moment in range(up.shape[0]):
        while ended < len(ends) and holdings[ends[ended], LAST] <= moment:
            _change(free, machines, holdings[ends[ended]], -1)
            ended += 1
        while begun < len(begins) and holdings[begins[begun], FIRST] <= moment:
            _change(free, machines, holdings[begins[begun]], 1)
            begun += 1
        total += _ratio(free, machines, types, up[moment], kinds, weights, admits)
    return total / up.shape[0]
