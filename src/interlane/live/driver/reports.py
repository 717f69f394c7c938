"""What the engine reports of attempts: that they run, have ended or never ran."""

import logging
from dataclasses import asdict, replace
from typing import Any, Final

from interlane.live.driver.batch import Batch
from interlane.live.driver.inbox import GiveBack
from interlane.live.driver.state import DriverState, Shortage, attempt_of, job_of
from interlane.live.files import job as spec
from interlane.live.measure.monitor import Monitor
from interlane.live.port import (
    Attempt,
    AttemptReport,
    Begun,
    Ended,
    Grew,
    NeverBegan,
    NeverGrew,
    Pending,
    Sight,
    Unanswered,
)
from interlane.live.questions.estimates import asked_before
from interlane.live.store.record import JobRecord
from interlane.model import (
    AttemptUnknown,
    Cancelled,
    CancelRequested,
    Finished,
    GrowFailed,
    Grown,
    JobChanged,
    JobLost,
    JobRetried,
    Placement,
    Preempted,
    Recovered,
    Started,
    StartFailed,
    amounts,
)
from interlane.model.lifecycle import JobState

START_TRIES: Final = 3
"""Attempts that may fail to start before the job has failed."""

START_AGAIN_S: Final = 1.0
"""Seconds before a job that could not be started may try again; doubles each time."""

GROW_AGAIN_S: Final = 30.0
"""Seconds before a gang that could not grow may try again."""


SHORT_S_MAX: Final = 30.0
"""Seconds between tries to start a job for which its machine lacks something, at most."""

log = logging.getLogger("interlane.live")

ALIKE: Final = 1.25
"""Estimates that differ by less are taken to be the same."""

_WAITING: Final = (JobState.QUEUED, JobState.HELD)

LOST: Final = "It went with its machine."
CUT_OFF: Final = "What ran it was killed."


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
        if isinstance(report, NeverBegan) and report.lacks is not None:
            _requeue(record, batch, batch.state.shortages[record.id].reason)
        elif isinstance(report, NeverBegan):
            _try_again(record, report.why, batch)
        else:
            _never_grew(record, report, batch)

    def compare(self, sight: Sight, place: Placement | None, batch: Batch) -> None:
        """Note what an observation says of an attempt: it may contradict what is on record.

        An attempt that nobody knows, or that was given up, must not go on beside another.
        What reports have said since of one that ran is newer.
        """
        if isinstance(sight, Ended | NeverBegan):
            batch.state.endings.over(sight.attempt)
        record = _holder(sight.attempt, batch.state)
        if record is None and _is_unknown(sight.attempt, batch.state):
            self._answered(batch.state.jobs[sight.attempt.job_id], sight, batch)
            return
        match sight:
            case Unanswered() if record is not None:
                batch.note(AttemptUnknown(record.id, sight.why))
                batch.state.endings.add(sight.attempt, record.placement)
            case Unanswered():
                pass
            case Pending() | Begun() if sight.attempt.job_id in batch.state.unread:
                batch.state.endings.add(sight.attempt, place)  # nothing begins beside it
            case Pending() | Begun() if record is None:
                if sight.attempt not in batch.state.newer.attempts:
                    log.warning("%s runs and nobody wants it; it is ended.", sight.attempt)
                    batch.give_up(sight.attempt, place)
            case Begun() if record is not None:
                _still_runs(record, batch)
            case Ended() if record is not None:
                self._ended(record, sight, batch)
            case NeverBegan() if record is not None:
                _requeue(record, batch)

    def _answered(self, record: JobRecord, sight: Sight, batch: Batch) -> None:
        """Note what has become of an attempt of which nobody could tell."""
        match sight:
            case Pending() | Begun():
                batch.state.endings.over(sight.attempt)
                _runs_again(record, batch)
            case Ended():
                _runs_again(record, batch)
                self._ended(batch.record(record.id), sight, batch)
            case NeverBegan():
                wait_again(record, batch)
            case Unanswered():
                pass

    def _ended(self, record: JobRecord, report: Ended, batch: Batch) -> None:
        if record.cancelled_by is not None:
            ended = self._told(record, report)
            batch.note(Cancelled(record.id), exit_code=report.exit_code, **ended)
        elif report.was_cancelled:
            batch.note(CancelRequested(record.id), cancelled_by=record.user)
            batch.note(Cancelled(record.id), exit_code=report.exit_code)
        elif report.was_stopped:
            _preempted(record, batch)
        elif report.was_lost:
            every_s = spec.checkpoint_s(record.job)
            _lost(record, batch, every_s, reason=report.cause or LOST)
        elif report.was_cut_off:
            self._cut_off(record, report, batch)
        else:
            self._finished(record, report, batch)

    def _cut_off(self, record: JobRecord, report: Ended, batch: Batch) -> None:
        """Let a job run again whose shim was killed; not for ever, as it may do that itself."""
        cause, losses = report.cause or CUT_OFF, record.losses + 1
        if losses <= record.job.retries:
            every_s = spec.checkpoint_s(record.job)
            _lost(record, batch, every_s, reason=cause, losses=losses)
            return
        said = f"{cause} It was cut off {losses} times, and retries is {record.job.retries}."
        batch.note(Finished(record.id), exit_code=None, reason=said, losses=losses)

    def _finished(self, record: JobRecord, report: Ended, batch: Batch) -> None:
        if _is_retried(record, report, batch):
            return
        if report.exit_code == 0:
            asked = asked_before(record, batch.state.request_of(record.job))
            batch.state.estimates.learn(asked, record.ran_for_s(batch.now_s))
            _estimate_again(asked.program, batch)
        ended = {"reason": _why_failed(record, report), **self._told(record, report)}
        batch.note(Finished(record.id), exit_code=report.exit_code, **ended)

    def _told(self, record: JobRecord, report: Ended) -> dict[str, Any]:
        """Return what a job did on its device, where that is known."""
        if report.use is None:
            return {}
        return {"use": asdict(self._monitor.over_all(record.id, report.use))}


def _holder(attempt: Attempt, state: DriverState) -> JobRecord | None:
    """Return the job whose present attempt this is."""
    record = state.jobs.get(attempt.job_id)
    if record is None or not record.state.holds or attempt_of(record) != attempt:
        return None
    return record


def _is_unknown(attempt: Attempt, state: DriverState) -> bool:
    record = state.jobs.get(attempt.job_id)
    is_its = record is not None and attempt_of(record) == attempt
    return is_its and record is not None and record.state is JobState.UNKNOWN


def _runs_again(record: JobRecord, batch: Batch) -> None:
    """Note that an attempt runs of which nobody could tell."""
    job = job_of(record, batch.state.request_of(record.job))
    place, started_s = record.placement, record.started_s or batch.now_s
    batch.note(Recovered(job, record.ran_s, place, started_s))
    if record.cancelled_by is not None:
        batch.stop(record)


def wait_again(record: JobRecord, batch: Batch, reason: str | None = None) -> None:
    """Let a job wait again that has no attempt any more, and that no scheduler knows."""
    batch.state.endings.over(attempt_of(record))
    if record.cancelled_by is not None:
        batch.note(Cancelled(record.id))
        return
    job = job_of(record, batch.state.request_of(record.job))
    batch.note(Recovered(job, record.ran_s), reason=reason)


def _begun(record: JobRecord, batch: Batch) -> None:
    batch.state.failed_starts.pop(record.id, None)
    batch.state.shortages.pop(record.id, None)
    if record.state is JobState.STARTING:
        assert record.placement is not None
        batch.note(Started(record.id, record.placement))


def _still_runs(record: JobRecord, batch: Batch) -> None:
    """Ask again for what was asked and perhaps not heard."""
    _begun(record, batch)
    if record.state is JobState.STOPPING:
        batch.stop(record)
    elif record.growing:
        batch.launch(batch.state.launch_of(record, record.added))


def _preempted(record: JobRecord, batch: Batch) -> None:
    """Let a stopped job wait again; without checkpoints it has lost this attempt's work."""
    has_lost_all = record.job.checkpoint is None
    lost_s = record.attempted_s(batch.now_s) if has_lost_all else 0.0
    batch.note(Preempted(record.id, lost_s))


def _lost(record: JobRecord, batch: Batch, every_s: float | None, **detail: object) -> None:
    """Let a job wait again of which nothing is left, whether its machine is gone or not."""
    attempted_s = record.attempted_s(batch.now_s)
    lost_s = attempted_s % every_s if every_s else attempted_s
    batch.note(JobLost(record.id, lost_s), **detail)


def _is_retried(record: JobRecord, report: Ended, batch: Batch) -> bool:
    """Let a job run again that failed in a way that may pass, after a while; tell if so."""
    retry, code, failures = record.job.retry, report.exit_code, record.failures + 1
    if retry is None or code is None or report.why is not None or not retry.counts(code):
        return False
    if failures > retry.times:
        return False
    wait_s, every_s = retry.wait_s(failures), spec.checkpoint_s(record.job)
    attempted_s = record.attempted_s(batch.now_s)
    lost_s = attempted_s % every_s if every_s else attempted_s
    tries = f"try {failures + 1} of {retry.times + 1} is {amounts.span(wait_s)} later"
    why = f"It ended with exit code {code}; {tries}."
    at_s = batch.now_s + wait_s
    detail = {"failures": failures, "not_before_s": at_s, "exit_code": code}
    batch.note(JobRetried(record.id, why, lost_s), **detail)
    return True


def _estimate_again(program: str, batch: Batch) -> None:
    """Estimate jobs anew that wait and are of a program of which a run has ended.

    After the first, second, fourth, eighth run and so on: each tells half as much as the one
    before, and every new estimate is on record.
    """
    state = batch.state
    runs = state.estimates.runs_of(program)
    if runs & (runs - 1):
        return
    for record in list(state.jobs.values()):
        if record.state not in _WAITING or spec.program_of(record.job) != program:
            continue
        request = state.request_of(record.job)
        found = state.estimates.estimate(asked_before(record, request))
        if (
            max(found.seconds, record.estimate_s)
            < ALIKE * min(found.seconds, record.estimate_s)
            and found.basis == record.basis
        ):
            continue
        job = job_of(replace(record, estimate_s=found.seconds), request)
        batch.note(JobChanged(job), **found.document)


def _why_failed(record: JobRecord, report: Ended) -> str | None:
    if report.exit_code == 0 and report.why is None:
        return None
    if report.why == "limit":
        return f"It ran for {record.job.time.limit}, its limit."
    if report.why == "memory":
        return f"It used more than the {spec.memory_told(record.job)} it asked for."
    if report.exit_code is None:
        return report.why
    return f"It ended with exit code {report.exit_code}."


def _never_began(record: JobRecord, report: NeverBegan, batch: Batch) -> None:
    """Let a job that could not be started wait before it tries again; its place is held.

    One that was to stop has failed at nothing.
    """
    failed = batch.state.failed_starts.get(record.id, 0)
    if record.state is JobState.STOPPING:
        _requeue(record, batch)
    elif report.lacks is not None:
        before = batch.state.shortages.get(record.id)
        short = Shortage(report.lacks, 1 if before is None else before.times + 1)
        batch.state.shortages[record.id] = short
        wait_s = min(SHORT_S_MAX, START_AGAIN_S * 2 ** min(short.times - 1, 10))
        batch.postpone(batch.now_s + wait_s, GiveBack(report))
    else:
        batch.postpone(batch.now_s + START_AGAIN_S * 2**failed, GiveBack(report))


def _try_again(record: JobRecord, why: str, batch: Batch) -> None:
    """Let a job try again that could not be started, but not for ever."""
    failed_starts = batch.state.failed_starts
    failed = failed_starts[record.id] = failed_starts.get(record.id, 0) + 1
    if failed >= START_TRIES and record.cancelled_by is None:
        said = f"It could not be started {failed} times: {why}"
        batch.note(Finished(record.id), exit_code=None, reason=said)
    else:
        _requeue(record, batch, why)


def _requeue(record: JobRecord, batch: Batch, why: str = "") -> None:
    """Let a job wait again whose attempt has not run, or of which nothing is left."""
    if record.cancelled_by is not None:
        batch.note(Cancelled(record.id))
    elif record.state is JobState.RUNNING:
        _lost(record, batch, None, reason=why or None)
    elif record.state is JobState.STOPPING:  # it has made way, whether it had begun or not
        batch.note(Preempted(record.id, record.attempted_s(batch.now_s)))
    else:
        batch.note(StartFailed(record.id, why))


def _grew(record: JobRecord, report: Grew, batch: Batch) -> None:
    if record.growing and record.growth == report.growth:
        batch.note(Grown(record.id, record.added))


def _never_grew(record: JobRecord, report: NeverGrew, batch: Batch) -> None:
    """Give back what was to be added; one that stops gives it back with all the rest."""
    is_now = record.growing and record.growth == report.growth
    if is_now and batch.state.scheduler.state(record.id) is JobState.GROWING:
        batch.note(GrowFailed(record.id, report.why))
