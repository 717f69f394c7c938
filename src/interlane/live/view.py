"""The read side: all that the API, pages, metrics and the command line see of the live half.

Every question may be asked by any thread, and returns what is stored: nobody looks into the
driver, its store or its engine.
"""

import asyncio
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Final

from interlane import __version__
from interlane.kernel.scheduler import Scheduler
from interlane.lanes.report import ProcessReport
from interlane.live.driver import Driver, NoSuchJob, NotReady
from interlane.live.driver.state import numbered
from interlane.live.files.job import JobSpec
from interlane.live.functions.gateway import Gateway
from interlane.live.measure import occupancy
from interlane.live.measure.monitor import Use
from interlane.live.measure.occupancy import DeviceUse
from interlane.live.measure.totals import JobTotals
from interlane.live.port import DialsJobs, NotThere, Output, Traits
from interlane.live.questions import history, whatif
from interlane.live.questions.etas import Etas
from interlane.live.questions.levels import LevelHistory
from interlane.live.store.record import JobRecord
from interlane.live.store.rows import JobsWanted
from interlane.metrics.usage import GpuUsage, UsageBy, UsageSums
from interlane.model import Cluster, JobId, LogEntry, Machine, Refusal, Start, Tier
from interlane.model.lifecycle import ENDED, JobState
from interlane.policy.catalogue import PLACERS, describe
from interlane.predict.starts import StartBand

ANSWER_S: Final = 10.0
"""Seconds within which the scheduler answers, unless it is far too busy."""
AHEAD_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job waits, and who goes before it."""

    refusal: Refusal | None
    ahead_count: int = 0
    ahead: tuple[JobId, ...] = ()
    """The first of them."""


@dataclass(frozen=True, slots=True)
class InLine:
    """Where a job stands in line, and why it waits."""

    position: int
    """1 for the one that goes first."""
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """A machine, and whether it takes work."""

    machine: Machine
    drained: bool
    jobs: tuple[JobId, ...]
    """Jobs that hold a place there."""


class View:
    """See the module's text."""

    def __init__(
        self, driver: Driver, etas: Etas, notified: Mapping[str, int] | None = None
    ) -> None:
        self._driver = driver
        self._etas = etas
        self.notified: Mapping[str, int] = {} if notified is None else notified
        """Notifications by what became of them."""
        self.history = LevelHistory(driver.store, driver.snapshot)
        """What was held and who waited lately."""
        self.totals = JobTotals(
            driver.store.log, driver.store.job, self.asked_milli, driver.store.ends().seq
        )
        """What was waited and held since the server began."""
        self.functions: Gateway
        """Speak to it on the server's loop only; there once the server has begun."""

    # -- the whole --------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether jobs are taken in and stored."""
        return self._driver.is_ready

    @property
    def traits(self) -> Traits:
        """What kind of engine this is."""
        return self._driver.engine.traits

    def now_s(self) -> float:
        """Return the time that events get."""
        return self._driver.now_s()

    def policy(self) -> str:
        """Return by what jobs are ordered and placed, in a word."""
        return self._driver.snapshot().empty_scheduler().policy.name

    def placer_about(self) -> str:
        """Say what the placer prefers, in a sentence."""
        policy = self._driver.snapshot().empty_scheduler().policy
        named = policy.name.split("/")[1:2]
        maker = PLACERS.get(named[0].partition(":")[0]) if named else None
        return describe(maker or type(policy.placer))

    def summary(self) -> dict[str, Any]:
        """Return jobs by state, the policy and the version."""
        counts = {state.value: count for state, count in self.counts().items()}
        return {
            "version": __version__,
            "now_s": self.now_s(),
            "policy": self.policy(),
            "jobs": counts,
        }

    # -- jobs -------------------------------------------------------------------------

    def job(self, job_id: str) -> JobRecord:
        """Return a job, whether it has ended or not."""
        record = self._driver.open_record(job_id) or self._driver.store.job(job_id)
        if record is None:
            raise NoSuchJob(f"There is no job {job_id!r}; 'interlane ps -A' lists all.")
        lacking = self._driver.lacking(record.id)
        return record if lacking is None else replace(record, reason=lacking)

    def jobs(
        self,
        limit: int,
        *,
        before: int | None = None,
        states: Collection[JobState] | None = None,
        user: str | None = None,
        sweep: str | None = None,
    ) -> list[JobRecord]:
        """Return a page of jobs, the newest first; ``before`` is the last one's serial."""
        among = None if states is None else frozenset(states)
        return self._driver.store.jobs(JobsWanted(limit, before, among, user, sweep=sweep))

    def trials(self, limit: int, *, after: int, before: int | None = None) -> list[JobRecord]:
        """Return a page of jobs of sweeps that came after a serial, the newest first."""
        return self._driver.store.jobs(JobsWanted(limit, before, after=after, sweep=""))

    def ended_jobs(
        self, limit: int, *, before: int | None = None, user: str | None = None
    ) -> list[JobRecord]:
        """Return a page of jobs that have ended, the newest first."""
        return self.jobs(limit, before=before, states=ENDED, user=user)

    def lately_ended(self, limit: int) -> list[JobRecord]:
        """Return the jobs that ended last, the last of them first."""
        return self._driver.store.jobs(JobsWanted(limit, by_end=True))

    def open_jobs(self) -> list[JobRecord]:
        """Return the jobs that have not ended."""
        return self._driver.open_records()

    def counts(self) -> dict[JobState, int]:
        """Return how many jobs are in each state."""
        return self._driver.store.counts()

    def use(self, job_id: JobId) -> Use | None:
        """Return what a job that runs has done on its device; None if it is on none."""
        record, seen = self._driver.open_record(job_id), self._driver.monitor.seen
        if record is None or not record.state.holds or seen is None:
            return None
        return seen.uses.get(job_id)

    def on_device(self, job_id: JobId) -> ProcessReport | None:
        """Return what a job that runs does on its device; None if it is on none."""
        record, seen = self._driver.open_record(job_id), self._driver.monitor.seen
        if record is None or not record.state.holds or seen is None:
            return None
        return seen.processes.get(job_id)

    def output(self, job_id: JobId, attempt: int, begin: int, size: int) -> Output:
        """Return what an attempt printed; a negative ``begin`` counts from the end."""
        record = self.job(job_id)
        return self._driver.engine.output(numbered(record, attempt), begin, size)

    def dial(self, record: JobRecord, port: int | None) -> Any:  # noqa: ANN401 - a socket
        """Return a socket that leads to a port of a job that runs, or to its terminal."""
        engine = self._driver.engine
        if not isinstance(engine, DialsJobs) or not record.state.holds:
            raise NotThere(f"Job {record.id} is {record.state}; it is reached while it runs.")
        return engine.dial(numbered(record, record.attempt), port)

    def asked_milli(self, record: JobRecord) -> int:
        """Return the thousandths of GPUs that a job asks for."""
        return self.history.milli(record.job)

    def log(
        self, after: int = 0, limit: int = 100, job_id: str | None = None
    ) -> list[LogEntry]:
        """Return entries of the log that follow one, the oldest first."""
        return self._driver.store.log(after, limit, job_id)

    def last_seq(self) -> int:
        """Return the number of the last entry of the log."""
        return self._driver.store.ends().seq

    # -- questions --------------------------------------------------------------------

    async def why(self, job_id: JobId) -> Why:
        """Say why a job waits."""
        found: Why = await asyncio.wrap_future(self._driver.ask(_why(job_id, self._driver)))
        return found

    def why_now(self, job_id: JobId) -> Why:
        """Say the same in a thread that may wait."""
        found: Why = _waited(self._driver.ask(_why(job_id, self._driver)))
        return found

    def line(
        self, among: Container[JobId], begin: int, count: int
    ) -> list[tuple[JobId, Refusal | None]]:
        """Return a part of those who wait, the first to go first, and why each does."""

        def question(scheduler: Scheduler, now_s: float) -> list[tuple[JobId, Refusal | None]]:
            line = [one for one in scheduler.line(now_s) if one in among]
            return [(one, scheduler.explain(one, now_s)) for one in line[begin : begin + count]]

        found: list[tuple[JobId, Refusal | None]] = _waited(self._driver.ask(question))
        return found

    async def reasons(self, among: Container[JobId], most: int) -> dict[JobId, InLine]:
        """Return where some of those who wait stand in line, and why each waits.

        Of more than ``most`` of them it tells of those that go first.
        """

        def question(scheduler: Scheduler, now_s: float) -> dict[JobId, InLine]:
            line = [one for one in enumerate(scheduler.line(now_s), 1) if one[1] in among]
            return {one: InLine(at, scheduler.explain(one, now_s)) for at, one in line[:most]}

        found: dict[JobId, InLine] = await asyncio.wrap_future(self._driver.ask(question))
        return found

    def eta(self, record: JobRecord) -> dict[str, Any]:
        """Say when a job is likely to start."""
        return self._etas.document(record)

    def starts(self, job_ids: Sequence[JobId]) -> dict[JobId, StartBand]:
        """Say when jobs are likely to start, but for those that nothing known lets start."""
        return self._etas.bands(job_ids)

    def plan(self, job: JobSpec, user: str) -> dict[str, Any]:
        """Say whether a job would start now, where and beside whom."""
        return whatif.plan_document(self._driver.snapshot(), job, user)

    def trace(self, since_s: float) -> str:
        """Return the jobs since a moment as a trace that can be played, in CSV."""
        return history.trace_text(self._driver.store, self._driver.snapshot(), since_s)

    def usage(self, since_s: float, by: UsageBy) -> list[GpuUsage]:
        """Return who had how much of the GPUs since a moment, as far as the log goes back."""
        sums = UsageSums(since_s, self.now_s(), by)
        sums.take_in(self._driver.store.whole_log())
        return sums.found()

    # -- machines ---------------------------------------------------------------------

    def cluster(self) -> Cluster:
        """Return the machines as a scheduler knows them."""
        return self._driver.snapshot().cluster

    def machines(self) -> list[MachineStatus]:
        """Return every machine, and who is there."""
        now = self._driver.snapshot()
        there: dict[str, list[JobId]] = {machine.id: [] for machine in now.cluster}
        for record in now.records:
            for machine_id in () if record.placement is None else record.placement.machines:
                there.setdefault(machine_id, []).append(record.id)
        return [
            MachineStatus(one, one.id in now.machines.drained, tuple(there[one.id]))
            for one in now.cluster
        ]

    def devices(self) -> tuple[DeviceUse, ...]:
        """Return every device: what is held of it, and what goes on there."""
        return occupancy.devices(self._driver.snapshot(), self._driver.monitor.seen)

    def held_ratio(self) -> float:
        """Return the share of all GPUs that jobs hold."""
        devices = self.devices()
        return sum(min(1000, one.held_milli) for one in devices) / (1000 * max(1, len(devices)))


def _why(job_id: JobId, driver: Driver) -> Callable[[Scheduler, float], Why]:
    def question(scheduler: Scheduler, now_s: float) -> Why:
        traits = driver.engine.traits
        if not traits.decides:  # so that nobody has decided yet
            scheduler = driver.snapshot().scheduler()
            for action in scheduler.decide(now_s):
                if isinstance(action, Start) and action.job_id == job_id:
                    return Why(_would_start(action, traits))
        refusal = scheduler.explain(job_id, now_s)
        if refusal is None:
            return Why(None)
        ahead = scheduler.ahead(job_id, now_s)
        return Why(refusal, len(ahead), ahead[:AHEAD_SHOWN])

    return question


def _would_start(start: Start, traits: Traits) -> Refusal:
    """Return why a job waits that would not by the policy here."""
    spots = (
        f"{spot.machine} GPU {'/'.join(map(str, spot.gpus)) or '-'}"
        for spot in start.placement.spots
    )
    why = f"It would start now on {', '.join(spots)}; {traits.name} has not started it."
    return Refusal(Tier.ORDER, why, f"We only look on: ask {traits.name}.")


def _waited(asked: "Future[Any]") -> Any:  # noqa: ANN401 - whatever was asked
    try:
        return asked.result(ANSWER_S)
    except TimeoutError:
        raise NotReady("The server is too busy to answer this; try again.") from None
