"""Facts: what has happened, in the past tense.  They go into the kernel."""

from dataclasses import dataclass

from interlane.model.ids import JobId, MachineId
from interlane.model.placement import Placement
from interlane.model.work import Job


@dataclass(frozen=True, slots=True)
class Submitted:
    """A user handed in a job."""

    job: Job


@dataclass(frozen=True, slots=True)
class Recovered:
    """The job was here before this kernel was: it waits, or holds a place already."""

    job: Job
    ran_s: float = 0.0
    """Seconds of progress kept from earlier attempts."""
    placement: Placement | None = None
    """Where it runs; None if it waits."""
    started_s: float = 0.0
    """When the present attempt began; meaningful with a placement."""


@dataclass(frozen=True, slots=True)
class Started:
    """The job runs where the kernel wished it."""

    job_id: JobId
    placement: Placement


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The job could not be started there; what was held for it is free again."""

    job_id: JobId
    why: str


@dataclass(frozen=True, slots=True)
class Grown:
    """The job runs with these instances too, where the kernel wished them."""

    job_id: JobId
    more: Placement


@dataclass(frozen=True, slots=True)
class GrowFailed:
    """The job got no further instances and runs on as before; what was held is free again."""

    job_id: JobId
    why: str


@dataclass(frozen=True, slots=True)
class Preempted:
    """The job was stopped at the kernel's wish and waits again.

    ``work_lost_s`` is progress since the last checkpoint, which must be done again.
    """

    job_id: JobId
    work_lost_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Finished:
    """The job ended by itself."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The user took the job back, waiting or running."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class MachineLost:
    """The machine is gone, and with it whatever ran there."""

    machine_id: MachineId


@dataclass(frozen=True, slots=True)
class MachineReturned:
    """The machine is back, empty."""

    machine_id: MachineId


@dataclass(frozen=True, slots=True)
class Ticked:
    """The moment asked for by a ``Wake`` has come."""


Event = (
    Submitted
    | Recovered
    | Started
    | StartFailed
    | Grown
    | GrowFailed
    | Preempted
    | Finished
    | Cancelled
    | MachineLost
    | MachineReturned
    | Ticked
)
