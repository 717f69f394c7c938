"""Actions: what should be done, in the imperative.  They come out of the kernel."""

from dataclasses import dataclass

from interlane.model.ids import JobId
from interlane.model.placement import Placement, Refusal


@dataclass(frozen=True, slots=True)
class Start:
    """Start the job there; its capacity is already held."""

    job_id: JobId
    placement: Placement


@dataclass(frozen=True, slots=True)
class Grow:
    """Give the running job these instances too; their capacity is already held."""

    job_id: JobId
    more: Placement


@dataclass(frozen=True, slots=True)
class Preempt:
    """Stop the job so that a more urgent one may run."""

    job_id: JobId
    in_favour_of: JobId


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell the user that this job can never run here; the kernel forgets it."""

    job_id: JobId
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Requeue:
    """Note that the job waits again because its place is gone; end what is left of it."""

    job_id: JobId
    why: str
    work_lost_s: float = 0.0
    """Progress since the last checkpoint, which must be done again."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Send ``Ticked`` at this time, unless something else happens first."""

    at_s: float


Action = Start | Grow | Preempt | Refuse | Requeue | Wake
