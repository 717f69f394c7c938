"""Lines to jobs: their terminals, and ports at which they listen, over websockets.

Only a job's owner and admins are led there, and only while their token counts.  A browser
cannot open one: it sends no token, and what a job serves is never part of a page of ours.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from interlane.live.auth import Caller, Denied, Role
from interlane.live.http import acting
from interlane.live.http.access import CALLER, PREFIX
from interlane.live.http.service import LiveService, address_of
from interlane.live.http.watchers import Watchers
from interlane.live.port import NotThere, typed_frame, window_frame
from interlane.live.store.record import JobRecord
from interlane.model import InterlaneError

CHUNK_BYTES: Final = 1 << 15
LOOK_FIRST_S: Final = 0.05
LOOK_AT_MOST_S: Final = 1.0
"""Seconds between looks at a job that has not begun."""

STARTING: Final = "starting"
"""What is said of a job that holds its place and whose terminal is not there yet."""

REFUSED: Final = 4000
OVER: Final = 1000
SIDE_MAX: Final = 10_000

routes = APIRouter(prefix=PREFIX, tags=["jobs"])

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@routes.websocket("/jobs/{job_id}/ports/{port}")
async def port(websocket: WebSocket, job_id: str, port: int) -> None:
    """Lead to a port at which a job listens: bytes there and back."""

    async def led(the: LiveService, record: JobRecord, _: Caller) -> None:
        if port not in record.job.ports:
            raise NotThere(
                f"Job {record.id} names no port {port}; write 'ports: [{port}]' in its file."
            )
        streams = await _dialled(the, record, port)
        await _bridged(websocket, streams, _as_they_are)

    await _guarded(websocket, job_id, led)


@routes.websocket("/jobs/{job_id}/terminal")
async def terminal(websocket: WebSocket, job_id: str) -> None:
    """Lead to a job's terminal, as soon as it runs; a job that is not kept ends with it.

    Bytes are what is typed and printed; texts are JSON: ``{"rows": 24, "columns": 80}`` from
    whoever is there, ``{"state": "queued"}`` from the server.
    """

    async def led(the: LiveService, record: JobRecord, caller: Caller) -> None:
        if record.job.terminal is None:
            raise NotThere(f"Job {record.id} has no terminal; 'interlane run --pty' makes one.")
        keep = record.job.terminal.keep
        try:
            await _attached(the, websocket, record.id)
        except WebSocketDisconnect:
            if not keep:
                with suppress(InterlaneError):  # it may have ended by itself
                    address = address_of(websocket.scope)
                    await acting.cancel(the, record.id, caller, address)

    await _guarded(websocket, job_id, led)


Led = Callable[[LiveService, JobRecord, Caller], Awaitable[None]]


async def _guarded(websocket: WebSocket, job_id: str, led: Led) -> None:
    """Lead somebody on who may, as long as their token counts; say why if not."""
    the: LiveService = websocket.app.state.service
    lines: Watchers = websocket.app.state.lines
    caller: Caller = websocket.scope[CALLER]
    await websocket.accept()
    code, said = OVER, ""
    try:
        caller.insist(Role.USER)
        record = await asyncio.to_thread(the.view.job, job_id)
        if not caller.owns(record.user):
            raise Denied(f"Job {record.id} is {record.user}'s; only they are led to it.")
        with lines.watching(caller.name):
            await _first(led(the, record, caller), lines.end(caller))
    except InterlaneError as error:
        code, said = REFUSED, str(error)
    except (WebSocketDisconnect, OSError):
        return
    with suppress(RuntimeError, WebSocketDisconnect):  # they are gone
        await websocket.close(code, said.encode()[:120].decode(errors="ignore"))


async def _first(*works: Awaitable[None]) -> None:
    """Wait for the first of some works to end, and end the others."""
    tasks = [asyncio.ensure_future(one) for one in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _dialled(the: LiveService, record: JobRecord, port: int | None) -> Streams:
    made = await asyncio.to_thread(the.view.dial, record, port)
    made.setblocking(False)
    if port is None:
        return await asyncio.open_unix_connection(sock=made)
    return await asyncio.open_connection(sock=made)


async def _attached(the: LiveService, websocket: WebSocket, job_id: str) -> None:
    """Wait until a job runs, and be its terminal's other end until one of them ends."""
    waiting = asyncio.ensure_future(_begun(the, websocket, job_id))
    leaving = asyncio.ensure_future(_left(websocket))
    try:
        await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            leaving.result()
        streams = waiting.result()
    finally:
        waiting.cancel()
        leaving.cancel()
    if streams is None:
        return
    await websocket.send_text(json.dumps({"state": "running"}))
    await _bridged(websocket, streams, _framed)


async def _left(websocket: WebSocket) -> None:
    """Wait until somebody leaves who waits for a job to begin; what they type is lost."""
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", OVER))


async def _begun(the: LiveService, websocket: WebSocket, job_id: str) -> Streams | None:
    """Return the way to a job's terminal once it runs; None if it has ended before."""
    told, pause_s = "", LOOK_FIRST_S
    while True:
        record = await asyncio.to_thread(the.view.job, job_id)
        if not record.is_open:
            return None
        if record.state.holds:
            with suppress(NotThere):  # it starts
                return await _dialled(the, record, None)
        now = STARTING if record.state.holds else record.state.value
        if now != told:
            told = now
            await websocket.send_text(json.dumps({"state": told}))
        await asyncio.sleep(pause_s)
        pause_s = min(1.5 * pause_s, LOOK_AT_MOST_S)


# -- there and back -------------------------------------------------------------------

Sent = Callable[[Any], bytes]


async def _bridged(websocket: WebSocket, streams: Streams, sent: Sent) -> None:
    """Pass bytes on both ways until one side ends."""
    reader, writer = streams

    async def there() -> None:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", OVER))
            writer.write(sent(message))
            await writer.drain()

    async def back() -> None:
        while data := await reader.read(CHUNK_BYTES):
            await websocket.send_bytes(data)

    try:
        await _first(there(), back())
    finally:
        writer.close()


def _as_they_are(message: Any) -> bytes:  # noqa: ANN401 - ASGI
    data: bytes | None = message.get("bytes")
    return data or b""


def _framed(message: Any) -> bytes:  # noqa: ANN401 - ASGI
    """Return what a terminal is sent for a message; what cannot be read is passed over."""
    data: bytes | None = message.get("bytes")
    if data is not None:
        parts = (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))
        return b"".join(map(typed_frame, parts))
    try:
        said = json.loads(message.get("text") or "")
        rows, columns = int(said["rows"]), int(said["columns"])
    except (ValueError, TypeError, KeyError):
        return b""
    is_sound = 0 < rows <= SIDE_MAX and 0 < columns <= SIDE_MAX
    return window_frame(rows, columns) if is_sound else b""
