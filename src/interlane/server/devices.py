"""The devices of this machine, as the kernel sees them."""

import os
import socket
from dataclasses import dataclass
from typing import Final

from interlane.device.specs import DeviceSpec
from interlane.model import MILLI, Cluster, InvalidField, Machine, MachineId
from interlane.model.machine import GPUS_PER_MACHINE_MAX
from interlane.server import quantities

EMULATED: Final = "EMULATED"
"""The GPU type of devices that are not there."""


@dataclass(frozen=True, slots=True)
class Devices:
    """One machine, and whether its GPUs are real."""

    cluster: Cluster
    emulated: bool
    shared: tuple[DeviceSpec, ...]
    """Every GPU as the device daemon shares it."""


def devices_of(word: str) -> Devices:
    """Return the devices of ``cpu:4``, or ``cpu:4:16GB`` with so much memory each."""
    kind, *parts = word.split(":")
    if kind != "cpu" or len(parts) not in (1, 2) or not _is_count(parts[0]):
        raise InvalidField(
            "devices", word, "it must read like cpu:4 or cpu:4:16GB (emulated devices)"
        )
    count, memory_mib = int(parts[0]), _memory_mib()
    each_mib = quantities.memory_mib("devices", parts[1]) if parts[1:] else memory_mib // count
    machine = Machine(
        MachineId(socket.gethostname()),
        EMULATED,
        count,
        (os.cpu_count() or 1) * MILLI,
        memory_mib,
        each_mib,
    )
    return Devices(Cluster("this machine", (machine,)), emulated=True, shared=emulated(machine))


def emulated(machine: Machine) -> tuple[DeviceSpec, ...]:
    """Return devices that are parts of the CPU, with cores of their own if there are enough."""
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // machine.gpus
    return tuple(
        DeviceSpec(
            "cpu",
            machine.gpu_memory_mib << 20,
            cores=frozenset(cores[each * gpu : each * (gpu + 1)]),
        )
        for gpu in range(machine.gpus)
    )


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= GPUS_PER_MACHINE_MAX


def _memory_mib() -> int:
    return (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) >> 20
