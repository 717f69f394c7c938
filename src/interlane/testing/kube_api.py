"""A small client of an API server for tests: blocking, and none of the code that is judged."""

import json
import ssl
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

Document = dict[str, Any]
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
TIMEOUT_S: Final = 120.0


class KubeRefused(Exception):
    """The API server said no."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said}")
        self.status = status


@dataclass
class KubeApi:
    """Speaks to one server as one user; threads take turns with its connections."""

    url: str
    ca: Path
    token: str
    _idle: "deque[HTTPSConnection]" = field(default_factory=deque, repr=False)

    def close(self) -> None:
        """Close connections that nobody uses; others are made as they are needed."""
        while self._idle:
            with suppress(IndexError):  # somebody else took the last
                self._idle.pop().close()

    def get(self, path: str, **query: str) -> Document:
        """Return an object or a list."""
        return self.call("GET", path, query=query)

    def items(self, path: str, **query: str) -> list[Document]:
        """Return the objects of a list."""
        found: list[Document] = self.get(path, **query)["items"]
        return found

    def post(self, path: str, body: Mapping[str, Any]) -> Document:
        """Create something."""
        return self.call("POST", path, body)

    def patch(self, path: str, body: Mapping[str, Any], kind: str = MERGE) -> Document:
        """Change something."""
        return self.call("PATCH", path, body, kind)

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> Document:
        """Delete something, or say with a body how."""
        return self.call("DELETE", path, body)

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        kind: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Document:
        """Ask for something, and raise what was refused; a dead connection is made anew."""
        target = f"{path}?{urlencode(query)}" if query else path
        data = None if body is None else json.dumps(body).encode()
        for is_last in (False, True):
            try:
                status, text = self._exchange(method, target, data, kind)
                break
            except (HTTPException, OSError):
                if is_last:
                    raise
                self.close()  # the others may be as dead
        found: Document = json.loads(text) if text.startswith(b"{") else {}
        if status >= 400:
            raise KubeRefused(status, found.get("message", text.decode(errors="replace")[:300]))
        return found

    def _exchange(
        self, method: str, target: str, data: bytes | None, kind: str
    ) -> tuple[int, bytes]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connected()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        try:
            connection.request(method, target, data, headers)
            answer = connection.getresponse()
            said = answer.status, answer.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return said

    def _connected(self, timeout_s: float | None = TIMEOUT_S) -> HTTPSConnection:
        where = urlsplit(self.url)
        context = ssl.create_default_context(cafile=str(self.ca))
        return HTTPSConnection(
            where.hostname or "", where.port, timeout=timeout_s, context=context
        )

    def watch(self, path: str, version: str, **query: str) -> Iterator[Document]:
        """Yield events until the server closes the stream."""
        connection = self._connected()
        asked = urlencode({"watch": "1", "resourceVersion": version, **query})
        try:
            connection.request(
                "GET", f"{path}?{asked}", headers={"Authorization": f"Bearer {self.token}"}
            )
            answer = connection.getresponse()
            if answer.status >= 400:
                raise KubeRefused(answer.status, answer.read().decode(errors="replace")[:300])
            while line := answer.readline():
                yield json.loads(line)
        finally:
            connection.close()
