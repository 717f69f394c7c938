"""How much functions slow jobs down, as measured.

While no function does anything on a job's device, the length of its iterations is learned.
The length over a slot in which functions did something is set against it.  Time in which a
job waits for its lane is none of it: that is other jobs' doing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from interlane.server.functions.deployed import Device
from interlane.server.functions.figures import Mean

LEAST_ITERATIONS: Final = 8
"""On either side, for a comparison to mean anything."""
STEP: Final = 0.1
"""How far one look moves what a job is thought to be alone."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a job has done so far on a device."""

    job_id: str
    gpu: str
    iterations: int
    busy_s: float


@dataclass(slots=True)
class _Known:
    """What is known of one job."""

    last: Progress
    slot: Progress
    """As it was when the slot began."""
    alone_s: Mean
    """Length of an iteration while functions did nothing."""
    alone: int = 0
    """Iterations behind that."""
    was_beside: bool = False
    """Functions did something in this slot."""


class Interference:
    """Looks at jobs again and again, and compares at the end of each slot."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Known] = {}
        self._calls: dict[str, int] = {}

    def look(self, jobs: Iterable[Progress], devices: Mapping[str, Device]) -> None:
        """Take in where jobs are, and whether functions have done anything meanwhile."""
        active = {
            gpu
            for gpu, device in devices.items()
            if device.in_hand or device.calls != self._calls.get(gpu, 0)
        }
        self._calls = {gpu: device.calls for gpu, device in devices.items()}
        found = {}
        for now in jobs:
            known = self._jobs.get(now.job_id)
            if known is None or known.last.gpu != now.gpu or now.busy_s < known.last.busy_s:
                known = _Known(now, now, Mean(STEP))
            found[now.job_id] = known
            self._learn(known, now, beside=now.gpu in active)
        self._jobs = found

    def _learn(self, known: _Known, now: Progress, *, beside: bool) -> None:
        iterations = now.iterations - known.last.iterations
        if beside:
            known.was_beside = True
        elif iterations > 0:
            known.alone_s.add((now.busy_s - known.last.busy_s) / iterations)
            known.alone += iterations
        known.last = now

    def end_slot(self) -> Mapping[str, float]:
        """Return by how much functions slowed jobs down in the slot that ends."""
        found = {}
        for job_id, known in self._jobs.items():
            iterations = known.last.iterations - known.slot.iterations
            alone_s = known.alone_s.value
            enough = min(iterations, known.alone) >= LEAST_ITERATIONS
            if known.was_beside and enough and alone_s:
                length_s = (known.last.busy_s - known.slot.busy_s) / iterations
                found[job_id] = length_s / alone_s
            known.slot, known.was_beside = known.last, False
        return found
