"""Events: what has happened, in the past tense.  They go into the kernel."""

from dataclasses import dataclass

from interlane.model.cluster import Cluster
from interlane.model.ids import JobId, MachineId
from interlane.model.machine import Machine
from interlane.model.placement import Placement
from interlane.model.work import Job, Request


@dataclass(frozen=True, slots=True)
class Submitted:
    """A user submitted a job."""

    job: Job


@dataclass(frozen=True, slots=True)
class Recovered:
    """The job was here before this scheduler was: it waits, or holds a place already.

    Where the place is gone or does not fit any more, the job waits, and ``Requeue`` says so.
    """

    job: Job
    ran_s: float = 0.0
    """Seconds of progress kept from earlier attempts."""
    placement: Placement | None = None
    """Where it runs; None if it waits."""
    started_s: float = 0.0
    """When the present attempt began; meaningful with a placement."""
    growing: int = 0
    """Spots at the end of the placement that are held for it and not yet confirmed."""


@dataclass(frozen=True, slots=True)
class Started:
    """The job runs where the scheduler placed it."""

    job_id: JobId
    placement: Placement


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The job could not be started there; what was held for it is free again."""

    job_id: JobId
    why: str


@dataclass(frozen=True, slots=True)
class Grown:
    """The job runs with these instances too, where the scheduler placed them."""

    job_id: JobId
    more: Placement


@dataclass(frozen=True, slots=True)
class GrowFailed:
    """The job got no further instances and runs on as before; what was held is free again."""

    job_id: JobId
    why: str


@dataclass(frozen=True, slots=True)
class Preempted:
    """The job was stopped at the scheduler's request and waits again.

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
class MachineJoined:
    """A machine is new, and empty; one of this name that is known is replaced by it."""

    machine: Machine

    @property
    def machine_id(self) -> MachineId:
        """Its name."""
        return self.machine.id


@dataclass(frozen=True, slots=True)
class MachineChanged:
    """A machine offers something else from now on; jobs that no longer fit are requeued."""

    machine: Machine

    @property
    def machine_id(self) -> MachineId:
        """Its name."""
        return self.machine.id


@dataclass(frozen=True, slots=True)
class MachineDrained:
    """The machine takes nothing new; what runs there runs on."""

    machine_id: MachineId


@dataclass(frozen=True, slots=True)
class MachineUndrained:
    """The machine takes new work again."""

    machine_id: MachineId


@dataclass(frozen=True, slots=True)
class MachineLeft:
    """The machine is gone for good, and with it whatever ran there."""

    machine_id: MachineId


@dataclass(frozen=True, slots=True)
class TakenGpu:
    """What somebody whom we do not schedule has of one GPU."""

    index: int
    milli: int
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class Occupied:
    """What others have of a machine now, in all; replaces what was known of it."""

    machine_id: MachineId
    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: tuple[TakenGpu, ...] = ()


@dataclass(frozen=True, slots=True)
class Ticked:
    """The moment asked for by a ``Wake`` has come."""


MachineEvent = (
    MachineLost
    | MachineReturned
    | MachineJoined
    | MachineChanged
    | MachineDrained
    | MachineUndrained
    | MachineLeft
    | Occupied
)
"""What happens to machines, whoever runs there."""

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
    | MachineEvent
    | Ticked
)


# -- what happens around a scheduler, which it is not told ------------------------------


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody cancels the job while it holds a place; ``Cancelled`` follows its end."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobLost:
    """The engine says that the job went with its machine; it waits again.

    A scheduler that knows of the machine has requeued it by itself.
    """

    job_id: JobId
    work_lost_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AttemptUnknown:
    """Nobody here can tell what has become of the job's attempt, so that it is left alone.

    ``Recovered`` follows when its holder answers, or when an operator lets the job wait again.
    """

    job_id: JobId
    why: str


@dataclass(frozen=True, slots=True)
class JobHeld:
    """The job waits for something else than a place: a moment, other jobs, or its user."""

    job_id: JobId
    why: str


@dataclass(frozen=True, slots=True)
class JobReleased:
    """The job has all that it waited for but a place."""

    job: Job


@dataclass(frozen=True, slots=True)
class JobRetried:
    """The job's attempt failed in a way that may pass; it waits for a while, then runs again.

    ``work_lost_s`` is progress since the last checkpoint, which must be done again.
    """

    job_id: JobId
    why: str
    work_lost_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobChanged:
    """The job, which waits, is otherwise than it was: by its user, or by a new estimate."""

    job: Job


@dataclass(frozen=True, slots=True)
class SchedulerBuilt:
    """A scheduler was built anew, from the jobs on record and from this."""

    cluster: Cluster
    settings: tuple[tuple[str, str], ...] = ()
    """The words that name the policy."""
    drained: tuple[MachineId, ...] = ()
    occupied: tuple[Occupied, ...] = ()
    workload: tuple[tuple[Request, int], ...] = ()
    """What was asked for lately, and how often."""


OutsideEvent = (
    CancelRequested
    | JobLost
    | AttemptUnknown
    | JobHeld
    | JobReleased
    | JobRetried
    | JobChanged
    | SchedulerBuilt
)
"""Events that are on record and that no scheduler learns as they are."""
