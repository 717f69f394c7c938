"""What one cycle writes, and what it does once that is stored."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from interlane.kernel.lifecycle import JobState
from interlane.live.driver.inbox import Item
from interlane.live.driver.state import DriverState
from interlane.live.measure.monitor import Use
from interlane.live.port import Attempt, Ended, Engine, Launch, Stop
from interlane.live.store.record import JobRecord, Kind, LogEntry, State, after
from interlane.live.store.rows import DrainRow, UsedKey
from interlane.model import Event, JobId, Placement


@dataclass(slots=True)
class Batch:
    """Entries that are committed together; the state has them already."""

    state: DriverState
    now_s: float
    engine: Engine
    postpone: Callable[[float, Item], None]
    """Keeps an item until a later moment."""
    entries: list[LogEntry] = field(default_factory=list)
    changed: dict[JobId, JobRecord] = field(default_factory=dict)
    keys: list[UsedKey] = field(default_factory=list)
    """Idempotency keys that were used for the first time."""
    drains: list[DrainRow] = field(default_factory=list)
    """Machines that were drained, or that take work again."""
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    """Answers to those who wait, then actions to carry out."""

    def write(self, kind: Kind, job_id: JobId, change: dict[str, Any]) -> JobRecord:
        """Add an entry to the log; return the job's record after it."""
        state = self.state
        state.seq += 1
        entry = LogEntry(state.seq, self.now_s, kind, job_id, change)
        record = after(state.jobs.get(job_id), entry)
        self.entries.append(entry)
        self.changed[job_id] = state.jobs[job_id] = record
        return record

    def end(
        self,
        kind: Kind,
        record: JobRecord,
        state: State,
        use: Use | None = None,
        **change: object,
    ) -> None:
        """Add the last entry of a job."""
        ended = {"state": state, "ended_s": self.now_s, "placement": None, **change}
        if use is not None:
            ended["use"] = asdict(use)
        self.write(kind, record.id, ended)

    def launch(self, launch: Launch) -> None:
        """Ask for an attempt or its growth, once it is stored and nothing is in its way."""
        self.state.endings.hold(launch)

    def stop(self, attempt: Attempt) -> None:
        """Ask an attempt to end; what has not been asked for has ended with that."""
        if self.state.endings.drop(attempt):
            self.postpone(self.now_s, Ended(attempt, None, "stopped"))
        else:
            self.afterwards.append(partial(self.engine.stop, attempt, Stop.GRACEFUL))

    def give_up(self, attempt: Attempt, place: Placement | None) -> None:
        """End an attempt that nobody waits for; nothing takes its place before it is over."""
        if not self.state.endings.drop(attempt):
            self.state.endings.add(attempt, place)
            self.afterwards.append(partial(self.engine.stop, attempt, Stop.KILL))

    def release(self) -> None:
        """Begin what nothing is in the way of any more."""
        for launch in self.state.endings.release(self.state.wants):
            ask = self.engine.grow if launch.growth else self.engine.begin
            self.afterwards.append(partial(ask, launch))

    def learn(self, event: Event) -> None:
        """Tell the scheduler."""
        self.state.scheduler.learn(event, self.now_s)

    def stands(self, job_id: JobId) -> JobState | None:
        """Return where a job stands for the scheduler."""
        return self.state.scheduler.state(job_id)

    def record(self, job_id: JobId) -> JobRecord:
        """Return a job as this batch leaves it."""
        return self.changed.get(job_id) or self.state.jobs[job_id]
