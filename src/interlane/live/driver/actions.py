"""What the scheduler decides: noted in the batch, and carried out once that is stored."""

from collections.abc import Iterable, Iterator

from interlane.kernel.rest import decide_until_rest
from interlane.live.driver.batch import Batch
from interlane.live.driver.state import attempt_of
from interlane.live.store.record import JobRecord
from interlane.model import (
    Action,
    Cancelled,
    Event,
    Grow,
    Preempt,
    Refuse,
    Requeue,
    Start,
    Ticked,
    Wake,
)


def decide(batch: Batch) -> None:
    """Have everything decided that can be at this moment, if it is ours to decide."""
    if not batch.engine.traits.decides:
        return
    decide_until_rest(batch.state.scheduler, batch.now_s, lambda some: _carry_out(some, batch))


def _carry_out(actions: Iterable[Action], batch: Batch) -> Iterator[Event]:
    """Note what was decided; yield what comes of it at once."""
    for action in actions:
        if isinstance(action, Wake):
            batch.put(action)
            batch.postpone(action.at_s, Ticked())
            continue
        before = batch.state.jobs[action.job_id]
        batch.put(action, **_held_by(action, batch))
        if batch.record(action.job_id) is not before:  # else it ended in the same moment
            yield from _ask_for(action, before, batch)


def _held_by(action: Action, batch: Batch) -> dict[str, str]:
    """Return who will hold an attempt, where that matters."""
    holder = batch.engine.traits.holder
    return {"holder": holder} if holder and isinstance(action, Start) else {}


def _ask_for(
    action: Start | Grow | Preempt | Requeue | Refuse, before: JobRecord, batch: Batch
) -> Iterator[Event]:
    """Ask the engine for what was decided about a job that was so before."""
    match action:
        case Start(job_id, placement) | Grow(job_id, placement):
            batch.launch(batch.state.launch_of(batch.record(job_id), placement))
        case Preempt():
            batch.stop(before)
        case Requeue(job_id):
            batch.give_up(attempt_of(before), before.placement)
            if before.cancelled_by is not None:  # it need not wait for another place
                batch.put(Cancelled(job_id))
                yield Cancelled(job_id)
        case Refuse(_, refusal):
            if before.key is not None:
                batch.discard(before.key, was_cancelled=False, why=str(refusal))
