"""Bodies of requests have a bound."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from interlane.live.http.access import BODY_BYTES_MAX
from interlane.live.http.problems import problem


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
