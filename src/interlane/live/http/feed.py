"""The log as it is written, for all who watch: read once, and passed on from memory."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

from interlane.live.auth import Caller
from interlane.live.http.access import PAGE_MAX, SERIAL_MAX
from interlane.live.http.documents import entry_document
from interlane.live.http.news import News
from interlane.live.http.watchers import Watchers
from interlane.live.view import View
from interlane.model import InterlaneError, LogEntry

HEARTBEAT_S: Final = 15.0
"""Seconds after which a watcher that sees nothing is told that the server is there."""

GATHER_S: Final = 0.2
"""Seconds in which entries are gathered: a busy server writes hundreds a second."""

KEPT_BYTES: Final = 16 << 20
"""What is kept of the newest entries, as they are sent."""

BEHIND_AT_A_TIME: Final = 2
"""Watchers that read what is older, at a time."""


class Feed:
    """See the module's text; used on the event loop."""

    def __init__(self, view: View, watchers: Watchers, news: News) -> None:
        self._view = view
        self._watchers = watchers
        self._news = news
        self._told = News()
        """Told when there is more to send."""
        self._kept: deque[tuple[int, str]] = deque()
        """Number and text of the newest entries, without a gap."""
        self._bytes = 0
        self._first = 0
        """Everything above this number and up to the last read is kept."""
        self._watching = 0
        self._reader: asyncio.Task[None] | None = None
        self._behind = asyncio.Semaphore(BEHIND_AT_A_TIME)

    def must_have_room(self, caller: Caller) -> None:
        """Raise if there are as many watchers as there may be."""
        self._watchers.must_have_room(caller.name)

    async def events(self, caller: Caller, seq: int) -> AsyncIterator[str]:
        """Yield what follows an entry, as server-sent events, while a token counts."""
        with self._watchers.watching(caller.name):
            self._enter()
            ending = asyncio.ensure_future(self._watchers.end(caller))
            try:
                async for text in self._sent(seq, ending):
                    yield text
            finally:
                ending.cancel()
                self._leave()

    async def _sent(self, seq: int, ending: "asyncio.Future[None]") -> AsyncIterator[str]:
        while not ending.done():
            more: asyncio.Future[Any] = asyncio.ensure_future(self._told.wait())
            either: set[asyncio.Future[Any]] = {more, ending}
            try:
                found = self._since(seq) if seq >= self._first else await self._older(seq)
                if found:
                    seq = found[-1][0]
                    yield "".join(text for _, text in found)
                    continue
                await asyncio.wait(
                    either,
                    timeout=HEARTBEAT_S,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not more.done() and not ending.done():
                    yield ": still here\n\n"
            finally:
                more.cancel()

    def _since(self, seq: int) -> list[tuple[int, str]]:
        found = []
        for one in reversed(self._kept):
            if one[0] <= seq:
                break
            found.append(one)
        return found[::-1][:PAGE_MAX]

    async def _older(self, seq: int) -> list[tuple[int, str]]:
        async with self._behind:
            entries = await asyncio.to_thread(self._view.log, seq, PAGE_MAX)
        return [(one.seq, _text(one)) for one in entries]

    # -- the one who reads ------------------------------------------------------------

    def _enter(self) -> None:
        self._watching += 1
        if self._reader is None:
            self._kept.clear()
            self._bytes, self._first = 0, SERIAL_MAX
            self._reader = asyncio.create_task(self._read())

    def _leave(self) -> None:
        self._watching -= 1
        if not self._watching and self._reader is not None:
            self._reader.cancel()
            self._reader = None

    async def _read(self) -> None:
        seq = self._first = await asyncio.to_thread(self._view.last_seq)
        self._told.tell()  # whoever has read up to here finds the rest in the store
        while True:
            written = asyncio.ensure_future(self._news.wait())
            with suppress(InterlaneError):  # the database may come back
                while found := await asyncio.to_thread(self._view.log, seq, PAGE_MAX):
                    seq = found[-1].seq
                    self._keep(found)
                    self._told.tell()
            await asyncio.wait({written}, timeout=HEARTBEAT_S)
            written.cancel()
            await asyncio.sleep(GATHER_S)

    def _keep(self, entries: list[LogEntry]) -> None:
        for entry in entries:
            text = _text(entry)
            self._kept.append((entry.seq, text))
            self._bytes += len(text)
        while self._bytes > KEPT_BYTES:
            self._first, gone = self._kept.popleft()
            self._bytes -= len(gone)


def _text(entry: LogEntry) -> str:
    data = json.dumps(entry_document(entry, whole=False))
    return f"id: {entry.seq}\nevent: {entry.kind}\ndata: {data}\n\n"
