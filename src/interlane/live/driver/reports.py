"""What processes report: that they have begun, how they ended, or that they never ran."""

from typing import Final

from interlane.engines.local.runner import Attempt, NeverRan, Ran
from interlane.live.driver.batch import Batch
from interlane.live.driver.inbox import Begun, FromProcess
from interlane.live.driver.state import Books
from interlane.live.questions.estimates import asked_before
from interlane.live.store.record import HOLDING, Kind, Record, State
from interlane.model import Cancelled, Finished, Preempted, Started, StartFailed

START_TRIES: Final = 3
"""Attempts that may fail to start before the job has failed."""


def take_in(report: FromProcess, batch: Batch) -> None:
    """Note what a process reports; a report of another attempt than the present is void."""
    record = _holder(report.attempt, batch.books)
    if record is None:
        return
    match report:
        case Begun():
            _begun(record, batch)
        case Ran():
            _ran(record, report, batch)
        case NeverRan():
            _never_ran(record, report, batch)


def _holder(attempt: Attempt, books: Books) -> Record | None:
    """Return the job whose present attempt this is."""
    record = books.jobs.get(attempt.job_id)
    if record is None or record.state not in HOLDING or record.attempt != attempt.number:
        return None
    return record


def _begun(record: Record, batch: Batch) -> None:
    if record.state is not State.STARTING:
        return
    assert record.place is not None
    batch.learn(Started(record.id, record.place))
    batch.write(Kind.STARTED, record.id, {"state": State.RUNNING})
    batch.books.failed_starts.pop(record.id, None)


def _ran(record: Record, report: Ran, batch: Batch) -> None:
    if record.cancelled_by is not None:
        _cancelled(record, batch, exit_code=report.exit_code)
    elif report.was_stopped:
        _preempted(record, batch)
    else:
        _finished(record, report, batch)


def _cancelled(record: Record, batch: Batch, **change: object) -> None:
    batch.learn(Cancelled(record.id))
    batch.end(Kind.CANCELLED, record, State.CANCELLED, **change)


def _preempted(record: Record, batch: Batch) -> None:
    """Let a stopped job wait again; without checkpoints it has lost this attempt's work."""
    attempted_s = batch.now_s - (record.started_s or batch.now_s)
    lost_s = attempted_s if record.job.checkpoint is None else 0.0
    batch.learn(Preempted(record.id, lost_s))
    change = {
        "state": State.QUEUED,
        "placement": None,
        "ran_s": record.ran_s + attempted_s - lost_s,
    }
    batch.write(Kind.PREEMPTED, record.id, change)


def _finished(record: Record, report: Ran, batch: Batch) -> None:
    books = batch.books
    batch.learn(Finished(record.id))
    state = State.SUCCEEDED if report.exit_code == 0 else State.FAILED
    if state is State.SUCCEEDED:
        books.guesses.learn(asked_before(record, books.cluster), record.ran_for_s(batch.now_s))
    why = _why_failed(record, report)
    batch.end(Kind.ENDED, record, state, exit_code=report.exit_code, reason=why)


def _why_failed(record: Record, report: Ran) -> str | None:
    if report.exit_code == 0 and report.why is None:
        return None
    if report.why == "limit":
        return f"It ran for {record.job.time.limit}, its limit."
    if report.exit_code is None:
        return report.why
    return f"It ended with exit code {report.exit_code}."


def _never_ran(record: Record, report: NeverRan, batch: Batch) -> None:
    """Let a job try again that could not be started, but not for ever."""
    if record.cancelled_by is not None:
        _cancelled(record, batch)
        return
    failed_starts = batch.books.failed_starts
    failed = failed_starts[record.id] = failed_starts.get(record.id, 0) + 1
    if failed >= START_TRIES:
        batch.learn(Cancelled(record.id))
        why = f"It could not be started {failed} times: {report.why}"
        batch.end(Kind.ENDED, record, State.FAILED, reason=why)
        return
    batch.learn(StartFailed(record.id, report.why))
    change = {"state": State.QUEUED, "placement": None, "reason": report.why}
    batch.write(Kind.START_FAILED, record.id, change)
