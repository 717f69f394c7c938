"""What the kernel wishes: noted in the batch, and carried out once that is stored."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from interlane.model import (
    Action,
    Grow,
    InterlaneError,
    JobId,
    Placement,
    Preempt,
    Refuse,
    Requeue,
    Start,
    Ticked,
    Wake,
)
from interlane.server.driver.attempts import Attempts
from interlane.server.driver.batch import Batch
from interlane.server.driver.inbox import Begun, Inbox
from interlane.server.launch import attempt_of
from interlane.server.record import Kind, Record, State, placement_document
from interlane.server.runner import NeverRan

START_AGAIN_S: Final = 1.0
"""Seconds before a job that could not be started may try again; doubles each time."""

DECISIONS_MAX: Final = 100_000
"""A moment that needs more decisions than this is an endless loop: a fault of ours."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """Lets the kernel decide."""

    attempts: Attempts
    inbox: Inbox
    now_s: Callable[[], float]

    def decide(self, batch: Batch) -> None:
        """Let the kernel decide until it wishes nothing more that frees something at once."""
        for _ in range(DECISIONS_MAX):
            wishes = batch.books.scheduler.decide(batch.now_s)
            for wish in wishes:
                self._note(wish, batch)
            if not any(isinstance(wish, Refuse) for wish in wishes):
                return
        raise AssertionError("The scheduler does not come to rest.")

    def _note(self, wish: Action, batch: Batch) -> None:
        jobs = batch.books.jobs
        match wish:
            case Start(job_id, placement):
                self._place(jobs[job_id], placement, batch)
            case Preempt(job_id, in_favour_of):
                self._stop(jobs[job_id], in_favour_of, batch)
            case Refuse(job_id, refusal):
                why = str(refusal)
                batch.end(Kind.REFUSED, jobs[job_id], State.REFUSED, reason=why)
            case Requeue(job_id, why, work_lost_s):
                self._requeue(jobs[job_id], why, work_lost_s, batch)
            case Grow(job_id, _):
                raise AssertionError(f"Job {job_id} is a gang of one machine and cannot grow.")
            case Wake(at_s):
                self.inbox.put_later(at_s, Ticked())

    def _place(self, record: Record, placement: Placement, batch: Batch) -> None:
        change = {
            "state": State.STARTING,
            "attempt": record.attempt + 1,
            "placement": placement_document(placement),
            "started_s": batch.now_s,
            "reason": None,
        }
        placed = batch.write(Kind.PLACED, record.id, change)
        failed = batch.books.failed_starts.get(record.id, 0)
        batch.afterwards.append(partial(self._launch, placed, placement, failed))

    def _stop(self, record: Record, in_favour_of: JobId, batch: Batch) -> None:
        if record.state is State.STOPPING:
            return
        change = {"state": State.STOPPING, "reason": f"It makes way for job {in_favour_of}."}
        batch.write(Kind.STOP_WISHED, record.id, change)
        batch.afterwards.append(partial(self.attempts.stop, record))

    def _requeue(self, record: Record, why: str, work_lost_s: float, batch: Batch) -> None:
        """Let a job wait again whose place is gone, and end what is left of its attempt."""
        attempted_s = batch.now_s - (record.started_s or batch.now_s)
        change = {
            "state": State.QUEUED,
            "placement": None,
            "ran_s": record.ran_s + attempted_s - work_lost_s,
            "reason": why,
        }
        batch.write(Kind.PREEMPTED, record.id, change)
        batch.afterwards.append(partial(self.attempts.stop, record))

    def _launch(self, record: Record, placement: Placement, failed: int) -> None:
        """Start what is on record; if it cannot be, let it wait before it tries again."""
        attempt = attempt_of(record)
        try:
            self.attempts.start(record, placement)
        except (OSError, InterlaneError) as error:
            at_s = self.now_s() + START_AGAIN_S * 2**failed
            self.inbox.put_later(at_s, NeverRan(attempt, f"{error}"))
        else:
            self.inbox.put(Begun(attempt))
