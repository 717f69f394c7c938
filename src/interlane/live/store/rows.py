"""Rows of the store beside jobs and the log."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from interlane.model import JobId, LogEntry
from interlane.model.lifecycle import JobState


@dataclass(frozen=True, slots=True)
class UsedKey:
    """An idempotency key, and the job that it made."""

    user: str
    key: str
    digest: str
    job_id: JobId


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token as it is stored: its digest, never itself."""

    id: str
    name: str
    role: str
    digest: str
    created_s: float
    revoked_s: float | None = None
    """From when on it counts no longer; in the future if it expires then."""

    def is_valid(self, now_s: float) -> bool:
        """Tell whether it counts."""
        return self.revoked_s is None or now_s < self.revoked_s


@dataclass(frozen=True, slots=True)
class DrainRow:
    """A machine that an operator has drained, or that takes work again."""

    machine_id: str
    drained: bool
    by: str
    at_s: float


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function as it is stored."""

    name: str
    user: str
    version: int
    """Counts deployments under this name."""
    deployed_s: float
    spec: str
    """What its user wrote, as JSON."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Where the log ends."""

    seq: int = 0
    at_s: float = 0.0
    serial: int = 0


@dataclass(frozen=True, slots=True)
class Life:
    """Who writes to a database, or wrote last."""

    identity: str
    """Id of the database."""
    number: int
    """Rises with every server that takes the database over."""
    server: str
    """Who holds what that server runs; empty once it has ended by itself."""
    beat: int
    """Rises while that server lives."""


@dataclass(frozen=True, slots=True)
class JobsPart:
    """Rows that leave the database together; false if there are none."""

    jobs: list[dict[str, Any]]
    log: list[dict[str, Any]]

    def __bool__(self) -> bool:
        return bool(self.jobs or self.log)


@dataclass(frozen=True, slots=True)
class OldJob:
    """A job that is no longer in the database."""

    serial: int
    document: str
    """Its record, as JSON."""


@dataclass(frozen=True, slots=True)
class JobsWanted:
    """Which jobs a page shows, the newest first."""

    limit: int = 100
    before: int | None = None
    """Serial of the last job of the page before."""
    states: frozenset[JobState] | None = None
    user: str | None = None
    after: int | None = None
    """Only jobs whose serial is higher."""
    sweep: str | None = None
    """Only trials of this sweep, or of any if empty."""
    by_end: bool = False
    """Those that ended last instead, of all users, as far as they are in the database."""

    @property
    def mark(self) -> str:
        """What a stored record holds if it is a trial of the sweep."""
        name = f'{self.sweep}",' if self.sweep else ""
        return f'"sweep":{{"name":"{name}'


class Past(Protocol):
    """What was in the database once and is kept elsewhere."""

    @property
    def newest_serial(self) -> int:
        """The highest number of a job that is there; 0 if none is."""
        ...

    @property
    def last_seq(self) -> int:
        """The highest number of an entry that is there; 0 if none is."""
        ...

    @property
    def until_s(self) -> float:
        """The end of the last day of which something is there; 0 if nothing is."""
        ...

    def must_have_room(self) -> None:
        """Raise ``OSError`` unless there is room to keep more."""
        ...

    def job(self, job_id: str) -> str | None:
        """Return the record of a job, as JSON."""
        ...

    def jobs(self, wanted: JobsWanted) -> list[OldJob]:
        """Return a page of jobs, the newest first."""
        ...

    def counts(self, without: Collection[str]) -> Mapping[str, int]:
        """Return how many jobs are in each state, but for some."""
        ...

    def log(self, after: int, limit: int) -> list[LogEntry]:
        """Return entries that follow one, the oldest first."""
        ...

    def log_of(self, job_id: str) -> list[LogEntry]:
        """Return all entries of a job."""
        ...

    def seqs(self) -> Iterator[Sequence[int]]:
        """Yield the numbers of all entries."""
        ...
