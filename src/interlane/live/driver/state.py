"""Where everything stands, made from records: for the driver, and for asking what if."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Final

from interlane.kernel.scheduler import Scheduler
from interlane.live.driver.endings import Endings
from interlane.live.driver.machines import MachinesSeen
from interlane.live.files import job as spec
from interlane.live.files.job import JobSpec, Origin
from interlane.live.port import Attempt, Launch, Traits
from interlane.live.questions.estimates import LiveEstimates, remembered
from interlane.live.store.record import JobRecord, UnreadableRecord
from interlane.live.store.rows import JobsWanted
from interlane.live.store.store import Store
from interlane.model import (
    Cluster,
    Job,
    JobId,
    MachineId,
    Placement,
    Recovered,
    Request,
    SchedulerBuilt,
)
from interlane.model.lifecycle import APART, JobState
from interlane.predict.recall import Recall

RequestCounts = tuple[tuple[Request, int], ...]
"""What was asked for lately, and how often: what placers that look ahead expect."""

MakeScheduler = Callable[[Cluster, RequestCounts], Scheduler]


@dataclass(frozen=True, slots=True)
class SchedulerPlan:
    """How schedulers are made."""

    make: MakeScheduler
    settings: Mapping[str, str] = field(default_factory=dict)
    """The words by which ``make`` can be made again."""
    expected: RequestCounts = ()
    """What is asked for, whatever was asked for lately."""


UID_BYTES: Final = 8

WORKLOAD_JOBS: Final = 1_000
"""Jobs that make up the workload, the newest of them."""


def drawn_uid() -> str:
    """Draw what tells a job apart from all others, for ever."""
    return token_hex(UID_BYTES)


def request_on(job: JobSpec, cluster: Cluster, traits: Traits) -> Request:
    """Return what the scheduler understands of a job on an engine with these traits."""
    return spec.request_of(
        job, cluster, spans_machines=traits.spans_machines, grows=traits.grows
    )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything as it is stored at one moment; any thread may ask it."""

    now_s: float
    records: tuple[JobRecord, ...]
    """Jobs that have not ended."""
    machines: MachinesSeen
    traits: Traits
    make: MakeScheduler
    workload: RequestCounts = ()

    @property
    def cluster(self) -> Cluster:
        """The machines that there are."""
        return self.machines.cluster

    def request_of(self, job: JobSpec) -> Request:
        """Return what the scheduler understands of a job."""
        return request_on(job, self.cluster, self.traits)

    def empty_scheduler(self) -> Scheduler:
        """Return a scheduler that knows the machines as they are, and no job."""
        scheduler = self.make(self.cluster, self.workload)
        for event in self.machines.events():
            scheduler.learn(event, self.now_s)
        return scheduler

    def scheduler(self) -> Scheduler:
        """Return a scheduler that knows everything as it stands."""
        scheduler = self.empty_scheduler()
        for record in holders_first(self.records):
            scheduler.learn(self.recovered(record), self.now_s)
        return scheduler

    def recovered(self, record: JobRecord) -> Recovered:
        """Return what a scheduler must learn of a job that is there already."""
        job = job_of(record, self.request_of(record.job))
        started_s = record.started_s or 0.0
        return Recovered(job, record.ran_s, record.placement, started_s, record.growing)


@dataclass(slots=True)
class Newer:
    """What reports have named since a look at the engine began: it may have seen it before."""

    machines: set[MachineId] = field(default_factory=set)
    attempts: set[Attempt] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a machine lacked in a row when a job was to start, and how often."""

    lacks: str
    times: int = 1

    @property
    def reason(self) -> str:
        """Why the job does not run, in a sentence."""
        return (
            f"The machine lacks {self.lacks} at the moment; the job is tried again, and that "
            "does not count against it."
        )


class DriverState:
    """All that the driver's thread knows, as the cycle under way has it."""

    def __init__(
        self,
        plan: SchedulerPlan,
        traits: Traits,
        trained: Recall | None = None,
        new_uid: Callable[[], str] = drawn_uid,
    ) -> None:
        self._plan = plan
        self._traits = traits
        self._trained = trained
        self._workload: RequestCounts = ()
        self.machines = MachinesSeen(traits.cluster)
        self.scheduler: Scheduler
        """Made by ``build``."""
        self.is_built = False
        """Whether it knows the jobs as they stand."""
        self.estimates = LiveEstimates(trained)
        self.jobs: dict[JobId, JobRecord] = {}
        """Jobs that have not ended."""
        self.held: set[JobId] = set()
        """Those of them that wait for something else than a place."""
        self.unread: frozenset[JobId] = frozenset()
        """Jobs whose records cannot be read: they are left alone."""
        self.stored: dict[JobId, JobRecord] = {}
        """The same as they are stored: what other threads may see."""
        self.failed_starts: dict[JobId, int] = {}
        """How often in a row a job could not be started."""
        self.shortages: dict[JobId, Shortage] = {}
        """Jobs that wait for what a machine lacks; other threads may look."""
        self.endings = Endings()
        self.newer = Newer()
        self.seq = 0
        """Number of the last entry of the log."""
        self.serial = 0
        """Number of the last job."""
        self.serial_least = 0
        """No job has a lower number from now on, whatever is stored."""
        self.new_uid = new_uid
        """Returns what tells a job apart from all others."""

    @property
    def cluster(self) -> Cluster:
        """The machines that there are."""
        return self.machines.cluster

    def request_of(self, job: JobSpec) -> Request:
        """Return what the scheduler understands of a job."""
        return request_on(job, self.cluster, self._traits)

    def read(self, store: Store) -> None:
        """Begin again with what is stored; the scheduler must be built again."""
        ends = store.ends()
        self.seq, self.serial = ends.seq, max(ends.serial, self.serial_least)
        self.jobs, self.held = {}, set()
        for record in store.open_jobs():
            self.put(record)
        self.unread = frozenset(record.id for record in store.unread)
        self.estimates = remembered(store, self.request_of, self._trained)
        lately = store.jobs(JobsWanted(WORKLOAD_JOBS))
        asked_lately = Counter(
            self.request_of(one.job) for one in lately if not isinstance(one, UnreadableRecord)
        )
        self._workload = self._plan.expected or tuple(asked_lately.items())
        self.show(self.jobs.values())
        self.endings.forget_launches()
        for attempt in self.attempts():
            self.endings.over(attempt)  # it was given up in a cycle that was not stored
        for record in self.jobs.values():
            if record.state is JobState.UNKNOWN:
                self.endings.add(attempt_of(record), record.placement)
        self.is_built = False

    def put(self, record: JobRecord) -> None:
        """Know a job as it is from now on."""
        self.jobs[record.id] = record
        if record.state is JobState.HELD:
            self.held.add(record.id)
        else:
            self.held.discard(record.id)

    def show(self, records: Iterable[JobRecord]) -> None:
        """Let other threads see jobs as they are stored."""
        self.stored = {record.id: record for record in records}

    def build(self, now_s: float) -> tuple[SchedulerBuilt, dict[str, bool]]:
        """Make a scheduler that knows the jobs as they stand; return what it was made of."""
        now = self.snapshot(now_s)
        self.scheduler = now.scheduler()
        self.is_built = True
        built = SchedulerBuilt(
            now.cluster,
            tuple(self._plan.settings.items()),
            tuple(sorted(now.machines.drained)),
            tuple(now.machines.occupied.values()),
            now.workload,
        )
        traits = self._traits
        return built, {"spans_machines": traits.spans_machines, "grows": traits.grows}

    def snapshot(self, now_s: float) -> Snapshot:
        """Return everything as it is stored."""
        records = tuple(self.stored.values())
        return Snapshot(
            now_s, records, self.machines, self._traits, self._plan.make, self._workload
        )

    def attempts(self) -> list[Attempt]:
        """Return the attempts on record that have not ended, as they are stored."""
        return [attempt_of(one) for one in list(self.stored.values()) if one.state.holds]

    def ever_asked(self) -> list[Attempt]:
        """Return every attempt at the jobs that have not ended.

        Whoever asked for the earlier ones may have died before it stopped them: one that is
        still on its way would begin beside the next, unless the engine is asked about it.
        """
        return [
            numbered(one, number)
            for one in self.stored.values()
            for number in range(1, one.attempt + 1)
        ]

    def asked(self) -> list[Attempt]:
        """Return the attempts to look at: the engine was asked for them, and they may run."""
        self.newer = Newer()
        asked = [one for one in self.attempts() if not self.endings.holds(one)]
        return [*asked, *self.endings.attempts()]

    def launch_of(self, record: JobRecord, placement: Placement) -> Launch:
        """Return what the engine must know to begin an attempt, or to let it grow."""
        return Launch(
            attempt_of(record),
            record.job,
            self.request_of(record.job),
            placement,
            record.estimate_s,
            Origin(record.serial, record.user, record.submitted_s, record.key),
            record.growth,
        )

    def wants(self, launch: Launch) -> bool:
        """Tell whether a launch is still what the record of its job says."""
        record = self.jobs.get(launch.attempt.job_id)
        if record is None or attempt_of(record) != launch.attempt:
            return False
        if launch.growth:
            return record.growing > 0 and record.growth == launch.growth
        return record.state is JobState.STARTING

    def settle(self, changed: Mapping[JobId, JobRecord]) -> None:
        """Show what is stored now, and drop the jobs that have ended."""
        for job_id, record in changed.items():
            if record.is_open:
                self.stored[job_id] = record
            else:
                self.jobs.pop(job_id, None)
                self.stored.pop(job_id, None)
                self.failed_starts.pop(job_id, None)
                self.shortages.pop(job_id, None)


def attempt_of(record: JobRecord) -> Attempt:
    """Return the present or last attempt at a job."""
    return numbered(record, record.attempt)


def numbered(record: JobRecord, number: int) -> Attempt:
    """Return the attempt at a job that has this number."""
    return Attempt(record.id, number, record.uid, record.holder_of(number))


def job_of(record: JobRecord, request: Request) -> Job:
    """Return a job on record as the scheduler knows it."""
    origin = Origin(record.serial, record.user, record.submitted_s)
    return spec.job_of(record.id, record.job, origin, request, record.estimate_s)


def holders_first(records: Iterable[JobRecord]) -> list[JobRecord]:
    """Return jobs in the order in which a scheduler learns them: holders, then who waits.

    Of those that are held, or with which nobody knows what is the matter, it learns nothing.
    """
    known = (one for one in records if one.state not in APART)
    return sorted(known, key=lambda one: (not one.state.holds, one.serial))
