"""A cluster: machines in a fixed order, which is also the order of last resort."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from interlane.model.errors import InvalidField, InvalidInput
from interlane.model.ids import MachineId
from interlane.model.machine import Label, Machine

MACHINE_LEVEL: Final = "machine"
"""The level of a topology whose domains are single machines; every cluster has it."""


@dataclass(frozen=True)
class Cluster:
    """Machines in a fixed order.

    ``clips_requests`` cuts an instance that asks for more than the whole cluster down to
    the whole cluster; only the published pooled simulator does so.
    """

    name: str
    machines: tuple[Machine, ...]
    clips_requests: bool = False
    topology: tuple[str, ...] = ()
    """Keys of labels that say where a machine is, the widest level first: zone, rack."""

    def __post_init__(self) -> None:
        seen: set[MachineId] = set()
        for machine in self.machines:
            if machine.id in seen:
                raise InvalidField("machine id", machine.id, "each machine needs its own")
            seen.add(machine.id)
        check_topology(self.topology, self.machines)

    def __len__(self) -> int:
        return len(self.machines)

    def __iter__(self) -> Iterator[Machine]:
        return iter(self.machines)

    def __getstate__(self) -> dict[str, object]:
        """Return what goes to another process: what follows from it is found again there."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def gpus(self) -> int:
        """GPUs of all machines."""
        return sum(machine.gpus for machine in self.machines)

    @cached_property
    def taints(self) -> frozenset[Label]:
        """Taints that some machine has."""
        return frozenset(taint for machine in self.machines for taint in machine.taints)

    @cached_property
    def cpu_milli(self) -> int:
        """CPU of all machines."""
        return sum(machine.cpu_milli for machine in self.machines)

    @cached_property
    def gpu_memory_mib(self) -> Mapping[str, int]:
        """Memory of the largest GPU of each type."""
        found: dict[str, int] = {}
        for machine in self.machines:
            alike = range(machine.gpus if machine.devices else min(machine.gpus, 1))
            for device in map(machine.device, alike):
                found[device.type] = max(found.get(device.type, 0), device.memory_mib)
        return MappingProxyType(found)

    @cached_property
    def gpu_milli(self) -> int:
        """GPU share of all machines together; less than its GPUs where some are slices."""
        return sum(machine.gpu_milli for machine in self.machines)

    @cached_property
    def gpu_types(self) -> frozenset[str]:
        """GPU types that at least one machine carries."""
        return frozenset(kind for machine in self.machines for kind in machine.gpu_types)


def check_topology(levels: Sequence[str], machines: Iterable[Machine]) -> None:
    """Refuse levels that contradict each other: a rack is in one zone, a level is named once.

    A machine without the label of a level is in no domain of that level.
    """
    if len(set(levels)) != len(levels) or MACHINE_LEVEL in levels:
        rule = f"each level is named once, and {MACHINE_LEVEL!r} is always the narrowest"
        raise InvalidField("topology", list(levels), rule)
    within: dict[tuple[str, str], tuple[MachineId, str | None]] = {}
    for machine in machines:
        labels = dict(machine.labels)
        for wide, narrow in pairwise(levels):
            if narrow not in labels:
                continue
            here = (machine.id, labels.get(wide))
            first, outer = within.setdefault((narrow, labels[narrow]), here)
            if outer != here[1]:
                raise InvalidInput(
                    f"{narrow} {labels[narrow]!r} is in {wide} {outer!r} by machine {first}, "
                    f"but in {here[1]!r} by machine {machine.id}; give the two different names."
                )
