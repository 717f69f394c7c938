"""Rows of the store beside jobs and the log."""

from dataclasses import dataclass

from interlane.model import JobId
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
class JobsWanted:
    """Which jobs a page shows, the newest first."""

    limit: int = 100
    before: int | None = None
    """Serial of the last job of the page before."""
    states: frozenset[JobState] | None = None
    user: str | None = None
