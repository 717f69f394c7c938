"""What a job can ask of the memory of its device, one module for each kind of device."""

from interlane.device.backends.base import Backend
from interlane.model import InvalidField

__all__ = ["Backend", "backend_of"]


def backend_of(device: str) -> Backend:
    """Return the backend of a device of this process: ``cpu``, ``cuda`` or ``cuda:N``."""
    kind, colon, index = device.partition(":")
    if device == "cpu":
        from interlane.device.backends.cpu import CpuBackend

        return CpuBackend()
    if kind == "cuda" and (index.isdecimal() or not colon):
        from interlane.device.backends.cuda import cuda_backend

        return cuda_backend(int(index or 0))
    raise InvalidField("device", device, "it must be cpu, cuda or cuda:N")
