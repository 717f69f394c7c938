"""A machine: what one host offers when nothing runs on it."""

from collections.abc import Iterable
from dataclasses import dataclass

from interlane.model.errors import InvalidField
from interlane.model.gpu import NO_GPU
from interlane.model.ids import MachineId
from interlane.model.units import MILLI

GPUS_PER_MACHINE_MAX = 62
"""GPUs of a machine that are told apart; a set of them is one machine word."""

MIXED = "MIXED"
"""What ``gpu_type`` says of a machine whose devices are of several types."""

Label = tuple[str, str]
"""A key and a value."""


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU of a machine, or a slice of one.

    A device that is lost keeps its number and has ``compute_milli`` 0: nothing can be placed
    there until it is back.
    """

    type: str
    memory_mib: int = 0
    compute_milli: int = MILLI
    """Compute that can be given away, in thousandths of a whole GPU."""

    def __post_init__(self) -> None:
        if self.memory_mib < 0:
            raise InvalidField(
                "memory_mib of a device", self.memory_mib, "it must be 0 or more"
            )
        if not 0 <= self.compute_milli <= MILLI:
            raise InvalidField(
                "compute_milli of a device", self.compute_milli, f"it must be 0 to {MILLI}"
            )


@dataclass(frozen=True, slots=True)
class Machine:
    """What one host offers.

    A *pooled* machine does not tell its GPUs apart: any request takes its share of one
    divisible amount, as the published PAI simulator counts.  Real hosts are not pooled.

    Where all GPUs are alike, ``gpu_type``, ``gpus`` and ``gpu_memory_mib`` say everything and
    ``devices`` is empty; ``with_devices`` makes a machine either way.
    """

    id: MachineId
    gpu_type: str = NO_GPU
    gpus: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_memory_mib: int = 0
    pooled: bool = False
    devices: tuple[Device, ...] = ()
    """Its GPUs by number, where they are not all alike and whole."""
    labels: tuple[Label, ...] = ()
    """Sorted by key; selectors and the levels of a topology read them."""
    taints: tuple[Label, ...] = ()
    """Keep work away that does not tolerate each of them."""

    def __post_init__(self) -> None:
        for field in ("gpus", "cpu_milli", "memory_mib", "gpu_memory_mib"):
            if getattr(self, field) < 0:
                raise InvalidField(
                    f"{field} of machine {self.id}",
                    getattr(self, field),
                    "it must be 0 or more",
                )
        if not self.pooled and self.gpus > GPUS_PER_MACHINE_MAX:
            raise InvalidField(
                f"gpus of machine {self.id}",
                self.gpus,
                f"at most {GPUS_PER_MACHINE_MAX} are told apart; mark it pooled",
            )
        if self.devices and (self.pooled or len(self.devices) != self.gpus):
            raise InvalidField(
                f"devices of machine {self.id}",
                len(self.devices),
                f"there must be one for each of its {self.gpus} GPUs, and none if it is pooled",
            )
        _must_be_labels(f"labels of machine {self.id}", self.labels, each_key_once=True)
        _must_be_labels(f"taints of machine {self.id}", self.taints, each_key_once=False)

    @property
    def gpu_milli(self) -> int:
        """All GPU share this machine has."""
        if self.devices:
            return sum(device.compute_milli for device in self.devices)
        return self.gpus * MILLI

    @property
    def gpu_types(self) -> frozenset[str]:
        """The types of its GPUs."""
        if self.devices:
            return frozenset(device.type for device in self.devices)
        return frozenset({self.gpu_type}) if self.gpus else frozenset()

    def device(self, number: int) -> Device:
        """Return one of its GPUs."""
        if self.devices:
            return self.devices[number]
        return Device(self.gpu_type, self.gpu_memory_mib)

    def label(self, key: str) -> str | None:
        """Return the value of a label; None if the machine does not have it."""
        return dict(self.labels).get(key)


def with_devices(
    machine_id: MachineId,
    devices: Iterable[Device],
    *,
    cpu_milli: int = 0,
    memory_mib: int = 0,
    labels: tuple[Label, ...] = (),
    taints: tuple[Label, ...] = (),
) -> Machine:
    """Return a machine with these GPUs; alike or not, equal machines compare equal."""
    listed = tuple(devices)
    types = {device.type for device in listed}
    alike = len(set(listed)) <= 1 and all(one.compute_milli == MILLI for one in listed)
    return Machine(
        machine_id,
        NO_GPU if not types else MIXED if len(types) > 1 else min(types),
        len(listed),
        cpu_milli,
        memory_mib,
        max((device.memory_mib for device in listed), default=0),
        devices=() if alike else listed,
        labels=labels,
        taints=taints,
    )


def _must_be_labels(field: str, labels: tuple[Label, ...], *, each_key_once: bool) -> None:
    """Refuse labels that are out of order, come twice or cannot be shown."""
    if list(labels) != sorted(set(labels)):
        raise InvalidField(field, labels, "they must be sorted, and each there once")
    keys = [key for key, _ in labels]
    if each_key_once and len(set(keys)) != len(keys):
        raise InvalidField(field, labels, "each key must have one value")
    for key, value in labels:
        if not key or not (key + value).isprintable():
            raise InvalidField(field, (key, value), "a key and its value are printable text")
