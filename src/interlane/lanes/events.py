"""Events: what has happened on the device, in the past tense.  They go into ``Domain``."""

from dataclasses import dataclass

from interlane.lanes.actions import LaneId, MemoryDemand
from interlane.model import JobId, Ticked


@dataclass(frozen=True, slots=True)
class Joined:
    """A job asked to use the device."""

    job_id: JobId
    demand: MemoryDemand | None = None
    """None when nothing is known: the job then gets the device alone until it is observed."""
    priority: int = 0
    """Higher is more urgent."""
    total_s: float | None = None
    """Estimated device time of the whole job, for orders that ask for it."""
    processes: int = 1
    """Processes with a context on the device; 0 for a guest of one that is counted already."""
    weight: float = 1.0
    """Its share of turns against those of others, in the fair order."""


@dataclass(frozen=True, slots=True)
class Reattached:
    """A job that was admitted before the domain was made anew said what it holds."""

    job_id: JobId
    demand: MemoryDemand
    lane: LaneId
    lane_bytes: int
    priority: int = 0
    total_s: float | None = None
    processes: int = 1
    attained_s: float = 0.0
    epoch: int | None = None
    """Of the lease under which it runs at present, if it does."""
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class IterationWanted:
    """The job has an iteration to run.  May come before it is admitted."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Released:
    """The holder finished an iteration and has nothing to run at present."""

    job_id: JobId
    epoch: int
    iterations: int = 1
    """Finished since the lease was granted."""


@dataclass(frozen=True, slots=True)
class Yielded:
    """The holder gave the lane up at a boundary and wants it again."""

    job_id: JobId
    epoch: int
    iterations: int = 1
    """Finished since the lease was granted."""


@dataclass(frozen=True, slots=True)
class Passed:
    """The holder passed the lane on, at a boundary, to a job that it was told of (``Name``)."""

    job_id: JobId
    epoch: int
    successor_epoch: int
    iterations: int = 1
    """Finished since the lease was granted."""


@dataclass(frozen=True, slots=True)
class MemoryObserved:
    """What the job was measured to need: the most over its recent iterations."""

    job_id: JobId
    demand: MemoryDemand


@dataclass(frozen=True, slots=True)
class Moved:
    """The job was told to take its turns in another lane; it is not inside an iteration."""

    job_id: JobId
    lane: LaneId | None = None
    """None for a lane of its own.  Where memory does not allow the move, nothing changes."""


@dataclass(frozen=True, slots=True)
class Extended:
    """The holder said that its next boundary may take until then (a checkpoint, say)."""

    job_id: JobId
    epoch: int
    until_s: float


@dataclass(frozen=True, slots=True)
class Stalled:
    """Others wait for a holder that runs nothing, or has been in one iteration for too long.

    No order leaves a lane to it: it is asked to stop, and counts as hung if it does not.
    """

    job_id: JobId
    epoch: int
    hung_at_s: float


@dataclass(frozen=True, slots=True)
class Switched:
    """A lane was passed from one job to another, and it was measured what that cost."""

    way_s: float
    """From the end of one job's iteration to the beginning of the other's."""
    warm_up_s: float | None
    """By how much the first iteration was slower than the next; None: there was only one."""


@dataclass(frozen=True, slots=True)
class AllReturned:
    """Every job that was alive has come back: the grace period may end early."""


@dataclass(frozen=True, slots=True)
class Left:
    """The job is gone, waiting or admitted, and its memory with it."""

    job_id: JobId


LaneEvent = (
    Joined
    | Reattached
    | IterationWanted
    | Released
    | Yielded
    | Passed
    | MemoryObserved
    | Moved
    | Extended
    | Stalled
    | Switched
    | AllReturned
    | Left
    | Ticked
)
