"""Where a job stands at a moment, and why: the books of the run, asked at that moment."""

from dataclasses import dataclass

from interlane.metrics.log import OF_MACHINES, EventLog, Fact
from interlane.model import InvalidInput, Job, JobId, Placement, Refusal
from interlane.sim.experiment import Experiment, Progress, engine_for, jobs_in, play


@dataclass(frozen=True, slots=True)
class Standing:
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


def standing(
    experiment: Experiment, job_id: str, at_s: float, progress: Progress | None = None
) -> Standing:
    """Play until a moment and return where a job stands then."""
    jobs, true_s = jobs_in(experiment)
    number = number_of(jobs, job_id)
    if jobs[number].submitted_s > at_s:
        return Standing("to come", jobs[number].submitted_s)
    engine = engine_for(experiment, jobs, true_s)
    log = play(engine, until_s=at_s, progress=progress)
    fact, since_s = _last_fact(log, number)
    scheduler, job = engine.scheduler, jobs[number]
    if fact is Fact.FINISHED:
        return Standing("finished", since_s)
    if fact is Fact.REFUSED:
        return Standing("refused", since_s, log.refusals[number])
    if fact is Fact.STARTED:
        placement = scheduler.placement(job.id)
        return Standing("running", since_s, None, placement, _lacking(job, placement))
    why = scheduler.explain(job.id, at_s)
    return Standing("waiting", since_s, why, ahead=scheduler.ahead(job.id, at_s))


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


def _last_fact(log: EventLog, number: int) -> tuple[Fact, float]:
    last = Fact.SUBMITTED, log.jobs[number].submitted_s
    for line in log.lines():
        # One that grew runs as before.
        if line.subject == number and line.fact not in OF_MACHINES | {Fact.GROWN}:
            last = line.fact, line.at_s
    return last
