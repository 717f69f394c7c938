"""Where questions are asked that take long: every kind has a thread of its own, and one.

Whoever asks what is being asked already shares the answer.  A question for which nobody waits
any more is not begun.
"""

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, TypeVar

from interlane.live.bounds import ServerBounds
from interlane.live.rates import RateLimit
from interlane.model import InterlaneError

IN_A_ROW: Final = 10.0
"""Times as many questions in a row as there may be a second."""

Found = TypeVar("Found")


class TooManyQuestions(InterlaneError):
    """As many questions wait as may."""

    retry_s: Final = 5


class TooManyRequests(InterlaneError):
    """Somebody asks too often."""

    def __init__(self, sentence: str, retry_s: float) -> None:
        super().__init__(sentence)
        self.retry_s = max(1, ceil(retry_s))


@dataclass(slots=True, eq=False)
class _Asked:
    """A question, and how many wait for its answer."""

    answer: "Future[Any]"
    waiting: int = 0


class QuestionDesk:
    """See the module's text; used on the event loop."""

    def __init__(self, bounds: ServerBounds) -> None:
        self._threads: dict[str, ThreadPoolExecutor] = {}
        """By kind of question."""
        self._waiting_max = bounds.questions_waiting
        self._rates = RateLimit(bounds.questions_per_s, IN_A_ROW * bounds.questions_per_s)
        self._asked: dict[tuple[str, Hashable], _Asked] = {}

    def close(self) -> None:
        """Begin no more questions."""
        for one in self._threads.values():
            one.shutdown(wait=False, cancel_futures=True)

    def must_not_hurry(self, name: str) -> None:
        """Raise if somebody asks too often."""
        wait_s = self._rates.wait_s(name)
        if wait_s:
            raise TooManyRequests(f"{name} asks too often; try again in a moment.", wait_s)

    async def answer(self, kind: str, what: Hashable, find: Callable[[], Found]) -> Found:
        """Return the answer to a question; those share it that ask the same of a kind."""
        asked = self._asked.get((kind, what)) or self._begun(kind, what, find)
        asked.waiting += 1
        try:
            answer = asyncio.wrap_future(asked.answer)
            await asyncio.wait({answer})  # who leaves must not take it from the others
            found: Found = answer.result()
            return found
        finally:
            asked.waiting -= 1
            if not asked.waiting:
                asked.answer.cancel()  # unless it has begun

    def _begun(self, kind: str, what: Hashable, find: Callable[[], Any]) -> _Asked:
        if len(self._asked) >= self._waiting_max:
            raise TooManyQuestions("Too many questions wait to be answered; try again.")
        threads = self._threads.setdefault(kind, ThreadPoolExecutor(1, f"questions-{kind}"))
        asked = self._asked[kind, what] = _Asked(threads.submit(find))
        loop = asyncio.get_running_loop()

        def over(_: "Future[Any]") -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it all who asked
                loop.call_soon_threadsafe(self._asked.pop, (kind, what), None)

        asked.answer.add_done_callback(over)
        return asked
