"""Requests: what becomes of them, and how they wait for a replica."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any, Final, NamedTuple

LEFT_MAX: Final = 64
"""Calls that wait no longer, and that a queue may hold nevertheless."""


class CallOutcome(Enum):
    """How a request ended."""

    GOOD = 0
    RAISED = 1
    NOT_JSON = 2
    LATE = 3
    LOST = 4
    FULL = 5
    UNAVAILABLE = 6


class Reply(NamedTuple):
    """The end of a request: the answer as JSON, or a sentence."""

    outcome: CallOutcome
    data: bytes
    retry_s: float | None = None


class UnsentAnswers:
    """Counts the bytes of answers that have not been sent."""

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max

    @contextmanager
    def holding(self, size: int) -> Iterator[bool]:
        """Hold so many bytes for a while; yields whether there is room for them."""
        if size > self._left:
            yield False
            return
        self._left -= size
        try:
            yield True
        finally:
            self._left += size


class Call:
    """A request and whoever waits for its answer."""

    __slots__ = ("answer", "at_s", "body", "home", "is_waiting", "timer", "tries", "until_s")

    def __init__(self, body: bytes, at_s: float, until_s: float, answer: Any) -> None:  # noqa: ANN401 - a future of the loop in use
        self.body = body
        self.at_s = at_s
        self.until_s = until_s
        self.answer = answer
        self.home: Any = None
        """The function that has it now: one that is deployed anew takes over who waits."""
        self.is_waiting = False
        self.tries = 0
        self.timer: asyncio.TimerHandle | None = None

    def end(self, reply: Reply) -> bool:
        """Give the answer, unless one was given; return whether it was."""
        if self.answer.done():
            return False
        if self.timer is not None:
            self.timer.cancel()
        self.answer.set_result(reply)
        return True


class CallQueue:
    """Calls that wait, in the order of their deadlines.

    Those that go in batches wait for company until there is enough or their window closes.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        batch: int,
        window_s: float,
        on_ripe: Callable[[], None],
    ) -> None:
        self.waiting = 0
        self.latest_s = -inf
        """The last deadline of all that ever waited."""
        self._loop = loop
        self._batch = batch
        self._window_s = window_s
        self._on_ripe = on_ripe
        """Told when a window has closed."""
        self._heap: list[tuple[float, int, Call]] = []
        """Calls that wait no longer are left in it until their turn comes."""
        self._numbers = count()
        self._window: asyncio.TimerHandle | None = None
        self._is_ripe = False
        """The window has closed for those who wait."""

    def put(self, call: Call) -> None:
        """Let a call wait."""
        call.is_waiting = True
        self.waiting += 1
        self.latest_s = max(self.latest_s, call.until_s)
        heappush(self._heap, (call.until_s, next(self._numbers), call))
        self._open_window()

    def drop(self, call: Call) -> None:
        """Let a call wait no longer, and forget what it asked."""
        self._take_out(call)
        call.body = b""
        if len(self._heap) > 2 * self.waiting + LEFT_MAX:
            self._heap = [one for one in self._heap if one[2].is_waiting]
            heapify(self._heap)

    def _take_out(self, call: Call) -> None:
        call.is_waiting = False
        self.waiting -= 1

    def may_go(self) -> bool:
        """Tell whether somebody waits who need not wait for company."""
        if not self._window_s or self._is_ripe:
            return self.waiting > 0
        return self.waiting >= self._batch

    def take_batch(self) -> list[Call]:
        """Return those who go together now."""
        found = self.take(self._batch)
        self._is_ripe = False
        if self.waiting:
            self._open_window()
        elif self._window is not None:
            self._window.cancel()
            self._window = None
        return found

    def take(self, most: int) -> list[Call]:
        """Return the first who wait, and let them wait no longer."""
        found: list[Call] = []
        while len(found) < most and self._heap:
            call = heappop(self._heap)[2]
            if call.is_waiting:
                self._take_out(call)
                found.append(call)
        return found

    def _open_window(self) -> None:
        if self._window_s and self._window is None and not self._is_ripe:
            self._window = self._loop.call_later(self._window_s, self._close_window)

    def _close_window(self) -> None:
        self._window, self._is_ripe = None, True
        self._on_ripe()
