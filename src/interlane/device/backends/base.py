"""What every kind of device can tell about the memory of one job, and do about it.

All numbers are bytes of this process beyond what it held when its backend was made: the
interpreter, its libraries and the device's context are counted apart, once per process.
At an iteration boundary ``live`` is the job's persistent memory; ``peak`` minus that is what
the iterations since ``reset_peak`` needed in passing.
"""

from typing import Protocol


class Backend(Protocol):
    """The memory of one job on one device, seen from inside its process."""

    @property
    def measures(self) -> bool:
        """Whether it knows anything."""
        ...

    def live(self) -> int:
        """Return the bytes in use; cached free memory is given back first where it counts.

        Exact and for that reason not cheap (up to a millisecond): ask at some boundaries, not
        at all.
        """
        ...

    def peak(self) -> int:
        """Return the most bytes that were in use at once since ``reset_peak``."""
        ...

    def glance(self) -> tuple[int, int]:
        """Return bytes in use, cached ones included, and their peak, for some microseconds."""
        ...

    def mark(self) -> int:
        """Return a number that rises whenever ``peak`` does, at the cost of a microsecond.

        It begins anew with ``reset_peak`` and is good for comparisons with itself only.
        """
        ...

    def reset_peak(self) -> None:
        """Forget the peak so far."""
        ...

    def trim(self) -> int:
        """Give cached free memory back to the device; return how many bytes that freed."""
        ...

    def fence(self) -> None:
        """Wait until all submitted work is finished; the next holder may then begin."""
        ...

    def limit(self, nbytes: int | None) -> None:
        """Let this process use so many bytes and no more; ``None`` lifts the limit.

        Beyond it the job gets an out-of-memory error of its own that it can catch.
        """
        ...
