"""Where a job stands at a moment, and why: the state of the run, asked at that moment."""

from dataclasses import dataclass

from interlane.metrics.log import OF_MACHINES, EventLog, LogEvent
from interlane.model import InvalidInput, Job, JobId, Placement, Refusal
from interlane.sim.experiment import Experiment, Progress, engine_for, jobs_in, play


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Where a job stands."""

    state: str
    """One of: to come, waiting, running, finished, refused."""
    since_s: float
    """When it came to stand there; for a job to come, when it will be submitted."""
    refusal: Refusal | None = None
    """The refusal that decided, for a job that waits or was refused."""
    placement: Placement | None = None
    lacking: int = 0
    """Instances that an elastic job could still use."""
    ahead: tuple[JobId, ...] = ()
    """Jobs that wait and go first, the first of them first."""


def status(
    experiment: Experiment, job_id: str, at_s: float, progress: Progress | None = None
) -> JobStatus:
    """Play until a moment and return where a job stands then."""
    jobs, true_s = jobs_in(experiment)
    number = number_of(jobs, job_id)
    if jobs[number].submitted_s > at_s:
        return JobStatus("to come", jobs[number].submitted_s)
    engine = engine_for(experiment, jobs, true_s)
    log = play(engine, until_s=at_s, progress=progress)
    event, since_s = _last_event(log, number)
    scheduler, job = engine.scheduler, jobs[number]
    if event is LogEvent.FINISHED:
        return JobStatus("finished", since_s)
    if event is LogEvent.REFUSED:
        return JobStatus("refused", since_s, log.refusals[number])
    if event is LogEvent.STARTED:
        placement = scheduler.placement(job.id)
        return JobStatus("running", since_s, None, placement, _lacking(job, placement))
    why = scheduler.explain(job.id, at_s)
    return JobStatus("waiting", since_s, why, ahead=scheduler.ahead(job.id, at_s))


def _lacking(job: Job, placement: Placement | None) -> int:
    if placement is None or not job.request.grows:
        return 0
    return job.request.instances - placement.instances


def number_of(jobs: list[Job], job_id: str) -> int:
    """Return the number of a job by its id."""
    for number, job in enumerate(jobs):
        if job.id == job_id:
            return number
    raise InvalidInput(
        f"Job {job_id!r} is not among the {len(jobs)} jobs played; the first of them is "
        f"{jobs[0].id!r}."
    )


def _last_event(log: EventLog, number: int) -> tuple[LogEvent, float]:
    last = LogEvent.SUBMITTED, log.jobs[number].submitted_s
    for line in log.lines():
        # One that grew runs as before.
        if line.subject == number and line.kind not in OF_MACHINES | {LogEvent.GROWN}:
            last = line.kind, line.at_s
    return last
