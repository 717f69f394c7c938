"""Jobs in which nothing runs: found by looking at their processes twice."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from interlane.device.activity import Activity, activity_of
from interlane.device.shared_job import SharedJob
from interlane.model import JobId


@dataclass(slots=True)
class StillJobs:
    """Who did nothing between the last two looks."""

    _before: dict[JobId, Activity] = field(default_factory=dict)
    new: frozenset[JobId] = frozenset()
    """Who was looked at for the first time, so that nothing can be said yet."""

    def look(self, jobs: Iterable[SharedJob]) -> frozenset[JobId]:
        """Look at some jobs, and forget all others; return those that have done nothing.

        A job that cannot be looked at counts as one that does something.
        """
        found = {job.id: activity_of(job.pid) for job in jobs}
        now = {job_id: seen for job_id, seen in found.items() if seen is not None}
        before, self._before = self._before, now
        self.new = frozenset(now.keys() - before.keys())
        return frozenset(
            job_id
            for job_id in now.keys() & before.keys()
            if now[job_id].is_still_since(before[job_id])
        )
