"""Bodies of requests have a bound."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from interlane.live.http.problems import problem


def length_of(headers: Mapping[bytes, bytes], bytes_max: int) -> int | str:
    """Return the length of a body, or why it is not read."""
    length = headers.get(b"content-length", b"0")
    is_chunked = b"transfer-encoding" in headers
    if is_chunked or not length.isdigit() or int(length) > bytes_max:
        return f"Bodies have a Content-Length of at most {bytes_max} bytes."
    return int(length)


class BodyLimit:
    """Refuses bodies that are too large, before they are read."""

    def __init__(self, app: Callable[..., Any], bytes_max: int) -> None:
        self._app = app
        self._bytes_max = bytes_max

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        """Pass a request on unless its body is too large."""
        if scope["type"] == "http":
            length = length_of(dict(scope["headers"]), self._bytes_max)
            if isinstance(length, str):
                answer = problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, length)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)
