"""Replay the log to see how well the idle GPU share could have been used.

Fragmentation is measured as FGD defines it ("Beware of Fragmentation", ATC'23, section 3):
of a machine's idle GPU share, what a typical instance could not use is a fragment.  If the
kind does not fit on the machine at all, that is the whole idle share; otherwise it is what
lies on GPUs with less left than the kind asks of each.  On pooled machines only "does not
fit" counts, because their GPUs are not told apart.

The cluster is looked at in a hundred moments only, so attempts that begin and end between
two of them never matter, and a million jobs take seconds.  The table of free amounts has one
row a machine: CPU, then the free share of each GPU (a pooled machine has one wide column).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.compiling import compiled
from interlane.metrics.attempts import Attempts
from interlane.metrics.fragments import unusable
from interlane.metrics.kinds import Kinds
from interlane.metrics.log import EventLog, Fact
from interlane.model import MILLI, Cluster

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

Table = NDArray[np.int64]


def fragmentation_ratio(
    log: EventLog, tries: Attempts, kinds: Kinds, *, begin_s: float, end_s: float
) -> float:
    """Return the mean of fragments over idle share, at a hundred moments of the run.

    The moments are the middles of a hundred equal parts of the time from ``begin_s`` to
    ``end_s``.  A moment without idle share counts as 0.
    """
    if not kinds or end_s <= begin_s or not log.cluster.gpus:
        return 0.0
    moments_s = begin_s + (np.arange(SAMPLES) + 0.5) / SAMPLES * (end_s - begin_s)
    holdings = holdings_at(log, tries, moments_s)
    machines, free = _machines(log.cluster)
    table = _kind_rows(kinds, log.cluster)
    weights = np.array([weight for _, weight in kinds], np.float64)
    begins = np.argsort(holdings[:, FIRST], kind="stable")
    ends = np.argsort(holdings[:, LAST], kind="stable")
    up = _up(log, moments_s)
    return float(_mean_ratio(free, machines, up, holdings, begins, ends, table, weights))


def holdings_at(log: EventLog, tries: Attempts, moments_s: NDArray[np.float64]) -> Table:
    """Return the spots that are held in at least one moment, and from which to which."""
    firsts = np.searchsorted(moments_s, tries.start_s, "left")
    lasts = np.searchsorted(moments_s, tries.end_s, "left")
    numbers = {machine.id: number for number, machine in enumerate(log.cluster)}
    rows: list[tuple[int, ...]] = []
    for at in np.nonzero(firsts < lasts)[0].tolist():
        tasks = log.jobs[tries.job[at]].request.tasks
        first, last = int(firsts[at]), int(lasts[at])
        for spot in log.placements[tries.number[at]].spots:
            demand = tasks[spot.task].demand
            mask = sum(1 << gpu for gpu in spot.gpus)
            rows.append(
                (numbers[spot.machine], mask, demand.gpus, demand.gpu_milli,
                 demand.cpu_milli, spot.instances, first, last, demand.memory_mib)
            )  # fmt: skip
    return np.array(rows, np.int64).reshape(len(rows), WIDTH)


def _machines(cluster: Cluster) -> tuple[Table, Table]:
    """Return what machines are, and what they have when idle."""
    names = sorted(cluster.gpu_types)
    slots = max(1 if machine.pooled else machine.gpus for machine in cluster)
    machines = np.zeros((len(cluster), 3), np.int64)
    free = np.zeros((len(cluster), 1 + max(slots, 1)), np.int64)
    for number, machine in enumerate(cluster):
        columns = min(machine.gpus, 1) if machine.pooled else machine.gpus
        kind = names.index(machine.gpu_type) if machine.gpus else len(names)
        machines[number] = columns, machine.pooled, kind
        free[number, 0] = machine.cpu_milli
        free[number, 1 : 1 + columns] = machine.gpu_milli if machine.pooled else MILLI
    return machines, free


def _kind_rows(kinds: Kinds, cluster: Cluster) -> Table:
    names = sorted(cluster.gpu_types)
    table = np.empty((len(kinds), 4), np.int64)
    for row, (demand, _) in zip(table, kinds, strict=True):
        allowed = [not demand.gpu_types or name in demand.gpu_types for name in names]
        mask = sum(1 << bit for bit, allows in enumerate(allowed) if allows)
        row[:] = demand.gpus, demand.gpu_milli, demand.cpu_milli, mask
    return table


def _up(log: EventLog, moments_s: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which machines were there at each moment."""
    up = np.ones((len(moments_s), len(log.cluster)), np.bool_)
    at_s, facts, subjects = log.columns()
    for line in np.nonzero((facts == Fact.MACHINE_LOST) | (facts == Fact.MACHINE_RETURNED))[0]:
        later = np.searchsorted(moments_s, at_s[line], "left")
        up[later:, subjects[line]] = facts[line] == Fact.MACHINE_RETURNED
    return up


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
        idle += free[at, 1 + gpu]
    return idle


@compiled
def _lost(free, machines, at, idle, kind):
    """Return the idle share that one kind cannot use on a machine."""
    gpus = kind[K_GPUS]
    if (
        gpus == 0
        or free[at, 0] < kind[K_CPU]
        or not (kind[K_TYPES] >> machines[at, M_TYPE]) & 1
    ):
        return idle
    here = machines[at]
    return unusable(free, at, 1, here[M_GPUS], here[M_POOLED], idle, gpus, kind[K_SHARE])


@compiled
def _ratio(free, machines, up, kinds, weights):
    """Return fragments over idle share, over all machines that are there."""
    idle_all = 0
    lost_all = 0.0
    for at in range(free.shape[0]):
        idle = _idle(free, machines, at) if up[at] else 0
        if idle == 0:
            continue
        idle_all += idle
        for kind in range(kinds.shape[0]):
            lost_all += weights[kind] * _lost(free, machines, at, idle, kinds[kind])
    return lost_all / idle_all if idle_all > 0 else 0.0


@compiled
def _mean_ratio(free, machines, up, holdings, begins, ends, kinds, weights):
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
        total += _ratio(free, machines, up[moment], kinds, weights)
    return total / up.shape[0]
