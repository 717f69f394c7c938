"""A GPU as a device, through the statistics of PyTorch's caching allocator.

There is no GPU where this was written: what is tested is that each verb calls what it should,
on an object with the names of ``torch.cuda``.
"""

from typing import Protocol, cast


class TorchCuda(Protocol):
    """The part of ``torch.cuda`` that is used here."""

    def memory_allocated(self, device: int) -> int: ...  # noqa: D102
    def memory_reserved(self, device: int) -> int: ...  # noqa: D102
    def max_memory_allocated(self, device: int) -> int: ...  # noqa: D102
    def reset_peak_memory_stats(self, device: int) -> None: ...  # noqa: D102
    def empty_cache(self) -> None: ...  # noqa: D102
    def synchronize(self, device: int) -> None: ...  # noqa: D102
    def mem_get_info(self, device: int) -> tuple[int, int]: ...  # noqa: D102
    def set_per_process_memory_fraction(self, fraction: float, device: int) -> None: ...  # noqa: D102


class CudaBackend:
    """The memory of this process on one GPU; its context is not counted by the allocator."""

    measures = True

    def __init__(self, cuda: TorchCuda, index: int = 0) -> None:
        self._cuda = cuda
        self._index = index

    def live(self) -> int:
        """Return the bytes of all tensors that are alive."""
        return self._cuda.memory_allocated(self._index)

    def peak(self) -> int:
        """Return the most bytes of tensors alive at once since ``reset_peak``."""
        return self._cuda.max_memory_allocated(self._index)

    def glance(self) -> tuple[int, int]:
        """Return the bytes of tensors now, and the most of them."""
        return self.live(), self.peak()

    def mark(self) -> int:
        """Return the peak, which the allocator counts as it goes."""
        return self.peak()

    def reset_peak(self) -> None:
        """Forget the peak so far."""
        self._cuda.reset_peak_memory_stats(self._index)

    def trim(self) -> int:
        """Give cached segments back to the driver; return how many bytes that freed."""
        before = self._cuda.memory_reserved(self._index)
        self._cuda.empty_cache()
        return max(0, before - self._cuda.memory_reserved(self._index))

    def fence(self) -> None:
        """Wait for all kernels on the device."""
        self._cuda.synchronize(self._index)

    def limit(self, nbytes: int | None) -> None:
        """Cap what the caching allocator reserves, as a fraction of the device."""
        _, total = self._cuda.mem_get_info(self._index)
        fraction = 1.0 if nbytes is None else min(1.0, nbytes / total)
        self._cuda.set_per_process_memory_fraction(fraction, self._index)


def cuda_backend(index: int) -> CudaBackend:
    """Return the backend of a GPU of this machine."""
    import torch

    return CudaBackend(cast("TorchCuda", torch.cuda), index)
