"""The event log: what happened, in columns.

The log is the product: metrics, timelines, timelines and figures are functions of it.  A run
of a million jobs has three million events, so they are kept as columns, not as objects.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.model import (
    Cluster,
    Job,
    MachineChanged,
    MachineDrained,
    MachineEvent,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineReturned,
    MachineUndrained,
    Occupied,
    Placement,
    Refusal,
)


class LogEvent(IntEnum):
    """What kind of event a line of the log is."""

    SUBMITTED = 0
    STARTED = 1
    PREEMPTED = 2
    FINISHED = 3
    REFUSED = 4
    CANCELLED = 5
    MACHINE_LOST = 6
    MACHINE_RETURNED = 7
    JOB_LOST = 8
    """A job was thrown back into the queue because its place is gone."""
    GROWN = 9
    """A running job got more instances."""
    MACHINE_JOINED = 10
    MACHINE_CHANGED = 11
    MACHINE_DRAINED = 12
    MACHINE_UNDRAINED = 13
    MACHINE_LEFT = 14
    OCCUPIED = 15
    """Somebody whom we do not schedule has more or less of a machine."""


PLACED: Final = (LogEvent.STARTED, LogEvent.GROWN)
"""Events that come with a placement."""

MACHINE_EVENTS: Final[Mapping[type[MachineEvent], LogEvent]] = MappingProxyType(
    {
        MachineLost: LogEvent.MACHINE_LOST,
        MachineReturned: LogEvent.MACHINE_RETURNED,
        MachineJoined: LogEvent.MACHINE_JOINED,
        MachineChanged: LogEvent.MACHINE_CHANGED,
        MachineDrained: LogEvent.MACHINE_DRAINED,
        MachineUndrained: LogEvent.MACHINE_UNDRAINED,
        MachineLeft: LogEvent.MACHINE_LEFT,
        Occupied: LogEvent.OCCUPIED,
    }
)
"""What the log calls events of machines."""

OF_MACHINES: Final = frozenset(MACHINE_EVENTS.values())
"""Events about machines; all others are about jobs."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log, spelled out."""

    at_s: float
    kind: LogEvent
    subject: int
    """Number of the job, or of the machine for events about machines."""
    placement: Placement | None = None
    in_favour_of: int | None = None
    """Number of the job for which this one was preempted."""
    why: str | None = None
    """Why a job was thrown back into the queue."""
    event: MachineEvent | None = None
    """What happened to a machine."""


class EventLog:
    """What happened to the jobs of one run, in order."""

    def __init__(self, cluster: Cluster, jobs: Sequence[Job]) -> None:
        self.cluster = cluster
        self.jobs = jobs
        self._at_s = array("d")
        self._events = array("b")
        self._subjects = array("q")
        self.placements: list[Placement] = []
        """Where jobs started and grew, one for every such line, in order."""
        self.favoured: list[int] = []
        """For whom jobs were stopped, one for every ``PREEMPTED`` line, in order."""
        self.refusals: dict[int, Refusal] = {}
        """Why jobs were refused for good, by job number."""
        self.losses: list[str] = []
        """Why jobs were thrown back, one for every ``JOB_LOST`` line, in order."""
        self.machine_events: list[MachineEvent] = []
        """What happened to machines, one for every such line, in order."""
        self.machine_ids = [machine.id for machine in cluster]
        """Machines by number: those of the cluster, then those that joined."""
        self._machine_numbers = {name: at for at, name in enumerate(self.machine_ids)}

    def __len__(self) -> int:
        return len(self._at_s)

    def add(self, at_s: float, kind: LogEvent, subject: int) -> None:
        """Append a line."""
        self._at_s.append(at_s)
        self._events.append(kind)
        self._subjects.append(subject)

    def add_start(self, at_s: float, job: int, placement: Placement) -> None:
        """Append the start of a job."""
        self._at_s.append(at_s)
        self._events.append(1)
        self._subjects.append(job)
        self.placements.append(placement)

    def add_growth(self, at_s: float, job: int, more: Placement) -> None:
        """Append that a running job got more instances."""
        self.add(at_s, LogEvent.GROWN, job)
        self.placements.append(more)

    def add_preemption(self, at_s: float, job: int, in_favour_of: int) -> None:
        """Append that a job was stopped for another."""
        self.add(at_s, LogEvent.PREEMPTED, job)
        self.favoured.append(in_favour_of)

    def add_loss(self, at_s: float, job: int, why: str) -> None:
        """Append that a job was thrown back into the queue."""
        self.add(at_s, LogEvent.JOB_LOST, job)
        self.losses.append(why)

    def add_machine(self, at_s: float, event: MachineEvent) -> None:
        """Append what happened to a machine."""
        name = event.machine_id
        if name not in self._machine_numbers:
            self._machine_numbers[name] = len(self.machine_ids)
            self.machine_ids.append(name)
        self.add(at_s, MACHINE_EVENTS[type(event)], self._machine_numbers[name])
        self.machine_events.append(event)

    def columns(self) -> tuple[NDArray[np.float64], NDArray[np.int8], NDArray[np.int64]]:
        """Return times, events and subjects."""
        return (
            np.array(self._at_s, np.float64),
            np.array(self._events, np.int8),
            np.array(self._subjects, np.int64),
        )

    def lines(self) -> Iterator[LogLine]:
        """Yield the log line by line."""
        places, favoured = iter(self.placements), iter(self.favoured)
        losses, events = iter(self.losses), iter(self.machine_events)
        for at_s, kind, subject in zip(self._at_s, self._events, self._subjects, strict=True):
            placement = next(places) if kind in PLACED else None
            for_whom = next(favoured) if kind == LogEvent.PREEMPTED else None
            why = next(losses) if kind == LogEvent.JOB_LOST else None
            event = next(events) if kind in OF_MACHINES else None
            yield LogLine(at_s, LogEvent(kind), subject, placement, for_whom, why, event)
