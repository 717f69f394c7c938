"""How much functions slow jobs down, as measured; and which jobs are at work.

While no function does anything on a job's device, the length of its iterations is learned.
The length over a slot in which functions did something is set against it.  Time in which a
job waits for its lane is none of it: that is other jobs' doing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from interlane.live.functions.figures import Mean
from interlane.live.functions.replicas import FunctionDevice
from interlane.live.measure.monitor import Use
from interlane.live.measure.occupancy import TenantUse
from interlane.model import GpuRef, JobId

LEAST_ITERATIONS: Final = 8
"""On either side, for a comparison to mean anything."""
STEP: Final = 0.1
"""How far one look moves what a job is thought to be alone."""

AtWork = Mapping[GpuRef, frozenset[JobId] | None]
"""Device -> jobs that ran iterations there since the look before; None if nobody can tell."""


@dataclass(slots=True, eq=False)
class _Known:
    """What is known of one job on one device."""

    last: Use
    slot: Use
    """As it was when the slot began."""
    alone_s: Mean = field(default_factory=lambda: Mean(STEP))
    """Length of an iteration while functions did nothing."""
    alone: int = 0
    """Iterations behind that."""
    was_beside: bool = False
    """Functions did something in this slot."""

    def learn(self, now: Use, *, beside: bool) -> None:
        iterations = now.iterations - self.last.iterations
        if beside:
            self.was_beside = True
        elif iterations > 0:
            self.alone_s.add((now.busy_s - self.last.busy_s) / iterations)
            self.alone += iterations
        self.last = now

    def end_slot(self) -> float | None:
        """Return by how much functions slowed it down in the slot that ends."""
        iterations = self.last.iterations - self.slot.iterations
        busy_s = self.last.busy_s - self.slot.busy_s
        is_known = self.was_beside and min(iterations, self.alone) >= LEAST_ITERATIONS
        self.slot, self.was_beside = self.last, False
        alone_s = self.alone_s.value
        return busy_s / iterations / alone_s if is_known and alone_s else None


class Interference:
    """Looks at jobs again and again, and compares at the end of each slot."""

    def __init__(self) -> None:
        self._jobs: dict[GpuRef, dict[JobId, _Known]] = {}
        """Device -> jobs that the device daemon knows."""
        self._calls: dict[GpuRef, int] = {}

    def look(
        self,
        tenants: Mapping[GpuRef, Sequence[TenantUse]],
        devices: Mapping[GpuRef, FunctionDevice],
    ) -> AtWork | None:
        """Take in where jobs are and whether functions did anything; return which jobs work.

        None, and nothing is taken in, if the daemon has told nothing new.
        """
        if self._is_old(tenants):
            return None
        called = {
            gpu
            for gpu, device in devices.items()
            if device.in_hand or device.calls != self._calls.get(gpu, 0)
        }
        self._calls = {gpu: device.calls for gpu, device in devices.items()}
        before, self._jobs = self._jobs, {}
        at_work: dict[GpuRef, frozenset[JobId] | None] = {}
        for gpu, there in tenants.items():
            known = before.get(gpu, {})
            found = self._jobs[gpu] = {
                one.id: _known(known.get(one.id), one.use)
                for one in there
                if one.use is not None
            }
            is_clear = found == known and len(found) == len(there)  # nobody came or left
            at_work[gpu] = _at_work(found, there) if is_clear else None
            for one in there:
                if one.use is not None:
                    found[one.id].learn(one.use, beside=gpu in called)
        return at_work

    def _is_old(self, tenants: Mapping[GpuRef, Sequence[TenantUse]]) -> bool:
        """Tell whether all of this was seen before: of a job that is there, time passes."""
        return any(
            one.use is not None
            and one.use.present_s > 0
            and one.id in self._jobs.get(gpu, {})
            and one.use.present_s == self._jobs[gpu][one.id].last.present_s
            for gpu, there in tenants.items()
            for one in there
        )

    def end_slot(self) -> dict[JobId, float]:
        """Return by how much functions slowed jobs down in the slot that ends."""
        return {
            job_id: slower
            for there in self._jobs.values()
            for job_id, known in there.items()
            if (slower := known.end_slot()) is not None
        }


def _known(before: _Known | None, use: Use) -> _Known:
    """Return what is known of a job; one that began anew is known anew."""
    if before is None or use.since(before.last) is None:
        return _Known(use, use)
    return before


def _at_work(known: Mapping[JobId, _Known], there: Sequence[TenantUse]) -> frozenset[JobId]:
    return frozenset(
        one.id
        for one in there
        if one.state == "running"
        or (one.use is not None and one.use.iterations > known[one.id].last.iterations)
    )
