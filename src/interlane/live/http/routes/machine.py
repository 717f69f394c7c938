"""The machine: its devices, its log, what has happened on it."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import Field

from interlane.live.auth import Caller, Role
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
from interlane.live.http.feed import Feed
from interlane.live.http.presence import while_there
from interlane.live.http.service import Address, LiveService, The
from interlane.metrics.usage import UsageBy, in_all
from interlane.model import MachineId
from interlane.traces.cluster_file import cluster_document

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


@routes.get("/whoami")
def whoami(caller: Viewer) -> Response:
    """Say whose token this is, and what it may do."""
    return JSONResponse({"name": caller.name, "role": caller.role.word})


@routes.get("/machines")
def machines(caller: Viewer, the: The) -> Response:
    """List machines: what they offer, who is there, and whether they are drained."""
    return JSONResponse({"machines": [machine_document(one) for one in the.view.machines()]})


@routes.put("/machines/{machine_id}/drain", responses=also(404))
async def drain(machine_id: MachinePath, caller: Admin, the: The, address: Address) -> Response:
    """Let a machine take nothing new; what runs there runs on."""
    return await _drained(the, machine_id, caller, address, drained=True)


@routes.delete("/machines/{machine_id}/drain", responses=also(404))
async def undrain(
    machine_id: MachinePath, caller: Admin, the: The, address: Address
) -> Response:
    """Let a machine take work again."""
    return await _drained(the, machine_id, caller, address, drained=False)


async def _drained(
    the: LiveService, machine_id: str, caller: Caller, address: str, *, drained: bool
) -> Response:
    asked = the.driver.drain(MachineId(machine_id), caller.name, drained=drained)
    await asyncio.wrap_future(asked)
    what = "machine drained" if drained else "machine undrained"
    await asyncio.to_thread(the.note, what, caller, address, machine=machine_id)
    found = await asyncio.to_thread(the.view.machines)
    (machine,) = (one for one in found if one.machine.id == machine_id)
    return JSONResponse(machine_document(machine))


@routes.get("/trace")
async def trace(
    caller: Viewer,
    the: The,
    request: Request,
    days: Annotated[float, Query(gt=0, le=DAYS_MAX)] = 7.0,
) -> Response:
    """Return the jobs of the last days as a trace that can be played, in CSV."""
    the.desk.must_not_hurry(caller.name)
    view = the.view
    found = the.desk.answer("trace", days, lambda: view.trace(view.now_s() - days * DAY_S))
    text = await while_there(request.receive, found)
    return PlainTextResponse(text, media_type="text/csv")


@routes.get("/usage")
async def usage(
    caller: Viewer,
    the: The,
    request: Request,
    days: Annotated[float, Query(gt=0, le=DAYS_MAX)] = 7.0,
    by: UsageBy = UsageBy.USER,
) -> Response:
    """Say who had how much of the GPUs in the last days: held, used and wasted GPU-hours."""
    the.desk.must_not_hurry(caller.name)
    view = the.view
    now_s = view.now_s()
    since_s = now_s - days * DAY_S
    found = the.desk.answer("usage", (days, by), lambda: view.usage(since_s, by))
    rows = await while_there(request.receive, found)
    told = {"since_s": since_s, "until_s": now_s, "by": by.value}
    total = {**asdict(in_all(rows)), "account": None}
    return JSONResponse({**told, "usage": [asdict(one) for one in rows], "total": total})


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
    whole = caller.role >= Role.ADMIN
    shown = [entry_document(entry, whole=whole) for entry in found]
    return JSONResponse({"entries": shown, "next_after": more})


@routes.get("/watch")
async def watch(
    caller: Viewer,
    the: The,
    request: Request,
    after: Annotated[int | None, Query(ge=0, le=SERIAL_MAX)] = None,
    last_event_id: Annotated[int | None, Header(ge=0, le=SERIAL_MAX)] = None,
) -> Response:
    """Send entries of the log as they are written, as server-sent events.

    The stream ends when the token counts no longer.
    """
    feed: Feed = request.app.state.feed
    begin = after if last_event_id is None else last_event_id
    await feed.must_have_room(caller)
    if begin is None:
        begin = await asyncio.to_thread(the.view.last_seq)
    return StreamingResponse(feed.events(caller, begin), media_type="text/event-stream")


@routes.get("/openapi.json")
def openapi(caller: Viewer, request: Request) -> Response:
    """Return the description of this API."""
    return JSONResponse(request.app.openapi())
