"""The machine: its devices, its log, what has happened on it."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from interlane import __version__
from interlane.live.http.access import PAGE_MAX, PREFIX, PROBLEMS, SERIAL_MAX, Viewer
from interlane.live.http.documents import entry_document
from interlane.live.http.news import News
from interlane.live.http.service import Service, The
from interlane.live.questions import history

HEARTBEAT_S: Final = 15.0
"""Seconds after which a watcher that sees nothing is told that the server is there."""

DAY_S: Final = 86_400.0
DAYS_MAX: Final = 3_660.0

routes = APIRouter(prefix=PREFIX, responses=PROBLEMS, tags=["machine"])


@routes.get("/gpus")
def gpus(caller: Viewer, the: The) -> Response:
    """Show every device: what is held of it and by whom, its lanes, and what is used."""
    return JSONResponse({"gpus": [asdict(device) for device in the.driver.devices()]})


@routes.get("/summary")
def summary(caller: Viewer, the: The) -> Response:
    """Count jobs by state, and name the policy."""
    counts = {state.value: count for state, count in the.driver.store.counts().items()}
    return JSONResponse(
        {
            "version": __version__,
            "now_s": the.driver.now_s(),
            "policy": the.driver.make_scheduler().policy.name,
            "jobs": counts,
        }
    )


@routes.get("/trace")
def trace(
    caller: Viewer,
    the: The,
    days: Annotated[float, Query(gt=0, le=DAYS_MAX)] = 7.0,
) -> Response:
    """Return the jobs of the last days as a trace that can be played, in CSV."""
    now_s = the.driver.now_s()
    since_s = now_s - days * DAY_S
    text = history.trace_text(the.driver.store, the.driver.cluster, since_s, now_s)
    return PlainTextResponse(text, media_type="text/csv")


@routes.get("/cluster")
def cluster(caller: Viewer, the: The) -> Response:
    """Return this machine as a cluster file has it."""
    return JSONResponse(history.cluster_document(the.driver.cluster))


@routes.get("/log")
def entries(
    caller: Viewer,
    the: The,
    after: Annotated[int, Query(ge=0, le=SERIAL_MAX)] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
) -> Response:
    """Return entries of the log, the oldest first."""
    found = the.driver.store.log(after, limit)
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
        begin = (await asyncio.to_thread(the.driver.store.ends)).seq
    return StreamingResponse(_events(the, request, begin), media_type="text/event-stream")


@routes.get("/openapi.json")
def openapi(caller: Viewer, request: Request) -> Response:
    """Return the description of this API."""
    return JSONResponse(request.app.openapi())


async def _events(the: Service, request: Request, seq: int) -> AsyncIterator[str]:
    news: News = request.app.state.news
    while not await request.is_disconnected():
        waiting = asyncio.ensure_future(news.wait())
        found = await asyncio.to_thread(the.driver.store.log, seq, PAGE_MAX)
        for entry in found:
            seq = entry.seq
            data = json.dumps(entry_document(entry))
            yield f"id: {seq}\nevent: {entry.kind.value}\ndata: {data}\n\n"
        if not found:
            done, _ = await asyncio.wait({waiting}, timeout=HEARTBEAT_S)
            if not done:
                yield ": still here\n\n"
        waiting.cancel()
