"""The kernel's books made again from records, for starting and for asking what if."""

from collections.abc import Callable, Iterable

from interlane.kernel.scheduler import Scheduler
from interlane.model import Cluster, Job, Recovered
from interlane.server import spec
from interlane.server.record import HOLDING, Record
from interlane.server.spec import JobSpec

MakeScheduler = Callable[[], Scheduler]


def job_of(record: Record, cluster: Cluster) -> Job:
    """Return a job as the kernel knows it."""
    job = JobSpec.model_validate(record.spec)
    return Job(
        record.id,
        spec.request_of(job, cluster),
        record.submitted_s,
        record.serial,
        record.guess_s,
        record.user,
        job.queue,
        job.priority,
        spec.checkpoint_s(job) or 0.0,
        spec.program_of(job),
    )


def rebuilt(make: MakeScheduler, records: Iterable[Record], now_s: float) -> Scheduler:
    """Return a scheduler that knows these jobs as they stand: holders first, then who waits."""
    scheduler = make()
    for record in holders_first(records):
        job = job_of(record, scheduler.cluster)
        fact = Recovered(job, record.ran_s, record.place, record.started_s or 0.0)
        scheduler.learn(fact, now_s)
    return scheduler


def holders_first(records: Iterable[Record]) -> list[Record]:
    """Return jobs in the order in which books learn them: who holds a place, then who waits."""
    return sorted(records, key=lambda one: (one.state not in HOLDING, one.serial))
