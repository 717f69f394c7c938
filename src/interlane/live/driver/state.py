"""Where the machine stands, made from records: for the driver, and for asking what if."""

from collections.abc import Callable, Iterable, Mapping

from interlane.kernel.scheduler import Scheduler
from interlane.live.files import job as spec
from interlane.live.questions.estimates import Guesses, remembered
from interlane.live.store.record import HOLDING, Record
from interlane.live.store.store import Store
from interlane.model import Cluster, Job, JobId, Recovered

MakeScheduler = Callable[[], Scheduler]


class Books:
    """All that the driver's thread knows, as the cycle under way has it."""

    def __init__(self, make_scheduler: MakeScheduler) -> None:
        self._make_scheduler = make_scheduler
        self.scheduler = make_scheduler()
        """The kernel."""
        self.cluster = self.scheduler.cluster
        self.guesses = Guesses()
        self.jobs: dict[JobId, Record] = {}
        """Jobs that have not ended."""
        self.stored: dict[JobId, Record] = {}
        """The same as they are stored: what other threads may see."""
        self.failed_starts: dict[JobId, int] = {}
        """How often in a row a job could not be started."""
        self.seq = 0
        """Number of the last entry of the log."""
        self.serial = 0
        """Number of the last job."""

    def read(self, store: Store) -> None:
        """Begin again with what is stored; ``rebuild`` tells the kernel and other threads."""
        ends = store.ends()
        self.seq, self.serial = ends.seq, ends.serial
        self.jobs = {record.id: record for record in store.open_jobs()}
        self.guesses = remembered(store, self.cluster)

    def rebuild(self, now_s: float) -> None:
        """Begin again with a kernel that knows the jobs as they stand."""
        self.stored = dict(self.jobs)
        self.scheduler = rebuilt(self._make_scheduler, self.jobs.values(), now_s)

    def settle(self, changed: Mapping[JobId, Record]) -> None:
        """Show what is stored now, and drop the jobs that have ended."""
        for job_id, record in changed.items():
            if record.is_open:
                self.stored[job_id] = record
            else:
                self.jobs.pop(job_id, None)
                self.stored.pop(job_id, None)
                self.failed_starts.pop(job_id, None)


def job_of(record: Record, cluster: Cluster) -> Job:
    """Return a job as the kernel knows it."""
    job = record.job
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
        job.family or "",
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
