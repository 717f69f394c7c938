"""The log as it is written, for all who watch: read once, and passed on from memory."""

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from interlane.live.auth import Caller
from interlane.live.http.access import PAGE_MAX, SERIAL_MAX
from interlane.live.http.documents import entry_document
from interlane.live.http.news import News
from interlane.live.http.watchers import Watchers
from interlane.live.questions.desk import TooManyRequests
from interlane.live.view import View
from interlane.model import InterlaneError, LogEntry

HEARTBEAT_S: Final = 15.0
"""Seconds after which a watcher that sees nothing is told that the server is there."""

GATHER_S: Final = 0.2
"""Seconds in which entries are gathered: a busy server writes hundreds a second."""

KEPT_BYTES: Final = 16 << 20
"""What is kept of the newest entries, as they are sent."""

PAGES_MAX: Final = 16
"""Parts of the log that are kept for others who are as far behind."""

BEHIND_AT_A_TIME: Final = 2
"""Watchers that read what is older, at a time."""

WOKEN_AT_ONCE: Final = 16
"""Watchers that are told of news before others than watchers have their turn."""

REFUSED_S: Final = 1.0
"""Seconds that a refusal takes."""

STILL_HERE: Final = b": still here\n\n"


@dataclass(slots=True, eq=False)
class _Watcher:
    """One who watches, and sleeps while there is nothing to see."""

    asleep: "asyncio.Future[bool] | None" = None

    async def sleep(self) -> bool:
        """Sleep until woken; return whether there is news."""
        self.asleep = asyncio.get_running_loop().create_future()
        try:
            return await self.asleep
        finally:
            self.asleep = None

    def wake(self, *, has_news: bool) -> None:
        """Go on, if asleep."""
        if self.asleep is not None and not self.asleep.done():
            self.asleep.set_result(has_news)


class Feed:
    """See the module's text; used on the event loop."""

    def __init__(self, view: View, watchers: Watchers, news: News) -> None:
        self._view = view
        self._watchers = watchers
        self._news = news
        self._kept: deque[tuple[int, str]] = deque()
        """Number and text of the newest entries, without a gap."""
        self._bytes = 0
        self._first = 0
        """Everything above this number and up to the last read is kept."""
        self._joined: dict[int, tuple[int, bytes]] = {}
        """What follows an entry, and the last of it: the same for most who watch."""
        self._watching: set[_Watcher] = set()
        self._reader: asyncio.Task[None] | None = None
        self._behind = asyncio.Semaphore(BEHIND_AT_A_TIME)
        self._pages: OrderedDict[int, tuple[int, bytes]] = OrderedDict()
        """What follows entries that are no longer kept, as it was read lately."""

    async def must_have_room(self, caller: Caller) -> None:
        """Raise if there are as many watchers as there may be, but not at once.

        Whoever is refused tries again: so a refusal takes as long as it says they should wait.
        """
        try:
            self._watchers.must_have_room(caller.name)
        except TooManyRequests:
            await asyncio.sleep(REFUSED_S)
            raise

    async def events(self, caller: Caller, seq: int) -> AsyncIterator[bytes]:
        """Yield what follows an entry, as server-sent events, while a token counts."""
        with self._watchers.watching(caller.name):
            me = _Watcher()
            self._enter(me)
            ending = asyncio.ensure_future(self._watchers.end(caller))
            ending.add_done_callback(lambda _: me.wake(has_news=True))
            try:
                while not ending.done():
                    found = self._since(seq) if seq >= self._first else await self._older(seq)
                    if found is not None:
                        seq, text = found
                        yield text
                    elif not await me.sleep():
                        yield STILL_HERE
            finally:
                ending.cancel()
                self._leave(me)

    def _since(self, seq: int) -> tuple[int, bytes] | None:
        """Return what follows an entry, as far as it is sent at once, and its last entry."""
        if not self._kept or seq >= self._kept[-1][0]:
            return None
        if seq not in self._joined:
            found = []
            for one in reversed(self._kept):
                if one[0] <= seq:
                    break
                found.append(one)
            self._joined[seq] = _joined(found[::-1][:PAGE_MAX])
        return self._joined[seq]

    async def _older(self, seq: int) -> tuple[int, bytes] | None:
        """Return what follows an entry from the store; many who begin there share it."""
        async with self._behind:
            found = self._pages.get(seq)
            if found is not None:
                self._pages.move_to_end(seq)
                return found
            found, is_full = await asyncio.to_thread(self._page, seq)
            if found is not None and is_full:  # another may have more by then
                self._pages[seq] = found
                while len(self._pages) > PAGES_MAX:
                    self._pages.popitem(last=False)
            return found

    def _page(self, seq: int) -> tuple[tuple[int, bytes] | None, bool]:
        """Return what follows an entry, and whether more could not be sent at once."""
        entries = self._view.log(seq, PAGE_MAX)
        found = _joined([(one.seq, _text(one)) for one in entries]) if entries else None
        return found, len(entries) == PAGE_MAX

    # -- the one who reads ------------------------------------------------------------

    def _enter(self, one: _Watcher) -> None:
        self._watching.add(one)
        if self._reader is None:
            self._kept.clear()
            self._joined.clear()
            self._bytes, self._first = 0, SERIAL_MAX
            self._reader = asyncio.create_task(self._read())

    def _leave(self, one: _Watcher) -> None:
        self._watching.discard(one)
        if not self._watching and self._reader is not None:
            self._reader.cancel()
            self._reader = None

    async def _read(self) -> None:
        seq = self._first = await asyncio.to_thread(self._view.last_seq)
        await self._wake(
            has_news=True
        )  # whoever has read up to here finds the rest in the store
        while True:
            written = asyncio.ensure_future(self._news.wait())
            has_news = False
            with suppress(InterlaneError):  # the database may come back
                while found := await asyncio.to_thread(self._view.log, seq, PAGE_MAX):
                    seq, has_news = found[-1].seq, True
                    self._keep(found)
                    await self._wake(has_news=True)
            done, _ = await asyncio.wait({written}, timeout=HEARTBEAT_S)
            written.cancel()
            if not done and not has_news:
                await self._wake(has_news=False)
            await asyncio.sleep(GATHER_S)

    async def _wake(self, *, has_news: bool) -> None:
        """Wake all who watch, a few at a time, and leave half of the time to everybody else."""
        loop, waiting = asyncio.get_running_loop(), list(self._watching)
        for begin in range(0, len(waiting), WOKEN_AT_ONCE):
            begin_s = loop.time()
            for one in waiting[begin : begin + WOKEN_AT_ONCE]:
                one.wake(has_news=has_news)
            await asyncio.sleep(0)  # they are told in this round
            await asyncio.sleep(loop.time() - begin_s)

    def _keep(self, entries: list[LogEntry]) -> None:
        self._joined.clear()
        for entry in entries:
            text = _text(entry)
            self._kept.append((entry.seq, text))
            self._bytes += len(text)
        while self._bytes > KEPT_BYTES:
            self._first, gone = self._kept.popleft()
            self._bytes -= len(gone)


def _joined(found: list[tuple[int, str]]) -> tuple[int, bytes]:
    return found[-1][0], "".join(text for _, text in found).encode()


def _text(entry: LogEntry) -> str:
    data = json.dumps(entry_document(entry, whole=False))
    return f"id: {entry.seq}\nevent: {entry.kind}\ndata: {data}\n\n"
