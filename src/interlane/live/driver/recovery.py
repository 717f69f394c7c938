"""What an earlier server, or a cycle that failed, has left behind."""

from interlane.engines.local.launch import attempt_of
from interlane.engines.local.runner import Runner
from interlane.live.driver.batch import Batch
from interlane.live.store.record import HOLDING, Kind, Record, State


def find_attempts(runner: Runner, batch: Batch) -> None:
    """Note what has become of every attempt on record."""
    for record in list(batch.books.jobs.values()):
        if record.state in HOLDING:
            _find(record, runner, batch)


def _find(record: Record, runner: Runner, batch: Batch) -> None:
    """Adopt an attempt that runs or ran; one that never will goes back to the queue."""
    attempt = attempt_of(record)
    if not runner.recover(attempt):
        _never_ran(record, batch)
    elif record.state is State.STARTING:
        batch.write(Kind.STARTED, record.id, {"state": State.RUNNING})
    elif record.state is State.STOPPING:
        runner.stop(attempt)


def _never_ran(record: Record, batch: Batch) -> None:
    if record.cancelled_by is not None:
        batch.end(Kind.CANCELLED, record, State.CANCELLED)
    else:
        change = {"state": State.QUEUED, "placement": None}
        batch.write(Kind.START_FAILED, record.id, change)
