"""Jobs: submitted, looked at, asked about, cancelled."""

import asyncio
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Header, HTTPException, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import Field

from interlane.live.auth import Caller, Role
from interlane.live.driver import Driver, Key, Resolution
from interlane.live.driver.users import digest_of
from interlane.live.files.job import JobSpec, check_spec
from interlane.live.http import acting
from interlane.live.http.access import (
    PAGE_MAX,
    PREFIX,
    PROBLEMS,
    SERIAL_MAX,
    Admin,
    User,
    Viewer,
    also,
)
from interlane.live.http.documents import entry_document, job_document
from interlane.live.http.presence import while_there
from interlane.live.http.service import Address, The
from interlane.live.http.waiting import waiting_documents
from interlane.live.questions.whatif import refusal_document
from interlane.live.store.record import JobRecord
from interlane.live.view import Why
from interlane.model import JobId
from interlane.model.lifecycle import JobState

KEY_LENGTH_MAX: Final = 255
LOG_BYTES_MAX: Final = 1 << 20

JobPath = Annotated[str, Field(max_length=128)]

routes = APIRouter(prefix=PREFIX, responses=PROBLEMS, tags=["jobs"])


@routes.post("/jobs", status_code=HTTPStatus.CREATED)
async def submit(
    job: JobSpec,
    caller: User,
    the: The,
    idempotency_key: Annotated[
        str | None, Header(min_length=1, max_length=KEY_LENGTH_MAX)
    ] = None,
) -> Response:
    """Hand in a job; the answer means that it is stored."""
    return await handed_in(the.driver, job, caller, idempotency_key)


async def handed_in(
    driver: Driver, job: JobSpec, caller: Caller, idempotency_key: str | None
) -> Response:
    """Store a job and answer so; where this raises, nothing was stored."""
    check_spec(job)
    key = None
    if idempotency_key is not None:
        key = Key(idempotency_key, digest_of(job))
    is_admin = caller.role >= Role.ADMIN
    asked = driver.submit(job, caller.name, key, is_admin=is_admin)
    record = await asyncio.wrap_future(asked)
    headers = {"ETag": _etag(record), "Location": f"{PREFIX}/jobs/{record.id}"}
    document = job_document(record, now_s=driver.now_s(), whole=True)
    return JSONResponse(
        {**document, "notes": driver.notes_on(job)}, HTTPStatus.CREATED, headers
    )


@routes.get("/jobs")
async def jobs(
    caller: Viewer,
    the: The,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
    cursor: Annotated[int | None, Query(ge=0, le=SERIAL_MAX)] = None,
    state: Annotated[
        list[JobState] | None, Query(description="Any of these; all if none.")
    ] = None,
    user: Annotated[str | None, Query(max_length=64)] = None,
    sweep: Annotated[
        str | None, Query(min_length=1, max_length=64, description="Trials of this sweep.")
    ] = None,
    why: Annotated[
        bool, Query(description="Also why those that wait do, and when they may start.")
    ] = False,
) -> Response:
    """List jobs, the newest first."""
    view = the.view
    states = None if not state else frozenset(state)
    asked = partial(view.jobs, limit, before=cursor, states=states, user=user, sweep=sweep)
    found = await asyncio.to_thread(asked)
    waiting = None
    if why:
        the.desk.must_not_hurry(caller.name)
        waiting = await waiting_documents(the, found)
    shown = []
    for record in found:
        device = view.on_device(record.id)
        document = job_document(record, process=device, now_s=view.now_s(), whole=False)
        del document["spec"]
        if waiting is not None:
            document["waiting"] = waiting.get(record.id)
        shown.append(document)
    more = str(found[-1].serial) if len(found) == limit else None
    return JSONResponse({"jobs": shown, "next_cursor": more})


@routes.get("/jobs/{job_id}", responses=also(304, 404))
def job(
    job_id: JobPath,
    caller: Viewer,
    the: The,
    if_none_match: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """Show a job."""
    record = the.view.job(job_id)
    if if_none_match == _etag(record):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": _etag(record)})
    view = the.view
    owns = caller.owns(record.user)
    use, device = view.use(record.id), view.on_device(record.id)
    document = job_document(record, use, device, now_s=view.now_s(), whole=owns)
    sides = view.functions.sides
    document["beside_functions"] = [asdict(one) for one in sides.of_job(record.id)]
    return JSONResponse(document, headers={"ETag": _etag(record)})


@routes.delete("/jobs/{job_id}", status_code=HTTPStatus.ACCEPTED, responses=also(404, 409, 412))
async def cancel(
    job_id: JobPath,
    caller: User,
    the: The,
    address: Address,
    if_match: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """Take a job back: out of the queue at once, or with its signal and grace if it runs."""
    version = None if if_match in (None, "*") else _version(if_match)
    answer = await acting.cancel(the, job_id, caller, address, version)
    return _job_answer(answer, the.view.now_s(), HTTPStatus.ACCEPTED)


@routes.patch("/jobs/{job_id}", responses=also(404, 409))
async def change(
    job_id: JobPath, change: Annotated[dict[str, Any], Body()], caller: User, the: The
) -> Response:
    """Change what a job that waits says: fields given replace those there, null drops one."""
    answer = await acting.change(the, job_id, caller, change)
    return _job_answer(answer, the.view.now_s(), HTTPStatus.OK)


@routes.put("/jobs/{job_id}/hold", responses=also(404, 409))
async def hold(job_id: JobPath, caller: User, the: The) -> Response:
    """Let a job that waits go on waiting until it is released."""
    answer = await acting.hold(the, job_id, caller, held=True)
    return _job_answer(answer, the.view.now_s(), HTTPStatus.OK)


@routes.delete("/jobs/{job_id}/hold", responses=also(404, 409))
async def release(job_id: JobPath, caller: User, the: The) -> Response:
    """Let a job that was held start when it can."""
    answer = await acting.hold(the, job_id, caller, held=False)
    return _job_answer(answer, the.view.now_s(), HTTPStatus.OK)


@routes.put("/jobs/{job_id}/resolution/{how}", responses=also(404, 409))
async def resolve(job_id: JobPath, how: Resolution, caller: Admin, the: The) -> Response:
    """Decide about an unknown job: its attempt is over, and it waits again or has failed."""
    asked = the.driver.resolve(JobId(job_id), how, caller.name)
    return _job_answer(await asyncio.wrap_future(asked), the.view.now_s(), HTTPStatus.OK)


@routes.get("/jobs/{job_id}/log", responses=also(404))
def printed(
    job_id: JobPath,
    caller: Viewer,
    the: The,
    offset: Annotated[
        int,
        Query(
            ge=-SERIAL_MAX, le=SERIAL_MAX, description="First byte; from the end if negative."
        ),
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=LOG_BYTES_MAX)] = 1 << 16,
    attempt: Annotated[int | None, Query(ge=1, le=1 << 30)] = None,
) -> Response:
    """Return what a job printed: ``X-Next-Offset`` says where to go on."""
    record = the.view.job(job_id)
    found = the.view.output(record.id, attempt or record.attempt, offset, limit)
    headers = {
        "X-Offset": str(found.begin),
        "X-Next-Offset": str(found.begin + len(found.data)),
        "X-Job-State": record.state.value,
        "X-Content-Type-Options": "nosniff",
    }
    return PlainTextResponse(found.data, headers=headers)


@routes.get("/jobs/{job_id}/story", responses=also(404), deprecated=True)
@routes.get("/jobs/{job_id}/timeline", responses=also(404))
def timeline(job_id: JobPath, caller: Viewer, the: The) -> Response:
    """Return everything that happened to a job; ``story`` is its name in the version before."""
    record = the.view.job(job_id)
    entries = the.view.log(job_id=record.id, limit=PAGE_MAX)
    owns = caller.owns(record.user)
    return JSONResponse({"entries": [entry_document(one, whole=owns) for one in entries]})


@routes.get("/jobs/{job_id}/why", responses=also(404))
async def why(job_id: JobPath, caller: Viewer, the: The) -> Response:
    """Say why a job waits: the refusal that decided, and who goes first."""
    the.desk.must_not_hurry(caller.name)
    view = the.view
    record = await asyncio.to_thread(view.job, job_id)
    waits = record.state is JobState.QUEUED
    why = await view.why(record.id) if waits else Why(None)
    return JSONResponse(
        {
            **job_document(
                record,
                process=view.on_device(record.id),
                now_s=view.now_s(),
                whole=caller.owns(record.user),
            ),
            **refusal_document(why.refusal),
            "ahead_count": why.ahead_count,
            "ahead": list(why.ahead),
        }
    )


@routes.get("/jobs/{job_id}/eta", responses=also(404))
async def eta(job_id: JobPath, caller: Viewer, the: The, request: Request) -> Response:
    """Say when a job is likely to start, by playing what is known forward."""
    the.desk.must_not_hurry(caller.name)
    view = the.view
    found = the.desk.answer("eta", job_id, lambda: view.eta(view.job(job_id)))
    return JSONResponse(await while_there(request.receive, found))


@routes.post("/plan")
async def plan(job: JobSpec, caller: User, the: The, request: Request) -> Response:
    """Say whether a job would start now, where and beside whom; nothing is changed."""
    found = acting.plan(the, job, caller)
    return JSONResponse(await while_there(request.receive, found))


def _job_answer(record: JobRecord, now_s: float, status: int) -> Response:
    document = job_document(record, now_s=now_s, whole=True)
    return JSONResponse(document, status, {"ETag": _etag(record)})


def _etag(record: JobRecord) -> str:
    return f'"{record.version}"'


def _version(etag: str) -> int:
    text = etag.removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise HTTPException(
            HTTPStatus.PRECONDITION_FAILED, f"If-Match is {etag}, which no job's ETag ever was."
        )
    return int(text)
