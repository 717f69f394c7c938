"""Where a job stands at a moment, and why: the books of the run, asked at that moment."""

from collections import Counter
from dataclasses import dataclass

from interlane.kernel.scheduler import Scheduler, waiting_jobs
from interlane.metrics.log import EventLog, Fact
from interlane.model import InvalidInput, Job, JobId, Placement, Refusal, held_gpu_milli
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
    return Standing("waiting", since_s, why, ahead=_ahead(scheduler, log, job, at_s))


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
        if line.subject == number and line.fact not in (
            Fact.MACHINE_LOST,
            Fact.MACHINE_RETURNED,
            Fact.GROWN,  # it runs as before
        ):
            last = line.fact, line.at_s
    return last


def _ahead(scheduler: Scheduler, log: EventLog, job: Job, now_s: float) -> tuple[JobId, ...]:
    """Return the waiting jobs that go before this one, in the policy's order."""
    order = scheduler.policy.order
    ran_s, running_milli = _ran_s(log), _running_milli(scheduler, log)

    def urgency(one: Job) -> tuple[float, float, int]:
        account = order.account(one)
        value, slope = order.key(one, ran_s[one.id])
        share = order.share(account, running_milli[account]) if order.keeps_accounts else 0.0
        return share, value + slope * now_s, one.serial

    mine = urgency(job)
    others = sorted((urgency(one), one.id) for one in waiting_jobs(scheduler))
    return tuple(job_id for key, job_id in others if key < mine)


def _ran_s(log: EventLog) -> Counter[JobId]:
    """Return what jobs have run for and kept; a job lost with its machine kept nothing."""
    ran_s: Counter[JobId] = Counter()
    started_s: dict[int, float] = {}
    for line in log.lines():
        if line.fact is Fact.STARTED:
            started_s[line.subject] = line.at_s
        elif line.fact is Fact.PREEMPTED:
            ran_s[log.jobs[line.subject].id] += line.at_s - started_s[line.subject]  # type: ignore[assignment]
    return ran_s


def _running_milli(scheduler: Scheduler, log: EventLog) -> Counter[str]:
    """Return the GPU share that each account's running jobs hold."""
    running: Counter[str] = Counter()
    for job in log.jobs:
        placement = scheduler.placement(job.id)
        if placement is not None:
            held = held_gpu_milli(job.request, placement)
            running[scheduler.policy.order.account(job)] += held
    return running
