"""The devices of this machine, as the scheduler, the device daemon and jobs know them.

They are looked at again and again.  A device that is lost keeps its number and offers nothing;
one that comes is added at the end, so that numbers mean the same for ever.
"""

import os
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from interlane.device.emulated_mig import (
    FILE,
    KIND,
    EmulatedGpus,
    EmulatedSettings,
    compute_milli,
    settings_of,
)
from interlane.device.nvml import NvmlGpu, gpus, installed
from interlane.device.specs import CUDA_CONTEXT_BYTES, DeviceSpec
from interlane.mig.partition import GpuMode, GpuState
from interlane.mig.profiles import gpu_model
from interlane.model import (
    MILLI,
    Device,
    GpuRef,
    InvalidField,
    InvalidInput,
    Machine,
    MachineId,
    amounts,
    with_devices,
)
from interlane.model.machine import GPUS_PER_MACHINE_MAX

EMULATED: Final = "EMULATED"
"""The GPU type of devices that are not there."""

NVML, AUTO = "nvml", "auto"
UNLESS_FOUND: Final = "cpu:4"
"""What ``auto`` means where there is no GPU."""

SIZE: Final = re.compile(r"-\d+GB.*$")
"""What the catalogue adds to the name of a GPU type: ``A100-40GB``, ``H100-80GB-SXM5``."""
MADE_BY: Final = re.compile(r"^(NVIDIA|Tesla|GeForce|Quadro)\s+")
VISIBLE: Final = "cuda:0"
"""What a job calls its only visible GPU, whichever that is."""


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices in order; their numbers are those of the machine's GPUs."""

    machine: Machine
    emulated: bool
    shared: tuple[DeviceSpec, ...]
    uuids: tuple[str, ...] = ()
    """What ``CUDA_VISIBLE_DEVICES`` calls them; of emulated ones there are none."""
    stands_in: bool = False
    """Whether GPUs were looked for, and these are there because there are none."""
    cpu_milli: tuple[int, ...] = ()
    """Cores that each may use, in thousandths, where slices of GPUs are emulated."""
    look: Callable[[], Sequence["_Unit"]] | None = None
    """Looks for GPUs again; None for those that cannot change."""

    @property
    def gpus(self) -> tuple[GpuRef, ...]:
        """All of them, by number."""
        return tuple(GpuRef(self.machine.id, gpu) for gpu in range(self.machine.gpus))

    def visible(self, numbers: Sequence[int]) -> str:
        """Return what ``CUDA_VISIBLE_DEVICES`` must say; emulated devices are no GPUs."""
        return ",".join(self.uuids[number] for number in numbers if self.uuids)

    def again(self) -> "Devices":
        """Return the devices as they are now; these, if nothing has changed."""
        found = self._emulated_now() if self.look is None else self._gpus_now(self.look())
        return self if found == self else found

    def _emulated_now(self) -> "Devices":
        """Return emulated devices; one is lost if this process may no longer use its cores."""
        cores = os.sched_getaffinity(0)
        there = [spec.cores <= cores for spec in self.shared]
        return replace(self, machine=_with_lost(self.machine, there))

    def _gpus_now(self, units: Sequence["_Unit"]) -> "Devices":
        there = {unit.uuid for unit in units}
        new = [unit for unit in units if unit.uuid not in self.uuids]
        del new[max(0, GPUS_PER_MACHINE_MAX - len(self.uuids)) :]  # numbers are never reused
        kept = _with_lost(self.machine, [uuid in there for uuid in self.uuids])
        if not new:
            return replace(self, machine=kept)
        devices = [kept.device(gpu) for gpu in range(kept.gpus)]
        return replace(
            self,
            machine=_machine([*devices, *map(_device, new)]),
            shared=(*self.shared, *map(_shared, new)),
            uuids=(*self.uuids, *(unit.uuid for unit in new)),
            cpu_milli=(*self.cpu_milli, *_cores_of(new)),
        )


def devices_of(word: str, folder: Path | None = None) -> Devices:
    """Return the devices of ``cpu:4``, ``cpu:4:16GB``, ``mig:A100-40GB:4``, ``nvml``, ``auto``.

    Args:
        word: emulated devices, of so much memory each; emulated GPUs that can be cut up; all
            GPUs; or all that there may be.
        folder: where it is kept how emulated GPUs are cut.
    """
    if word == NVML:
        return _of_gpus()
    if word == AUTO:
        try:
            return _of_gpus()
        except InvalidInput:
            return replace(devices_of(UNLESS_FOUND), stands_in=True)
    kind, *parts = word.split(":")
    if kind == KIND:
        return _of_emulated(word, folder)
    if kind != "cpu" or len(parts) not in (1, 2) or not _is_count(parts[0]):
        rule = "it must read like auto, nvml, cpu:4, cpu:4:16GB or mig:A100-40GB:4 (emulated)"
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
    return Devices(machine, emulated=True, shared=shared)


@dataclass(frozen=True, slots=True)
class _Unit:
    """What one job can be bound to: a whole GPU, or a slice of one."""

    type: str
    uuid: str
    memory_mib: int
    cpu_milli: int | None = None
    """Cores that it may use, in thousandths, if it is emulated."""


def _of_emulated(word: str, folder: Path | None) -> Devices:
    """Return GPUs that are parts of the CPU and are cut up by NVIDIA's rules."""
    settings = settings_of(word)
    if folder is None:
        rule = "GPUs that can be cut up are emulated by `interlane up` on one machine only"
        raise InvalidField("devices", word, rule)
    gpus = EmulatedGpus.made(folder / FILE, settings)

    def look() -> list[_Unit]:
        return [unit for gpu in gpus.look() for unit in _emulated_units(gpus.settings, gpu)]

    units = look()
    return Devices(
        _machine(map(_device, units)),
        emulated=True,
        shared=tuple(map(_shared, units)),
        uuids=tuple(unit.uuid for unit in units),
        cpu_milli=_cores_of(units),
        look=look,
    )


def _emulated_units(settings: EmulatedSettings, gpu: GpuState) -> list[_Unit]:
    """Return what jobs can be bound to on an emulated GPU, each with its part of the cores."""
    kind = SIZE.sub("", settings.model)
    each_milli = len(os.sched_getaffinity(0)) * MILLI / settings.count
    if gpu.mode is GpuMode.WHOLE:
        return [_Unit(kind, gpu.uuid, settings.memory_mib, max(1, int(each_milli)))]
    model = gpu_model(settings.model)
    return [
        _Unit(
            f"{kind}-{one.place.profile}",
            one.uuid,
            settings.memory_of(model.profile(one.place.profile)),
            max(1, int(each_milli * compute_milli(model.name, one.place.profile) / MILLI)),
        )
        for one in gpu.slices
    ]


def _cores_of(units: Iterable[_Unit]) -> tuple[int, ...]:
    return tuple(unit.cpu_milli for unit in units if unit.cpu_milli is not None)


def _found() -> list[_Unit]:
    """Return whole GPUs, and slices of those that are cut up."""
    nvml = installed()
    if nvml is None:
        raise InvalidInput(
            "devices is 'nvml', but nvidia-ml-py is not installed: pip install "
            "'interlane[gpu]'."
        )
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


def _units(gpu: NvmlGpu) -> list[_Unit]:
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


def _of_gpus() -> Devices:
    units = _found()
    return Devices(
        _machine(map(_device, units)),
        emulated=False,
        shared=tuple(map(_shared, units)),
        uuids=tuple(unit.uuid for unit in units),
        look=_units_there,
    )


def _units_there() -> list[_Unit]:
    """Return what is there; nothing if all of it is gone."""
    try:
        return _found()
    except InvalidInput:
        return []


def _machine(devices: Iterable[Device]) -> Machine:
    return with_devices(_host(), devices, cpu_milli=_cpu_milli(), memory_mib=_memory_mib())


def _device(unit: _Unit) -> Device:
    return Device(unit.type, unit.memory_mib)


def _shared(unit: _Unit) -> DeviceSpec:
    if unit.cpu_milli is not None:
        return DeviceSpec("cpu", unit.memory_mib << 20)
    return DeviceSpec(VISIBLE, unit.memory_mib << 20, CUDA_CONTEXT_BYTES)


def _with_lost(machine: Machine, there: Sequence[bool]) -> Machine:
    """Return a machine whose devices offer all they have if they are there, else nothing."""
    devices = [
        replace(machine.device(gpu), compute_milli=MILLI if is_there else 0)
        for gpu, is_there in enumerate(there)
    ]
    return with_devices(
        machine.id, devices, cpu_milli=machine.cpu_milli, memory_mib=machine.memory_mib
    )


def _host() -> MachineId:
    return MachineId(socket.gethostname())


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= GPUS_PER_MACHINE_MAX


def _cpu_milli() -> int:
    return (os.cpu_count() or 1) * MILLI


def _memory_mib() -> int:
    return (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) >> 20
