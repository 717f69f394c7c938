"""The machine: its devices, its log, what has happened on it."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import Field

from interlane.live.http.access import (
    PAGE_MAX,
    PREFIX,
    PROBLEMS,
    SERIAL_MAX,
    Admin,
    Viewer,
    also,
)
from interlane.live.http.documents import entry_document, machine_document
from interlane.live.http.news import News
from interlane.live.http.service import LiveService, The
from interlane.model import MachineId
from interlane.traces.cluster_file import cluster_document

HEARTBEAT_S: Final = 15.0
"""Seconds after which a watcher that sees nothing is told that the server is there."""

DAY_S: Final = 86_400.0
DAYS_MAX: Final = 3_660.0

MachinePath = Annotated[str, Field(max_length=255)]

routes = APIRouter(prefix=PREFIX, responses=PROBLEMS, tags=["machine"])


@routes.get("/gpus")
def gpus(caller: Viewer, the: The) -> Response:
    """Show every device: what is held of it and by whom, its lanes, and what is used."""
    return JSONResponse({"gpus": [asdict(device) for device in the.view.devices()]})


@routes.get("/summary")
def summary(caller: Viewer, the: The) -> Response:
    """Count jobs by state, and name the policy."""
    return JSONResponse(the.view.summary())


@routes.get("/machines")
def machines(caller: Viewer, the: The) -> Response:
    """List machines: what they offer, who is there, and whether they are drained."""
    return JSONResponse({"machines": [machine_document(one) for one in the.view.machines()]})


@routes.put("/machines/{machine_id}/drain", responses=also(404))
async def drain(machine_id: MachinePath, caller: Admin, the: The) -> Response:
    """Let a machine take nothing new; what runs there runs on."""
    return await _drained(the, machine_id, caller.name, drained=True)


@routes.delete("/machines/{machine_id}/drain", responses=also(404))
async def undrain(machine_id: MachinePath, caller: Admin, the: The) -> Response:
    """Let a machine take work again."""
    return await _drained(the, machine_id, caller.name, drained=False)


async def _drained(the: LiveService, machine_id: str, by: str, *, drained: bool) -> Response:
    asked = the.driver.drain(MachineId(machine_id), by, drained=drained)
    await asyncio.wrap_future(asked)
    found = await asyncio.to_thread(the.view.machines)
    (machine,) = (one for one in found if one.machine.id == machine_id)
    return JSONResponse(machine_document(machine))


@routes.get("/trace")
def trace(
    caller: Viewer,
    the: The,
    days: Annotated[float, Query(gt=0, le=DAYS_MAX)] = 7.0,
) -> Response:
    """Return the jobs of the last days as a trace that can be played, in CSV."""
    text = the.view.trace(the.view.now_s() - days * DAY_S)
    return PlainTextResponse(text, media_type="text/csv")


@routes.get("/cluster")
def cluster(caller: Viewer, the: The) -> Response:
    """Return this machine as a cluster file has it."""
    return JSONResponse(cluster_document(the.view.cluster()))


@routes.get("/log")
def entries(
    caller: Viewer,
    the: The,
    after: Annotated[int, Query(ge=0, le=SERIAL_MAX)] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
) -> Response:
    """Return entries of the log, the oldest first."""
    found = the.view.log(after, limit)
    more = str(found[-1].seq) if len(found) == limit else None
    shown = [entry_document(entry) for entry in found]
    return JSONResponse({"entries": shown, "next_after": more})


@routes.get("/watch")
async def watch(
    caller: Viewer,
    the: The,
    request: Request,
    after: Annotated[int | None, Query(ge=0, le=SERIAL_MAX)] = None,
    last_event_id: Annotated[int | None, Header(ge=0, le=SERIAL_MAX)] = None,
) -> Response:
    """Send entries of the log as they are written, as server-sent events."""
    begin = after if last_event_id is None else last_event_id
    if begin is None:
        begin = await asyncio.to_thread(the.view.last_seq)
    return StreamingResponse(_events(the, request, begin), media_type="text/event-stream")


@routes.get("/openapi.json")
def openapi(caller: Viewer, request: Request) -> Response:
    """Return the description of this API."""
    return JSONResponse(request.app.openapi())


async def _events(the: LiveService, request: Request, seq: int) -> AsyncIterator[str]:
    news: News = request.app.state.news
    while not await request.is_disconnected():
        waiting = asyncio.ensure_future(news.wait())
        found = await asyncio.to_thread(the.view.log, seq, PAGE_MAX)
        for entry in found:
            seq = entry.seq
            data = json.dumps(entry_document(entry))
            yield f"id: {seq}\nevent: {entry.kind}\ndata: {data}\n\n"
        if not found:
            done, _ = await asyncio.wait({waiting}, timeout=HEARTBEAT_S)
            if not done:
                yield ": still here\n\n"
        waiting.cancel()
