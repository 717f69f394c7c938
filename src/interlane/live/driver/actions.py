"""What the scheduler decides: noted in the batch, and carried out once that is stored."""

from collections.abc import Iterable, Iterator

from interlane.kernel.rest import Wrapper, decide_until_rest
from interlane.live.driver.batch import Batch
from interlane.live.driver.state import attempt_of
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
    """Have everything decided that can be at this moment."""
    decide_until_rest(_Noting(batch), batch.now_s, lambda actions: _carry_out(actions, batch))


class _Noting(Wrapper):
    """Puts what the scheduler learns on record."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch.state.scheduler)
        self._batch = batch

    def learn(self, event: Event, now_s: float) -> None:
        """Note an event; the scheduler follows the log."""
        self._batch.note(event)


def _carry_out(actions: Iterable[Action], batch: Batch) -> Iterator[Event]:
    """Note what was decided; yield what comes of it at once."""
    for action in actions:
        if isinstance(action, Wake):
            batch.note(action)
            batch.postpone(action.at_s, Ticked())
            continue
        before = batch.state.jobs[action.job_id]
        batch.note(action)
        record = batch.record(action.job_id)
        if record is before:
            continue  # it ended in the same moment
        match action:
            case Start(_, placement) | Grow(_, placement):
                batch.launch(batch.state.launch_of(record, placement))
            case Preempt():
                batch.stop(attempt_of(before))
            case Requeue(job_id):
                batch.give_up(attempt_of(before), before.placement)
                if record.cancelled_by is not None:  # its place was all that kept it
                    yield Cancelled(job_id)
            case Refuse():
                pass  # its record says so
