"""NVIDIA GPUs as their driver describes them, whole and in MIG slices.

There is no GPU where this was written: what is tested is what follows from the answers that
NVIDIA's library is documented to give, on an object with its names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a GPU that the hardware keeps apart."""

    name: str
    uuid: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """A GPU."""

    name: str
    memory_bytes: int
    used_bytes: int
    mig: bool
    """Whether it is cut up: then only its slices can be used."""
    uuid: str = ""
    slices: tuple[Slice, ...] = ()


class Nvml(Protocol):
    """The part of ``pynvml`` that is used here."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None: ...  # noqa: D102
    def nvmlShutdown(self) -> None: ...  # noqa: D102
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: D102
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...  # noqa: ANN401, D102
    def nvmlDeviceGetName(self, handle: Any) -> str: ...  # noqa: ANN401, D102
    def nvmlDeviceGetUUID(self, handle: Any) -> str: ...  # noqa: ANN401, D102
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...  # noqa: ANN401, D102
    def nvmlDeviceGetMigMode(self, handle: Any) -> Sequence[int]: ...  # noqa: ANN401, D102
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int: ...  # noqa: ANN401, D102
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any: ...  # noqa: ANN401, D102


def gpus(nvml: Nvml) -> list[NvmlGpu]:
    """Ask the driver for all GPUs; raises ``nvml.NVMLError`` where there is no driver."""
    nvml.nvmlInit()
    try:
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        return [_gpu(nvml, handle) for handle in handles]
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Nvml, handle: Any) -> NvmlGpu:  # noqa: ANN401 - opaque to us
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        mig = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:  # a GPU without that mode
        mig = False
    return NvmlGpu(
        nvml.nvmlDeviceGetName(handle),
        int(memory.total),
        int(memory.used),
        mig,
        nvml.nvmlDeviceGetUUID(handle),
        tuple(_slices(nvml, handle)) if mig else (),
    )


def _slices(nvml: Nvml, handle: Any) -> Iterator[Slice]:  # noqa: ANN401
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError:  # no slice there
            continue
        memory = nvml.nvmlDeviceGetMemoryInfo(part)
        yield Slice(
            nvml.nvmlDeviceGetName(part), nvml.nvmlDeviceGetUUID(part), int(memory.total)
        )
