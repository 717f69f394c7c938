"""The event log: what happened, in columns.

The log is the product: metrics, timelines, timelines and figures are functions of it.  A run
of a million jobs has three million events, so they are kept as columns, not as objects.  It is
made of the entries that a live server stores (``EventLog.of``), and the simulator's makes
such entries (``entries``).  In columns a job holds its place from ``Start`` on.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.model import (
    AttemptUnknown,
    Cancelled,
    Cluster,
    Finished,
    Grown,
    Job,
    JobId,
    JobLost,
    JobRetried,
    LogEntry,
    Logged,
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
    Placement,
    Preempt,
    Preempted,
    Recovered,
    Refusal,
    Refuse,
    Requeue,
    SchedulerBuilt,
    Start,
    StartFailed,
    Submitted,
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
    START_FAILED = 16
    """A job gave its place back in which it could not be started."""


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

NO_CLUSTER: Final = Cluster("unknown", ())
NOBODY: Final = -1
"""In whose favour a job was stopped of which nobody knows."""

_PLAIN: Final[Mapping[type[Logged], LogEvent]] = MappingProxyType(
    {
        StartFailed: LogEvent.START_FAILED,
        Finished: LogEvent.FINISHED,
        Cancelled: LogEvent.CANCELLED,
    }
)

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

    def __init__(self, cluster: Cluster, jobs: Sequence[Job] = ()) -> None:
        self.cluster = cluster
        self.jobs = jobs
        self._numbers: dict[JobId, int] = {}
        """Jobs that came with entries, and their numbers."""
        self._machines: dict[MachineId, Machine] | None = None
        """Those that are there by the entries so far."""
        self._for_whom: dict[int, int] = {}
        """Jobs that are being stopped, and for whom."""
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

    def starts_since(self, line: int) -> list[tuple[float, int]]:
        """Return the starts from a line on: when, and the job's number."""
        return [
            (self._at_s[at], self._subjects[at])
            for at in range(line, len(self._at_s))
            if self._events[at] == LogEvent.STARTED
        ]

    # -- from and to entries ----------------------------------------------------------

    @classmethod
    def of(cls, entries: Iterable[LogEntry]) -> "EventLog":
        """Return the log of entries; their jobs are told by them."""
        log: EventLog | None = None
        for entry in entries:
            if log is None:
                what = entry.what
                log = cls(what.cluster if isinstance(what, SchedulerBuilt) else NO_CLUSTER)
            log.append(entry)
        return log or cls(NO_CLUSTER)

    def knows(self, job_id: JobId) -> bool:
        """Tell whether entries have named a job."""
        return job_id in self._numbers

    def know(self, job: Job) -> int:
        """Add a job of which entries will tell; return its number."""
        if not self._numbers:
            self.jobs = list(self.jobs)
        assert isinstance(self.jobs, list)
        self.jobs.append(job)
        number = self._numbers[job.id] = len(self.jobs) - 1
        return number

    def append(self, entry: LogEntry) -> None:
        """Append what an entry tells; nothing of a job whose first entry it has not seen."""
        at_s, what = entry.at_s, entry.what
        if isinstance(what, SchedulerBuilt):
            self._follow_machines(at_s, what.cluster)
        elif isinstance(what, MachineEvent):
            self._append_machine(at_s, what)
        elif isinstance(what, Submitted):
            self.add(at_s, LogEvent.SUBMITTED, self.know(what.job))
        elif isinstance(what, Recovered) and what.job.id in self._numbers:
            if what.placement is not None:  # an attempt that was unknown runs after all
                self.add_start(at_s, self._numbers[what.job.id], what.placement)
        elif isinstance(what, Recovered):
            self.recover(what)
        elif entry.job_id in self._numbers and not entry.is_void:
            self._append_of_job(at_s, self._numbers[entry.job_id], what)

    def recover(self, event: Recovered) -> None:
        """Append how a job stands that was there before this log began."""
        job = event.job
        number = self._numbers.get(job.id)
        if number is None:
            number = self.know(job)
            self.add(job.submitted_s, LogEvent.SUBMITTED, number)
        if event.placement is not None:
            self.add_start(event.started_s, number, event.placement)

    def _append_of_job(self, at_s: float, number: int, what: Logged) -> None:
        match what:
            case Start(_, placement):
                self.add_start(at_s, number, placement)
            case Grown(_, more):
                self.add_growth(at_s, number, more)
            case Preempt(_, in_favour_of):
                self._for_whom[number] = self._numbers.get(in_favour_of, NOBODY)
            case Preempted():
                self.add_preemption(at_s, number, self._for_whom.pop(number, NOBODY))
            case Requeue(_, why):
                self.add_loss(at_s, number, why)
            case AttemptUnknown(_, why) | JobRetried(_, why):
                self.add_loss(at_s, number, why)
            case JobLost():
                self.add_loss(at_s, number, "The attempt went with its machine.")
            case Refuse(_, refusal):
                self.add(at_s, LogEvent.REFUSED, number)
                self.refusals[number] = refusal
            case StartFailed() | Finished() | Cancelled():
                self.add(at_s, _PLAIN[type(what)], number)
            case _:
                pass  # it changes neither who waits nor who holds what

    def _append_machine(self, at_s: float, event: MachineEvent) -> None:
        if self._machines is not None:
            if isinstance(event, MachineJoined | MachineChanged):
                self._machines[event.machine_id] = event.machine
            elif isinstance(event, MachineLeft):
                self._machines.pop(event.machine_id, None)
        self.add_machine(at_s, event)

    def _follow_machines(self, at_s: float, cluster: Cluster) -> None:
        """Append what became of machines while no scheduler was there."""
        now = {machine.id: machine for machine in cluster}
        before, self._machines = self._machines, now
        if before is None:
            return  # they are those that the log began with
        for machine_id in before.keys() - now.keys():
            self.add_machine(at_s, MachineLeft(machine_id))
        for machine in cluster:
            if machine.id not in before:
                self.add_machine(at_s, MachineJoined(machine))
            elif machine != before[machine.id]:
                self.add_machine(at_s, MachineChanged(machine))

    def entries(self) -> Iterator[LogEntry]:
        """Yield the log as entries, the machines first."""
        whats: Iterator[tuple[float, Logged]] = (
            (line.at_s, what) for line in self.lines() for what in self._whats(line)
        )
        begin_s = self._at_s[0] if self._at_s else 0.0
        yield LogEntry(1, begin_s, SchedulerBuilt(self.cluster), cycle=1)
        for seq, (at_s, what) in enumerate(whats, start=2):
            yield LogEntry(seq, at_s, what, cycle=seq)

    def _whats(self, line: LogLine) -> Iterator[Logged]:
        """Yield the events and actions that a line stands for."""
        if line.event is not None:
            yield line.event
            return
        job = self.jobs[line.subject]
        match line.kind:
            case LogEvent.SUBMITTED:
                yield Submitted(job)
            case LogEvent.STARTED:
                assert line.placement is not None
                yield Start(job.id, line.placement)
            case LogEvent.GROWN:
                assert line.placement is not None
                yield Grown(job.id, line.placement)
            case LogEvent.PREEMPTED:
                assert line.in_favour_of is not None
                if line.in_favour_of != NOBODY:
                    yield Preempt(job.id, self.jobs[line.in_favour_of].id)
                yield Preempted(job.id)
            case LogEvent.JOB_LOST:
                yield Requeue(job.id, line.why or "")
            case LogEvent.REFUSED:
                yield Refuse(job.id, self.refusals[line.subject])
            case LogEvent.START_FAILED:
                yield StartFailed(job.id, "")
            case LogEvent.CANCELLED:
                yield Cancelled(job.id)
            case _:
                yield Finished(job.id)

    # -- columns ----------------------------------------------------------------------

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
