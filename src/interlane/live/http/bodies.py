"""Bodies of requests, read whole and looked at before anybody makes anything of them."""

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

from interlane.live.http.access import PREFIX
from interlane.live.http.problems import problem

VALUES_MAX: Final = 4_000
"""Values of a document: each takes time to be checked, and to say what is wrong with it."""

INVOKE: Final = "/invoke"
"""How paths end whose bodies are read elsewhere, by somebody's function."""

Asgi = Callable[..., Awaitable[None]]


async def whole_body(receive: Any) -> bytes | None:  # noqa: ANN401 - ASGI
    """Return all of a body; None if whoever sent it is gone."""
    body: bytes = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


def read_again(body: bytes, receive: Any) -> Any:  # noqa: ANN401 - ASGI
    """Let a body that was read be read once more."""
    read: list[bytes] = [body]

    async def received() -> Any:  # noqa: ANN401 - ASGI
        if read:
            return {"type": "http.request", "body": read.pop(), "more_body": False}
        return await receive()

    return received


class ValueLimit:
    """Refuses documents of so many values that nobody can have written them."""

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        """Pass a request on, or answer why not."""
        if scope["type"] != "http" or not _is_looked_at(scope):
            await self._app(scope, receive, send)
            return
        body = await whole_body(receive)
        if body is None:
            return
        if has_too_many(body):
            said = f"The document has more than {VALUES_MAX:,} values; send fewer."
            answer: Asgi = problem(HTTPStatus.UNPROCESSABLE_ENTITY, said)
            await answer(scope, receive, send)
        else:
            await self._app(scope, read_again(body, receive), send)


def _is_looked_at(scope: Any) -> bool:  # noqa: ANN401 - ASGI
    """Tell whether a request may bring a document of many values."""
    length = dict(scope["headers"]).get(b"content-length", b"0")
    is_long = length.isdigit() and int(length) >= VALUES_MAX
    path: str = scope["path"]
    return is_long and path.startswith(PREFIX) and not path.endswith(INVOKE)


def has_too_many(body: bytes) -> bool:
    """Tell whether a document has too many values; one that cannot be read has none."""
    if body.count(b",") < VALUES_MAX:  # nearly every value follows one
        return False
    try:
        waiting = [json.loads(body)]
    except (ValueError, RecursionError):
        return False
    count = 0
    while waiting and count <= VALUES_MAX:
        one = waiting.pop()
        below = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        count += len(below)
        if count <= VALUES_MAX:
            waiting += below
    return count > VALUES_MAX
