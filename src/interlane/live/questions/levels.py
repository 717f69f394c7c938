"""What was held and who waited lately: the newest part of the log, as metrics read it."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import numpy as np

from interlane.live.driver.state import Snapshot, job_of
from interlane.live.files.job import JobSpec
from interlane.live.store.record import JobRecord, dumped
from interlane.live.store.store import Store
from interlane.metrics import levels as figures
from interlane.metrics.levels import AttemptUse
from interlane.metrics.log import EventLog
from interlane.metrics.summary import quantile
from interlane.model import (
    MILLI,
    Cancelled,
    Finished,
    JobChanged,
    JobHeld,
    JobId,
    JobLost,
    JobReleased,
    JobRetried,
    LogEntry,
    Placement,
    Preempted,
    Recovered,
    Refuse,
    Requeue,
    Start,
    StartFailed,
    Submitted,
)

KEPT: Final = 50_000
"""Entries of the log that are followed, and at times twice as many."""

READ: Final = 5_000
"""Entries read at a time."""

_OVER: Final = (Finished, Cancelled, Preempted, JobLost, JobRetried, Requeue, StartFailed)

UNKNOWN: Final = Placement(())
"""Where a job was that ended before anybody looked."""


@dataclass(frozen=True, slots=True)
class LiveLevels:
    """What was held and who waited, at evenly spaced moments up to now."""

    at_s: tuple[float, ...]
    held_ratio: tuple[float | None, ...]
    """None for moments before the first that the log tells of."""
    waiting: tuple[int | None, ...]
    used_ratio: tuple[float | None, ...]
    """As measured over the attempts that have ended since; None where somebody held devices
    of whose use nothing is on record."""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long jobs waited for their first start."""

    starts: int
    median_s: float | None
    p95_s: float | None


class LevelHistory:
    """Follows the log as far as somebody asks."""

    def __init__(
        self, store: Store, snapshot: Callable[[], Snapshot], kept: int = KEPT
    ) -> None:
        self._store = store
        self._snapshot = snapshot
        self._kept = kept
        self._lock = threading.Lock()
        self._seq = 0
        self._begin_s: float | None = None
        """When the first entry was that is followed; None before anything is."""
        self._log: EventLog
        self._sizes: dict[str, int] = {}
        """Thousandths of GPUs that a job asks for, by what its file says of them."""
        self._began_s: dict[JobId, float] = {}
        """When attempts began that have not ended."""
        self._uses: deque[AttemptUse] = deque(maxlen=kept)

    def levels(self, span_s: float, points: int) -> LiveLevels:
        """Return the last so many seconds."""
        now = self._snapshot()
        at_s = tuple(now.now_s - span_s * (1 - at / (points - 1)) for at in range(points))
        with self._lock:
            self._catch_up(now)
            found = figures.levels(self._log, at_s)
            begin_s = now.now_s if self._begin_s is None else self._begin_s
            used = figures.used_gpus(self._uses, at_s)
        total = max(1, now.cluster.gpus * MILLI)
        known = [one >= begin_s for one in at_s]
        held = [
            min(1.0, one / total) if is_known else None
            for one, is_known in zip(found.held_milli.tolist(), known, strict=True)
        ]
        return LiveLevels(
            at_s,
            tuple(held),
            tuple(
                one if is_known else None
                for one, is_known in zip(found.waiting.tolist(), known, strict=True)
            ),
            tuple(map(_used_ratio, used, held, repeat(now.cluster.gpus))),
        )

    def age_s(self) -> float:
        """Return how long ago the first entry was that is followed."""
        now = self._snapshot()
        with self._lock:
            self._catch_up(now)
            return 0.0 if self._begin_s is None else now.now_s - self._begin_s

    def waits(self, span_s: float) -> Waits:
        """Return how long jobs waited that started in the last so many seconds."""
        now = self._snapshot()
        with self._lock:
            self._catch_up(now)
            found = figures.first_waits_s(self._log, now.now_s - span_s)
        ones = np.ones_like(found, np.int64)
        return Waits(len(found), quantile(found, ones, 0.5), quantile(found, ones, 0.95))

    def milli(self, job: JobSpec) -> int:
        """Return the thousandths of GPUs that a job asks for; most jobs ask alike."""
        names = ("resources", "share", "gang", "tasks")
        asked = dumped({name: job.document.get(name) for name in names})
        if asked not in self._sizes:
            self._sizes[asked] = self._snapshot().request_of(job).gpu_milli
        return self._sizes[asked]

    # -- following --------------------------------------------------------------------

    def _catch_up(self, now: Snapshot) -> None:
        if self._begin_s is None or len(self._log) > 2 * self._kept:
            self._begin(now)
        while found := self._store.log(self._seq, READ):
            self._follow(found, now)

    def _begin(self, now: Snapshot) -> None:
        """Begin with the newest entries, and with jobs that have not changed since."""
        self._log, self._begin_s = EventLog(now.cluster), None
        self._uses.clear()
        self._began_s.clear()
        self._seq = max(0, self._store.ends().seq - self._kept)
        open_before = self._store.open_jobs()
        while found := self._store.log(self._seq, READ):
            self._follow(found, now)
        for record in open_before:
            if not self._log.knows(record.id):
                self._log.recover(now.recovered(record))

    def _follow(self, entries: list[LogEntry], now: Snapshot) -> None:
        if self._begin_s is None:
            self._begin_s = entries[0].at_s
        for entry in entries:
            self._make_known(entry, now)
            self._log.append(entry)
            self._note_use(entry)
        self._seq = entries[-1].seq

    def _note_use(self, entry: LogEntry) -> None:
        """Remember how much of its time an attempt that is over used its devices."""
        job_id = entry.job_id
        if job_id is None or entry.is_void:
            return
        if isinstance(entry.what, Start):
            self._began_s[job_id] = entry.at_s
        elif isinstance(entry.what, _OVER):
            began_s = self._began_s.pop(job_id, entry.at_s)
            use = entry.detail.get("use")
            if use is not None and entry.at_s > began_s:
                busy = min(1.0, use["busy_s"] / (entry.at_s - began_s))
                self._uses.append(AttemptUse(began_s, entry.at_s, busy))

    def _make_known(self, entry: LogEntry, now: Snapshot) -> None:
        """Let the log know of a job whose first entries are older than what is followed."""
        job_id = entry.job_id
        if job_id is None or isinstance(entry.what, Submitted | Recovered):
            return
        if not self._log.knows(job_id):
            record = self._store.job(job_id)
            assert record is not None, "the log tells of stored jobs only"
            self._log.recover(_before(entry, record, now))


def _used_ratio(used: float | None, held: float | None, gpus: int) -> float | None:
    """Return the share of all devices that was used; of those that nobody holds none is."""
    if used is None:
        return 0.0 if held == 0.0 else None
    return min(1.0, used / max(1, gpus))


def _before(entry: LogEntry, record: JobRecord, now: Snapshot) -> Recovered:
    """Return how a job stood before the first of its entries that is followed."""
    job = job_of(record, now.request_of(record.job))
    # Who cancels a job that waits is said at once; if it holds a place, it was said before.
    waited = isinstance(entry.what, Start | Refuse | JobHeld | JobReleased | JobChanged) or (
        isinstance(entry.what, Cancelled) and "cancelled_by" in entry.detail
    )
    if waited:
        return Recovered(job)
    began_s = min(record.started_s or entry.at_s, entry.at_s)
    return Recovered(job, 0.0, record.placement or UNKNOWN, began_s)
