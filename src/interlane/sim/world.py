"""What the kernel may not know: how fast jobs really run, and what becomes of machines.

Speed is a product of three things: the GPU type's speed factor, the slowdown by neighbours
(a function you can plug in; none by default) and, for elastic gangs, the share of their
instances that they have: half a gang takes twice as long.  A gang is as fast as its slowest
spot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from interlane.model import InvalidField, Job, JobId, Machine, Spot
from interlane.policy.contention import slowdown
from interlane.traces.machine_events import TimedEvent


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What one spot of a job looks like to it."""

    machine: Machine
    spot: Spot
    sharers: tuple[Job, ...]
    """Other jobs on at least one of the same GPUs."""
    cpu_asked_ratio: float
    """CPU that all jobs on the machine ask for, over what it has."""


class NeighbourSlowdown(Protocol):
    """Says how much longer a job takes beside its neighbours."""

    def factor(self, job: Job, here: Neighbourhood) -> float:
        """Return the stretch of run time, 1 or more."""
        ...


@dataclass(frozen=True, slots=True)
class ShareContention:
    """Stretch by a fixed share for every other job on the same GPU."""

    per_sharer: float = 0.1

    def __post_init__(self) -> None:
        if self.per_sharer < 0:
            raise InvalidField("per_sharer", self.per_sharer, "it must be 0 or more")

    def factor(self, job: Job, here: Neighbourhood) -> float:
        """Return 1 plus the share for every sharer."""
        return 1.0 + self.per_sharer * len(here.sharers)


@dataclass(frozen=True, slots=True)
class CpuContention:
    """Stretch as the published curve does, where a machine's cores are asked for."""

    def factor(self, job: Job, here: Neighbourhood) -> float:
        """Return 1 plus the published slowdown with the cores that nobody asks for idle."""
        return 1.0 + float(slowdown(1.0 - here.cpu_asked_ratio))


@dataclass(frozen=True, slots=True)
class Failures:
    """Machines fail and return by chance: exponential times, one stream a machine."""

    mean_up_s: float
    mean_down_s: float = 3_600.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("mean_up_s", "mean_down_s"):
            if getattr(self, name) <= 0:
                raise InvalidField(name, getattr(self, name), "it must be above 0")

    def stream(self, machine: Machine) -> Random:
        """Return the machine's own random generator: its luck is not another's."""
        return Random(f"failures/{self.seed}/{machine.id}")


@dataclass(frozen=True, slots=True)
class World:
    """How things really are."""

    speeds: Mapping[str, float] = field(default_factory=dict)
    """Speed of a GPU type relative to the one the trace's durations were taken on."""
    slow_downs: tuple[NeighbourSlowdown, ...] = ()
    failures: Failures | None = None
    restart_s: float = 0.0
    """Work that a preempted job must do again to get going, on top of what it lost."""
    events: tuple[TimedEvent, ...] = ()
    """What happens to machines, beside failures by chance."""
    withdrawn_s: Mapping[JobId, float] = field(default_factory=dict)
    """When users take jobs back that have not ended by then."""

    def __post_init__(self) -> None:
        if self.restart_s < 0:
            raise InvalidField("restart cost", self.restart_s, "it must be 0 s or more")
        for gpu_type, speed in self.speeds.items():
            if speed <= 0:
                raise InvalidField(f"speed of {gpu_type}", speed, "it must be above 0")

    @property
    def is_plain(self) -> bool:
        """Whether every full gang simply runs at speed 1."""
        return not self.speeds and not self.slow_downs

    def speed(self, job: Job, here: Neighbourhood) -> float:
        """Return how fast a job runs at one of its spots."""
        types = {here.machine.device(gpu).type for gpu in here.spot.gpus}
        factor = min((self.speeds.get(kind, 1.0) for kind in types), default=1.0)
        for slow_down in self.slow_downs:
            factor /= slow_down.factor(job, here)
        return factor
