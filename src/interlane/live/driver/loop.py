"""The driver: one thread that takes in, decides, commits, answers and acts."""

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Final

from interlane.engines.local.attempts import Attempts
from interlane.engines.local.devices import Devices
from interlane.engines.local.lanes import Lanes
from interlane.engines.local.launch import Secrets
from interlane.engines.local.runner import NeverRan, Ran, Report, Runner
from interlane.lanes.report import ProcessReport
from interlane.live.driver import reports as processes
from interlane.live.driver.actions import Wishes
from interlane.live.driver.batch import Batch
from interlane.live.driver.clock import Clock
from interlane.live.driver.errors import NotReady
from interlane.live.driver.inbox import (
    Ask,
    Begun,
    Cancel,
    FromUser,
    Inbox,
    Item,
    Key,
    Question,
    Submit,
)
from interlane.live.driver.recovery import find_attempts
from interlane.live.driver.state import Books, MakeScheduler
from interlane.live.driver.users import KnownKeys, Users
from interlane.live.driver.warmup import warm_up
from interlane.live.files.job import JobSpec, program_of
from interlane.live.measure import occupancy
from interlane.live.measure.monitor import Monitor, Use
from interlane.live.measure.occupancy import Device
from interlane.live.port import Measured
from interlane.live.store.record import HOLDING, Record
from interlane.live.store.store import Store, StoreFailed, Superseded
from interlane.model import InterlaneError, JobId, Ticked

AGAIN_S: Final = 1.0
"""Seconds between tries when one after another fails."""

log = logging.getLogger("interlane.live")


class Driver:
    """Runs the kernel on this machine; see the package's text."""

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
        self._books = Books(make_scheduler)
        self.cluster = self._books.cluster
        self._inbox = Inbox()
        self.runner = make_runner(self._inbox.put)
        self.on_commit: Callable[[int], None] = lambda seq: None
        """Told the number of the last entry after every commit."""
        self.on_give_up: Callable[[], None] = lambda: None
        """Told when the driver has given up for good."""
        self.stopped_because: InterlaneError | None = None
        """Why the driver gave up for good."""
        self.secrets = secrets
        self.hardware = hardware
        self._lanes = lanes
        self.monitor = Monitor(self.turns, self._program_of)
        if lanes is not None:
            lanes.heard = lambda report, at_s: self.monitor.heard(
                Measured(report, at_s, hardware.gpus)
            )
        self._attempts = Attempts(
            self.runner, secrets, hardware, self.cluster, self.monitor, lanes
        )
        self._users = Users(store, self._attempts)
        self._wishes = Wishes(self._attempts, self._inbox, self.now_s)
        self._ready = threading.Event()
        self._closing = threading.Event()
        self._failures = 0
        """Cycles in a row that failed."""
        self._trouble = "The server cannot reach its database; try again in a moment."
        """What those are told who come while nothing is taken in."""
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)

    def start(self) -> None:
        """Take the store over and begin."""
        warm_up(self.make_scheduler)
        self.store.begin_life()
        self._clock = Clock(self.store.ends().at_s)
        if self._lanes is not None:
            self._lanes.start()
        self._recover()
        self._thread.start()

    def close(self) -> None:
        """End after what has come in; jobs run on."""
        self._closing.set()
        self._inbox.close()
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
        return self._asked(Submit(job, user, key, Future()))

    def cancel(self, job_id: JobId, by: str, version: int | None = None) -> "Future[Record]":
        """Take a job back; the answer comes when that is stored, the end may come later."""
        return self._asked(Cancel(job_id, by, version, Future()))

    def ask(self, question: Question) -> "Future[Any]":
        """Ask the kernel; the question must not change it."""
        return self._asked(Ask(question, Future()))

    def open_records(self) -> list[Record]:
        """Return the jobs that have not ended."""
        return list(self._books.stored.values())

    def open_record(self, job_id: str) -> Record | None:
        """Return a job that has not ended."""
        return self._books.stored.get(JobId(job_id))

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

    def on_device(self, job_id: JobId) -> ProcessReport | None:
        """Return what a job that runs does on its device; None if it is on none."""
        record, seen = self.open_record(job_id), self.monitor.seen
        if record is None or record.state not in HOLDING or seen is None:
            return None
        return seen.processes.get(job_id)

    def _program_of(self, job_id: JobId) -> str | None:
        record = self.open_record(job_id)
        return None if record is None else program_of(JobSpec.model_validate(record.spec))

    def _asked(self, item: FromUser) -> "Future[Any]":
        if not self.is_ready:
            raise NotReady(self._trouble)
        item.answer.set_running_or_notify_cancel()  # from here on nobody can take it back
        self._inbox.put(item)
        return item.answer

    # -- the thread -------------------------------------------------------------------

    def _run(self) -> None:
        is_last = False
        while not is_last:
            items, is_last = self._inbox.take(self.now_s())
            try:
                self._cycle(items)
                self._failures = 0
            except Exception as error:
                self._ready.clear()
                self._fail(items, error)
                if not self._recovered(error):
                    return

    def _cycle(self, items: list[Item]) -> None:
        batch = self._batch()
        items.extend(self._inbox.due(batch.now_s))
        known = self._users.known_keys(items)
        for item in items:
            self._take_in(item, batch, known)
        self._wishes.decide(batch)
        self._commit(batch)
        for act in batch.afterwards:
            act()
        if batch.entries:
            self.on_commit(batch.entries[-1].seq)

    def _batch(self) -> Batch:
        return Batch(self._books, self.now_s(), self._attempts.used)

    def _take_in(self, item: Item, batch: Batch, known: KnownKeys) -> None:
        match item:
            case Submit() | Cancel() | Ask():
                self._users.take_in(item, batch, known)
            case Begun() | Ran() | NeverRan():
                processes.take_in(item, batch)
            case Ticked():
                batch.learn(item)

    def _commit(self, batch: Batch) -> None:
        self.store.commit(batch.entries, batch.changed.values(), batch.keys)
        self._books.settle(batch.changed)

    # -- when something goes wrong ----------------------------------------------------

    def _recover(self) -> None:
        """Make the books again from the store, and find what runs."""
        self._inbox.drop_later()
        self._books.read(self.store)
        batch = self._batch()
        find_attempts(self.runner, batch)
        self._commit(batch)
        self._books.rebuild(batch.now_s)
        self._ready.set()
        self._inbox.put(Ticked())

    def _fail(self, items: Iterable[Item], error: Exception) -> None:
        """Tell those who wait that nothing was stored, and why."""
        self._trouble = _told(error)
        for item in items:
            if isinstance(item, FromUser) and not item.answer.done():
                item.answer.set_exception(NotReady(self._trouble))

    def _recovered(self, error: Exception) -> bool:
        """Make the books again, however long that takes; False if the driver ends before."""
        while not isinstance(error, Superseded):
            _complain(error)
            if self._closing.wait(AGAIN_S if self._failures else 0.0):
                return False
            self._failures += 1
            try:
                self._recover()
                return True
            except Exception as another:
                error = another
        self._give_up(error)
        return False

    def _give_up(self, error: InterlaneError) -> None:
        self.stopped_because = error
        log.error("%s", error)
        self.on_give_up()


def _complain(error: Exception) -> None:
    if isinstance(error, StoreFailed | OSError):
        log.warning("Nothing was stored, and the books are made again: %s", error)
    else:
        log.error("A cycle failed, and the books are made again.", exc_info=error)


def _told(error: Exception) -> str:
    if isinstance(error, InterlaneError):
        return str(error)
    if isinstance(error, OSError):
        return f"The server's folder cannot be used ({error.strerror}); make room on its disk."
    return "The server failed and makes its books again; try again."
