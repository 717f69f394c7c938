"""A CPU as a device: a byte budget, with the C library's allocator in the part of the cache.

Memory in use is what the kernel counts as resident and anonymous, or shared.  Like a GPU's
caching allocator, malloc keeps freed blocks; ``malloc_trim`` gives them back, after which the
count is exact.  Peaks are higher than the sum of tensors, because the heap has holes, by up to
three times for large tensors.  Jobs that start with the variables in ``ENVIRONMENT`` have none
there: tensors from 4 MiB on get mappings of their own, in huge pages, which is also faster (a
CNN's step of 230 ms took 163 ms).  Mappings for small tensors, or without huge pages, would
double the time of a step.

The limit is RLIMIT_DATA, which counts private writable mappings.  RLIMIT_AS counts address
space that is never memory as well, such as 37 MiB for each thread that has allocated.
"""

import ctypes
import resource
from pathlib import Path
from typing import Final

ENVIRONMENT: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
    "THP_MEM_ALLOC_ENABLE": "1",
}
"""Variables with which a job on a CPU device should start."""

SLACK_BYTES: Final = 32 << 20
"""Allowed beyond a limit for mappings that are not the job's data, such as thread stacks."""

_STATUS: Final = Path("/proc/self/status")
_CLEAR_REFS: Final = Path("/proc/self/clear_refs")
_RESET_PEAK: Final = "5"


class CpuBackend:
    """The memory of this process."""

    measures = True

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._libc.malloc_trim(0)
        status = _status()
        self._base_bytes = _in_use(status)
        self._base_data_bytes = status["VmData"]

    def live(self) -> int:
        """Return the bytes in use, after malloc has given back what it kept."""
        self._libc.malloc_trim(0)
        return max(0, _in_use(_status()) - self._base_bytes)

    def peak(self) -> int:
        """Return the most bytes in use since ``reset_peak``, with those that malloc kept."""
        return self.glance()[1]

    def glance(self) -> tuple[int, int]:
        """Return the bytes in use, with those that malloc keeps, and the most of them."""
        status = _status()
        used = _in_use(status)
        above_now = max(0, status["VmHWM"] - status["VmRSS"])
        return max(0, used - self._base_bytes), max(0, used + above_now - self._base_bytes)

    def mark(self) -> int:
        """Return the most that was resident since ``reset_peak``, files included."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

    def reset_peak(self) -> None:
        """Forget the peak so far."""
        _CLEAR_REFS.write_text(_RESET_PEAK)

    def trim(self) -> int:
        """Let malloc give back what it keeps; return how many bytes that freed."""
        before = _in_use(_status())
        self._libc.malloc_trim(0)
        return max(0, before - _in_use(_status()))

    def fence(self) -> None:
        """Return at once: work on the CPU is finished when the call that did it returns."""

    def limit(self, nbytes: int | None) -> None:
        """Let this process map so many bytes of data, and ``SLACK_BYTES`` besides."""
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = hard if nbytes is None else self._base_data_bytes + nbytes + SLACK_BYTES
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _status() -> dict[str, int]:
    """Return the memory lines of this process's status, in bytes."""
    lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    fields = (line.partition(":") for line in lines if line.endswith(" kB"))
    return {name: int(value.split()[0]) << 10 for name, _, value in fields}


def _in_use(status: dict[str, int]) -> int:
    return status["RssAnon"] + status["RssShmem"]
