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
    """The memory of one job."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._meter = MemoryMeter(backend)
        self.due = self._meter.due
        """The number of the iteration at whose end there is something to measure."""
        self.measured = MemoryDemand(0, 0)
        self.told: MemoryDemand | None = None
        """What the daemon was told last."""
        self._limit_bytes = 0

    def reached(self, iterations: int) -> MemoryDemand | None:
        """Measure after so many iterations; return what is news to the daemon, if anything."""
        needs = self._meter.reached(iterations)
        self.due = self._meter.due
        if needs is None:
            return None
        self.measured = needs
        return self._tell(needs) if iterations >= MEASURED_FIRST and self._is_news() else None

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

    def _is_news(self) -> bool:
        """Tell whether the job is known now, or needs more than was told."""
        before, needs = self.told, self.measured
        return (
            before is None
            or needs.persistent_bytes > before.persistent_bytes * GROWN
            or needs.ephemeral_bytes > before.ephemeral_bytes * GROWN
        )

    def _tell(self, needs: MemoryDemand) -> MemoryDemand:
        self.told = needs
        return needs
