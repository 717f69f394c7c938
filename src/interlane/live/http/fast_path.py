"""The fast path of requests that come by the hundred a second.

A submission or an invocation that is as it should be (a valid token, a job that can be read) is
answered before the router looks at it.  Any other goes through the router, which
says what is wrong.  Both end in the same calls.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from interlane.live.auth import Caller, Role
from interlane.live.files.job import JobSpec
from interlane.live.functions.routes import answer_of
from interlane.live.http.access import CALLER, PREFIX
from interlane.live.http.bodies import INVOKE, Asgi, read_again, whole_body
from interlane.live.http.presence import CallerGone, first_of
from interlane.live.http.routes.jobs import KEY_LENGTH_MAX, handed_in
from interlane.live.http.service import LiveService
from interlane.model import InterlaneError

JOBS: Final = f"{PREFIX}/jobs"
INVOKED: Final = f"{PREFIX}/functions/"

Headers = dict[bytes, bytes]
Short = Callable[[bytes, Any], Awaitable[Asgi | None]]
"""Answers a body; None where the router must say what is wrong, and nothing has happened."""


class FastPath:
    """Answers what is plain and passes the rest on."""

    def __init__(self, app: Asgi, state: Any, service: LiveService) -> None:  # noqa: ANN401 - Starlette's bag
        self._app = app
        self._state = state
        self._service = service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        """Answer a request, or pass it on."""
        short = None
        if scope["type"] == "http" and scope["method"] == "POST":
            short = self._short(scope)
        if short is None:
            await self._app(scope, receive, send)
            return
        body = await whole_body(receive)
        if body is None:
            return
        try:
            answer = await short(body, receive)
        except CallerGone:
            return
        if answer is None:
            await self._app(scope, read_again(body, receive), send)
        else:
            await answer(scope, receive, send)

    def _short(self, scope: Any) -> Short | None:  # noqa: ANN401 - ASGI
        """Return who answers a request; None if it is not plain."""
        caller: Caller | None = scope.get(CALLER)
        if caller is None or caller.role < Role.USER:
            return None
        path: str = scope["path"]
        if path == JOBS:
            return self._submission(caller, dict(scope["headers"]))
        if path.startswith(INVOKED) and path.endswith(INVOKE):
            return self._invocation(path[len(INVOKED) : -len(INVOKE)], dict(scope["headers"]))
        return None

    def _submission(self, caller: Caller, headers: Headers) -> Short | None:
        shown = headers.get(b"idempotency-key")
        is_json = headers.get(b"content-type") == b"application/json"
        is_fine = shown is None or 0 < len(shown) <= KEY_LENGTH_MAX
        if not is_json or not is_fine:
            return None
        key = None if shown is None else shown.decode("latin-1")

        async def short(body: bytes, receive: Any) -> Asgi | None:  # noqa: ANN401 - ASGI
            try:
                job = JobSpec.model_validate(json.loads(body))
                return await handed_in(self._service.driver, job, caller, key)
            except (ValueError, RecursionError, InterlaneError):
                return None

        return short

    def _invocation(self, name: str, headers: Headers) -> Short | None:
        functions = self._state.functions
        if name not in functions or b"x-deadline" in headers:
            return None

        async def short(body: bytes, receive: Any) -> Asgi:  # noqa: ANN401 - ASGI
            return answer_of(
                await first_of(receive, functions.ask(name, body)), functions.answers
            )

        return short
