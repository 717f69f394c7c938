"""Room for jobs that wait for memory.

A job of which nothing is known has all that is free until it has run a few iterations.  It may
never do so: it is a notebook, it has only imported torch, it waits for its own children.  So
one that does nothing is asked what it holds while others wait, and is booked with that; if it
grows later, it says so, and has what is there.  Those who come in beside it get half of what is
free, so that there is something.

A job never waits for a process that it descends from, because that one may wait for it.  Its
ancestors are booked with what they hold, whatever they declared; if that does not suffice, it
gets what is free, and if there is nothing, it is told so.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from interlane.device import page
from interlane.device.needs import MEASURED_FIRST
from interlane.device.shared_job import SharedJob
from interlane.device.specs import DeviceSpec
from interlane.lanes.actions import MemoryDemand
from interlane.lanes.domain import Domain
from interlane.lanes.events import MemoryObserved
from interlane.model import JobId, Refusal, Tier
from interlane.model.amounts import written

LEAST_SHARE: Final = 0.25
"""Part of a device that must be free for a job of unknown demand to start beside others."""
LEAST_BYTES: Final = 64 << 20
"""Of a job beside its own ancestors: with less, it need not begin."""
PATIENCE_NS: Final = 30_000_000_000
"""After which a job is asked that is busy and has not run its first iterations."""


@dataclass(slots=True)
class DeviceRoom:
    """What is free on a device, what could be, and who is offered it."""

    spec: DeviceSpec
    domain: Domain
    jobs: Mapping[JobId, SharedJob]
    _offered: dict[JobId, int] = field(default_factory=dict)
    """What was last offered to jobs that wait."""

    def forget(self, job_id: JobId) -> None:
        """Forget a job that has left."""
        self._offered.pop(job_id, None)

    def limit_of(self, job: SharedJob, demand: MemoryDemand) -> int:
        """Return what to hold a job to that is admitted with a demand."""
        if job.is_declared and job.expected is not None:
            return min(job.expected.peak_bytes, demand.peak_bytes)
        if job.id in self._offered or job.expected is None:
            return demand.peak_bytes
        return self.domain.book.budget.usable_bytes - self._context_bytes(job)

    # -- offers ----------------------------------------------------------------------------

    def offers(self) -> Iterator[MemoryObserved]:
        """Offer what is free to jobs that wait without knowing what they need, or for kin."""
        book = self.domain.book
        if not book.lanes or not book.is_open:
            return
        for job_id in book.waiting:
            offered = self._offer(self.jobs[job_id])
            if offered and self._offered.get(job_id) != offered:
                self._offered[job_id] = offered
                yield MemoryObserved(job_id, MemoryDemand(offered, 0))
                return

    def _offer(self, job: SharedJob) -> int:
        """Return what a waiting job may have of what is free; 0: nothing."""
        book = self.domain.book
        spare = book.free_bytes - self._context_bytes(job)
        if self._is_kept_by_kin(job):
            return spare if spare >= LEAST_BYTES else 0
        least = int(LEAST_SHARE * book.budget.usable_bytes)
        if job.expected is not None or spare < least:
            return 0
        return max(least, spare // 2) if any(map(self._is_rough, self._admitted())) else spare

    def _is_kept_by_kin(self, job: SharedJob) -> bool:
        """Tell whether a job would fit if its ancestors were not there, who hold no less."""
        kin = self._kin_of(job)
        if not kin or not all(one.gave_way for one in kin):
            return False
        book = self.domain.book
        least = int(LEAST_SHARE * book.budget.usable_bytes)
        needed = least if job.expected is None else job.expected.persistent_bytes
        held = sum(
            book.booked(one.id).persistent_bytes + self._context_bytes(one) for one in kin
        )
        return needed + self._context_bytes(job) <= book.free_bytes + held

    def hopeless(self) -> Iterator[tuple[SharedJob, Refusal]]:
        """Yield jobs that wait for nobody but their own ancestors, who give nothing more."""
        book = self.domain.book
        for job in [self.jobs[job_id] for job_id in book.waiting]:
            spare = book.free_bytes - self._context_bytes(job)
            if book.is_open and spare < LEAST_BYTES and self._is_kept_by_kin(job):
                holders = ", ".join(sorted(one.id for one in self._kin_of(job)))
                yield (
                    job,
                    Refusal(
                        Tier.NEVER_FITS,
                        f"It descends from {holders}, and beside that there are "
                        f"{written(max(0, spare))} of {written(self.spec.capacity_bytes)}.",
                        "Start it by itself, or let its parent need less.",
                    ),
                )

    def widen(self) -> None:
        """Let jobs that have only a part grow into what is free, while nobody waits for it."""
        book = self.domain.book
        if book.waiting or not book.is_open:
            return
        parts = [
            job
            for job in self.jobs.values()
            if job.expected is None and job.limit_bytes and book.lane_of(job.id) is not None
        ]
        for job in parts:
            limit = book.booked(job.id).peak_bytes + max(0, book.free_bytes) // len(parts)
            if limit > job.limit_bytes:
                job.confine(limit)
                job.ring()

    # -- questions -------------------------------------------------------------------------

    def suspects(self) -> list[SharedJob]:
        """Return jobs that may be booked with more than they hold, while others wait."""
        return [job for job in self._admitted() if self._is_rough(job) or self._is_kin(job)]

    def ask(self, still: AbstractSet[JobId]) -> None:
        """Ask what they hold: those that do nothing, and those who had their time."""
        for job in self.suspects():
            is_known = job.measured is not None and not self._is_rough(job)
            if self._is_kin(job) and (is_known or job.id in still):
                job.gives_way = True
                job.ask()
            elif self._is_rough(job) and (
                job.id in still or (job.measured is None and job.present_ns > PATIENCE_NS)
            ):
                job.ask()

    def _admitted(self) -> list[SharedJob]:
        """Return who holds memory that others wait for; nobody if no one waits."""
        book = self.domain.book
        if not book.waiting or not book.is_open:
            return []
        return [job for job in self.jobs.values() if book.lane_of(job.id) is not None]

    def _is_rough(self, job: SharedJob) -> bool:
        """Tell whether what a job needs is not known from its iterations."""
        return job.expected is None and job.word(page.ITERATIONS) < MEASURED_FIRST

    def _is_kin(self, job: SharedJob) -> bool:
        """Tell whether a job that waits descends from this one."""
        waiting = self.domain.book.waiting
        return any(job.pid in self.jobs[one].ancestors for one in waiting)

    def _kin_of(self, job: SharedJob) -> list[SharedJob]:
        return [one for one in self._admitted() if one.pid in job.ancestors]

    def _context_bytes(self, job: SharedJob) -> int:
        return job.processes * self.spec.context_bytes
