"""The log: events and actions in the order in which they came, each with what a record needs.

A live server and the simulator write the same entries, and whoever reads one kind of log reads
the other.  A scheduler's decisions follow from the events; ``cycle`` says after which of them
it was asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from interlane.model.actions import Action
from interlane.model.events import Event, OutsideEvent
from interlane.model.ids import JobId, MachineId

Logged = Event | OutsideEvent | Action
"""What an entry of the log tells."""

VOID: Final = "void"
"""In the detail of an action that came for a job which had ended in the same moment."""


def job_named_in(what: Logged) -> JobId | None:
    """Return the job that an event or action is about; None if it is about none."""
    job = getattr(what, "job", None)
    found: JobId | None = getattr(what, "job_id", None) if job is None else job.id
    return found


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the log."""

    seq: int
    """Counts entries, without gaps."""
    at_s: float
    what: Logged
    detail: Mapping[str, Any] = field(default_factory=dict)
    """What a record needs and a scheduler does not: the job's document, its exit code."""
    cycle: int = 0
    """``seq`` of the first entry that was stored together with this one."""

    @property
    def kind(self) -> str:
        """The name of its event or action."""
        return type(self.what).__name__

    @property
    def job_id(self) -> JobId | None:
        """The job that it is about; None if it is about none."""
        return job_named_in(self.what)

    @property
    def machine_id(self) -> MachineId | None:
        """The machine that it is about; None if it is about none."""
        found: MachineId | None = getattr(self.what, "machine_id", None)
        return found

    @property
    def is_action(self) -> bool:
        """Whether a scheduler decided it."""
        return isinstance(self.what, Action)

    @property
    def is_void(self) -> bool:
        """Whether it changed nothing."""
        return VOID in self.detail
