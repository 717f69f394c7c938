"""Body 2's loop: facts from users and processes in, the kernel's wishes out.

One thread owns the kernel and is the only one that writes the log.  It takes everything that
has come in, tells the kernel, lets it decide, and commits facts and wishes together; only then
does it answer those who wait and carry the wishes out.  So what was acknowledged is stored, an
attempt is on record before anything runs, and a busy server commits for many at a time.

If a commit fails, nothing of it was acknowledged and nothing was started: the books are made
again from the store, and those who waited are told to try again.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Final

from interlane.kernel.scheduler import Scheduler
from interlane.model import (
    Action,
    Cancelled,
    Event,
    Finished,
    Grow,
    InterlaneError,
    Job,
    JobId,
    Placement,
    Preempt,
    Preempted,
    Refuse,
    Start,
    Started,
    StartFailed,
    Submitted,
    Ticked,
    Wake,
)
from interlane.server import occupancy, spec
from interlane.server.books import MakeScheduler, job_of, rebuilt
from interlane.server.devices import Devices
from interlane.server.guesses import Asked, Guesses
from interlane.server.lanes import Lanes
from interlane.server.launch import Secrets, launch_of, run_number
from interlane.server.monitor import Monitor, Use, use_of
from interlane.server.occupancy import Device
from interlane.server.record import (
    HOLDING,
    Entry,
    Kind,
    Record,
    State,
    after,
    placement_document,
)
from interlane.server.runner import Attempt, NeverRan, Ran, Report, Runner
from interlane.server.spec import Gpu, JobSpec, Resources
from interlane.server.store import JobsWanted, Store, StoreFailed, Superseded, UsedKey

BATCH_MAX: Final = 1_000
"""Items that are taken in together."""

START_TRIES: Final = 3
"""Attempts that may fail to start before the job has failed."""

START_AGAIN_S: Final = 1.0
"""Seconds before a job that could not be started may try again; doubles each time."""

STORE_AGAIN_S: Final = 1.0
"""Seconds between looks at a database that failed."""

REMEMBERED: Final = 2_000
"""Ended jobs that guesses are learned from at the start."""

DECISIONS_MAX: Final = 100_000
"""A moment that needs more decisions than this is an endless loop: a fault of ours."""

log = logging.getLogger("interlane.server")


class NoSuchJob(InterlaneError):
    """There is no job of this name."""


class VersionDiffers(InterlaneError):
    """The job has changed since it was looked at."""


class AlreadyEnded(InterlaneError):
    """The job has ended, so that nothing can be done about it."""


class KeyReused(InterlaneError):
    """An idempotency key came back with another job."""


class NotReady(InterlaneError):
    """The server cannot take this in now; try again."""


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key, and what it came with."""

    text: str
    digest: str


@dataclass(frozen=True, slots=True)
class _Submit:
    spec: JobSpec
    user: str
    key: Key | None
    answer: "Future[Record]"


@dataclass(frozen=True, slots=True)
class _Cancel:
    job_id: JobId
    by: str
    version: int | None
    answer: "Future[Record]"


@dataclass(frozen=True, slots=True)
class _Ask:
    question: Callable[[Scheduler, float], Any]
    answer: "Future[Any]"


@dataclass(frozen=True, slots=True)
class _Begun:
    attempt: Attempt


_Item = _Submit | _Cancel | _Ask | _Begun | Ran | NeverRan | Ticked


@dataclass(slots=True)
class _Batch:
    """What one cycle writes, and what it does once that is stored."""

    now_s: float
    entries: list[Entry] = field(default_factory=list)
    changed: dict[JobId, Record] = field(default_factory=dict)
    keys: list[UsedKey] = field(default_factory=list)
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    """Answers to those who wait, then wishes to carry out."""


class Driver:
    """Runs the kernel on this machine; see the module's text."""

    def __init__(
        self,
        store: Store,
        make_scheduler: MakeScheduler,
        make_runner: Callable[[Callable[[Report], None]], Runner],
        secrets: Secrets,
        *,
        hardware: Devices,
        lanes: Lanes | None = None,
    ) -> None:
        self.store = store
        self.make_scheduler = make_scheduler
        self.cluster = make_scheduler().cluster
        self.runner = make_runner(self._put)
        self.on_commit: Callable[[int], None] = lambda seq: None
        """Told the number of the last entry after every commit."""
        self.on_give_up: Callable[[], None] = lambda: None
        """Told when the driver has given up for good."""
        self.stopped_because: InterlaneError | None = None
        """Why the driver gave up for good."""
        self.secrets = secrets
        self.hardware = hardware
        self._lanes = lanes
        self.monitor = Monitor(self.turns)
        if lanes is not None:
            lanes.heard = self.monitor.heard
        self._inbox: SimpleQueue[_Item | None] = SimpleQueue()
        self._later: list[tuple[float, int, _Item]] = []
        """Items for a later moment; the number makes the order total."""
        self._numbers = count()
        self._jobs: dict[JobId, Record] = {}
        """Jobs that have not ended, as the cycle under way has them."""
        self._stored: dict[JobId, Record] = {}
        """The same as they are stored: what other threads may see."""
        self._failed_starts: dict[JobId, int] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)

    def start(self) -> None:
        """Take the store over and begin."""
        self._warm_up()
        self.store.begin_life()
        self._clock = _Clock(self.store.ends().at_s)
        if self._lanes is not None:
            self._lanes.start()
        self._recover()
        self._thread.start()

    def _warm_up(self) -> None:
        """Play two jobs that nobody sees, so that compiled code is loaded before the first.

        The second deserves more than the first by every order, so that one makes way that can.
        """
        everything = Gpu(count=max(machine.gpus for machine in self.cluster))
        whole = JobSpec(name="warm-up", run="true", resources=Resources(gpu=everything))
        request = spec.request_of(whole, self.cluster)
        Guesses().guess(Asked(JobId("warm-up"), "", "", request, 0.0, None))
        scheduler = self.make_scheduler()
        for number, guess_s in enumerate((1e9, 1.0)):
            job = Job(
                JobId(f"warm-up-{number}"), request, 0.0, number, guess_s, priority=number
            )
            for wish in scheduler.handle(Submitted(job), number * 1e6):
                if isinstance(wish, Start):
                    scheduler.learn(Started(wish.job_id, wish.placement), 0.0)
            scheduler.explain(job.id, number * 1e6)

    def close(self) -> None:
        """End after what has come in; jobs run on."""
        self._inbox.put(None)
        self._thread.join()
        self.runner.close()
        if self._lanes is not None:
            self._lanes.close()

    # -- from any thread --------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether facts are being taken in and stored."""
        return self._ready.is_set() and self.stopped_because is None

    def now_s(self) -> float:
        """Return the time that facts get."""
        return self._clock.now_s()

    def submit(self, job: JobSpec, user: str, key: Key | None = None) -> "Future[Record]":
        """Hand in a job; the answer comes when it is stored."""
        self.secrets.check(job.secrets)
        return self._asked(_Submit(job, user, key, Future()))

    def cancel(self, job_id: JobId, by: str, version: int | None = None) -> "Future[Record]":
        """Take a job back; the answer comes when that is stored, the end may come later."""
        return self._asked(_Cancel(job_id, by, version, Future()))

    def ask(self, question: Callable[[Scheduler, float], Any]) -> "Future[Any]":
        """Ask the kernel; the question must not change it."""
        return self._asked(_Ask(question, Future()))

    def open_records(self) -> list[Record]:
        """Return the jobs that have not ended."""
        return list(self._stored.values())

    def open_record(self, job_id: str) -> Record | None:
        """Return a job that has not ended."""
        return self._stored.get(JobId(job_id))

    @property
    def turns(self) -> str | None:
        """The order in which jobs of a device take turns; None if they do not."""
        return None if self._lanes is None else self._lanes.settings.order

    def devices(self) -> tuple[Device, ...]:
        """Return every device: what is held of it, and what goes on there."""
        holders = [one for one in self.open_records() if one.state in HOLDING]
        given = occupancy.held(self.cluster, holders, emulated=self.hardware.emulated)
        return occupancy.seen(given, self.monitor.seen)

    def use(self, job_id: JobId) -> Use | None:
        """Return what a job that runs has done on its device; None if it is on none."""
        record, seen = self.open_record(job_id), self.monitor.seen
        if record is None or record.state not in HOLDING or seen is None:
            return None
        return seen.uses.get(job_id)

    def _asked(self, item: _Submit | _Cancel | _Ask) -> "Future[Any]":
        if not self.is_ready:
            raise NotReady("The server cannot reach its database; try again in a moment.")
        self._inbox.put(item)
        return item.answer

    def _put(self, item: _Item) -> None:
        self._inbox.put(item)

    # -- the loop ---------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            items, is_last = self._take()
            try:
                self._cycle(items)
            except Superseded as error:
                self._give_up(items, error)
                return
            except Exception as error:
                self._ready.clear()
                log.error("A cycle failed; the books are made again.", exc_info=error)
                self._fail(items, error)
                self._recover_for_sure()
            if is_last:
                return

    def _take(self) -> tuple[list[_Item], bool]:
        """Wait for something to come in; return all that has, and whether it is the last."""
        items: list[_Item] = []
        patience_s = None
        if self._later:
            patience_s = max(0.0, self._later[0][0] - self._clock.now_s())
        try:
            item = self._inbox.get(timeout=patience_s)
            while item is not None:
                items.append(item)
                if len(items) == BATCH_MAX:
                    return items, False
                item = self._inbox.get_nowait()
            return items, True
        except Empty:
            return items, False

    def _cycle(self, items: list[_Item]) -> None:
        batch = _Batch(self._clock.now_s())
        while self._later and self._later[0][0] <= batch.now_s:
            items.append(heappop(self._later)[2])
        known = self._known_keys(items)
        for item in items:
            self._take_in(item, batch, known)
        self._decide(batch)
        self.store.commit(batch.entries, batch.changed.values(), batch.keys)
        for job_id, record in batch.changed.items():
            if record.is_open:
                self._stored[job_id] = record
            else:
                self._jobs.pop(job_id, None)
                self._stored.pop(job_id, None)
                self._failed_starts.pop(job_id, None)
        for act in batch.afterwards:
            act()
        if batch.entries:
            self.on_commit(batch.entries[-1].seq)

    def _take_in(
        self, item: _Item, batch: _Batch, known: dict[tuple[str, str], UsedKey]
    ) -> None:
        match item:
            case _Submit():
                self._submitted(item, batch, known)
            case _Cancel():
                self._cancel_asked(item, batch)
            case _Ask(question, answer):
                self._answer(question, answer, batch)
            case _Begun(attempt):
                self._begun(attempt, batch)
            case Ran():
                self._ran(item, batch)
            case NeverRan():
                self._never_ran(item, batch)
            case Ticked():
                self._scheduler.learn(item, batch.now_s)

    # -- users ------------------------------------------------------------------------

    def _known_keys(self, items: Iterable[_Item]) -> dict[tuple[str, str], UsedKey]:
        """Return the used keys among those that came in, by user and text."""
        wanted = {
            (item.user, item.key.text)
            for item in items
            if isinstance(item, _Submit) and item.key is not None
        }
        return {(used.user, used.key): used for used in self.store.used_keys(wanted)}

    def _submitted(
        self, item: _Submit, batch: _Batch, known: dict[tuple[str, str], UsedKey]
    ) -> None:
        key = item.key
        if key is not None and (used := known.get((item.user, key.text))) is not None:
            self._answer_again(item, key, used, batch)
            return
        record = self._new_record(item, batch.now_s)
        change = {name: value for name, value in _made(record).items() if name != "id"}
        self._write(batch, Kind.SUBMITTED, record.id, change)
        self._tell_kernel(Submitted(job_of(record, self.cluster)), batch)
        if key is not None:
            used = UsedKey(item.user, key.text, key.digest, record.id)
            known[item.user, key.text] = used
            batch.keys.append(used)
        batch.afterwards.append(lambda: item.answer.set_result(batch.changed[record.id]))

    def _answer_again(self, item: _Submit, key: Key, used: UsedKey, batch: _Batch) -> None:
        """Answer a submission that came before as it was answered then."""
        if used.digest != key.digest:
            item.answer.set_exception(
                KeyReused(
                    f"Idempotency-Key {key.text!r} was used for job {used.job_id} with other "
                    "contents; use a new key."
                )
            )
            return

        def answer() -> None:
            record = self._jobs.get(used.job_id) or self.store.job(used.job_id)
            assert record is not None
            item.answer.set_result(record)

        batch.afterwards.append(answer)

    def _new_record(self, item: _Submit, now_s: float) -> Record:
        self._serial += 1
        job_id = JobId(f"{item.spec.name}-{self._serial}")
        guess = self._guesses.guess(
            Asked(
                job_id,
                spec.program_of(item.spec),
                item.user,
                spec.request_of(item.spec, self.cluster),
                now_s,
                spec.expected_s(item.spec),
            )
        )
        return Record(
            self._serial,
            job_id,
            item.spec.name,
            item.user,
            item.spec.queue,
            item.spec.model_dump(mode="json", exclude_defaults=True),
            now_s,
            guess.seconds,
            guess.low_s,
            guess.high_s,
        )

    def _cancel_asked(self, item: _Cancel, batch: _Batch) -> None:
        record = self._jobs.get(item.job_id)
        try:
            record = self._may_cancel(record, item)
        except InterlaneError as error:
            item.answer.set_exception(error)
            return
        if record.state is State.QUEUED:
            self._tell_kernel(Cancelled(record.id), batch)
            self._end(batch, Kind.CANCELLED, record, State.CANCELLED, cancelled_by=item.by)
        elif record.cancelled_by is None:
            change = {"state": State.STOPPING, "cancelled_by": item.by}
            self._write(batch, Kind.CANCEL_ASKED, record.id, change)
            attempt = Attempt(record.id, record.attempt)
            batch.afterwards.append(lambda: self.runner.stop(attempt))
        batch.afterwards.append(lambda: item.answer.set_result(self._now(item.job_id, batch)))

    def _may_cancel(self, record: Record | None, item: _Cancel) -> Record:
        if record is None:
            ended = self.store.job(item.job_id)
            if ended is None:
                raise NoSuchJob(
                    f"There is no job {item.job_id!r}; 'interlane ps -A' lists all."
                )
            raise AlreadyEnded(f"Job {item.job_id} has {ended.state} already.")
        if item.version is not None and item.version != record.version:
            raise VersionDiffers(
                f"Job {item.job_id} is at version {record.version}, not {item.version}; "
                "look at it again."
            )
        return record

    def _now(self, job_id: JobId, batch: _Batch) -> Record:
        return batch.changed.get(job_id) or self._jobs[job_id]

    def _answer(
        self, question: Callable[[Scheduler, float], Any], answer: "Future[Any]", batch: _Batch
    ) -> None:
        try:
            answer.set_result(question(self._scheduler, batch.now_s))
        except Exception as error:
            answer.set_exception(error)

    # -- processes --------------------------------------------------------------------

    def _begun(self, attempt: Attempt, batch: _Batch) -> None:
        record = self._holder(attempt)
        if record is None or record.state is not State.STARTING:
            return
        assert record.place is not None
        self._tell_kernel(Started(record.id, record.place), batch)
        self._write(batch, Kind.STARTED, record.id, {"state": State.RUNNING})
        self._failed_starts.pop(record.id, None)

    def _ran(self, report: Ran, batch: _Batch) -> None:
        record = self._holder(report.attempt)
        if record is None:
            return
        if record.cancelled_by is not None:
            self._tell_kernel(Cancelled(record.id), batch)
            code = {"exit_code": report.exit_code}
            self._end(batch, Kind.CANCELLED, record, State.CANCELLED, **code)
        elif report.was_stopped:
            self._preempted(record, batch)
        else:
            self._tell_kernel(Finished(record.id), batch)
            state = State.SUCCEEDED if report.exit_code == 0 else State.FAILED
            if state is State.SUCCEEDED:
                self._guesses.learn(self._as_asked(record), record.ran_for_s(batch.now_s))
            why = _why_failed(record, report)
            self._end(batch, Kind.ENDED, record, state, exit_code=report.exit_code, reason=why)

    def _preempted(self, record: Record, batch: _Batch) -> None:
        """Let a stopped job wait again; without checkpoints it has lost this attempt's work."""
        attempted_s = batch.now_s - (record.started_s or batch.now_s)
        keeps = JobSpec.model_validate(record.spec).checkpoint is not None
        lost_s = 0.0 if keeps else attempted_s
        self._tell_kernel(Preempted(record.id, lost_s), batch)
        change = {
            "state": State.QUEUED,
            "placement": None,
            "ran_s": record.ran_s + attempted_s - lost_s,
        }
        self._write(batch, Kind.PREEMPTED, record.id, change)

    def _never_ran(self, report: NeverRan, batch: _Batch) -> None:
        record = self._holder(report.attempt)
        if record is None:
            return
        if record.cancelled_by is not None:
            self._tell_kernel(Cancelled(record.id), batch)
            self._end(batch, Kind.CANCELLED, record, State.CANCELLED)
            return
        failed = self._failed_starts[record.id] = self._failed_starts.get(record.id, 0) + 1
        if failed >= START_TRIES:
            self._tell_kernel(Cancelled(record.id), batch)
            why = f"It could not be started {failed} times: {report.why}"
            self._end(batch, Kind.ENDED, record, State.FAILED, reason=why)
            return
        self._tell_kernel(StartFailed(record.id, report.why), batch)
        change = {"state": State.QUEUED, "placement": None, "reason": report.why}
        self._write(batch, Kind.START_FAILED, record.id, change)

    def _holder(self, attempt: Attempt) -> Record | None:
        """Return the job if this is its present attempt; reports of others are void."""
        record = self._jobs.get(attempt.job_id)
        if record is None or record.state not in HOLDING or record.attempt != attempt.number:
            return None
        return record

    # -- wishes -----------------------------------------------------------------------

    def _decide(self, batch: _Batch) -> None:
        """Let the kernel decide until it wishes nothing more that frees something at once."""
        for _ in range(DECISIONS_MAX):
            wishes = self._scheduler.decide(batch.now_s)
            for wish in wishes:
                self._note(wish, batch)
            if not any(isinstance(wish, Refuse) for wish in wishes):
                return
        raise AssertionError("The scheduler does not come to rest.")

    def _note(self, wish: Action, batch: _Batch) -> None:
        match wish:
            case Start(job_id, placement):
                self._placed(self._jobs[job_id], placement, batch)
            case Preempt(job_id, in_favour_of):
                self._stop_wished(self._jobs[job_id], in_favour_of, batch)
            case Refuse(job_id, refusal):
                record = self._jobs[job_id]
                why = str(refusal)
                self._end(batch, Kind.REFUSED, record, State.REFUSED, reason=why)
            case Grow(job_id, _):
                raise AssertionError(f"Job {job_id} is a gang of one machine and cannot grow.")
            case Wake(at_s):
                self._put_later(at_s, Ticked())

    def _placed(self, record: Record, placement: Placement, batch: _Batch) -> None:
        change = {
            "state": State.STARTING,
            "attempt": record.attempt + 1,
            "placement": placement_document(placement),
            "started_s": batch.now_s,
            "reason": None,
        }
        placed = self._write(batch, Kind.PLACED, record.id, change)
        batch.afterwards.append(lambda: self._launch(placed, placement))

    def _stop_wished(self, record: Record, in_favour_of: JobId, batch: _Batch) -> None:
        if record.state is State.STOPPING:
            return
        change = {"state": State.STOPPING, "reason": f"It makes way for job {in_favour_of}."}
        self._write(batch, Kind.STOP_WISHED, record.id, change)
        attempt = Attempt(record.id, record.attempt)
        batch.afterwards.append(lambda: self.runner.stop(attempt))

    def _launch(self, record: Record, placement: Placement) -> None:
        """Start what is on record; if it cannot be, let it wait before it tries again."""
        attempt = Attempt(record.id, record.attempt)
        try:
            launch = launch_of(
                record,
                placement,
                self.secrets,
                self.hardware,
                lanes=self._lanes,
                share_milli=occupancy.share_milli(record, self.cluster),
            )
            self.runner.start(launch)
        except (OSError, InterlaneError) as error:
            failed = self._failed_starts.get(record.id, 0)
            at_s = self._clock.now_s() + START_AGAIN_S * 2**failed
            self._put_later(at_s, NeverRan(attempt, f"{error}"))
        else:
            self._inbox.put(_Begun(attempt))

    def _put_later(self, at_s: float, item: _Item) -> None:
        heappush(self._later, (at_s, next(self._numbers), item))

    # -- the log ----------------------------------------------------------------------

    def _write(
        self, batch: _Batch, kind: Kind, job_id: JobId, change: dict[str, Any]
    ) -> Record:
        self._seq += 1
        entry = Entry(self._seq, batch.now_s, kind, job_id, change)
        record = after(self._jobs.get(job_id), entry)
        batch.entries.append(entry)
        batch.changed[job_id] = self._jobs[job_id] = record
        return record

    def _end(
        self, batch: _Batch, kind: Kind, record: Record, state: State, **change: object
    ) -> None:
        ended = {"state": state, "ended_s": batch.now_s, "placement": None, **change}
        if record.attempt and (use := self._used(record)) is not None:
            ended["use"] = asdict(use)
        self._write(batch, kind, record.id, ended)

    def _used(self, record: Record) -> Use | None:
        """Return what the last attempt at a job did on its device, if it was on one."""
        if self._lanes is None or not spec.takes_lane(JobSpec.model_validate(record.spec)):
            return None
        told = self._lanes.run(run_number(record))
        if told is None:
            return None
        return self.monitor.over_all(record.id, use_of(told))

    def _tell_kernel(self, fact: Event, batch: _Batch) -> None:
        self._scheduler.learn(fact, batch.now_s)

    # -- recovery ---------------------------------------------------------------------

    def _recover(self) -> None:
        """Make the books again from the store, and find what runs."""
        ends = self.store.ends()
        self._seq, self._serial = ends.seq, ends.serial
        self._later.clear()
        records = self.store.open_jobs()
        self._jobs = {record.id: record for record in records}
        self._guesses = self._remembered()
        batch = _Batch(self._clock.now_s())
        for record in [one for one in records if one.state in HOLDING]:
            self._find(record, batch)
        self.store.commit(batch.entries, batch.changed.values())
        for job_id, record in batch.changed.items():
            if not record.is_open:
                del self._jobs[job_id]
        self._stored = dict(self._jobs)
        self._scheduler = rebuilt(self.make_scheduler, self._jobs.values(), batch.now_s)
        self._ready.set()
        self._put(Ticked())

    def _find(self, record: Record, batch: _Batch) -> None:
        """Adopt an attempt that runs or ran; one that never will goes back to the queue."""
        attempt = Attempt(record.id, record.attempt)
        if not self.runner.recover(attempt):
            if record.cancelled_by is not None:
                self._end(batch, Kind.CANCELLED, record, State.CANCELLED)
                return
            change = {"state": State.QUEUED, "placement": None}
            self._write(batch, Kind.START_FAILED, record.id, change)
        elif record.state is State.STARTING:
            self._write(batch, Kind.STARTED, record.id, {"state": State.RUNNING})
        elif record.state is State.STOPPING:
            self.runner.stop(attempt)

    def _remembered(self) -> Guesses:
        """Return guesses that know the newest jobs that ended well."""
        guesses = Guesses()
        wanted = JobsWanted(REMEMBERED, states=frozenset({State.SUCCEEDED}))
        for record in reversed(self.store.jobs(wanted)):
            guesses.learn(self._as_asked(record), record.ran_for_s(record.ended_s or 0.0))
        return guesses

    def _as_asked(self, record: Record) -> Asked:
        job = JobSpec.model_validate(record.spec)
        return Asked(
            record.id,
            spec.program_of(job),
            record.user,
            spec.request_of(job, self.cluster),
            record.submitted_s,
            spec.expected_s(job),
        )

    def _recover_for_sure(self) -> None:
        """Recover, however long the database takes to come back."""
        while True:
            try:
                self._recover()
                return
            except StoreFailed as error:
                log.warning("%s", error)
                time.sleep(STORE_AGAIN_S)

    def _fail(self, items: Iterable[_Item], error: Exception) -> None:
        """Tell those who wait that nothing was stored."""
        for item in items:
            if isinstance(item, _Submit | _Cancel | _Ask) and not item.answer.done():
                item.answer.set_exception(_told(error))

    def _give_up(self, items: Iterable[_Item], error: InterlaneError) -> None:
        self.stopped_because = error
        log.error("%s", error)
        self._fail(items, error)
        self.on_give_up()


class _Clock:
    """Real time that never goes back: not when somebody sets the clock, nor over a restart."""

    def __init__(self, at_least_s: float) -> None:
        self._begin_s = max(time.time(), at_least_s)
        self._since_s = time.monotonic()

    def now_s(self) -> float:
        """Return seconds since 1970, or what passes for them."""
        return self._begin_s + time.monotonic() - self._since_s


def _told(error: Exception) -> Exception:
    if isinstance(error, InterlaneError):
        return NotReady(str(error))
    return NotReady("The server failed and has made its books again; try again.")


def _made(record: Record) -> dict[str, Any]:
    """Return the fields of a new record that the log must tell."""
    names = ("serial", "name", "user", "queue", "spec", "submitted_s")
    guesses = ("guess_s", "low_s", "high_s")
    return {name: getattr(record, name) for name in (*names, *guesses)}


def _why_failed(record: Record, report: Ran) -> str | None:
    if report.exit_code == 0 and report.why is None:
        return None
    if report.why == "limit":
        return f"It ran for {record.spec['time']['limit']}, its limit."
    if report.exit_code is None:
        return report.why
    return f"It ended with exit code {report.exit_code}."
