"""Devices to be shared, as they are named on the command line."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from interlane.model.amounts import memory_bytes
from interlane.model.errors import InvalidField

CPU_SHARE: Final = 0.8
"""Part of the machine's available memory that a CPU device has unless told otherwise."""
CUDA_CONTEXT_BYTES: Final = 512 << 20
CPU_CONTEXT_BYTES: Final = 0
"""A job's memory on a CPU device is counted from when torch is loaded."""
_CORES_IN_A_FRAME: Final = 64


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One device: its name for torch, what it can hold, and its cores if it is a CPU."""

    name: str
    capacity_bytes: int
    context_bytes: int = 0
    cores: frozenset[int] = frozenset()

    @property
    def core_bits(self) -> int:
        """The cores as a bit set; 0 where jobs may run anywhere."""
        return sum(1 << core for core in self.cores if core < _CORES_IN_A_FRAME)


def read_spec(text: str) -> DeviceSpec:
    """Return the device that ``cpu[:MEMORY[:CORES]]`` or ``cuda:N:MEMORY`` names."""
    kind, *rest = text.split(":")
    if kind == "cpu" and len(rest) <= 2:
        memory, cores = (*rest, "", "")[:2]
        capacity = memory_bytes("--device", memory) if memory else _available_bytes()
        return _positive(DeviceSpec("cpu", capacity, CPU_CONTEXT_BYTES, _cores(cores)), text)
    if kind == "cuda" and len(rest) == 2 and rest[0].isdecimal():
        capacity = memory_bytes("--device", rest[1])
        return _positive(DeviceSpec(f"cuda:{rest[0]}", capacity, CUDA_CONTEXT_BYTES), text)
    rule = "a device reads like cpu, cpu:4GiB, cpu:4GiB:0-3 or cuda:0:14GiB"
    raise InvalidField("--device", text, rule)


def _positive(spec: DeviceSpec, text: str) -> DeviceSpec:
    if spec.capacity_bytes <= spec.context_bytes:
        raise InvalidField("--device", text, "it must have more memory than one job's context")
    return spec


def _cores(text: str) -> frozenset[int]:
    """Return the cores in ``0-3,6``."""
    cores: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise InvalidField("--device", text, "cores read like 0-3 or 0,2")
        cores.update(range(int(first), int(last or first) + 1))
    beyond = cores - os.sched_getaffinity(0)
    if beyond:
        mine = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
        raise InvalidField("--device", text, f"this process may use cores {mine} only")
    return frozenset(cores)


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(int(line.split()[1]) * 1024 * CPU_SHARE)
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * CPU_SHARE)
