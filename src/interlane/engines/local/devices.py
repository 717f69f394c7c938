"""The devices of this machine, as the kernel sees them.

The kernel's machine has GPUs of one type.  Where this one has several, whole GPUs of two
models or slices of two sizes, the kernel sees one machine for each, with its part of the cores
and the memory.
"""

import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from interlane.device.nvml import Gpu, Nvml, gpus
from interlane.device.specs import CUDA_CONTEXT_BYTES, DeviceSpec
from interlane.model import (
    MILLI,
    Cluster,
    GpuRef,
    InvalidField,
    InvalidInput,
    Machine,
    MachineId,
    amounts,
)
from interlane.model.machine import GPUS_PER_MACHINE_MAX

EMULATED: Final = "EMULATED"
"""The GPU type of devices that are not there."""

NVML, AUTO = "nvml", "auto"
UNLESS_FOUND: Final = "cpu:4"
"""What ``auto`` means where there is no GPU."""

MADE_BY: Final = re.compile(r"^(NVIDIA|Tesla|GeForce|Quadro)\s+")
VISIBLE: Final = "cuda:0"
"""What a job calls its only visible GPU, whichever that is."""


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices in order, as the kernel, the device daemon and jobs know them."""

    cluster: Cluster
    emulated: bool
    shared: tuple[DeviceSpec, ...]
    uuids: tuple[str, ...] = ()
    """What ``CUDA_VISIBLE_DEVICES`` calls them; of emulated ones there are none."""
    stands_in: bool = False
    """Whether GPUs were looked for, and these are there because there are none."""

    def number(self, machine: MachineId, gpu: int) -> int:
        """Return which of all devices a GPU of one of the kernel's machines is."""
        before = 0
        for one in self.cluster:
            if one.id == machine and gpu < one.gpus:
                return before + gpu
            before += one.gpus
        raise KeyError(GpuRef(machine, gpu))

    def visible(self, numbers: Sequence[int]) -> str:
        """Return what ``CUDA_VISIBLE_DEVICES`` must say; emulated devices are no GPUs."""
        return ",".join(self.uuids[number] for number in numbers if self.uuids)


def devices_of(word: str, nvml: Nvml | None = None) -> Devices:
    """Return the devices of ``cpu:4``, ``cpu:4:16GB``, ``nvml`` or ``auto``.

    Args:
        word: emulated devices, of so much memory each; all GPUs; or all that there may be.
        nvml: NVIDIA's library; the installed one unless given.
    """
    if word == NVML:
        return _of_gpus(_found(nvml))
    if word == AUTO:
        try:
            return _of_gpus(_found(nvml))
        except InvalidInput:
            return replace(devices_of(UNLESS_FOUND), stands_in=True)
    kind, *parts = word.split(":")
    if kind != "cpu" or len(parts) not in (1, 2) or not _is_count(parts[0]):
        rule = "it must read like auto, nvml, cpu:4 or cpu:4:16GB (emulated devices)"
        raise InvalidField("devices", word, rule)
    count, memory_mib = int(parts[0]), _memory_mib()
    each_mib = amounts.memory_mib("devices", parts[1]) if parts[1:] else memory_mib // count
    machine = Machine(_host(), EMULATED, count, _cpu_milli(), memory_mib, each_mib)
    return emulated(machine)


def emulated(machine: Machine) -> Devices:
    """Return devices that are parts of the CPU, with cores of their own if there are enough."""
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // machine.gpus
    shared = tuple(
        DeviceSpec(
            "cpu",
            machine.gpu_memory_mib << 20,
            cores=frozenset(cores[each * gpu : each * (gpu + 1)]),
        )
        for gpu in range(machine.gpus)
    )
    return Devices(Cluster("this machine", (machine,)), emulated=True, shared=shared)


@dataclass(frozen=True, slots=True)
class _Unit:
    """What one job can be bound to: a whole GPU, or a slice of one."""

    type: str
    uuid: str
    memory_mib: int


def _found(nvml: Nvml | None) -> list[_Unit]:
    """Return whole GPUs, and slices of those that are cut up."""
    if nvml is None:
        try:
            import pynvml
        except ImportError:
            raise InvalidInput(
                "devices is 'nvml', but nvidia-ml-py is not installed: pip install "
                "'interlane[gpu]'."
            ) from None
        nvml = pynvml
    try:
        found = gpus(nvml)
    except nvml.NVMLError as error:
        raise InvalidInput(
            f"devices is 'nvml', but the driver does not answer ({error}); name emulated ones, "
            f"as in {UNLESS_FOUND}."
        ) from None
    units = [unit for gpu in found for unit in _units(gpu)]
    if not units:
        raise InvalidInput(
            "devices is 'nvml', but there is no GPU, and no slice of one that is cut up; name "
            f"emulated ones, as in {UNLESS_FOUND}."
        )
    return units


def _units(gpu: Gpu) -> list[_Unit]:
    model = _model(gpu.name)
    if not gpu.mig:
        return [_Unit(model, gpu.uuid, gpu.memory_bytes >> 20)]
    return [
        _Unit(f"{model}-{_profile(one.name)}", one.uuid, one.memory_bytes >> 20)
        for one in gpu.slices
    ]


def _model(name: str) -> str:
    """Return ``A100`` of ``NVIDIA A100-SXM4-40GB``, ``RTX-3090`` of ``GeForce RTX 3090``."""
    while (bare := MADE_BY.sub("", name)) != name:
        name = bare
    return name.partition("-")[0].strip().replace(" ", "-")


def _profile(name: str) -> str:
    """Return ``1g.5gb`` of ``NVIDIA A100-SXM4-40GB MIG 1g.5gb``."""
    return name.rpartition("MIG ")[2].strip().replace(" ", "-")


def _of_gpus(units: Sequence[_Unit]) -> Devices:
    kinds = list(dict.fromkeys((unit.type, unit.memory_mib) for unit in units))
    machines, ordered = [], []
    for number, (gpu_type, each_mib) in enumerate(kinds):
        alike = [unit for unit in units if (unit.type, unit.memory_mib) == (gpu_type, each_mib)]
        name = _host() if len(kinds) == 1 else MachineId(f"{_host()}/{number}")
        part = len(alike) / len(units)
        machines.append(
            Machine(
                name,
                gpu_type,
                len(alike),
                int(_cpu_milli() * part),
                int(_memory_mib() * part),
                each_mib,
            )
        )
        ordered += alike
    return Devices(
        Cluster("this machine", tuple(machines)),
        emulated=False,
        shared=tuple(
            DeviceSpec(VISIBLE, unit.memory_mib << 20, CUDA_CONTEXT_BYTES) for unit in ordered
        ),
        uuids=tuple(unit.uuid for unit in ordered),
    )


def _host() -> MachineId:
    return MachineId(socket.gethostname())


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= GPUS_PER_MACHINE_MAX


def _cpu_milli() -> int:
    return (os.cpu_count() or 1) * MILLI


def _memory_mib() -> int:
    return (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) >> 20
