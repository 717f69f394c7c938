"""Few large bodies come in at a time: what one uploads lies in memory or on the disk."""

from collections import Counter
from http import HTTPStatus
from typing import Any, Final

from interlane.live.auth import Caller
from interlane.live.bounds import ServerBounds
from interlane.live.http.access import CALLER
from interlane.live.http.body_limit import length_of
from interlane.live.http.gate import RETRY, Asgi, closing
from interlane.live.http.problems import problem

SMALL_BYTES: Final = 1 << 16
"""What is no larger is no upload."""


class UploadGate:
    """Refuses bodies that are too large or too many, before anything of them is read."""

    def __init__(self, app: Asgi, bytes_max: int, bounds: ServerBounds) -> None:
        self._app = app
        self._bytes_max = bytes_max
        self._bounds = bounds
        self._in_hand: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        """Pass a request on, or answer why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = length_of(dict(scope["headers"]), self._bytes_max)
        if isinstance(length, str):
            said = problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, length)
            await closing(said, scope, receive, send)
        elif length <= SMALL_BYTES:
            await self._app(scope, receive, send)
        else:
            caller: Caller | None = scope.get(CALLER)
            await self._upload("" if caller is None else caller.name, scope, receive, send)

    async def _upload(self, name: str, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        refusal = self._refusal(name)
        if refusal is not None:
            await closing(refusal, scope, receive, send)
            return
        self._in_hand[name] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_hand[name] -= 1
            if not self._in_hand[name]:
                del self._in_hand[name]

    def _refusal(self, name: str) -> Asgi | None:
        if self._in_hand[name] >= self._bounds.uploads_per_token:
            said = f"{name} uploads {self._in_hand[name]} files already; wait for them."
            return problem(HTTPStatus.TOO_MANY_REQUESTS, said, RETRY)
        if self._in_hand.total() >= self._bounds.uploads_waiting:
            said = "As much is uploaded as may be; try again in a moment."
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, said, RETRY)
        return None
