"""Speaks to an API server: plain documents in and out, and streams of changes.

Documents stay what JSON makes of them.  Typed models cost more than the network where a
thousand pods come at once, and none of them knows what a Binding answers.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import orjson

from interlane.engines.kubernetes.config import ApiServer
from interlane.model import InterlaneError

Document = dict[str, Any]

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON: Final = "application/json"
REQUEST_S: Final = 15.0
"""Seconds for an answer; less than a lease lasts, so that a late request is never ours."""
CONNECTIONS: Final = 64
GOODBYE_S: Final = 0.1
"""Seconds in which encrypted connections say that they end."""
LINE_MAX: Final = 8 << 20
"""Bytes of one object; etcd takes no larger ones than 1.5 MB."""
PAGE: Final = 500


class ApiError(InterlaneError):
    """An API server said no, or nothing."""

    def __init__(self, status: int, reason: str, said: str, wait_s: float = 0.0) -> None:
        super().__init__(f"The API server answers {status} ({reason}): {said}")
        self.status = status
        """0 if there was no answer."""
        self.reason = reason
        self.said = said
        self.wait_s = wait_s
        """For how long it wants to be left alone."""

    @property
    def is_gone(self) -> bool:
        """Whether what was asked about is not there."""
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        """Whether it is there already, or has changed."""
        return self.status == 409

    @property
    def is_passing(self) -> bool:
        """Whether the same may be asked again, and answered."""
        return self.status in (0, 408, 429) or self.status >= 500


class KubeClient:
    """One server, as one user; belongs to one event loop."""

    def __init__(self, server: ApiServer, request_s: float = REQUEST_S) -> None:
        self.server = server
        self._request_s = request_s
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Begin; nothing is sent yet."""
        connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=self.server.tls or False)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=True, read_bufsize=1 << 18
        )

    async def close(self) -> None:
        """End all connections."""
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(GOODBYE_S)

    async def get(self, path: str, **query: str) -> Document:
        """Return an object, or one page of a list."""
        return await self.call("GET", path, query=query)

    async def post(self, path: str, body: Mapping[str, Any]) -> Document:
        """Create something."""
        return await self.call("POST", path, body)

    async def put(self, path: str, body: Mapping[str, Any]) -> Document:
        """Replace something, at the version that the body names."""
        return await self.call("PUT", path, body)

    async def patch(
        self, path: str, body: Mapping[str, Any], kind: str = STRATEGIC
    ) -> Document:
        """Change a part of something."""
        return await self.call("PATCH", path, body, kind)

    async def delete(self, path: str, body: Mapping[str, Any] | None = None) -> Document:
        """Delete something; the body says how."""
        return await self.call("DELETE", path, body)

    async def items(self, path: str, **query: str) -> tuple[list[Document], str]:
        """Return all objects of a list, page by page, and the version that they are of."""
        found: list[Document] = []
        page = {"limit": f"{PAGE}", **query}
        while True:
            answer = await self.get(path, **page)
            found += answer["items"] or ()
            meta = answer["metadata"]
            if not meta.get("continue"):
                return found, meta["resourceVersion"]
            page["continue"] = meta["continue"]

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        kind: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> Document:
        """Ask for something and return the answer; raise ``ApiError`` if that is no."""
        data = None if body is None else orjson.dumps(body)
        try:
            async with (
                asyncio.timeout(self._request_s),
                self._asked(method, path, data, kind, query) as answer,
            ):
                return _read(answer, await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, "no answer", f"{error!r}") from None

    @asynccontextmanager
    async def _asked(
        self,
        method: str,
        path: str,
        data: bytes | None,
        kind: str,
        query: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None, "open() comes first"
        headers = {"Content-Type": kind, "Accept": JSON, **self.server.credential.headers()}
        async with self._session.request(
            method,
            self.server.url + path,
            data=data,
            params=query,
            headers=headers,
            timeout=timeout or aiohttp.ClientTimeout(),
        ) as answer:
            yield answer

    async def watch(
        self, path: str, version: str, silent_s: float, **query: str
    ) -> AsyncGenerator[Document, None]:
        """Yield changes after a version until the stream ends; silence ends it, too."""
        asked = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        asked |= {"timeoutSeconds": f"{int(silent_s)}", **query}
        quiet = aiohttp.ClientTimeout(sock_read=silent_s + REQUEST_S, sock_connect=REQUEST_S)
        try:
            async with self._asked("GET", path, None, JSON, asked, quiet) as answer:
                if answer.status >= 400:
                    _read(answer, await answer.read())
                async for line in _lines(answer.content):
                    yield orjson.loads(line)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ApiError(0, "stream ended", f"{error!r}") from None

    async def text(self, path: str, **query: str) -> bytes:
        """Return what is no document, such as what a container printed."""
        try:
            async with (
                asyncio.timeout(self._request_s),
                self._asked("GET", path, None, JSON, query) as answer,
            ):
                data = await answer.read()
                if answer.status >= 400:
                    _read(answer, data)
                return data
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, "no answer", f"{error!r}") from None


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield whole lines, however long they are."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(rest) > LINE_MAX:
            raise ValueError("An object is larger than any that etcd stores.")


def _read(answer: aiohttp.ClientResponse, data: bytes) -> Document:
    """Return what an answer says, or raise why it says nothing."""
    try:
        said = orjson.loads(data) if data else {}
    except orjson.JSONDecodeError:
        said = {"message": data[:300].decode(errors="replace")}
    if answer.status >= 400:
        if not isinstance(said, dict):
            said = {"message": f"{said}"[:300]}
        details = said.get("details") or {}
        wait_s = float(details.get("retryAfterSeconds") or 0)
        told = answer.headers.get("Retry-After", "")
        if told.isdigit():
            wait_s = max(wait_s, float(told))
        raise ApiError(
            answer.status, said.get("reason") or "refused", said.get("message") or "", wait_s
        )
    if not isinstance(said, dict):
        raise ApiError(answer.status, "no object", f"{said}"[:300])
    return said
