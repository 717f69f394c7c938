"""Who watches: bounded for each and for all, and no longer than their token counts."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from interlane.live.auth import Caller, Tokens
from interlane.live.http.news import News
from interlane.live.questions.desk import TooManyRequests

LOOK_S: Final = 15.0
"""Seconds after which it is looked anew whether a token counts."""


class Watchers:
    """Streams of events and open pages; used on the event loop."""

    def __init__(self, tokens: Tokens, each: int, together: int) -> None:
        self.revoked = News()
        """Told when a token counts no longer."""
        self._tokens = tokens
        self._each = each
        self._together = together
        self._watching: Counter[str] = Counter()

    def may(self, caller: Caller) -> bool:
        """Tell whether somebody's token still counts."""
        return self._tokens.holder(caller.token_id) is not None

    def must_have_room(self, name: str) -> None:
        """Raise if somebody, or everybody together, watches as much as they may."""
        if self._watching[name] >= self._each:
            said = f"{name} watches {self._each} times already; end one of them."
            raise TooManyRequests(said, 1)
        if self._watching.total() >= self._together:
            raise TooManyRequests("As many watch as may; try again in a moment.", 5)

    @contextmanager
    def watching(self, name: str) -> Iterator[None]:
        """Count somebody who watches, or raise."""
        self.must_have_room(name)
        self._watching[name] += 1
        try:
            yield
        finally:
            self._watching[name] -= 1
            if not self._watching[name]:
                del self._watching[name]

    async def end(self, caller: Caller) -> None:
        """Wait until somebody's token counts no longer."""
        while self.may(caller):
            with suppress(TimeoutError):
                await asyncio.wait_for(self.revoked.wait(), LOOK_S)
