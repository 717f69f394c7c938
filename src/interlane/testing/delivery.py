"""What lies between an engine and its driver, and goes wrong: reports, looks and lives."""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from sqlalchemy import engine as sql
from sqlalchemy import event, make_url

from interlane.live.files.job import JobSpec
from interlane.live.port import (
    Attempt,
    Begun,
    Ended,
    Engine,
    Launch,
    NeverBegan,
    Observation,
    Output,
    Report,
    Stop,
    Tell,
)
from interlane.live.store.database import engine_of
from interlane.live.store.record import JobRecord
from interlane.live.store.rows import DrainRow, UsedKey
from interlane.live.store.store import Store, StoreFailed
from interlane.model import LogEntry


@dataclass
class Rates:
    """How often things go wrong, from 0 to 1."""

    lost: float = 0.0
    """Reports that never come, and half as often requests that never arrive."""
    doubled: float = 0.0
    """Reports that come twice, and requests that are asked twice."""
    late: float = 0.0
    """Reports that wait in a bag, out of which they come in any order."""
    stale: float = 0.0
    """Looks that say of an attempt which is over that it runs."""


class Killed(BaseException):
    """The driver dies here, without a word; nothing may catch it."""


class Fuse:
    """Kills a driver after so many things that it does to the world."""

    def __init__(self) -> None:
        self.left: int | None = None

    def burn(self) -> None:
        """Come one thing nearer to the end."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed


class Faulty:
    """Delivers reports, or does not; may be told by any thread."""

    def __init__(self, tell: Tell, rng: Random, rates: Rates) -> None:
        self._tell = tell
        self._rng = rng
        self._rates = rates
        self._lock = threading.Lock()
        self._bag: list[Report] = []
        self.told: list[Report] = []
        """All that the engine ever said."""

    def __call__(self, report: Report) -> None:
        """Deliver a report never, once or twice, now or later."""
        with self._lock:
            self.told.append(report)
            rates, chance = self._rates, self._rng.random
            if chance() < rates.lost:
                return
            for _ in range(2 if chance() < rates.doubled else 1):
                if chance() < rates.late:
                    self._bag.append(report)
                else:
                    self._tell(report)

    def deliver(self, *, everything: bool = False) -> None:
        """Deliver one report that is late, or all."""
        with self._lock:
            while self._bag:
                self._tell(self._bag.pop(self._rng.randrange(len(self._bag))))
                if not everything:
                    return

    def repeat(self, reports: Iterable[Report]) -> None:
        """Deliver reports again that were delivered long ago."""
        for report in reports:
            self._tell(report)


class FaultyDelivery:
    """An engine behind faulty delivery, whose driver may die at each thing that it asks."""

    def __init__(self, engine: Engine, rng: Random, rates: Rates, fuse: Fuse) -> None:
        self.traits = engine.traits
        self._engine = engine
        self._rng = rng
        self._rates = rates
        self._fuse = fuse
        self.reports: Faulty
        self.looked: list[Report] = []
        """All that looks said of attempts for good."""
        self.stopped: set[Attempt] = set()
        """Attempts that were to stop."""
        self.cancelled: set[Attempt] = set()
        """Those of them that were to stop for good, once the engine was told so."""

    def start(self, tell: Tell) -> None:
        """Begin to report."""
        self.reports = Faulty(tell, self._rng, self._rates)
        self._engine.start(self.reports)

    def close(self) -> None:
        """Stop reporting."""
        self._engine.close()

    def check(self, job: JobSpec, user: str, *, is_admin: bool = False) -> None:
        """Pass the question on."""
        self._engine.check(job, user, is_admin=is_admin)

    def observe(self, known: Collection[Attempt]) -> Observation:
        """Look, and at times see what was rather than what is."""
        seen = self._engine.observe(known)
        self.looked += [one for one in seen.attempts if isinstance(one, Ended | NeverBegan)]
        past = [one.attempt for one in self.reports.told if isinstance(one, Ended)]
        if past and self._rng.random() < self._rates.stale:
            stale = Begun(self._rng.choice(past))
            kept = tuple(one for one in seen.attempts if one.attempt != stale.attempt)
            seen = replace(seen, attempts=(*kept, stale))
        return seen

    def begin(self, launch: Launch) -> None:
        """Pass it on once, twice or never, or die."""
        for _ in self._times():
            self._engine.begin(launch)

    def grow(self, launch: Launch) -> None:
        """Pass it on once, twice or never, or die."""
        for _ in self._times():
            self._engine.grow(launch)

    def stop(self, attempt: Attempt, how: Stop) -> None:
        """Pass it on once, twice or never, or die."""
        self.stopped.add(attempt)
        for _ in self._times():
            self._engine.stop(attempt, how)
            if how is Stop.CANCEL:
                self.cancelled.add(attempt)

    def _times(self) -> range:
        self._fuse.burn()
        if self._rng.random() < self._rates.lost / 2:
            return range(0)
        return range(2 if self._rng.random() < self._rates.doubled else 1)

    def discard(self, key: str, *, was_cancelled: bool, why: str) -> None:
        """Pass it on once, twice or never, or die."""
        for _ in self._times():
            self._engine.discard(key, was_cancelled=was_cancelled, why=why)

    def output(self, attempt: Attempt, begin: int, size: int) -> Output:
        """Pass the question on."""
        return self._engine.output(attempt, begin, size)


class _OneConnector:
    """Connects to one file after another: what it has compiled stays good for all of them.

    Stores of scripts are many and live shortly, one at a time.
    """

    def __init__(self) -> None:
        self._path = ""
        self._engine: sql.Engine | None = None

    def to(self, url: str) -> sql.Engine:
        """Return what connects to a file from now on."""
        self._path = make_url(url).database or ""
        if self._engine is None:
            self._engine = engine_of(url)
            event.listen(self._engine, "do_connect", self._aim)
        return self._engine

    def _aim(self, dialect: object, record: object, words: list[Any], more: object) -> None:
        words[:] = [self._path]


_CONNECTOR: Final = _OneConnector()


class _ReadOnce:
    """Remembers what records say: a store that is opened again and again reads few new ones."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._read: dict[str, JobRecord] = {}

    def __call__(self, text: str, read: Callable[[str], JobRecord]) -> JobRecord:
        """Return what a record's text says, read if it has not been lately."""
        found = self._read.get(text)
        if found is None:
            if len(self._read) >= self._most:
                self._read.clear()
            found = self._read[text] = read(text)
        return found


_READ: Final = _ReadOnce(2_000)


class FaultyStore(Store):
    """A store whose commits fail when told to, and at which a driver may die."""

    def __init__(self, url: str, fuse: Fuse) -> None:
        super().__init__(url)
        self._fuse = fuse
        self.fails_next = False
        self.commits = 0
        """How often anything may have been stored."""

    def _record(self, text: str) -> JobRecord:
        return _READ(text, super()._record)

    def _connected(self, url: str) -> sql.Engine:
        return _CONNECTOR.to(url)

    def commit(
        self,
        entries: Sequence[LogEntry],
        records: Iterable[JobRecord],
        keys: Sequence[UsedKey] = (),
        drains: Sequence[DrainRow] = (),
    ) -> None:
        """Store everything, or nothing."""
        if entries and self.fails_next:
            self.fails_next = False
            raise StoreFailed("The disk was full for a moment.")
        self._fuse.burn()
        self.commits += 1
        super().commit(entries, records, keys, drains)
        self._fuse.burn()
