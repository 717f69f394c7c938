"""What a node offers: its devices by number, cut into units that a kubelet can count.

The scheduler counts whole GPUs first and then slices by profile, as the resources of a node
name them.  A GPU that can be shared is a hundred units, a slice is one.  A unit is called after
its device, so that what a kubelet books says which device it is on.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from interlane.device.inventory import Devices
from interlane.device.specs import DeviceSpec
from interlane.engines.kubernetes.annotations import NVIDIA_MIG, SHARE, SHARES_PER_GPU
from interlane.engines.kubernetes.dialects import SLICE
from interlane.model import Device

_SLICE: Final = re.compile(r".*-([0-9]+g\.[0-9]+gb.*)")


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """One device of a node."""

    number: int
    """As the scheduler counts."""
    place: int
    """Where the device daemon lists it."""
    device: Device
    shared: DeviceSpec
    uuid: str = ""
    """What CUDA calls it; empty for one that is emulated."""

    @property
    def resource(self) -> str:
        """The resource that counts it."""
        found = _SLICE.fullmatch(self.device.type)
        return SHARE if found is None else f"{NVIDIA_MIG}{found[1].replace('+', '.')}"

    @property
    def told(self) -> Device:
        """The device as the scheduler calls it, which knows slices by their profile."""
        if self.resource == SHARE:
            return self.device
        return replace(self.device, type=f"{SLICE}{self.resource.removeprefix(NVIDIA_MIG)}")

    @property
    def units(self) -> tuple[str, ...]:
        """What a kubelet calls its parts."""
        count = SHARES_PER_GPU if self.resource == SHARE else 1
        return tuple(f"{self.number}-{unit}" for unit in range(count))

    @property
    def is_there(self) -> bool:
        """Whether it can be used."""
        return self.device.compute_milli > 0


def node_devices(found: Devices) -> tuple[NodeDevice, ...]:
    """Return the devices of this node by number."""
    listed = [
        NodeDevice(0, at, found.machine.device(at), found.shared[at], uuid)
        for at, uuid in enumerate(found.uuids or [""] * found.machine.gpus)
    ]
    ordered = sorted(listed, key=lambda one: (one.resource != SHARE, one.resource, one.place))
    return tuple(
        NodeDevice(number, one.place, one.device, one.shared, one.uuid)
        for number, one in enumerate(ordered)
    )


def device_of(unit: str) -> int:
    """Return the number of the device that a unit is a part of; -1 if there is no such unit."""
    number, _, part = unit.partition("-")
    return int(number) if number.isdecimal() and part.isdecimal() else -1


def units_on(
    numbers: Sequence[int], each: int, available: Iterable[str], kept: Iterable[str] = ()
) -> list[str] | None:
    """Return so many units of each device, out of those that are free; None if they lack.

    Args:
        numbers: of the devices.
        each: how many of each.
        available: units that are free.
        kept: units that must be among them, as far as they are on these devices.
    """
    must = set(kept)
    free: dict[int, list[str]] = {number: [] for number in numbers}
    for unit in sorted(available, key=lambda one: (one not in must, len(one), one)):
        free.get(device_of(unit), []).append(unit)
    if any(len(free[number]) < each for number in numbers):
        return None
    return [unit for number in numbers for unit in free[number][:each]]
