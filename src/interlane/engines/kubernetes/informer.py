"""A copy of all objects of one kind, kept up to date by a watch.

A watch ends for many reasons: the server restarts, a consumer is slow, the connection dies.
It is resumed from the last version that was seen, so that nothing is missed.  Where the server
no longer knows that version (410) everything is listed again, and the difference is told as if
it had been watched.  What was told is never told twice.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from interlane.engines.kubernetes.client import ApiError, Document, KubeClient

STREAM_S: Final = 240.0
"""Seconds after which the server ends a stream by itself; it is then resumed."""
AGAIN_S: Final = 0.2
AGAIN_S_MAX: Final = 10.0
HTTP_GONE: Final = 410

Changed = Callable[[Document | None, Document | None], None]
"""Told an object as it was and as it is; None if it was not, or is no more."""

log = logging.getLogger("interlane.engines.kubernetes")


@dataclass
class InformerCounts:
    """What has happened to a watch."""

    lists: int = 0
    streams: int = 0
    events: int = 0
    repeated: int = 0
    """Events of versions that were known already."""


@dataclass
class Informer:
    """See the module's text; all of it happens in one event loop."""

    client: KubeClient
    path: str
    changed: Changed
    query: Mapping[str, str] = field(default_factory=dict)
    stream_s: float = STREAM_S
    objects: dict[str, Document] = field(default_factory=dict)
    """By uid."""
    version: str = ""
    counts: InformerCounts = field(default_factory=InformerCounts)
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    _failures: int = 0

    async def run(self) -> None:
        """Keep the copy up to date until cancelled."""
        while True:
            try:
                if not self.version:
                    await self._list()
                await self._follow()
                self._failures = 0
            except ApiError as error:
                await self._failed(error)
            except Exception as error:  # whatever it is, everything counts on the copy
                log.error("The watch of %s failed and begins anew.", self.path, exc_info=error)
                self.version = ""
                await self._failed(ApiError(0, "failed", f"{error!r}"))

    async def _failed(self, error: ApiError) -> None:
        """Wait for a moment, longer each time; one that the server names is kept."""
        if error.status == HTTP_GONE:
            self.version = ""
            return
        self._failures += 1
        if self._failures > 1:
            log.warning("The watch of %s is interrupted: %s", self.path, error)
        wait_s = min(AGAIN_S_MAX, AGAIN_S * 2 ** min(self._failures, 10))
        await asyncio.sleep(max(error.wait_s, wait_s * random.uniform(0.5, 1.0)))

    async def _list(self) -> None:
        self.counts.lists += 1
        found, version = await self.client.items(self.path, **self.query)
        now = {one["metadata"]["uid"]: one for one in found}
        for uid in self.objects.keys() - now.keys():
            self._gone(uid)
        for uid, one in now.items():
            self._seen(uid, one)
        self.version = version
        self.synced.set()

    async def _follow(self) -> None:
        """Take in changes until the stream ends."""
        self.counts.streams += 1
        stream = self.client.watch(self.path, self.version, self.stream_s, **self.query)
        async with aclosing(stream):
            async for event in stream:
                self.counts.events += 1
                self._failures = 0
                self._take_in(event["type"], event["object"])

    def _take_in(self, kind: str, what: Document) -> None:
        if kind == "ERROR":
            code = int(what.get("code") or 0)
            raise ApiError(code, what.get("reason") or "", what.get("message") or "")
        if kind == "DELETED":
            self._gone(what["metadata"]["uid"], what)
        elif kind != "BOOKMARK":
            self._seen(what["metadata"]["uid"], what)
        self.version = what["metadata"]["resourceVersion"]

    def _seen(self, uid: str, now: Document) -> None:
        before = self.objects.get(uid)
        if before is not None and _version(before) == _version(now):
            self.counts.repeated += 1
            return
        self.objects[uid] = now
        self.changed(before, now)

    def _gone(self, uid: str, last: Document | None = None) -> None:
        before = self.objects.pop(uid, None)
        if before is not None:
            self.changed(last or before, None)
        else:
            self.counts.repeated += 1


def _version(one: Document) -> str:
    found: str = one["metadata"]["resourceVersion"]
    return found
