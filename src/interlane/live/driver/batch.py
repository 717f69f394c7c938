"""What one cycle writes, and what it does once that is stored."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from interlane.live.driver.inbox import Item
from interlane.live.driver.state import DriverState, attempt_of
from interlane.live.driver.telling import told
from interlane.live.port import Attempt, Ended, Engine, Launch, Stop
from interlane.live.store.record import JobRecord, after
from interlane.live.store.rows import DrainRow, UsedKey
from interlane.model import JobId, LogEntry, Logged, Placement
from interlane.model.log import VOID, job_named_in


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

    def build(self) -> None:
        """Make a scheduler of what is on record, and note of what else it was made."""
        built, detail = self.state.build(self.now_s)
        self.put(built, **detail)

    def note(self, what: Logged, **detail: Any) -> None:  # noqa: ANN401 - what JSON knows
        """Add an entry to the log, and tell the scheduler what it must learn of it."""
        state, job_id = self.state, job_named_in(what)
        before = None if job_id is None else state.jobs.get(job_id)
        knows = None if job_id is None else state.scheduler.state(job_id)
        for event in told(what, before, knows, self.now_s):
            state.scheduler.learn(event, self.now_s)
        self.put(what, **detail)

    def put(self, what: Logged, **detail: Any) -> None:  # noqa: ANN401 - what JSON knows
        """Add an entry that the scheduler knows of, or learns otherwise."""
        state = self.state
        state.seq += 1
        cycle = self.entries[0].seq if self.entries else state.seq
        entry = LogEntry(state.seq, self.now_s, what, detail, cycle)
        job_id = entry.job_id
        if job_id is not None:
            before = state.jobs.get(job_id)
            record = after(before, entry)
            if record is before:
                entry = replace(entry, detail={**detail, VOID: True})
            self.changed[job_id] = record
            state.put(record)
        self.entries.append(entry)

    def launch(self, launch: Launch) -> None:
        """Ask for an attempt or its growth, once it is stored and nothing is in its way."""
        self.state.endings.hold(launch)

    def stop(self, record: JobRecord) -> None:
        """Ask a job's attempt to end; what has not been asked for has ended with that."""
        attempt = attempt_of(record)
        how = Stop.GRACEFUL if record.cancelled_by is None else Stop.CANCEL
        if self.state.endings.drop(attempt):
            self.postpone(self.now_s, Ended(attempt, None, "stopped"))
        else:
            self.afterwards.append(partial(self.engine.stop, attempt, how))

    def give_up(self, attempt: Attempt, place: Placement | None) -> None:
        """End an attempt that nobody waits for; nothing takes its place before it is over."""
        if not self.state.endings.drop(attempt):
            self.state.endings.add(attempt, place)
            self.afterwards.append(partial(self.engine.stop, attempt, Stop.KILL))

    def discard(self, key: str, *, was_cancelled: bool, why: str) -> None:
        """Let the engine let go of a job that has ended here."""
        discard = partial(self.engine.discard, key, was_cancelled=was_cancelled, why=why)
        self.afterwards.append(discard)

    def release(self) -> None:
        """Begin what nothing is in the way of any more."""
        for launch in self.state.endings.release(self.state.wants):
            ask = self.engine.grow if launch.growth else self.engine.begin
            self.afterwards.append(partial(ask, launch))

    def record(self, job_id: JobId) -> JobRecord:
        """Return a job as this batch leaves it."""
        return self.changed.get(job_id) or self.state.jobs[job_id]
