"""Where a job goes, or why it does not."""

from dataclasses import dataclass
from enum import IntEnum

from interlane.model.ids import JobId, MachineId
from interlane.model.work import Request


@dataclass(frozen=True, slots=True)
class Spot:
    """Instances of one task on the same GPUs of one machine.

    ``gpus`` are the numbers of the GPUs that each instance uses; empty for work without
    GPUs and on pooled machines.
    """

    machine: MachineId
    gpus: tuple[int, ...] = ()
    instances: int = 1
    task: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where every instance of a job goes."""

    spots: tuple[Spot, ...]

    @property
    def instances(self) -> int:
        """Instances placed, over all tasks."""
        return sum(spot.instances for spot in self.spots)

    @property
    def machines(self) -> tuple[MachineId, ...]:
        """Machines used, each once, in order of first use."""
        return tuple(dict.fromkeys(spot.machine for spot in self.spots))

    def __add__(self, more: "Placement") -> "Placement":
        return Placement(self.spots + more.spots)


def held_gpu_milli(request: Request, placement: Placement) -> int:
    """Return the GPU share that a job holds: less than asked if it got fewer instances."""
    if not request.is_elastic:
        return request.gpu_milli
    return sum(
        spot.instances * request.tasks[spot.task].demand.gpu_milli_total
        for spot in placement.spots
    )


def gang_ratio(request: Request, placement: Placement) -> float:
    """Return the share of its instances that an elastic gang has; 1 for all others."""
    return placement.instances / request.instances if request.is_elastic else 1.0


class Tier(IntEnum):
    """How fundamental a refusal is; a lower tier decides before a higher one is asked."""

    INVALID = 0
    NEVER_FITS = 1
    QUOTA = 2
    CAPACITY = 3
    FRAGMENTATION = 4
    ORDER = 5

    @property
    def label(self) -> str:
        """The tier as users read it."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job was not placed.  Expected, so it is returned, not raised."""

    tier: Tier
    reason: str
    remedy: str
    blocked_by: JobId | None = None

    def __str__(self) -> str:
        return f"{self.tier.label}: {self.reason} {self.remedy}"
