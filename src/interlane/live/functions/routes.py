"""Functions over HTTP."""

import asyncio
from http import HTTPStatus
from math import ceil
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import Field

from interlane.live.auth import Role
from interlane.live.files.function import FunctionSpec
from interlane.live.functions.calls import CallOutcome, Reply, UnsentAnswers
from interlane.live.functions.gateway import Gateway
from interlane.live.http.access import PREFIX, PROBLEMS, User, Viewer, also
from interlane.live.http.presence import first_of
from interlane.live.http.problems import problem
from interlane.live.http.service import Address
from interlane.live.http.service import The as Service
from interlane.model import amounts

PIECE_BYTES: Final = 1 << 18
"""Answers that are longer are sent in pieces."""

FunctionPath = Annotated[str, Field(max_length=64)]
Deadline = Annotated[
    str | None,
    Header(
        max_length=32,
        description="Sooner than the function's own, as in 500ms.",
        alias="X-Deadline",
    ),
]


async def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.functions
    return gateway


The = Annotated[Gateway, Depends(_gateway)]
functions = APIRouter(prefix=f"{PREFIX}/functions", responses=PROBLEMS, tags=["functions"])


@functions.post("", status_code=HTTPStatus.CREATED, responses=also(403, 409))
async def deploy(
    function: FunctionSpec, caller: User, the: The, service: Service, address: Address
) -> Response:
    """Deploy a function, in place of one of its name; the answer means that it is stored."""
    made = await the.deploy(function, caller.name, is_admin=caller.role >= Role.ADMIN)
    said = {"function": made.name, "version": made.version}
    await asyncio.to_thread(service.note, "function deployed", caller, address, **said)
    headers = {"Location": f"{PREFIX}/functions/{made.name}"}
    return JSONResponse(made.document(), HTTPStatus.CREATED, headers)


@functions.get("")
async def list_functions(caller: Viewer, the: The) -> Response:
    """List functions by name."""
    return JSONResponse({"functions": [one.document() for one in the.statuses()]})


@functions.get("/{name}", responses=also(404))
async def function(name: FunctionPath, caller: Viewer, the: The) -> Response:
    """Show a function."""
    return JSONResponse(the.status(name).document())


@functions.delete("/{name}", status_code=HTTPStatus.NO_CONTENT, responses=also(403, 404))
async def delete(
    name: FunctionPath, caller: User, the: The, service: Service, address: Address
) -> Response:
    """Forget a function."""
    await the.delete(name, caller.name, is_admin=caller.role >= Role.ADMIN)
    await asyncio.to_thread(service.note, "function deleted", caller, address, function=name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@functions.get("/{name}/log", responses=also(404))
async def printed(name: FunctionPath, caller: Viewer, the: The) -> Response:
    """Return the newest of what a function's replicas printed."""
    headers = {"X-Content-Type-Options": "nosniff"}
    return PlainTextResponse(bytes(the.function(name).log), headers=headers)


@functions.post(
    "/{name}/invoke",
    responses={
        200: {"description": "What the handler returned.", "content": {"application/json": {}}},
        **also(404, 502, 503, 504),
    },
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": {}}}}},
)
async def invoke(
    name: FunctionPath, request: Request, caller: User, the: The, x_deadline: Deadline = None
) -> Response:
    """Call a function with a JSON document and return what it answers."""
    deadline_s = None if x_deadline is None else _deadline_s(x_deadline)
    asked = the.ask(name, await request.body(), deadline_s)
    return answer_of(await first_of(request.receive, asked), the.answers)


def _deadline_s(text: str) -> float:
    return amounts.seconds("X-Deadline", text)


_STATUS: Final = {
    CallOutcome.RAISED: HTTPStatus.BAD_GATEWAY,
    CallOutcome.LOST: HTTPStatus.BAD_GATEWAY,
    CallOutcome.NOT_JSON: HTTPStatus.UNPROCESSABLE_ENTITY,
    CallOutcome.LATE: HTTPStatus.GATEWAY_TIMEOUT,
    CallOutcome.FULL: HTTPStatus.SERVICE_UNAVAILABLE,
    CallOutcome.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}


class AnswerResponse(Response):
    """An answer that is sent piece by piece, and counts until it has been."""

    def __init__(self, data: bytes, unsent: UnsentAnswers) -> None:
        super().__init__(media_type="application/json")
        self.headers["content-length"] = str(len(data))
        self._data = data
        self._unsent = unsent

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        """Send it, unless too much waits to be sent already."""
        with self._unsent.holding(len(self._data)) as has_room:
            if not has_room:
                said = "Too many answers wait to be sent; try again in a moment."
                full = problem(HTTPStatus.SERVICE_UNAVAILABLE, said, {"Retry-After": "1"})
                await full(scope, receive, send)
                return
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            for at in range(0, len(self._data), PIECE_BYTES):
                piece = self._data[at : at + PIECE_BYTES]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def answer_of(reply: Reply, unsent: UnsentAnswers) -> Response:
    """Return what a caller sees of a reply."""
    if reply.outcome is CallOutcome.GOOD and len(reply.data) > PIECE_BYTES:
        return AnswerResponse(reply.data, unsent)
    if reply.outcome is CallOutcome.GOOD:
        return Response(reply.data, media_type="application/json")
    headers = {}
    if reply.retry_s is not None:
        headers["Retry-After"] = str(max(1, ceil(reply.retry_s)))
    return problem(_STATUS[reply.outcome], reply.data.decode(errors="replace"), headers)
