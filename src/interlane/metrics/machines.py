"""Which machines were there, and when, from the log.

Machines join, change, are lost and leave, and others take parts of them.  A *period* is a time
in which nothing about a machine changed; figures count what there was period by period.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from interlane.metrics.log import OF_MACHINES, EventLog
from interlane.model import (
    Machine,
    MachineChanged,
    MachineDrained,
    MachineEvent,
    MachineId,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineReturned,
    MachineUndrained,
    Occupied,
)


@dataclass(frozen=True, slots=True)
class Period:
    """A time in which a machine was there and nothing about it changed."""

    machine: Machine
    begin_s: float
    end_s: float
    is_lost: bool = False
    is_drained: bool = False
    occupied: Occupied | None = None

    @property
    def taken(self) -> list[tuple[int, int]]:
        """What others had of its GPUs: number and share, as far as the GPU was there."""
        if self.occupied is None:
            return []
        return [
            (one.index, min(one.milli, self.machine.device(one.index).compute_milli))
            for one in self.occupied.gpus
            if one.index < self.machine.gpus
        ]

    @property
    def gpu_milli(self) -> int:
        """GPU share that was there and that nobody else had."""
        return self.machine.gpu_milli - sum(milli for _, milli in self.taken)


def periods(log: EventLog) -> list[Period]:
    """Return when machines were there, ordered by machine, then by time."""
    found: list[list[Period]] = [[Period(one, -inf, inf)] for one in log.cluster]
    at_s, events, subjects = log.columns()
    lines = np.nonzero(np.isin(events, list(OF_MACHINES)))[0].tolist()
    for line, event in zip(lines, log.machine_events, strict=True):
        if subjects[line] == len(found):
            found.append([])
        _follow(found[subjects[line]], event, float(at_s[line]))
    listed = (period for of_machine in found for period in of_machine)
    return [one for one in listed if not one.is_lost and one.begin_s < one.end_s]


def _follow(past: list[Period], event: MachineEvent, at_s: float) -> None:
    """End the last period of a machine, and begin the next if it is still there."""
    before = None
    if past and past[-1].end_s == inf:
        before = past[-1]
        past[-1] = replace(before, end_s=at_s)
    if isinstance(event, MachineJoined):
        past.append(Period(event.machine, at_s, inf))
    elif before is not None and not isinstance(event, MachineLeft):
        past.append(_after(replace(before, begin_s=at_s), event))


def _after(period: Period, event: MachineEvent) -> Period:
    match event:
        case MachineChanged(machine):
            return replace(period, machine=machine)
        case MachineLost() | MachineReturned():
            return replace(period, is_lost=isinstance(event, MachineLost))
        case MachineDrained() | MachineUndrained():
            return replace(period, is_drained=isinstance(event, MachineDrained))
        case Occupied():
            return replace(period, occupied=event)
        case MachineJoined() | MachineLeft():
            raise AssertionError("a machine that comes or goes does not go on as before")


def gpu_milli_s(log: EventLog, begin_s: float, end_s: float) -> float:
    """Return the GPU time that there was, in thousandths of a GPU times seconds."""
    milli: Counter[tuple[float, float]] = Counter()
    for period in periods(log):
        milli[max(period.begin_s, begin_s), min(period.end_s, end_s)] += period.gpu_milli
    return sum(
        share * (last_s - first_s)
        for (first_s, last_s), share in milli.items()
        if last_s > first_s
    )


@dataclass(frozen=True)
class MachinePeriods:
    """The machines that are there in some of the moments: one row per period."""

    periods: list[Period]
    first: NDArray[np.int64]
    """The first moment of each."""
    last: NDArray[np.int64]
    """The moment after its last."""
    rows: dict[MachineId, list[int]]
    """The rows of each machine, in order of time."""

    def overlaps(
        self, machine: MachineId, first: int, last: int
    ) -> Iterator[tuple[int, int, int]]:
        """Yield a machine's rows in these moments, each with its part of them."""
        for row in self.rows.get(machine, ()):
            begin, end = max(first, int(self.first[row])), min(last, int(self.last[row]))
            if begin < end:
                yield row, begin, end

    def there(self, moments: int, *, drained: bool) -> NDArray[np.bool_]:
        """Return which rows are there at each moment, with or without drained machines."""
        there = np.zeros((moments, len(self.periods)), np.bool_)
        for row, period in enumerate(self.periods):
            there[self.first[row] : self.last[row], row] = drained or not period.is_drained
        return there


def seen(log: EventLog, moments_s: NDArray[np.float64]) -> MachinePeriods:
    """Return the machines that are there in some of these moments."""
    listed = periods(log)
    first = np.searchsorted(moments_s, [one.begin_s for one in listed], "left")
    last = np.searchsorted(moments_s, [one.end_s for one in listed], "left")
    kept = np.nonzero(first < last)[0]
    rows: dict[MachineId, list[int]] = {}
    for row, at in enumerate(kept.tolist()):
        rows.setdefault(listed[at].machine.id, []).append(row)
    return MachinePeriods([listed[at] for at in kept.tolist()], first[kept], last[kept], rows)
