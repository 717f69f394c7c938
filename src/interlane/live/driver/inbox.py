"""What comes in: from users, from processes, and from the driver itself for later."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Final

from interlane.engines.local.runner import Attempt, NeverRan, Ran
from interlane.kernel.scheduler import Scheduler
from interlane.live.files.job import JobSpec
from interlane.live.store.record import Record
from interlane.model import JobId, Ticked

BATCH_MAX: Final = 1_000
"""Items that are taken in together."""

Question = Callable[[Scheduler, float], Any]
"""What the kernel is asked, and when; the kernel must be as before."""


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key, and what it came with."""

    text: str
    digest: str


@dataclass(frozen=True, slots=True)
class Submit:
    """Somebody hands in a job."""

    spec: JobSpec
    user: str
    key: Key | None
    answer: "Future[Record]"


@dataclass(frozen=True, slots=True)
class Cancel:
    """Somebody takes a job back."""

    job_id: JobId
    by: str
    version: int | None
    answer: "Future[Record]"


@dataclass(frozen=True, slots=True)
class Ask:
    """Somebody asks the kernel."""

    question: Question
    answer: "Future[Any]"


@dataclass(frozen=True, slots=True)
class Begun:
    """An attempt has been started."""

    attempt: Attempt


FromUser = Submit | Cancel | Ask
FromProcess = Begun | Ran | NeverRan
Item = FromUser | FromProcess | Ticked


class Inbox:
    """Takes items from any thread; the driver's thread alone takes them out."""

    def __init__(self) -> None:
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

    def take(self, now_s: float) -> tuple[list[Item], bool]:
        """Wait for something, or until something is due; return all, and if it is the last."""
        items: list[Item] = []
        patience_s = max(0.0, self._later[0][0] - now_s) if self._later else None
        try:
            item = self._items.get(timeout=patience_s)
            while item is not None:
                items.append(item)
                if len(items) == BATCH_MAX:
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
