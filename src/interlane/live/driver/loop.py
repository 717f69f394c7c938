"""The driver: one thread that takes in, decides, commits, answers and acts."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from interlane.live.driver import actions
from interlane.live.driver.adoption import Adoption
from interlane.live.driver.batch import Batch
from interlane.live.driver.clock import Clock, Timed
from interlane.live.driver.errors import NotReady
from interlane.live.driver.holding import Holding
from interlane.live.driver.inbox import (
    Adjust,
    Ask,
    Cancel,
    Drain,
    FromUser,
    GiveBack,
    Inbox,
    Item,
    Key,
    Observed,
    Question,
    Recheck,
    Resolution,
    Resolve,
    Submit,
)
from interlane.live.driver.machines import machine_of, reports_in
from interlane.live.driver.observer import EVERY_S, Observer
from interlane.live.driver.reports import ReportIntake
from interlane.live.driver.state import DriverState, SchedulerPlan, Snapshot, drawn_uid
from interlane.live.driver.users import KnownKeys, Users
from interlane.live.driver.warmup import warm_up
from interlane.live.files.job import DEFAULT_PRIORITY, JobSpec, program_of
from interlane.live.measure.monitor import Monitor
from interlane.live.port import (
    Attempt,
    Begun,
    Displaced,
    Drained,
    Ended,
    Engine,
    Found,
    Grew,
    MachineGone,
    MachineReport,
    MachineSeen,
    Measured,
    NeverBegan,
    NeverGrew,
    Observation,
    Wanted,
    Withdrawn,
    check_dials,
)
from interlane.live.store.record import JobRecord
from interlane.live.store.store import Store, StoreFailed, Superseded
from interlane.model import InterlaneError, InvalidInput, JobId, MachineId, Occupied, Ticked
from interlane.policy.order import counts_priority
from interlane.predict.recall import Recall

BAD_MAX: Final = 20
"""Items of one cycle that may each fail by themselves before all of it has."""

AGAIN_S: Final = 1.0
"""Seconds between tries when one after another fails."""

log = logging.getLogger("interlane.live")


class Driver:
    """Runs the scheduler on an engine; see the package's text."""

    def __init__(
        self,
        store: Store,
        plan: SchedulerPlan,
        engine: Engine,
        *,
        trained: Recall | None = None,
        observe_every_s: float = EVERY_S,
        clock: Callable[[float], Timed] = Clock,
        new_uid: Callable[[], str] = drawn_uid,
    ) -> None:
        """Prepare to run.

        Args:
            store: what outlives the driver.
            plan: how schedulers are made.
            engine: runs the jobs.
            trained: estimates how long jobs run, from the first day on.
            observe_every_s: seconds between two looks at the engine.
            clock: the time that events get, which begins no earlier than a moment.
            new_uid: returns what tells a job apart from all others, for ever.
        """
        self.store = store
        self.engine = engine
        self._make_clock = clock
        self._state = DriverState(plan, engine.traits, trained, new_uid)
        self._inbox = Inbox(engine.traits.batch_max)
        self._observer = Observer(engine, self._attempts, self._inbox.put, observe_every_s)
        self.on_commit: Callable[[int], None] = lambda seq: None
        """Told the number of the last entry after every commit."""
        self.on_give_up: Callable[[], None] = lambda: None
        """Told when the driver has given up for good."""
        self.check_more: Callable[[JobSpec], None] = lambda job: None
        """Refuses what the server does not do for jobs, whatever the engine can."""
        self.stopped_because: InterlaneError | None = None
        """Why the driver gave up for good."""
        self.monitor = Monitor(engine.traits.turns, self._program_of)
        self._reports = ReportIntake(self.monitor)
        self._users = Users(store)
        self._holding = Holding(store)
        self._has_begun_anew = True
        """Whether jobs that are held are looked through in any case."""
        self._adoption = Adoption(store)
        self._ready = threading.Event()
        self._closing = threading.Event()
        self._failures = 0
        """Cycles in a row that failed."""
        self._trouble = "The server cannot reach its database; try again in a moment."
        """What those are told who come while nothing is taken in."""
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)

    def start(self) -> None:
        """Take the store over, see what there is, and begin."""
        self.open()
        self._thread.start()
        self._observer.start()

    def open(self) -> None:
        """Begin without threads: whoever calls this calls ``turn`` and ``observed``, too."""
        if not self.store.has_begun:
            self.store.begin_epoch(self.engine.traits.holder)
        self._clock = self._make_clock(self.store.ends().at_s)
        self.engine.start(self._inbox.put)
        self._state.show(self.store.open_jobs())
        for record in self.store.unread:
            log.warning("Job %s is left alone. %s", record.id, record.reason)
        first = Observed(self.engine.observe(self._state.ever_asked()))
        self._observer.saw(first.observation)
        self._see_machines(first.observation)
        self._rebuild()
        warm_up(self._state.snapshot(self.now_s()).empty_scheduler())
        self._cycle([first])
        self._ready.set()

    def close(self) -> None:
        """End after what has come in; jobs run on."""
        self._closing.set()
        self._inbox.close()
        self._thread.join()
        self._observer.close()
        self.engine.close()

    # -- from any thread --------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether events are being taken in and stored."""
        return self._ready.is_set() and self.stopped_because is None

    def now_s(self) -> float:
        """Return the time that events get."""
        return self._clock.now_s()

    def submit(
        self, job: JobSpec, user: str, key: Key | None = None, *, is_admin: bool = False
    ) -> "Future[JobRecord]":
        """Submit a job; the answer comes when it is stored."""
        self._check(job, user, is_admin=is_admin)
        return self._asked(Submit(job, user, key, Future()))

    def cancel(self, job_id: JobId, by: str, version: int | None = None) -> "Future[JobRecord]":
        """Cancel a job; the answer comes when that is stored, the end may come later."""
        return self._asked(Cancel(job_id, by, version, Future()))

    def drain(self, machine_id: MachineId, by: str, *, drained: bool = True) -> "Future[None]":
        """Let a machine take nothing new, or let it take work again."""
        return self._asked(Drain(machine_id, drained, by, Future()))

    def resolve(self, job_id: JobId, how: Resolution, by: str) -> "Future[JobRecord]":
        """Decide what has become of an attempt of which nobody can tell."""
        return self._asked(Resolve(job_id, how, by, Future()))

    def hold(self, job_id: JobId, by: str, *, held: bool = True) -> "Future[JobRecord]":
        """Hold a job that waits, or release it."""
        return self._asked(Adjust(job_id, by, held, None, Future()))

    def change(
        self, job_id: JobId, job: JobSpec, user: str, by: str, *, is_admin: bool = False
    ) -> "Future[JobRecord]":
        """Change what a user's job that waits says."""
        self._check(job, user, is_admin=is_admin)
        return self._asked(Adjust(job_id, by, None, job, Future()))

    def _check(self, job: JobSpec, user: str, *, is_admin: bool) -> None:
        """Raise why a job could never run here, or not for this user."""
        check_dials(job, self.engine)
        self.check_more(job)
        self.engine.check(job, user, is_admin=is_admin)

    def ask(self, question: Question) -> "Future[Any]":
        """Ask the scheduler; the question must not change it."""
        return self._asked(Ask(question, Future()))

    def notes_on(self, job: JobSpec) -> list[str]:
        """Return what somebody should know who has submitted a job."""
        policy = self._state.scheduler.policy
        if job.priority == DEFAULT_PRIORITY or counts_priority(policy.order):
            return []
        return [
            f"priority {job.priority} does not count here: jobs are ordered by {policy.name}."
        ]

    def open_records(self) -> list[JobRecord]:
        """Return the jobs that have not ended."""
        return list(self._state.stored.values())

    def open_record(self, job_id: str) -> JobRecord | None:
        """Return a job that has not ended."""
        return self._state.stored.get(JobId(job_id))

    def lacking(self, job_id: JobId) -> str | None:
        """Say for what a job waits that a machine lacks; None if it does not."""
        short = self._state.shortages.get(job_id)
        return None if short is None else short.reason

    def snapshot(self) -> Snapshot:
        """Return everything as it is stored now."""
        return self._state.snapshot(self.now_s())

    def _program_of(self, job_id: JobId) -> str | None:
        record = self.open_record(job_id)
        return None if record is None else program_of(record.job)

    def _asked(self, item: FromUser) -> "Future[Any]":
        if not self.is_ready:
            raise NotReady(self._trouble)
        if not (self.engine.traits.decides or isinstance(item, Ask)):
            raise InvalidInput(
                f"The server only looks on (--dry-run), and {self.engine.traits.name} decides; "
                "ask that."
            )
        item.answer.set_running_or_notify_cancel()  # from here on nobody can take it back
        self._inbox.put(item)
        return item.answer

    def attempts(self) -> "Future[list[Attempt]]":
        """Return the attempts that the engine was asked for, and that have not ended.

        Answered between two cycles: one that is on record since a moment ago may not have
        reached the engine, which would take it for one that nobody will ever begin.
        """
        asked = Ask(lambda scheduler, now_s: self._state.asked(), Future())
        self._inbox.put(asked)
        return asked.answer

    def observed(self, observation: Observation) -> None:
        """Compare with what the engine has seen since it was asked about ``attempts``."""
        self._inbox.put(Observed(observation))

    def _attempts(self) -> list[Attempt]:
        answer = self.attempts()
        while not self._closing.is_set():
            with suppress(TimeoutError):
                return answer.result(AGAIN_S)
        raise NotReady("The driver ends.")

    # -- the thread -------------------------------------------------------------------

    def _run(self) -> None:
        while self.turn():
            pass

    def turn(self, *, waits: bool = True) -> bool:
        """Take in what has come, decide, commit and act; False if nothing follows."""
        items, is_last = self._inbox.take(self.now_s(), waits=waits)
        try:
            self._cycle(items)
        except Exception as error:
            if _is_ours(error) and len(items) > 1 and self._one_by_one(items, error):
                return not is_last
            self._ready.clear()
            self._fail(items, error)
            return self._recovered(error) and not is_last
        return not is_last

    def _one_by_one(self, items: list[Item], error: Exception) -> bool:
        """Take items in again, each alone, so that one that nobody foresaw hurts nobody else.

        Nothing of the cycle that failed was stored.  False if it is not for one item's sake.
        """
        bad = 0
        waiting = deque[Item](one for one in items if not isinstance(one, Measured))
        waiting.append(Ticked())  # whatever is left to decide
        while waiting and bad < BAD_MAX:
            _complain(error)
            try:
                self._rebuild()
                self._take_each(waiting)
            except Exception as another:
                if not _is_ours(another):
                    return False
                bad, error = bad + 1, another
                self._fail([waiting.popleft()], another)
        self._observer.ask()  # what was postponed, or reported and not taken in, is lost
        return not waiting

    def _take_each(self, waiting: deque[Item]) -> None:
        """Take items in until one fails, which is the first of those that are left."""
        while waiting:
            item = waiting[0]
            if not (isinstance(item, FromUser) and item.answer.done()):
                self._cycle([item])
            waiting.popleft()

    def _cycle(self, items: list[Item]) -> None:
        now_s = self.now_s()
        batch = Batch(self._state, now_s, self.engine, self._inbox.put_later)
        if not self._state.is_built:
            batch.build()
        items.extend(self._inbox.due(now_s))
        items.extend(_wanted_in(items))
        known = self._users.known_keys(items)
        for item in items:
            self._take_in(item, batch, known)
        is_due = self._has_begun_anew or any(isinstance(item, Recheck) for item in items)
        self._holding.settle(batch, is_due=is_due)
        self._has_begun_anew = False
        if batch.entries:  # else nothing has happened since the last decision
            actions.decide(batch)
            self._holding.follow(batch)
        batch.release()
        self._commit(batch)
        for act in batch.afterwards:
            act()
        if batch.entries:
            self.on_commit(batch.entries[-1].seq)

    def _take_in(self, item: Item, batch: Batch, known: KnownKeys) -> None:
        match item:
            case Submit() | Cancel() | Drain() | Ask() | Resolve() | Adjust():
                self._users.take_in(item, batch, known)
            case Begun() | Ended() | NeverBegan() | Grew() | NeverGrew():
                self._reports.take_in(item, batch)
            case GiveBack(report):
                self._reports.give_back(report, batch)
            case MachineSeen() | MachineGone() | Drained() | Occupied():
                self._state.newer.machines.add(machine_of(item))
                self._learn_machine(item, batch)
            case Measured():
                self.monitor.heard(item)
            case Wanted():
                self._users.wanted(item, batch, known)
            case Found():
                self._adoption.heard_of(item, batch, known)
            case Withdrawn():
                self._users.withdrawn(item, batch, known)
            case Displaced(why):
                self.give_up(InterlaneError(why))
            case Observed(observation):
                self._compare(observation, batch, known)
            case Recheck():
                pass  # looked at with whatever else has come
            case Ticked():
                batch.note(item)

    def _learn_machine(self, report: MachineReport, batch: Batch) -> None:
        state = self._state
        state.machines, events = state.machines.after(report)
        for event in events:
            batch.note(event)
        if isinstance(report, MachineGone):
            self.monitor.forget(report.machine_id)

    def _compare(self, observation: Observation, batch: Batch, known: KnownKeys) -> None:
        """Make up for reports that did not come, or were lost, and for what was not stored."""
        newer = self._state.newer.machines
        for report in reports_in(observation, self._state.machines):
            if machine_of(report) not in newer:
                self._learn_machine(report, batch)
        self._users.let_go(observation.apart, batch)
        self._adoption.take_in(observation, batch, known)
        places = {one.attempt: one.placement for one in observation.found}
        for sight in observation.attempts:
            self._reports.compare(sight, places.get(sight.attempt), batch)
        self._users.compare(observation.wanted, batch)

    def _commit(self, batch: Batch) -> None:
        self.store.commit(batch.entries, batch.changed.values(), batch.keys, batch.drains)
        self._state.settle(batch.changed)
        if batch.entries:  # a cycle that writes nothing does not show that one could
            self._failures = 0

    # -- when something goes wrong ----------------------------------------------------

    def _see_machines(self, observation: Observation) -> None:
        """Know the machines of an observation, before there is a scheduler to tell."""
        state = self._state
        for report in reports_in(observation, state.machines):
            state.machines, _ = state.machines.after(report)

    def _rebuild(self) -> None:
        """Begin again with what is stored; the engine is looked at again."""
        self._inbox.drop_later()
        self._holding.forget()
        self._has_begun_anew = True
        drained = frozenset(MachineId(row.machine_id) for row in self.store.drains())
        self._state.machines = replace(self._state.machines, drained_here=drained)
        self._state.read(self.store)

    def _fail(self, items: Iterable[Item], error: Exception) -> None:
        """Tell those who wait that nothing was stored, and why."""
        self._trouble = _told(error)
        for item in items:
            if isinstance(item, FromUser) and not item.answer.done():
                item.answer.set_exception(NotReady(self._trouble))

    def _recovered(self, error: Exception) -> bool:
        """Begin again, however long that takes; False if the driver ends before."""
        while not isinstance(error, Superseded):
            _complain(error)
            if self._closing.wait(AGAIN_S if self._failures else 0.0):
                return False
            self._failures += 1
            try:
                self._rebuild()
                self.store.must_have_room()
                self._cycle([Ticked()])
            except Exception as another:
                error = another
            else:
                self._ready.set()
                self._observer.ask()  # what was reported in the cycle that failed is lost
                return True
        self.give_up(error)
        return False

    def give_up(self, error: InterlaneError) -> None:
        """Stop for good: another server has taken the store over."""
        self.stopped_because = error
        log.error("%s", error)
        self.on_give_up()


def _wanted_in(items: Iterable[Item]) -> list[Wanted]:
    """Return the jobs that observations name: their keys are looked up with all others."""
    return [
        one for item in items if isinstance(item, Observed) for one in item.observation.wanted
    ]


def _is_ours(error: Exception) -> bool:
    """Tell whether a cycle failed for what came in, and not for want of a database or disk."""
    return not isinstance(error, StoreFailed | Superseded | OSError)


def _complain(error: Exception) -> None:
    if isinstance(error, StoreFailed | OSError):
        log.warning("Nothing was stored, and the state is made again: %s", error)
    else:
        log.error("A cycle failed, and the state is made again.", exc_info=error)


def _told(error: Exception) -> str:
    if isinstance(error, InterlaneError):
        return str(error)
    if isinstance(error, OSError):
        return f"The server's folder cannot be used ({error.strerror}); make room on its disk."
    return "The server failed at this and has taken nothing of it in; tell its operator."
