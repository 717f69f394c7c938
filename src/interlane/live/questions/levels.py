"""What was held and who waited lately, from the log.

The log tells every change; what is held and who waits now is known.  So the past is read
backwards from now, and no part of the log older than what is shown is needed.
"""

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from interlane.live.driver.state import Snapshot
from interlane.live.files.job import JobSpec
from interlane.live.store.record import Kind, LogEntry, State
from interlane.live.store.store import Store
from interlane.model import MILLI, JobId

KEPT: Final = 50_000
"""Changes that are kept."""

READ: Final = 5_000
"""Entries read at a time."""


@dataclass(frozen=True, slots=True)
class Levels:
    """What was held and who waited, at evenly spaced moments up to now."""

    at_s: tuple[float, ...]
    held_ratio: tuple[float, ...]
    waiting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Change:
    at_s: float
    held_milli: int
    waiting: int


@dataclass(frozen=True, slots=True)
class _Wait:
    at_s: float
    waited_s: float


@dataclass(slots=True)
class _Job:
    milli: int
    submitted_s: float
    holds: bool


class LevelHistory:
    """Follows the log as far as somebody asks."""

    def __init__(self, store: Store, snapshot: Callable[[], Snapshot]) -> None:
        self._store = store
        self._snapshot = snapshot
        self._lock = threading.Lock()
        self._seq: int | None = None
        self._changes: deque[_Change] = deque(maxlen=KEPT)
        self._waits: deque[_Wait] = deque(maxlen=KEPT)
        self._jobs: dict[JobId, _Job] = {}
        """Jobs that have not ended."""
        self._sizes: dict[str, int] = {}
        """Thousandths of GPUs that a job asks for, by what its file says of them."""

    def levels(self, span_s: float, points: int) -> Levels:
        """Return the last so many seconds."""
        with self._lock:
            self._catch_up()
            changes = list(self._changes)
        now = self._snapshot()
        now_s, total = now.now_s, now.cluster.gpus * MILLI
        held = sum(self.milli(one.job) for one in now.records if one.state.holds)
        waiting = sum(one.state is State.QUEUED for one in now.records)
        moments_s = [now_s - span_s * (1 - at / (points - 1)) for at in range(points)]
        found = []
        for moment_s in reversed(moments_s):
            while changes and changes[-1].at_s > moment_s:
                change = changes.pop()
                held -= change.held_milli
                waiting -= change.waiting
            found.append((max(0, held) / total if total else 0.0, max(0, waiting)))
        ratios, waits = zip(*reversed(found), strict=True)
        return Levels(tuple(moments_s), ratios, waits)

    def age_s(self) -> float:
        """Return how long ago the first change was that is known."""
        with self._lock:
            self._catch_up()
            if not self._changes:
                return 0.0
            return self._snapshot().now_s - self._changes[0].at_s

    def waits_s(self, span_s: float) -> list[float]:
        """Return how long jobs waited that started in the last so many seconds, sorted."""
        with self._lock:
            self._catch_up()
            since_s = self._snapshot().now_s - span_s
            return sorted(one.waited_s for one in self._waits if one.at_s >= since_s)

    def milli(self, job: JobSpec) -> int:
        """Return the thousandths of GPUs that a job asks for; most jobs ask alike."""
        said = job.document
        asked = json.dumps([said.get(name) for name in ("resources", "share", "gang", "tasks")])
        if asked not in self._sizes:
            self._sizes[asked] = self._snapshot().request_of(job).gpu_milli
        return self._sizes[asked]

    def _catch_up(self) -> None:
        store = self._store
        if self._seq is None:
            self._seq = max(0, store.ends().seq - KEPT)
        while found := store.log(self._seq, READ):
            for entry in found:
                self._learn(entry)
            self._seq = found[-1].seq

    def _learn(self, entry: LogEntry) -> None:
        match entry.kind:
            case Kind.SUBMITTED:
                size = self.milli(JobSpec.model_validate(entry.change["spec"]))
                at_s = entry.change["submitted_s"]
                self._jobs[entry.job_id] = _Job(size, at_s, holds=False)
                self._changes.append(_Change(entry.at_s, 0, 1))
            case Kind.PLACED:
                job = self._job(entry)
                job.holds = True
                self._changes.append(_Change(entry.at_s, job.milli, -1))
                if entry.change["attempt"] == 1:
                    self._waits.append(_Wait(entry.at_s, entry.at_s - job.submitted_s))
            case Kind.PREEMPTED | Kind.START_FAILED | Kind.REQUEUED:
                job = self._job(entry)
                job.holds = False
                self._changes.append(_Change(entry.at_s, -job.milli, 1))
            case Kind.ENDED | Kind.CANCELLED | Kind.REFUSED:
                job = self._job(entry)
                del self._jobs[entry.job_id]
                held, waited = (-job.milli, 0) if job.holds else (0, -1)
                self._changes.append(_Change(entry.at_s, held, waited))
            case (
                Kind.STARTED
                | Kind.CANCEL_ASKED
                | Kind.STOP_WANTED
                | Kind.GROW_PLACED
                | Kind.GREW
                | Kind.GROW_FAILED
            ):
                pass

    def _job(self, entry: LogEntry) -> _Job:
        """Return what is known of a job; one older than what was read is looked up."""
        if entry.job_id not in self._jobs:
            record = self._store.job(entry.job_id)
            assert record is not None, "the log tells of stored jobs only"
            # Whoever was cancelled while waiting has no exit code.
            held = entry.kind is not Kind.CANCELLED or "exit_code" in entry.change
            size = self.milli(record.job)
            self._jobs[entry.job_id] = _Job(size, record.submitted_s, holds=held)
        return self._jobs[entry.job_id]
