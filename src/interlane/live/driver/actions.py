"""What the scheduler decides: noted in the batch, and carried out once that is stored."""

from collections.abc import Callable
from typing import Final

from interlane.kernel.scheduler import Scheduler
from interlane.live.driver.batch import Batch
from interlane.live.driver.state import attempt_of
from interlane.model import (
    Action,
    Cancelled,
    Grow,
    JobId,
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
    until_at_rest(batch.state.scheduler, batch.now_s, lambda action: _carry_out(action, batch))


def until_at_rest(
    scheduler: Scheduler, now_s: float, carry_out: Callable[[Action], bool]
) -> None:
    """Ask again and again, while what comes of an action may let others start."""
    for _ in range(DECISIONS_MAX):
        freed = [carry_out(action) for action in scheduler.decide(now_s)]
        if not any(freed):
            return
    raise AssertionError("The scheduler does not come to rest.")


def _carry_out(action: Action, batch: Batch) -> bool:
    """Note an action and what comes of it; return whether others may start because of that."""
    if isinstance(action, Wake):
        batch.note(action)
        batch.postpone(action.at_s, Ticked())
        return False
    before = batch.state.jobs[action.job_id]
    batch.note(action)
    if batch.record(action.job_id) is before:
        return False  # it ended in the same moment
    match action:
        case Start(job_id, placement) | Grow(job_id, placement):
            batch.launch(batch.state.launch_of(batch.record(job_id), placement))
        case Preempt():
            batch.stop(attempt_of(before))
        case Requeue(job_id):
            batch.give_up(attempt_of(before), before.placement)
            return _is_cancelled(job_id, batch)
        case Refuse():
            return True
    return False


def _is_cancelled(job_id: JobId, batch: Batch) -> bool:
    """Let a job end that somebody has cancelled, now that its place is gone."""
    if batch.record(job_id).cancelled_by is None:
        return False
    batch.note(Cancelled(job_id))
    return True
