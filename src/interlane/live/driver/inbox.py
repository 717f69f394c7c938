"""What comes in: from users, from the engine, and from the driver itself for later."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

from interlane.kernel.scheduler import Scheduler
from interlane.live.files.job import JobSpec
from interlane.live.port import NeverBegan, NeverGrew, Observation, Report
from interlane.live.store.record import JobRecord
from interlane.model import JobId, MachineId, Ticked

Question = Callable[[Scheduler, float], Any]
"""What the scheduler is asked, and when; the scheduler must be as before."""


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key, and what it came with."""

    text: str
    digest: str


@dataclass(frozen=True, slots=True)
class Submit:
    """Somebody submits a job."""

    job: JobSpec
    user: str
    key: Key | None
    answer: "Future[JobRecord]"


@dataclass(frozen=True, slots=True)
class Cancel:
    """Somebody cancels a job."""

    job_id: JobId
    by: str
    version: int | None
    answer: "Future[JobRecord]"


@dataclass(frozen=True, slots=True)
class Drain:
    """An operator drains a machine, or lets it take work again."""

    machine_id: MachineId
    drained: bool
    by: str
    answer: "Future[None]"


class Resolution(StrEnum):
    """What an operator says of a job with which nobody knows what is the matter."""

    REQUEUE = "requeue"
    """Its attempt is over, and it may run again."""
    FAIL = "fail"
    """It is over, and has failed."""


@dataclass(frozen=True, slots=True)
class Resolve:
    """An operator decides what has become of an attempt of which nobody can tell."""

    job_id: JobId
    how: Resolution
    by: str
    answer: "Future[JobRecord]"


@dataclass(frozen=True, slots=True)
class Adjust:
    """Somebody holds a job that waits, releases it, or changes what it says."""

    job_id: JobId
    by: str
    held: bool | None
    spec: JobSpec | None
    """What it says from now on; None if that stays."""
    answer: "Future[JobRecord]"


@dataclass(frozen=True, slots=True)
class Ask:
    """Somebody asks the scheduler."""

    question: Question
    answer: "Future[Any]"


@dataclass(frozen=True, slots=True)
class Observed:
    """The engine has looked at everything."""

    observation: Observation


@dataclass(frozen=True, slots=True)
class GiveBack:
    """What could not begin or grow has waited for long enough to be tried again."""

    report: NeverBegan | NeverGrew


@dataclass(frozen=True, slots=True)
class Recheck:
    """A job that is held may have what it waits for."""


FromUser = Submit | Cancel | Drain | Resolve | Adjust | Ask
Item = FromUser | Report | Observed | GiveBack | Recheck | Ticked


class Inbox:
    """Takes items from any thread; the driver's thread alone takes them out."""

    def __init__(self, batch_max: int) -> None:
        self._batch_max = batch_max
        """Items that are taken in together."""
        self._items: SimpleQueue[Item | None] = SimpleQueue()
        self._later: list[tuple[float, int, Item]] = []
        """Items for a later moment; the number makes the order total."""
        self._numbers = count()

    def put(self, item: Item) -> None:
        """Add an item."""
        self._items.put(item)

    def close(self) -> None:
        """Say that nothing of interest follows."""
        self._items.put(None)

    def take(self, now_s: float, *, waits: bool = True) -> tuple[list[Item], bool]:
        """Wait for something, or until something is due; return all, and if it is the last."""
        items: list[Item] = []
        patience_s = max(0.0, self._later[0][0] - now_s) if self._later else None
        patience_s = patience_s if waits else 0.0
        try:
            item = self._items.get(timeout=patience_s)
            while item is not None:
                items.append(item)
                if len(items) >= self._batch_max:
                    return items, False
                item = self._items.get_nowait()
            return items, True
        except Empty:
            return items, False

    # -- by the driver's thread -------------------------------------------------------

    def put_later(self, at_s: float, item: Item) -> None:
        """Keep an item until a later moment."""
        heappush(self._later, (at_s, next(self._numbers), item))

    def due(self, now_s: float) -> Iterator[Item]:
        """Take out what was kept until now."""
        while self._later and self._later[0][0] <= now_s:
            yield heappop(self._later)[2]

    def drop_later(self) -> None:
        """Forget what was kept for later."""
        self._later.clear()
