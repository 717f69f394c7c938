"""The gate of the API: who calls is known before anything of their request is read.

What a caller has in hand is bounded, requests and their bytes, beside what all have; and of
those that read the store only a few at a time, so that nobody's listings keep others waiting.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from interlane.live.audit import AuditLog
from interlane.live.auth import Caller, Tokens
from interlane.live.bounds import ServerBounds
from interlane.live.http.access import BODY_BYTES_MAX, CALLER, NO_TOKEN, PREFIX
from interlane.live.http.body_limit import length_of
from interlane.live.http.problems import problem
from interlane.live.http.service import address_of

MIB: Final = 1 << 20
PATH_MAX: Final = 200
"""Characters of a path that are written into the audit log."""

RETRY: Final = {"Retry-After": "1"}
METRICS: Final = "/metrics"
WATCH: Final = f"{PREFIX}/watch"

Asgi = Callable[..., Awaitable[None]]


@dataclass(slots=True)
class _InHand:
    """What a caller has in hand."""

    reads: asyncio.Semaphore
    requests: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Gate:
    """See the module's text."""

    app: Asgi
    tokens: Tokens
    bounds: ServerBounds
    audit: AuditLog
    _in_hand: dict[str, _InHand] = field(default_factory=dict)
    _bytes: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        """Pass a request on, or answer why not."""
        if not _needs_token(scope):
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        caller = self._caller(headers)
        if scope["type"] == "websocket":
            await self._passed_line(caller, scope, receive, send)
            return
        if caller is None:
            self._deny(None, scope, HTTPStatus.UNAUTHORIZED)
            await closing(problem(*NO_TOKEN), scope, receive, send)
            return
        length = length_of(headers, BODY_BYTES_MAX)
        if isinstance(length, str):
            said = problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, length)
            await closing(said, scope, receive, send)
            return
        scope[CALLER] = caller

        async def sent(message: Any) -> None:  # noqa: ANN401 - ASGI
            if message.get("status") == HTTPStatus.FORBIDDEN:
                self._deny(caller.name, scope, HTTPStatus.FORBIDDEN)
            await send(message)

        await self._passed(caller.name, length, scope, receive, sent)

    async def _passed_line(self, caller: Caller | None, scope: Any, *line: Any) -> None:  # noqa: ANN401 - ASGI
        """Pass a line to a job on, if it is known whose it is; the route bounds them."""
        if caller is None:
            self._deny(None, {**scope, "method": "WEBSOCKET"}, HTTPStatus.UNAUTHORIZED)
            await line[1]({"type": "websocket.close", "code": 1008})
            return
        scope[CALLER] = caller
        await self.app(scope, *line)

    def _deny(self, name: str | None, scope: Any, status: HTTPStatus) -> None:  # noqa: ANN401 - ASGI
        asked = {"method": scope["method"], "path": scope["path"][:PATH_MAX]}
        self.audit.deny(name, address_of(scope), **asked, status=status.value)

    async def _passed(self, name: str, length: int, scope: Any, *line: Any) -> None:  # noqa: ANN401 - ASGI
        mine = self._in_hand.setdefault(
            name, _InHand(asyncio.Semaphore(self.bounds.reads_per_token))
        )
        refusal = self._refusal(name, mine, length)
        if refusal is not None:
            await closing(refusal, scope, *line)
            return
        mine.requests, mine.bytes = mine.requests + 1, mine.bytes + length
        self._bytes += length
        reads = scope["method"] in ("GET", "HEAD") and scope["path"] != WATCH
        try:
            async with mine.reads if reads else nullcontext():
                await self.app(scope, *line)
        finally:
            mine.requests, mine.bytes = mine.requests - 1, mine.bytes - length
            self._bytes -= length
            if not mine.requests:
                self._in_hand.pop(name, None)

    def _refusal(self, name: str, mine: _InHand, length: int) -> Asgi | None:
        """Return why a request cannot be taken in."""
        bounds = self.bounds
        if mine.requests >= bounds.requests_per_token:
            said = f"{name} has {mine.requests} requests in hand already; wait for answers."
            return problem(HTTPStatus.TOO_MANY_REQUESTS, said, RETRY)
        if length and mine.bytes + length > bounds.requests_mib_per_token * MIB:
            said = f"{name} has {mine.bytes:,} bytes of requests in hand; wait for answers."
            return problem(HTTPStatus.TOO_MANY_REQUESTS, said, RETRY)
        if length and self._bytes + length > bounds.requests_mib * MIB:
            said = "The server has as much in hand as it may; try again in a moment."
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, said, RETRY)
        return None

    def _caller(self, headers: dict[bytes, bytes]) -> Caller | None:
        word, _, token = headers.get(b"authorization", b"").partition(b" ")
        if word.lower() != b"bearer":
            return None
        return self.tokens.caller(token.strip().decode("latin-1"))


def _needs_token(scope: Any) -> bool:  # noqa: ANN401 - ASGI
    if scope["type"] not in ("http", "websocket"):
        return False
    path: str = scope["path"]
    return path in (METRICS, PREFIX) or path.startswith(f"{PREFIX}/")


async def closing(answer: Asgi, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
    """Answer, and end the connection: nobody reads what is still to come."""

    async def sent(message: Any) -> None:  # noqa: ANN401 - ASGI
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await send(message)

    await answer(scope, receive, sent)
