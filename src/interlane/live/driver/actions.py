"""What the scheduler decides: noted in the batch, and carried out once that is stored."""

from functools import partial
from typing import Final

from interlane.live.driver.batch import Batch
from interlane.live.driver.reports import waiting
from interlane.live.driver.state import attempt_of
from interlane.live.port import Launch, Stop
from interlane.live.store.record import HOLDING, Kind, Record, State, placement_document
from interlane.model import (
    Action,
    Cancelled,
    Grow,
    JobId,
    Placement,
    Preempt,
    Refuse,
    Requeue,
    Start,
    Ticked,
    Wake,
)

DECISIONS_MAX: Final = 100_000
"""A moment that needs more decisions than this is an endless loop: a fault of ours."""


def decide(batch: Batch) -> None:
    """Let the scheduler decide until nothing it wants frees something at once."""
    for _ in range(DECISIONS_MAX):
        actions = batch.state.scheduler.decide(batch.now_s)
        for action in actions:
            _note(action, batch)
        if not any(isinstance(action, Refuse) for action in actions):
            return
    raise AssertionError("The scheduler does not come to rest.")


def _note(action: Action, batch: Batch) -> None:
    jobs = batch.state.jobs
    match action:
        case Start(job_id, placement):
            _place(jobs[job_id], placement, batch)
        case Grow(job_id, more):
            _grow(jobs[job_id], more, batch)
        case Preempt(job_id, in_favour_of):
            _stop(jobs[job_id], in_favour_of, batch)
        case Refuse(job_id, refusal):
            batch.end(Kind.REFUSED, jobs[job_id], State.REFUSED, reason=str(refusal))
        case Requeue(job_id, why, work_lost_s):
            _requeue(jobs.get(job_id), why, work_lost_s, batch)
        case Wake(at_s):
            batch.postpone(at_s, Ticked())


def _place(record: Record, placement: Placement, batch: Batch) -> None:
    change = {
        "state": State.STARTING,
        "attempt": record.attempt + 1,
        "placement": placement_document(placement),
        "started_s": batch.now_s,
        "reason": None,
    }
    placed = batch.write(Kind.PLACED, record.id, change)
    launch = _launch(placed, placement, batch)
    batch.afterwards.append(partial(batch.engine.begin, launch))


def _grow(record: Record, more: Placement, batch: Batch) -> None:
    """Note what is added as held; it is given back if the engine cannot add it."""
    assert record.placement is not None
    added = placement_document(more)
    change = {"placement": [*record.placement, *added], "growing": len(added)}
    grown = batch.write(Kind.GROW_PLACED, record.id, change)
    launch = _launch(grown, more, batch)
    batch.afterwards.append(partial(batch.engine.grow, launch))


def _launch(record: Record, placement: Placement, batch: Batch) -> Launch:
    return Launch(
        attempt_of(record),
        record.job,
        batch.state.request_of(record.job),
        placement,
        record.guess_s,
    )


def _stop(record: Record, in_favour_of: JobId, batch: Batch) -> None:
    if record.state is State.STOPPING:
        return
    change = {"state": State.STOPPING, "reason": f"It makes way for job {in_favour_of}."}
    batch.write(Kind.STOP_WISHED, record.id, change)
    stop = partial(batch.engine.stop, attempt_of(record), Stop.GRACEFUL)
    batch.afterwards.append(stop)


def _requeue(record: Record | None, why: str, work_lost_s: float, batch: Batch) -> None:
    """Note that a job's place is gone; nothing of the attempt may go on."""
    if record is None or record.state not in HOLDING:
        return  # it ended in the same moment
    kill = partial(batch.engine.stop, attempt_of(record), Stop.KILL)
    batch.afterwards.append(kill)
    if record.cancelled_by is not None:
        batch.learn(Cancelled(record.id))
        batch.end(Kind.CANCELLED, record, State.CANCELLED)
        return
    attempted_s = batch.now_s - (record.started_s or batch.now_s)
    ran_s = record.ran_s + max(0.0, attempted_s - work_lost_s)
    batch.write(Kind.REQUEUED, record.id, waiting(ran_s=ran_s, reason=why))
