"""What a job needs, seen from inside its process: measured, told, and held to."""

from typing import Final

from interlane.device.backends.base import Backend
from interlane.device.memory import MemoryMeter, after_overrun
from interlane.lanes.actions import MemoryDemand

MEASURED_FIRST: Final = 4
"""Iterations after which a job is taken to be known."""
GROWN: Final = 1.02
"""Demand that exceeds what was last told by this factor is told at once."""


class JobMemory:
    """The memory of one job.

    It is measured in full at some boundaries.  In between, and where there are no iterations,
    a look at the high-water mark shows whether it has grown.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._meter = MemoryMeter(backend)
        self.due = self._meter.due
        """The number of the iteration at whose end there is something to measure."""
        self.measured = MemoryDemand(0, 0)
        self.told: MemoryDemand | None = None
        """What the daemon was told last."""
        self.is_rough = False
        """Whether that was not measured at a boundary: what is measured there replaces it."""
        self._mark = backend.mark()
        """The high-water mark at the last look."""
        self._limit_bytes = 0

    def reached(self, iterations: int) -> MemoryDemand | None:
        """Measure after so many iterations; return what is news to the daemon, if anything."""
        if iterations < self.due:
            return self.look()
        needs = self._meter.reached(iterations)
        self.due = self._meter.due
        self._mark = self._backend.mark()
        if needs is None or iterations < MEASURED_FIRST:
            return None
        is_rough, self.is_rough = self.is_rough, False
        return self._news(needs, always=is_rough)

    def look(self) -> MemoryDemand | None:
        """Return what is news if the high-water mark has risen; else this costs nothing."""
        mark = self._backend.mark()
        if mark <= self._mark * GROWN or self.told is None:
            return None
        self._mark = mark
        return self._news(self._meter.glance())

    def held(self) -> MemoryDemand | None:
        """Measure what the job holds right now, wherever it is, and needed so far; tell it."""
        if not self._backend.measures:
            return None
        self.is_rough = True
        self.measured = self._meter.held()
        return self._tell(self.measured)

    def last(self) -> MemoryDemand | None:
        """Measure for the last time; return what is news."""
        return self._news(self._meter.last()) if self._backend.measures else None

    def after_overrun(self) -> MemoryDemand | None:
        """Return what to tell of a job that ran out of what it is held to."""
        if not self._limit_bytes:
            return None
        persistent = self.measured.persistent_bytes
        return self._tell(
            after_overrun(MemoryDemand(persistent, max(0, self._limit_bytes - persistent)))
        )

    def obey(self, limit_bytes: int) -> None:
        """Hold the job to so many bytes; 0 to none."""
        if limit_bytes != self._limit_bytes:
            self._limit_bytes = limit_bytes
            self._backend.limit(limit_bytes or None)

    def _news(self, needs: MemoryDemand, *, always: bool = False) -> MemoryDemand | None:
        """Return the demand if the job is known only now, or needs more than was told."""
        self.measured = needs
        before = self.told
        is_news = (
            always
            or before is None
            or needs.persistent_bytes > before.persistent_bytes * GROWN
            or needs.ephemeral_bytes > before.ephemeral_bytes * GROWN
        )
        return self._tell(needs) if is_news else None

    def _tell(self, needs: MemoryDemand) -> MemoryDemand:
        self.told = needs
        return needs
