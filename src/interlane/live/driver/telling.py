"""What a scheduler is told of an event that is on record.

It may know a job otherwise than the record does: it requeues a job by itself when a machine
goes, before the engine says what has become of the attempt, and after a restart it takes a job
up as running whose start nobody has confirmed.
"""

from collections.abc import Iterator

from interlane.live.store.record import JobRecord
from interlane.model import (
    Action,
    AttemptUnknown,
    Cancelled,
    CancelRequested,
    Event,
    Finished,
    GrowFailed,
    Grown,
    JobChanged,
    JobHeld,
    JobLost,
    JobReleased,
    JobRetried,
    Logged,
    Preempted,
    Recovered,
    SchedulerBuilt,
    Started,
    StartFailed,
)
from interlane.model.lifecycle import APART, NEXT, JobState


def told(
    what: Logged, record: JobRecord | None, knows: JobState | None, now_s: float
) -> Iterator[Event]:
    """Yield what a scheduler must learn.

    Args:
        what: what goes on record.
        record: the job as it was before; None for a new one, and if it is about no job.
        knows: where the job stands for the scheduler; None if it knows of none.
        now_s: when.
    """
    if isinstance(what, Action | CancelRequested | SchedulerBuilt):
        return
    if record is not None and record.state in APART:
        yield from _told_of_unknown(what, record)
        return
    match what:
        case JobReleased():
            pass  # it was not held
        case Recovered(job):
            if knows is not None:
                yield Cancelled(job.id)  # it is told again, with its place
            yield what
        case JobChanged(job):
            if knows is JobState.QUEUED:
                yield Cancelled(job.id)
                yield Recovered(job, 0.0 if record is None else record.ran_s)
        case AttemptUnknown(job_id) | JobHeld(job_id) | JobRetried(job_id):
            if knows is not None:
                yield Cancelled(job_id)
        case Started() | Grown() | GrowFailed():
            if (knows, type(what)) in NEXT:
                yield what
        case Finished(job_id):
            yield Cancelled(job_id) if knows is JobState.QUEUED else what
        case StartFailed(job_id):
            lost_s = 0.0 if record is None else record.attempted_s(now_s)
            yield from _waits_again(what, Preempted(job_id, lost_s), knows)
        case Preempted(job_id, lost_s) | JobLost(job_id, lost_s):
            yield from _waits_again(StartFailed(job_id, ""), Preempted(job_id, lost_s), knows)
        case _:
            yield what


def _told_of_unknown(what: Logged, record: JobRecord) -> Iterator[Event]:
    """Yield what a scheduler learns that does not know the job yet."""
    if isinstance(what, Recovered):
        yield what
    elif isinstance(what, JobReleased):
        yield Recovered(what.job, record.ran_s)


def _waits_again(
    failed: StartFailed, stopped: Preempted, knows: JobState | None
) -> Iterator[Event]:
    if knows is JobState.STARTING:
        yield failed
    elif knows is not JobState.QUEUED:
        yield stopped
