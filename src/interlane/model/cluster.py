"""A cluster: machines in a fixed order, which is also the order of last resort."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from interlane.model.errors import InvalidField, InvalidInput
from interlane.model.ids import MachineId
from interlane.model.machine import Machine


@dataclass(frozen=True)
class Cluster:
    """Machines in a fixed order.

    ``clips_requests`` cuts an instance that asks for more than the whole cluster down to
    the whole cluster; only the published pooled simulator does so.
    """

    name: str
    machines: tuple[Machine, ...]
    clips_requests: bool = False

    def __post_init__(self) -> None:
        if not self.machines:
            raise InvalidInput(f"Cluster {self.name} has no machines; it needs at least one.")
        seen: set[MachineId] = set()
        for machine in self.machines:
            if machine.id in seen:
                raise InvalidField("machine id", machine.id, "each machine needs its own")
            seen.add(machine.id)

    def __len__(self) -> int:
        return len(self.machines)

    def __iter__(self) -> Iterator[Machine]:
        return iter(self.machines)

    @cached_property
    def gpus(self) -> int:
        """GPUs of all machines."""
        return sum(machine.gpus for machine in self.machines)

    @cached_property
    def cpu_milli(self) -> int:
        """CPU of all machines."""
        return sum(machine.cpu_milli for machine in self.machines)

    @cached_property
    def gpu_types(self) -> frozenset[str]:
        """GPU types that at least one machine carries."""
        return frozenset(machine.gpu_type for machine in self.machines if machine.gpus)
