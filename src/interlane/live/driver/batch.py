"""What one cycle writes, and what it does once that is stored."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from interlane.live.driver.state import Books
from interlane.live.measure.monitor import Use
from interlane.live.store.record import Entry, Kind, Record, State, after
from interlane.live.store.store import UsedKey
from interlane.model import Event, JobId


@dataclass(slots=True)
class Batch:
    """Entries that are committed together; the books have them already."""

    books: Books
    now_s: float
    used: Callable[[Record], Use | None]
    """Says what the last attempt at a job did on its device, if it was on one."""
    entries: list[Entry] = field(default_factory=list)
    changed: dict[JobId, Record] = field(default_factory=dict)
    keys: list[UsedKey] = field(default_factory=list)
    """Idempotency keys that were used for the first time."""
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    """Answers to those who wait, then wishes to carry out."""

    def write(self, kind: Kind, job_id: JobId, change: dict[str, Any]) -> Record:
        """Add an entry to the log; return the job's record after it."""
        books = self.books
        books.seq += 1
        entry = Entry(books.seq, self.now_s, kind, job_id, change)
        record = after(books.jobs.get(job_id), entry)
        self.entries.append(entry)
        self.changed[job_id] = books.jobs[job_id] = record
        return record

    def end(self, kind: Kind, record: Record, state: State, **change: object) -> None:
        """Add the last entry of a job."""
        ended = {"state": state, "ended_s": self.now_s, "placement": None, **change}
        if record.attempt and (use := self.used(record)) is not None:
            ended["use"] = asdict(use)
        self.write(kind, record.id, ended)

    def learn(self, fact: Event) -> None:
        """Tell the kernel."""
        self.books.scheduler.learn(fact, self.now_s)

    def record(self, job_id: JobId) -> Record:
        """Return a job as this batch leaves it."""
        return self.changed.get(job_id) or self.books.jobs[job_id]
