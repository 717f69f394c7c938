"""Who had how much of the GPUs: held, used and wasted, by user or by queue.

*JobHeld* is the share of GPUs that a job had from the decision to start it until it let go.
*Used* is the part of it in which an iteration ran, where a device daemon measured that; it is
known when a job has ended.  *Wasted* is what was held for nothing: attempts that failed or were
cancelled, and work that was lost since the last checkpoint.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from typing import Any, Final

from interlane.model import (
    MILLI,
    Cancelled,
    Finished,
    Grown,
    Job,
    JobId,
    JobLost,
    JobRetried,
    LogEntry,
    Placement,
    Preempted,
    Recovered,
    Requeue,
    Start,
    StartFailed,
    Submitted,
    held_gpu_milli,
)

HOUR_S: Final = 3_600.0
_LOST: Final = (Preempted, JobLost, Requeue, JobRetried)
_OVER: Final = (*_LOST, StartFailed, Finished, Cancelled)


class UsageBy(StrEnum):
    """By what use is summed up."""

    USER = "user"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """What one account had in a span of time, in GPU-hours."""

    account: str
    jobs: int = 0
    """Jobs that held a place in the span."""
    held_h: float = 0.0
    used_h: float = 0.0
    measured_h: float = 0.0
    """The part of what was held in which it is known what was used."""
    wasted_h: float = 0.0
    waited_h: float = 0.0
    """Hours that its jobs waited for their starts, each job's own."""


@dataclass(slots=True)
class _JobSeen:
    """A job as the log has told of it so far."""

    job: Job
    waits_since_s: float
    begun_s: float | None = None
    milli: int = 0


@dataclass(slots=True)
class _Sums:
    jobs: set[JobId] = field(default_factory=set)
    held: float = 0.0
    used: float = 0.0
    measured: float = 0.0
    wasted: float = 0.0
    waited_s: float = 0.0


@dataclass(slots=True)
class UsageSums:
    """Sums a log up, entry by entry."""

    since_s: float
    until_s: float
    by: UsageBy = UsageBy.USER
    _seen: dict[JobId, _JobSeen] = field(default_factory=dict)
    _sums: dict[str, _Sums] = field(default_factory=dict)

    def take_in(self, entries: Iterable[LogEntry]) -> None:
        """Take in a part of the log, the oldest entry first."""
        for entry in entries:
            if entry.job_id is not None and not entry.is_void:
                self._take(entry, entry.job_id)

    def found(self) -> list[GpuUsage]:
        """Return what every account had, the one that held most first; who runs is counted."""
        for seen in self._seen.values():
            if seen.begun_s is not None:
                self._let_go(seen, inf)
        rows = [
            GpuUsage(
                account,
                len(one.jobs),
                one.held / MILLI / HOUR_S,
                one.used / MILLI / HOUR_S,
                one.measured / MILLI / HOUR_S,
                one.wasted / MILLI / HOUR_S,
                one.waited_s / HOUR_S,
            )
            for account, one in self._sums.items()
        ]
        return sorted(rows, key=lambda one: (-one.held_h, one.account))

    def _take(self, entry: LogEntry, job_id: JobId) -> None:
        what = entry.what
        if isinstance(what, Submitted | Recovered):
            self._know(what, entry)
            return
        seen = self._seen.get(job_id)
        if seen is None:  # it came in before the first entry that is kept
            return
        if isinstance(what, Start):
            self._wait_is_over(seen, entry.at_s)
            self._begin(seen, what.placement, entry.at_s)
        elif isinstance(what, Grown) and seen.begun_s is not None:
            held, at_s = seen.milli, entry.at_s
            self._let_go(seen, at_s)
            seen.milli = held + held_gpu_milli(seen.job.request, what.more)
            seen.begun_s = at_s
        elif isinstance(what, _OVER):
            self._over(seen, entry)

    def _know(self, what: Submitted | Recovered, entry: LogEntry) -> None:
        seen = self._seen.get(what.job.id)
        if seen is None:
            seen = self._seen[what.job.id] = _JobSeen(what.job, entry.at_s)
        if isinstance(what, Recovered) and what.placement is not None and seen.begun_s is None:
            self._begin(seen, what.placement, what.started_s)

    def _begin(self, seen: _JobSeen, placement: Placement, at_s: float) -> None:
        seen.begun_s = at_s
        seen.milli = held_gpu_milli(seen.job.request, placement)

    def _over(self, seen: _JobSeen, entry: LogEntry) -> None:
        what, at_s = entry.what, entry.at_s
        begun_s, milli = seen.begun_s, seen.milli
        if begun_s is None:
            self._wait_is_over(seen, at_s)
        else:
            self._let_go(seen, at_s)
            self._judge(seen.job, milli, begun_s, entry)
        seen.waits_since_s = at_s
        if isinstance(what, Finished | Cancelled):
            self._seen.pop(seen.job.id, None)

    def _judge(self, job: Job, milli: int, begun_s: float, entry: LogEntry) -> None:
        """Count what an attempt that is over used, and what of it was for nothing."""
        what, at_s, sums = entry.what, entry.at_s, self._of(job)
        held_s = self._within_s(begun_s, at_s)
        if isinstance(what, _LOST):
            sums.wasted += milli * min(held_s, what.work_lost_s)
        elif isinstance(what, Cancelled) or entry.detail.get("exit_code") != 0:
            sums.wasted += milli * held_s
        use: Mapping[str, Any] | None = entry.detail.get("use")
        if use is not None and at_s > begun_s:
            busy = min(1.0, use["busy_s"] / (at_s - begun_s))
            sums.used += milli * held_s * busy
            sums.measured += milli * held_s

    def _let_go(self, seen: _JobSeen, at_s: float) -> None:
        assert seen.begun_s is not None
        held_s = self._within_s(seen.begun_s, at_s)
        if held_s > 0:
            sums = self._of(seen.job)
            sums.jobs.add(seen.job.id)
            sums.held += seen.milli * held_s
        seen.begun_s = None

    def _wait_is_over(self, seen: _JobSeen, at_s: float) -> None:
        waited_s = self._within_s(seen.waits_since_s, at_s)
        if waited_s > 0:
            self._of(seen.job).waited_s += waited_s

    def _within_s(self, begin_s: float, end_s: float) -> float:
        return max(0.0, min(end_s, self.until_s) - max(begin_s, self.since_s))

    def _of(self, job: Job) -> _Sums:
        account = job.user if self.by is UsageBy.USER else job.queue
        return self._sums.setdefault(account, _Sums())


def in_all(rows: Iterable[GpuUsage]) -> GpuUsage:
    """Return the sum of all accounts."""
    whole = GpuUsage("all")
    for one in rows:
        whole = replace(
            whole,
            jobs=whole.jobs + one.jobs,
            held_h=whole.held_h + one.held_h,
            used_h=whole.used_h + one.used_h,
            measured_h=whole.measured_h + one.measured_h,
            wasted_h=whole.wasted_h + one.wasted_h,
            waited_h=whole.waited_h + one.waited_h,
        )
    return whole
