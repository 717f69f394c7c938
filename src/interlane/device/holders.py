"""Holders that others wait for: told that they do, and found when they stall."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from interlane.device import page
from interlane.device.shared_job import SharedJob
from interlane.lanes.actions import LaneId, Lease
from interlane.lanes.domain import Domain
from interlane.lanes.events import Stalled
from interlane.model import JobId

IDLE_S: Final = 0.005
"""A lease on which nothing happens for so long goes to others, if there are any."""
LOOK_AGAIN_S: Final = 0.01
LOOK_AT_LEAST_S: Final = 0.05
"""How often holders are looked at while others wait for them: not oftener, not more seldom."""


@dataclass(slots=True)
class Holders:
    """Looks at the pages of those who hold the lanes of a device."""

    domain: Domain
    jobs: Mapping[JobId, SharedJob]
    _wanted: set[LaneId] = field(default_factory=set)
    """Lanes that are held, and that others wait for."""

    def flag(self, lane: LaneId) -> None:
        """Let the holder of a lane know how many wait for it."""
        self._wanted.discard(lane)
        if lane not in self.domain.book.lanes:
            return
        tenants = [self.domain.tenants[one] for one in self.domain.book.lanes[lane].tenants]
        waiting = sum(one.wanted_since_s is not None for one in tenants)
        for tenant in tenants:
            if tenant.held_since_s is not None:
                self.jobs[tenant.job_id].write(page.WANTED, waiting)
                if waiting:
                    self._wanted.add(lane)

    def look_s(self, now_s: float) -> float:
        """Return when to look for idle ones again.

        That is when one would be idle for too long, if its iteration takes as long as usual.
        """
        looks_s = [self._idle_s(one, now_s) for one in self._wanted_leases()]
        return max(min(looks_s, default=inf), now_s + LOOK_AGAIN_S)

    def idle(self, now_s: float) -> Iterator[Stalled]:
        """Yield holders that run nothing.

        No order keeps a lane idle for a job that may come back to it in an hour.
        """
        for lease in self._wanted_leases():
            job = self.jobs[lease.job_id]
            if not job.word(page.BEGAN_NS) and self._idle_s(lease, now_s) <= now_s:
                yield self.stalled(lease, now_s)

    def inside(self) -> list[SharedJob]:
        """Return holders that others wait for and that are inside an iteration."""
        jobs = (self.jobs[lease.job_id] for lease in self._wanted_leases())
        return [job for job in jobs if job.word(page.BEGAN_NS)]

    def stalled(self, lease: Lease, now_s: float) -> Stalled:
        """Say of a holder that it stalls, from now on."""
        allowed_s = self._allowed_s(self.jobs[lease.job_id])
        return Stalled(lease.job_id, lease.epoch, now_s + allowed_s)

    def overlong(self, now_s: float) -> Iterator[Stalled]:
        """Yield holders that are inside one iteration for longer than they may."""
        for lease in self._wanted_leases():
            job = self.jobs[lease.job_id]
            began_s = job.word(page.BEGAN_NS) / 1e9
            hung_at_s = began_s + self._allowed_s(job)
            if began_s and hung_at_s <= now_s:
                yield Stalled(job.id, lease.epoch, hung_at_s)

    def _wanted_leases(self) -> list[Lease]:
        return [one for one in self.domain.leases if one.lane in self._wanted]

    def _allowed_s(self, job: SharedJob) -> float:
        iterations = job.word(page.ITERATIONS)
        mean_s = job.word(page.BUSY_NS) / 1e9 / iterations if iterations else None
        return self.domain.hangs.allowed_s(mean_s)

    def _idle_s(self, lease: Lease, now_s: float) -> float:
        job, usual_s = self.jobs[lease.job_id], self.domain.tenants[lease.job_id].iteration_s
        began_s = job.word(page.BEGAN_NS) / 1e9
        if not began_s:
            return max(job.word(page.BOUNDARY_NS) / 1e9, lease.granted_s) + IDLE_S
        ends_s = min(began_s + (usual_s or 0.0), now_s + LOOK_AT_LEAST_S)
        return max(ends_s, now_s) + IDLE_S
