"""What the engine reports of attempts: that they run, have ended or never ran."""

from typing import Final

from interlane.kernel.lifecycle import JobState
from interlane.live.driver.batch import Batch
from interlane.live.driver.inbox import GiveBack
from interlane.live.driver.state import DriverState, attempt_of
from interlane.live.files import job as spec
from interlane.live.measure.monitor import Monitor, Use
from interlane.live.port import (
    Attempt,
    AttemptReport,
    Begun,
    Ended,
    Grew,
    NeverBegan,
    NeverGrew,
    Pending,
)
from interlane.live.questions.estimates import asked_before
from interlane.live.store.record import HOLDING, JobRecord, Kind, State
from interlane.model import (
    Cancelled,
    Finished,
    GrowFailed,
    Grown,
    Placement,
    Preempted,
    Started,
    StartFailed,
)

START_TRIES: Final = 3
"""Attempts that may fail to start before the job has failed."""

START_AGAIN_S: Final = 1.0
"""Seconds before a job that could not be started may try again; doubles each time."""

GROW_AGAIN_S: Final = 30.0
"""Seconds before a gang that could not grow may try again."""


LOST: Final = "It went with its machine."


class ReportIntake:
    """Notes what the engine reports; a report of another attempt than the present is void."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def take_in(self, report: AttemptReport, batch: Batch) -> None:
        """Note one report."""
        state = batch.state
        state.newer.attempts.add(report.attempt)
        if isinstance(report, Ended | NeverBegan):
            state.endings.over(report.attempt)
        record = _holder(report.attempt, state)
        if record is None:
            return
        match report:
            case Begun():
                _begun(record, batch)
            case Ended():
                self._ended(record, report, batch)
            case NeverBegan():
                _never_began(record, report, batch)
            case Grew():
                _grew(record, report, batch)
            case NeverGrew():
                batch.postpone(batch.now_s + GROW_AGAIN_S, GiveBack(report))

    def give_back(self, report: NeverBegan | NeverGrew, batch: Batch) -> None:
        """Let what could not begin or grow try again; its place was held meanwhile."""
        record = _holder(report.attempt, batch.state)
        if record is None:
            return
        if isinstance(report, NeverBegan):
            _try_again(record, report.why, batch)
        else:
            _never_grew(record, report, batch)

    def compare(
        self, sight: Pending | Begun | NeverBegan | Ended, place: Placement | None, batch: Batch
    ) -> None:
        """Note what an observation says of an attempt: it may contradict what is on record.

        An attempt that nobody knows, or that was given up, must not go on beside another.
        What reports have said since of one that ran is newer.
        """
        if isinstance(sight, Ended | NeverBegan):
            batch.state.endings.over(sight.attempt)
        record = _holder(sight.attempt, batch.state)
        match sight:
            case Pending() | Begun() if record is None:
                if sight.attempt not in batch.state.newer.attempts:
                    batch.give_up(sight.attempt, place)
            case Begun() if record is not None:
                _still_runs(record, batch)
            case Ended() if record is not None:
                self._ended(record, sight, batch)
            case NeverBegan() if record is not None:
                _requeue(record, batch)

    def _ended(self, record: JobRecord, report: Ended, batch: Batch) -> None:
        if record.cancelled_by is not None:
            use = self._use(record, report)
            _cancelled(record, batch, use=use, exit_code=report.exit_code)
        elif report.was_stopped:
            _preempted(record, batch)
        elif report.was_lost:
            _lost(record, batch)
        else:
            self._finished(record, report, batch)

    def _finished(self, record: JobRecord, report: Ended, batch: Batch) -> None:
        _let_go(record, batch)
        state = State.SUCCEEDED if report.exit_code == 0 else State.FAILED
        if state is State.SUCCEEDED:
            asked = asked_before(record, batch.state.request_of(record.job))
            batch.state.estimates.learn(asked, record.ran_for_s(batch.now_s))
        why = _why_failed(record, report)
        use = self._use(record, report)
        batch.end(Kind.ENDED, record, state, use, exit_code=report.exit_code, reason=why)

    def _use(self, record: JobRecord, report: Ended) -> Use | None:
        return None if report.use is None else self._monitor.over_all(record.id, report.use)


def _holder(attempt: Attempt, state: DriverState) -> JobRecord | None:
    """Return the job whose present attempt this is."""
    record = state.jobs.get(attempt.job_id)
    if record is None or record.state not in HOLDING or record.attempt != attempt.number:
        return None
    return record


def _begun(record: JobRecord, batch: Batch) -> None:
    batch.state.failed_starts.pop(record.id, None)
    if record.state is not State.STARTING:
        return
    assert record.place is not None
    if batch.stands(record.id) is JobState.STARTING:
        batch.learn(Started(record.id, record.place))
    batch.write(Kind.STARTED, record.id, {"state": State.RUNNING})


def _still_runs(record: JobRecord, batch: Batch) -> None:
    """Ask again for what was asked and perhaps not heard."""
    _begun(record, batch)
    if record.state is State.STOPPING:
        batch.stop(attempt_of(record))
    elif record.growing:
        batch.launch(batch.state.launch_of(record, record.added))


def _let_go(record: JobRecord, batch: Batch) -> None:
    """Tell the scheduler that a job has ended, also one that it has requeued meanwhile."""
    waits = batch.stands(record.id) is JobState.QUEUED
    batch.learn(Cancelled(record.id) if waits else Finished(record.id))


def _cancelled(
    record: JobRecord, batch: Batch, use: Use | None = None, **change: object
) -> None:
    batch.learn(Cancelled(record.id))
    batch.end(Kind.CANCELLED, record, State.CANCELLED, use, **change)


def _preempted(record: JobRecord, batch: Batch) -> None:
    """Let a stopped job wait again; without checkpoints it has lost this attempt's work."""
    attempted_s = batch.now_s - (record.started_s or batch.now_s)
    lost_s = attempted_s if record.job.checkpoint is None else 0.0
    _back_to_queue(record, lost_s, batch)
    ran_s = record.ran_s + attempted_s - lost_s
    batch.write(Kind.PREEMPTED, record.id, waiting(ran_s=ran_s))


def _lost(record: JobRecord, batch: Batch) -> None:
    """Let a job wait again that went with its machine, whether that is known or not."""
    attempted_s = batch.now_s - (record.started_s or batch.now_s)
    every_s = spec.checkpoint_s(record.job)
    lost_s = attempted_s % every_s if every_s else attempted_s
    _back_to_queue(record, lost_s, batch)
    ran_s = record.ran_s + attempted_s - lost_s
    batch.write(Kind.REQUEUED, record.id, waiting(ran_s=ran_s, reason=LOST))


def _back_to_queue(record: JobRecord, lost_s: float, batch: Batch, why: str = "") -> None:
    """Tell the scheduler that a job waits again, unless it has requeued it by itself."""
    stands = batch.stands(record.id)
    if stands is JobState.STARTING:
        batch.learn(StartFailed(record.id, why))
    elif stands is not JobState.QUEUED:
        batch.learn(Preempted(record.id, lost_s))


def _why_failed(record: JobRecord, report: Ended) -> str | None:
    if report.exit_code == 0 and report.why is None:
        return None
    if report.why == "limit":
        return f"It ran for {record.job.time.limit}, its limit."
    if report.exit_code is None:
        return report.why
    return f"It ended with exit code {report.exit_code}."


def _never_began(record: JobRecord, report: NeverBegan, batch: Batch) -> None:
    """Let a job that could not be started wait before it tries again; its place is held.

    One that was to stop has failed at nothing.
    """
    failed = batch.state.failed_starts.get(record.id, 0)
    if record.state is State.STOPPING:
        _requeue(record, batch)
    else:
        batch.postpone(batch.now_s + START_AGAIN_S * 2**failed, GiveBack(report))


def _try_again(record: JobRecord, why: str, batch: Batch) -> None:
    """Let a job try again that could not be started, but not for ever."""
    failed_starts = batch.state.failed_starts
    failed = failed_starts[record.id] = failed_starts.get(record.id, 0) + 1
    if failed >= START_TRIES and record.cancelled_by is None:
        batch.learn(Cancelled(record.id))
        said = f"It could not be started {failed} times: {why}"
        batch.end(Kind.ENDED, record, State.FAILED, reason=said)
    else:
        _requeue(record, batch, why)


def _requeue(record: JobRecord, batch: Batch, why: str | None = None) -> None:
    """Let a job wait again whose attempt has not run, or of which nothing is left."""
    if record.cancelled_by is not None:
        _cancelled(record, batch)
        return
    lost_s = batch.now_s - (record.started_s or batch.now_s)
    _back_to_queue(record, lost_s, batch, why or "")
    batch.write(Kind.START_FAILED, record.id, waiting(reason=why))


def waiting(**more: object) -> dict[str, object]:
    """Return what changes in the record of a job that waits again."""
    return {"state": State.QUEUED, "placement": None, "growing": 0, **more}


def _grew(record: JobRecord, report: Grew, batch: Batch) -> None:
    if not record.growing or record.growth != report.growth:
        return
    if batch.stands(record.id) is JobState.GROWING:
        batch.learn(Grown(record.id, record.added))
    batch.write(Kind.GREW, record.id, {"growing": 0})


def _never_grew(record: JobRecord, report: NeverGrew, batch: Batch) -> None:
    """Give back what was to be added; one that stops gives it back with all the rest."""
    if not record.growing or record.growth != report.growth:
        return
    if batch.stands(record.id) is not JobState.GROWING:
        return
    batch.learn(GrowFailed(record.id, report.why))
    assert record.placement is not None
    kept = list(record.placement[: -record.growing])
    batch.write(Kind.GROW_FAILED, record.id, {"placement": kept, "growing": 0})
