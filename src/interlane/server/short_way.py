"""The short way of requests that come by the hundred a second.

A submission or an invocation that is as it should be (a valid token, a body of known length, a
job that can be read) is answered before anybody else looks at it.  Any other takes the long way
through the router, which says what is wrong.  Both ways end in the same calls.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from interlane.model import InterlaneError
from interlane.server.access import BODY_BYTES_MAX, PREFIX
from interlane.server.auth import Caller, Role
from interlane.server.functions.routes import answer_of
from interlane.server.routes.jobs import KEY_LENGTH_MAX, handed_in
from interlane.server.service import Service
from interlane.server.spec import JobSpec

JOBS: Final = f"{PREFIX}/jobs"
INVOKED: Final = f"{PREFIX}/functions/"
INVOKE: Final = "/invoke"

Headers = dict[bytes, bytes]
Asgi = Callable[..., Awaitable[None]]
Short = Callable[[bytes], Awaitable[Asgi | None]]
"""Answers a body; None where the long way must say what is wrong, and nothing has happened."""


class ShortWay:
    """Answers what is plain and passes the rest on."""

    def __init__(self, app: Asgi, state: Any, service: Service) -> None:  # noqa: ANN401 - Starlette's bag
        self._app = app
        self._state = state
        self._service = service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        """Answer a request, or pass it on."""
        short = None
        if scope["type"] == "http" and scope["method"] == "POST":
            short = self._short(scope["path"], dict(scope["headers"]))
        if short is None:
            await self._app(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            return
        answer = await short(body)
        if answer is None:
            await self._app(scope, _again(body, receive), send)
        else:
            await answer(scope, receive, send)

    def _short(self, path: str, headers: Headers) -> Short | None:
        """Return who answers a request; None if it is not plain."""
        if path == JOBS:
            return self._submission(headers)
        if path.startswith(INVOKED) and path.endswith(INVOKE):
            return self._invocation(path[len(INVOKED) : -len(INVOKE)], headers)
        return None

    def _submission(self, headers: Headers) -> Short | None:
        caller = self._caller(headers)
        key = headers.get(b"idempotency-key", b"-").decode("latin-1")
        is_json = headers.get(b"content-type") == b"application/json"
        if caller is None or not is_json or not 0 < len(key) <= KEY_LENGTH_MAX:
            return None
        name, key_said = caller.name, key if b"idempotency-key" in headers else None

        async def short(body: bytes) -> Asgi | None:
            try:
                job = JobSpec.model_validate(json.loads(body))
                return await handed_in(self._service.driver, job, name, key_said)
            except (ValueError, RecursionError, InterlaneError):
                return None

        return short

    def _invocation(self, name: str, headers: Headers) -> Short | None:
        functions = self._state.functions
        if name not in functions or b"x-deadline" in headers or self._caller(headers) is None:
            return None

        async def short(body: bytes) -> Asgi:
            return answer_of(await functions.ask(name, body))

        return short

    def _caller(self, headers: Headers) -> Caller | None:
        """Return a user who sends a body of known length."""
        word, _, token = headers.get(b"authorization", b"").partition(b" ")
        length = headers.get(b"content-length", b"")
        if word.lower() != b"bearer" or not length.isdigit() or int(length) > BODY_BYTES_MAX:
            return None
        caller = self._service.tokens.caller(token.decode("latin-1"))
        return caller if caller is not None and caller.role >= Role.USER else None


async def _body(receive: Any) -> bytes | None:  # noqa: ANN401 - ASGI
    """Return all of a body; None if whoever sent it is gone."""
    body: bytes = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


def _again(body: bytes, receive: Any) -> Any:  # noqa: ANN401 - ASGI
    """Let a body that was read be read once more."""
    read: list[bytes] = [body]

    async def received() -> Any:  # noqa: ANN401 - ASGI
        if read:
            return {"type": "http.request", "body": read.pop(), "more_body": False}
        return await receive()

    return received
