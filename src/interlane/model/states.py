"""Where a job can stand.

A module of its own, because clients know states and nothing of events.
"""

from enum import StrEnum
from typing import Final


class JobState(StrEnum):
    """Where a job stands."""

    HELD = "held"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    GROWING = "growing"
    STOPPING = "stopping"
    UNKNOWN = "unknown"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"

    @property
    def holds(self) -> bool:
        """Whether a job holds a place."""
        return self in HOLDING

    @property
    def has_ended(self) -> bool:
        """Whether a job is over."""
        return self in ENDED


HOLDING: Final = frozenset(
    {JobState.STARTING, JobState.RUNNING, JobState.GROWING, JobState.STOPPING}
)
"""States in which a job holds capacity."""

APART: Final = frozenset({JobState.UNKNOWN, JobState.HELD})
"""States of jobs that have not ended and that no scheduler knows."""

OPEN: Final = HOLDING | APART | {JobState.QUEUED}
"""States of jobs that have not ended."""

ENDED: Final = frozenset(JobState) - OPEN
