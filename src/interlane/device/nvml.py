"""NVIDIA GPUs as their driver describes them, whole and in MIG slices.

There is no GPU where this was written: it is tested through NVIDIA's Python package on a shared
library that stands in for the driver's (``testing.nvidia``).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

Gpu = TypeVar("Gpu")

LOST: Final = 15
"""NVML's error for a GPU that has fallen off its bus."""


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
    """Ask the driver for all GPUs; raises ``nvml.NVMLError`` where there is no driver.

    A GPU that is lost is left out: the others are there all the same.
    """
    nvml.nvmlInit()
    try:
        return [gpu for _, gpu in there(nvml, lambda index, handle: _gpu(nvml, handle))]
    finally:
        nvml.nvmlShutdown()


def there(nvml: Nvml, read: Callable[[int, Any], Gpu]) -> list[tuple[int, Gpu]]:
    """Return what is read of every GPU that is not lost, each with its index."""
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            found.append((index, read(index, nvml.nvmlDeviceGetHandleByIndex(index))))
        except nvml.NVMLError as error:
            if getattr(error, "value", None) != LOST:
                raise
    return found


def installed() -> Nvml | None:
    """Return NVIDIA's package, if it is installed."""
    try:
        import pynvml
    except ImportError:
        return None
    found: Nvml = pynvml
    return found


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
