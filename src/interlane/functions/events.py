"""What engines tell the function scheduler, and what it answers.

A replica has a number that is never used again.  Whatever is told comes with its time; nothing
here knows a clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from interlane.model import GpuRef, JobId, Machine, Refusal, Workload
from interlane.model.function import Function
from interlane.policy.colocate.interference import CoRunReading, SlowdownTarget
from interlane.predict.slowdown.table import SlowdownTable

# -- events ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FunctionDeployed:
    """There is a function, or it has changed: replicas that it had are of an old version."""

    function: Function
    """Its id is its name."""
    replicas_max: int = 1
    keep_s: float | None = None
    """Seconds that replicas stay after the last request, unless forecasts decide."""
    at_a_time: int = 1
    """Requests that one replica has in hand."""
    is_loaded: bool = False
    """Whether a replica is loaded at once, as if it were called."""
    kept_until_s: float = 0.0
    """Until when its replicas are kept, whatever is forecast."""


@dataclass(frozen=True, slots=True)
class FunctionWithdrawn:
    """There is no such function any more."""

    name: str


@dataclass(frozen=True, slots=True)
class FunctionTimed:
    """What was measured of a function; None where nothing was."""

    name: str
    load_s: float | None = None
    service_s: float | None = None
    """Seconds that one request takes of one place in a replica."""
    p99_limit: float | None = None


@dataclass(frozen=True, slots=True)
class DevicesChanged:
    """These are all machines."""

    machines: tuple[Machine, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """What one job holds of one device."""

    job_id: JobId
    workload: Workload
    memory_mib: int
    use: float


@dataclass(frozen=True, slots=True)
class JobsHeld:
    """What jobs hold now of the devices that are named; of others it is as before."""

    held: Mapping[GpuRef, tuple[Held, ...]]


@dataclass(frozen=True, slots=True)
class ReplicasNeeded:
    """Calls of these functions wait, and so many more replicas would serve them sooner."""

    missing: Mapping[str, int]
    until_s: Mapping[str, float] = field(default_factory=dict)
    """Until when they wait for a place; who names no time does not wait."""


@dataclass(frozen=True, slots=True)
class ReplicasObserved:
    """Which replicas have calls in hand, and which functions were asked since last told."""

    busy: frozenset[int]
    asked: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ReplicasLoaded:
    """They take calls."""

    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReplicasEnded:
    """Nothing is left of them, and their memory is free."""

    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CoRunsMeasured:
    """What some suffered from others: to be learned from."""

    readings: tuple[CoRunReading, ...]


@dataclass(frozen=True, slots=True)
class DeviceJudged:
    """What everybody on a device suffers now: promises are kept, or broken."""

    gpu: GpuRef
    job: float | None
    """Slowdown of the job that suffers most; None where it was not measured."""
    p99: Mapping[int, float] = field(default_factory=dict)
    """Of replicas, over what they take alone, as far as it was measured."""


@dataclass(frozen=True, eq=False)
class PairsFitted:
    """A model was fitted to everything that was measured: what it says of pairs."""

    tables: Mapping[SlowdownTarget, SlowdownTable]


@dataclass(frozen=True, slots=True)
class SlotPassed:
    """A slot is over, in which functions were asked so often; not named is not asked."""

    counts: Mapping[str, float]


FunctionEvent = (
    FunctionDeployed
    | FunctionWithdrawn
    | FunctionTimed
    | DevicesChanged
    | JobsHeld
    | ReplicasNeeded
    | ReplicasObserved
    | ReplicasLoaded
    | ReplicasEnded
    | CoRunsMeasured
    | DeviceJudged
    | PairsFitted
    | SlotPassed
)

# -- actions --------------------------------------------------------------------------


class DropReason(StrEnum):
    """Why a replica must go."""

    SURPLUS = "surplus"
    """Nobody is expected to ask it."""
    ROOM = "room"
    """It is idle, and another function needs its memory more."""
    JOB = "job"
    """A job needs the memory, or bears it no longer; or the device is gone."""
    BOUND = "bound"
    """What was measured broke a promise twice in a row."""
    WITHDRAWN = "withdrawn"
    """Its function is gone, or is another version now."""


@dataclass(frozen=True, slots=True)
class LoadReplica:
    """Load a replica on a device."""

    function: str
    replica: int
    gpu: GpuRef


@dataclass(frozen=True, slots=True)
class DropReplica:
    """Let a replica end, once it has answered what it has in hand."""

    function: str
    replica: int
    why: DropReason


@dataclass(frozen=True, slots=True)
class QueueReplica:
    """There is no place for one more replica yet: calls wait for one until their deadline."""

    function: str
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class RefuseReplica:
    """There is no place for one more replica, and whoever waits does so in vain."""

    function: str
    refusal: Refusal


FunctionAction = LoadReplica | DropReplica | QueueReplica | RefuseReplica
