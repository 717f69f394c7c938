"""The machine over HTTP: ``/api/v1`` and what operators look at.

Handlers that wait for the driver are coroutines; those that read the store are plain
functions, which run in threads.  Every route but the two probes needs a token, and says with
``Needs`` which role.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from interlane import __version__
from interlane.kernel.scheduler import Scheduler
from interlane.model import JobId
from interlane.server import history, metrics, whatif
from interlane.server.access import (
    BODY_BYTES_MAX,
    PREFIX,
    PROBLEMS,
    Admin,
    User,
    Viewer,
    also,
)
from interlane.server.auth import Tokens, insist_may_cancel, role_of
from interlane.server.driver import Driver, Key, NoSuchJob
from interlane.server.etas import Etas
from interlane.server.functions.gateway import FunctionSettings, Gateway
from interlane.server.functions.routes import ShortWay, functions
from interlane.server.picture import entry_document, job_document
from interlane.server.problems import answer_with_problems, problem
from interlane.server.record import Record, State
from interlane.server.runner import Attempt
from interlane.server.spec import JobSpec, check_spec
from interlane.server.store import JobsWanted

PAGE_MAX: Final = 500
LOG_BYTES_MAX: Final = 1 << 20
HEARTBEAT_S: Final = 15.0
"""Seconds after which a watcher that sees nothing is told that the server is there."""

AHEAD_SHOWN: Final = 10
DAY_S: Final = 86_400.0
DAYS_MAX: Final = 3_660.0
SERIAL_MAX: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes speak to."""

    driver: Driver
    tokens: Tokens
    emulated: bool
    etas: Etas
    functions: FunctionSettings = field(default_factory=FunctionSettings)


JobPath = Annotated[str, Field(max_length=128)]


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


The = Annotated[Service, Depends(_service)]

api = APIRouter(prefix=PREFIX, responses=PROBLEMS)


# -- jobs -----------------------------------------------------------------------------


@api.post("/jobs", status_code=HTTPStatus.CREATED, tags=["jobs"])
async def submit(
    job: JobSpec,
    caller: User,
    the: The,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> Response:
    """Hand in a job; the answer means that it is stored."""
    check_spec(job)
    key = None
    if idempotency_key is not None:
        key = Key(idempotency_key, sha256(job.model_dump_json().encode()).hexdigest())
    record = await asyncio.wrap_future(the.driver.submit(job, caller.name, key))
    return _job_answer(record, HTTPStatus.CREATED, {"Location": f"{PREFIX}/jobs/{record.id}"})


@api.get("/jobs", tags=["jobs"])
def jobs(
    caller: Viewer,
    the: The,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
    cursor: Annotated[int | None, Query(ge=0, le=SERIAL_MAX)] = None,
    state: Annotated[
        list[State] | None, Query(description="Any of these; all if none.")
    ] = None,
    user: Annotated[str | None, Query(max_length=64)] = None,
) -> Response:
    """List jobs, the newest first."""
    wanted = JobsWanted(limit, cursor, None if not state else frozenset(state), user)
    found = the.driver.store.jobs(wanted)
    shown = [job_document(record) for record in found]
    for document in shown:
        del document["spec"]
    more = str(found[-1].serial) if len(found) == limit else None
    return JSONResponse({"jobs": shown, "next_cursor": more})


@api.get("/jobs/{job_id}", tags=["jobs"], responses=also(304, 404))
def job(
    job_id: JobPath,
    caller: Viewer,
    the: The,
    if_none_match: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """Show a job."""
    record = _record(the, job_id)
    if if_none_match == _etag(record):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": _etag(record)})
    document = job_document(record, the.driver.use(record.id))
    return JSONResponse(document, headers={"ETag": _etag(record)})


@api.delete(
    "/jobs/{job_id}",
    status_code=HTTPStatus.ACCEPTED,
    tags=["jobs"],
    responses=also(404, 409, 412),
)
async def cancel(
    job_id: JobPath,
    caller: User,
    the: The,
    if_match: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """Take a job back: out of the queue at once, or with its signal and grace if it runs."""
    record = await asyncio.to_thread(_record, the, job_id)
    insist_may_cancel(caller, record)
    version = None if if_match in (None, "*") else _version(if_match)
    asked = the.driver.cancel(record.id, caller.name, version)
    return _job_answer(await asyncio.wrap_future(asked), HTTPStatus.ACCEPTED)


@api.get("/jobs/{job_id}/log", tags=["jobs"], responses=also(404))
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
    record = _record(the, job_id)
    of = Attempt(record.id, attempt or record.attempt)
    if offset < 0:
        offset = max(0, the.driver.runner.printed_bytes(of) + offset)
    begin, data = the.driver.runner.output(of, offset, limit)
    headers = {
        "X-Offset": str(begin),
        "X-Next-Offset": str(begin + len(data)),
        "X-Job-State": record.state.value,
        "X-Content-Type-Options": "nosniff",
    }
    return PlainTextResponse(data, headers=headers)


@api.get("/jobs/{job_id}/story", tags=["jobs"], responses=also(404))
def story(job_id: JobPath, caller: Viewer, the: The) -> Response:
    """Return everything that happened to a job."""
    record = _record(the, job_id)
    entries = the.driver.store.log(job_id=record.id, limit=PAGE_MAX)
    return JSONResponse({"entries": [entry_document(entry) for entry in entries]})


@api.get("/jobs/{job_id}/why", tags=["jobs"], responses=also(404))
async def why(job_id: JobPath, caller: Viewer, the: The) -> Response:
    """Say why a job waits: the refusal that decided, and who goes first."""
    record = await asyncio.to_thread(_record, the, job_id)
    document = {
        **job_document(record),
        **whatif.refusal_document(None),
        "ahead_count": 0,
        "ahead": [],
    }
    if record.state is State.QUEUED:
        document |= await asyncio.wrap_future(the.driver.ask(_why(record.id)))
    return JSONResponse(document)


@api.get("/jobs/{job_id}/eta", tags=["jobs"], responses=also(404))
def eta(job_id: JobPath, caller: Viewer, the: The) -> Response:
    """Say when a job is likely to start, by playing what is known forward."""
    record = _record(the, job_id)
    return JSONResponse(the.etas.document(record))


@api.post("/plan", tags=["jobs"])
def plan(job: JobSpec, caller: User, the: The) -> Response:
    """Say whether a job would start now, where and beside whom; nothing is changed."""
    check_spec(job)
    return JSONResponse(whatif.plan_document(the.driver, job, caller.name))


# -- the machine ----------------------------------------------------------------------


@api.get("/gpus", tags=["machine"])
def gpus(caller: Viewer, the: The) -> Response:
    """Show every device: what is held of it and by whom, its lanes, and what is used."""
    return JSONResponse({"gpus": [asdict(device) for device in the.driver.devices()]})


@api.get("/summary", tags=["machine"])
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


@api.get("/trace", tags=["machine"])
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


@api.get("/cluster", tags=["machine"])
def cluster(caller: Viewer, the: The) -> Response:
    """Return this machine as a cluster file has it."""
    return JSONResponse(history.cluster_document(the.driver.cluster))


@api.get("/log", tags=["machine"])
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


@api.get("/watch", tags=["machine"])
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


# -- tokens ---------------------------------------------------------------------------


class NewToken(BaseModel):
    """A token that is wanted."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f]*$")
    role: str = Field(pattern="^(viewer|user|admin)$")


@api.post("/tokens", status_code=HTTPStatus.CREATED, tags=["tokens"])
def make_token(wanted: NewToken, caller: Admin, the: The) -> Response:
    """Make a token; it is shown this once."""
    token, row = the.tokens.make(wanted.name, role_of(wanted.role))
    shown = {"id": row.id, "name": row.name, "role": row.role, "token": token}
    return JSONResponse(shown, HTTPStatus.CREATED)


@api.get("/tokens", tags=["tokens"])
def list_tokens(caller: Admin, the: The) -> Response:
    """List tokens, without what would let anybody use them."""
    shown = [asdict(row) for row in the.tokens.all()]
    for row in shown:
        del row["digest"]
    return JSONResponse({"tokens": shown})


@api.delete(
    "/tokens/{token_id}",
    status_code=HTTPStatus.NO_CONTENT,
    tags=["tokens"],
    responses=also(404),
)
def revoke_token(
    token_id: Annotated[str, Field(max_length=32)], caller: Admin, the: The
) -> Response:
    """Let a token count no longer."""
    if not the.tokens.revoke(token_id):
        raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no valid token {token_id!r}.")
    return Response(status_code=HTTPStatus.NO_CONTENT)


# -- probes ---------------------------------------------------------------------------

probes = APIRouter(tags=["probes"])


@probes.get("/healthz")
def healthz() -> Response:
    """Answer that the process lives."""
    return PlainTextResponse("ok\n")


@probes.get("/readyz", responses=also(503))
def readyz(the: The) -> Response:
    """Answer whether jobs are taken in and stored."""
    if the.driver.is_ready:
        return PlainTextResponse("ready\n")
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, "The server cannot reach its database.")


@probes.get("/metrics", responses=PROBLEMS)
async def metrics_page(caller: Viewer, the: The, request: Request) -> Response:
    """Return figures in the format of Prometheus."""
    shown = request.app.state.functions.statuses()
    page = await asyncio.to_thread(metrics.page, the.driver, shown)
    return Response(page, media_type=metrics.MEDIA_TYPE)


# -- the application ------------------------------------------------------------------


def make_app(service: Service) -> FastAPI:
    """Return the application; the driver begins and ends with it."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        loop, news = asyncio.get_running_loop(), News()
        app.state.news = news
        service.driver.on_commit = lambda seq: _tell(loop, news)
        gateway = Gateway(service.driver, service.functions)
        app.state.functions = gateway
        await gateway.start(news.wait)
        yield
        await gateway.close()
        service.driver.on_commit = lambda seq: None

    app = FastAPI(
        title="interlane",
        version=__version__,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.service = service
    app.include_router(api)
    app.include_router(functions)
    app.include_router(probes)
    app.add_api_route(f"{PREFIX}/openapi.json", _openapi, tags=["machine"], responses=PROBLEMS)
    app.add_middleware(BodyLimit)
    app.add_middleware(ShortWay, state=app.state, tokens=service.tokens)
    answer_with_problems(app)
    return app


def _openapi(caller: Viewer, request: Request) -> Response:
    """Return the description of this API."""
    return JSONResponse(request.app.openapi())


class News:
    """Wakes watchers when something was written."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Wake everybody who waits."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next thing written."""
        await self._event.wait()


def _tell(loop: asyncio.AbstractEventLoop, news: News) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(news.tell)


class BodyLimit:
    """Refuses bodies that are too large, before they are read."""

    def __init__(self, app: Callable[..., Any], bytes_max: int = BODY_BYTES_MAX) -> None:
        self._app = app
        self._bytes_max = bytes_max

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        """Pass a request on unless its body is too large."""
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            length = headers.get(b"content-length", b"0")
            is_chunked = b"transfer-encoding" in headers
            if is_chunked or not length.isdigit() or int(length) > self._bytes_max:
                said = f"Bodies have a Content-Length of at most {self._bytes_max} bytes."
                answer = problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


# -- leaves ---------------------------------------------------------------------------


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


def _record(the: Service, job_id: str) -> Record:
    record = the.driver.open_record(job_id) or the.driver.store.job(job_id)
    if record is None:
        raise NoSuchJob(f"There is no job {job_id!r}; 'interlane ps -A' lists all.")
    return record


def _job_answer(record: Record, status: int, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(
        job_document(record), status, {"ETag": _etag(record), **(headers or {})}
    )


def _etag(record: Record) -> str:
    return f'"{record.version}"'


def _version(etag: str) -> int:
    text = etag.removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise HTTPException(
            HTTPStatus.PRECONDITION_FAILED, f"If-Match is {etag}, which no job's ETag ever was."
        )
    return int(text)


def _why(job_id: JobId) -> Callable[[Scheduler, float], dict[str, Any]]:
    def question(scheduler: Scheduler, now_s: float) -> dict[str, Any]:
        refusal = scheduler.explain(job_id, now_s)
        if refusal is None:
            return {}
        ahead = scheduler.ahead(job_id, now_s)
        return {
            **whatif.refusal_document(refusal),
            "ahead_count": len(ahead),
            "ahead": list(ahead[:AHEAD_SHOWN]),
        }

    return question
