"""What the scheduler decides: noted in the batch, and carried out once that is stored."""

from collections.abc import Iterable, Iterator

from interlane.kernel.rest import decide_until_rest
from interlane.live.driver.batch import Batch
from interlane.live.driver.reports import waiting
from interlane.live.driver.state import attempt_of
from interlane.live.store.record import HOLDING, JobRecord, Kind, State, placement_document
from interlane.model import (
    Action,
    Cancelled,
    Event,
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


def decide(batch: Batch) -> None:
    """Have everything decided that can be at this moment."""
    decide_until_rest(batch.state.scheduler, batch.now_s, lambda actions: _note(actions, batch))


def _note(actions: Iterable[Action], batch: Batch) -> Iterator[Event]:
    """Note what was decided; yield what comes of it at once."""
    jobs = batch.state.jobs
    for action in actions:
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
                yield from _requeue(jobs.get(job_id), why, work_lost_s, batch)
            case Wake(at_s):
                batch.postpone(at_s, Ticked())


def _place(record: JobRecord, placement: Placement, batch: Batch) -> None:
    if record.state is not State.QUEUED:
        return  # it was cancelled and has lost its place, both in this moment
    change = {
        "state": State.STARTING,
        "attempt": record.attempt + 1,
        "placement": placement_document(placement),
        "started_s": batch.now_s,
        "growth": 0,
        "reason": None,
    }
    placed = batch.write(Kind.PLACED, record.id, change)
    batch.launch(batch.state.launch_of(placed, placement))


def _grow(record: JobRecord, more: Placement, batch: Batch) -> None:
    """Note what is added as held; it is given back if the engine cannot add it."""
    assert record.placement is not None
    added = placement_document(more)
    change = {
        "placement": [*record.placement, *added],
        "growing": len(added),
        "growth": record.growth + 1,
    }
    grown = batch.write(Kind.GROW_PLACED, record.id, change)
    batch.launch(batch.state.launch_of(grown, more))


def _stop(record: JobRecord, in_favour_of: JobId, batch: Batch) -> None:
    if record.state is State.STOPPING:
        return
    change = {"state": State.STOPPING, "reason": f"It makes way for job {in_favour_of}."}
    batch.write(Kind.STOP_WANTED, record.id, change)
    batch.stop(attempt_of(record))


def _requeue(
    record: JobRecord | None, why: str, work_lost_s: float, batch: Batch
) -> Iterator[Cancelled]:
    """Note that a job's place is gone; nothing of the attempt may go on."""
    if record is None or record.state not in HOLDING:
        return  # it ended in the same moment
    batch.give_up(attempt_of(record), record.place)
    if record.cancelled_by is not None:
        batch.end(Kind.CANCELLED, record, State.CANCELLED)
        yield Cancelled(record.id)
        return
    attempted_s = batch.now_s - (record.started_s or batch.now_s)
    ran_s = record.ran_s + max(0.0, attempted_s - work_lost_s)
    batch.write(Kind.REQUEUED, record.id, waiting(ran_s=ran_s, reason=why))
