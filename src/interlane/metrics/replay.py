"""Replay the log to see how well the idle GPU share could have been used.

Fragmentation is measured as FGD defines it ("Beware of Fragmentation", ATC'23, section 3):
of a machine's idle GPU share, what a typical instance could not use is a fragment.  If the
kind does not fit on the machine at all, that is the whole idle share; otherwise it is what
lies on GPUs with less left than the kind asks of each.  On pooled machines only "does not
fit" counts, because their GPUs are not told apart.

The cluster is looked at in a hundred moments only, so attempts that begin and end between
two of them never matter, and a million jobs take seconds.  Machines, demands and what is held
are rows as the scheduler has them (``tables``), and the formula is the placers' own
(``fragments``).  A machine that changes has a row for each of its periods; a job that runs
through several holds something in each.  Machines that are away or take nothing new have no
idle share.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.metrics.attempts import Attempts
from interlane.metrics.compiled import mean_ratio
from interlane.metrics.kinds import Kinds
from interlane.metrics.log import EventLog
from interlane.metrics.machines import MachinePeriods, Period, seen
from interlane.model import Demand, Machine
from interlane.tables import (
    ASK_WIDTH,
    AT_WIDTH,
    CPU,
    FREE,
    Table,
    machine_row,
    slots_for,
    typical_rows,
    width,
)

SAMPLES: Final = 100
"""Moments at which the cluster is looked at."""


@dataclass(frozen=True)
class HeldRows:
    """The spots that are held in at least one moment."""

    rows: Table
    """Placement rows; a spot is there once for each row of its machine that it outlives."""
    first: Table
    """The first moment of each."""
    last: Table
    """The moment after its last."""
    asks: Table
    """The demands that the rows name, with all but their types."""


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
    held = holdings_at(log, tries, moments_s, found)
    types = sorted({kind for one in found.periods for kind in one.machine.gpu_types})
    bits = {name: bit for bit, name in enumerate(types)}
    weights = np.array([weight for _, weight in kinds], np.float64)
    return float(
        mean_ratio(
            _idle_machines(found.periods, bits),
            found.there(SAMPLES, drained=False),
            (held.rows, held.asks, held.first, held.last),
            typical_rows([demand for demand, _ in kinds], lambda named: _mask(named, bits)),
            weights,
            _admits(kinds, found.periods),
        )
    )


def holdings_at(
    log: EventLog, tries: Attempts, moments_s: NDArray[np.float64], found: MachinePeriods
) -> HeldRows:
    """Return the spots that are held in at least one moment, and from which to which."""
    firsts = np.searchsorted(moments_s, tries.start_s, "left")
    lasts = np.searchsorted(moments_s, tries.end_s, "left")
    asks: dict[Demand, int] = {}
    rows: list[tuple[int, ...]] = []
    for at in np.nonzero(firsts < lasts)[0].tolist():
        tasks = log.jobs[tries.job[at]].request.tasks
        first, last = int(firsts[at]), int(lasts[at])
        for spot in log.placements[tries.number[at]].spots:
            ask = asks.setdefault(tasks[spot.task].demand, len(asks))
            mask = sum(1 << gpu for gpu in spot.gpus)
            rows += [
                (row, mask, spot.instances, ask, spot.task, begin, end)
                for row, begin, end in found.overlaps(spot.machine, first, last)
            ]
    table = np.array(rows, np.int64).reshape(len(rows), AT_WIDTH + 2)
    placed, (begins, ends) = table[:, :AT_WIDTH].copy(), table[:, AT_WIDTH:].T.copy()
    return HeldRows(placed, begins, ends, _asks(list(asks)))


def _asks(demands: list[Demand]) -> Table:
    """Return demands as asks; where they may go has been decided already."""
    table = np.zeros((len(demands), ASK_WIDTH), np.int64)
    for row, one in zip(table, demands, strict=True):
        row[:5] = one.gpus, one.gpu_milli, one.gpu_memory_mib, one.cpu_milli, one.memory_mib
    return table


def _idle_machines(periods: list[Period], bits: dict[str, int]) -> Table:
    """Return what machines have when none of our jobs runs there, one row per period."""
    slots = slots_for(period.machine for period in periods)
    free = np.zeros((len(periods), width(slots)), np.int64)
    for row, period in zip(free, periods, strict=True):
        row[:] = machine_row(period.machine, lambda kind: bits.get(kind, len(bits)), slots)
        row[CPU] -= 0 if period.occupied is None else period.occupied.cpu_milli
        for gpu, milli in period.taken:
            row[FREE + (0 if period.machine.pooled else gpu)] -= milli
    return free


def _mask(named: frozenset[str], bits: dict[str, int]) -> int:
    """Return the bits of the types that will do; all of them if none is named."""
    return sum(1 << bit for name, bit in bits.items() if not named or name in named)


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
