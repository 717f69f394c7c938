"""Lies between a client and an API server, and lets things go wrong."""

import asyncio
import ssl
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import aiohttp
from aiohttp import web

GOODBYE_S: Final = 0.1
"""Seconds in which encrypted connections say that they end."""
SKIPPED: Final = ("Host", "Content-Length", "Transfer-Encoding", "Connection")


@dataclass
class ApiFaults:
    """How often what goes wrong, from 0 to 1."""

    refused: float = 0.0
    """Requests that are answered with 429 or 500, and never arrive."""
    unanswered: float = 0.0
    """Requests that arrive, and whose answers are lost."""
    conflicts: float = 0.0
    """Changes that are answered with 409, and never arrive."""
    closed: float = 0.0
    """Events of watches after which the stream is closed."""
    slow_s: float = 0.0
    """Seconds that each request takes longer, at most."""
    expired: float = 0.0
    """Watches that are answered with 410: their version is too old."""


@dataclass
class FaultyProxy:
    """Passes requests on to a server, or does not."""

    target: str
    ca: Path
    rng: Random
    faults: ApiFaults = field(default_factory=ApiFaults)
    played: int = 0
    """Faults so far."""
    answers: "Counter[int]" = field(default_factory=Counter)
    """What the server itself answered, by status."""

    def start(self) -> str:
        """Begin; return the address to speak to."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(60)

    def close(self) -> None:
        """End, with all connections."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> str:
        tls = ssl.create_default_context(cafile=str(self.ca))
        connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def _end(self) -> None:
        await self._runner.cleanup()
        # Whoever is still being served holds a connection that nobody else would close.
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await self._session.close()
        await asyncio.sleep(GOODBYE_S)

    def _happens(self, rate: float) -> bool:
        happens = rate > 0 and self.rng.random() < rate
        self.played += happens
        return happens

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        faults = self.faults
        if faults.slow_s:
            await asyncio.sleep(self.rng.random() * faults.slow_s)
        watches = "watch" in request.query
        if self._happens(faults.refused):
            return _status(self.rng.choice((429, 500, 503)))
        if watches and self._happens(faults.expired):
            return _status(410)
        if request.method != "GET" and self._happens(faults.conflicts):
            return _status(409)
        headers = {
            name: value for name, value in request.headers.items() if name not in SKIPPED
        }
        async with self._session.request(
            request.method,
            f"{self.target}{request.raw_path}",
            data=await request.read(),
            headers=headers,
            timeout=aiohttp.ClientTimeout(),
        ) as answer:
            self.answers[answer.status] += 1
            if watches and answer.status == 200:
                return await self._stream(request, answer)
            data = await answer.read()
            if not watches and self._happens(faults.unanswered):
                assert request.transport is not None
                request.transport.abort()
            return web.Response(
                status=answer.status, body=data, content_type="application/json"
            )

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        out = web.StreamResponse()
        await out.prepare(request)
        with suppress(ConnectionError):  # the client may leave at any time
            async for line in answer.content:
                if self._happens(self.faults.closed):
                    assert request.transport is not None
                    request.transport.abort()
                    break
                await out.write(line)
        return out


def _status(code: int) -> web.Response:
    said = {"kind": "Status", "status": "Failure", "code": code, "message": "as the test wants"}
    return web.json_response(said, status=code)
