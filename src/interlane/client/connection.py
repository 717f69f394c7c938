"""How a server is spoken to: where it is, who we are, and what its answers mean.

``http.client`` is all that is needed; it is imported when it is, so that help is quick.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from interlane.model.errors import InterlaneError, InvalidInput, Unreachable

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse
    from ssl import SSLContext

    from websockets.sync.client import ClientConnection

DENIED: Final = 4
STALE: Final = 5
HTTP_UNAUTHORIZED: Final = 401
TIMEOUT_S: Final = 60.0
API: Final = "/api/v1"
PAGE: Final = 500

_EXIT: Final = {401: DENIED, 403: DENIED, 409: STALE, 412: STALE, 404: 2, 422: 2, 413: 2}


class Failure(InterlaneError):
    """The server refused, or a command failed with an exit code of its own."""

    def __init__(self, sentence: str, exit_code: int) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> dict[str, Any]:
        """Return the answer as a document."""
        said: dict[str, Any] = json.loads(self.body)
        return said

    def header(self, name: str) -> str:
        """Return a header, however it is spelled."""
        return {key.lower(): value for key, value in self.headers.items()}[name.lower()]


def state_folder(given: Path | None) -> Path:
    """Return the folder in which the server keeps things."""
    if given is not None:
        return given.absolute()
    named = os.environ.get("INTERLANE_STATE")
    return Path(named).absolute() if named else Path.home() / ".local/state/interlane"


class Connection:
    """Speaks to one server; every call opens a connection, so that threads may share it."""

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        state: Path | None = None,
        ca: Path | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        from urllib.parse import urlsplit

        folder = state_folder(state)
        self._url = server or os.environ.get("INTERLANE_SERVER") or _address(folder)
        self._token = token or os.environ.get("INTERLANE_TOKEN") or _token(folder)
        self._ca, self._timeout_s = ca, timeout_s
        self._parts = urlsplit(self._url)
        if self._parts.scheme not in ("http", "https") or not self._parts.hostname:
            raise InvalidInput(
                f"The server's address is {self._url!r}, but must read like "
                "http://127.0.0.1:7411; set --server or INTERLANE_SERVER."
            )
        if self._parts.scheme == "https":
            _trust(ca)  # what cannot be trusted is said before anything is asked

    @property
    def url(self) -> str:
        """The server's address."""
        return self._url.rstrip("/")

    def get(self, path: str, **query: object) -> Answer:
        """Ask for something."""
        from urllib.parse import urlencode

        given = {name: value for name, value in query.items() if value is not None}
        return self._call("GET", f"{path}?{urlencode(given, doseq=True)}" if given else path)

    def post(
        self, path: str, document: object, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Hand something in."""
        return self.send(path, json.dumps(document).encode(), headers)

    def send(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """Hand something in that is JSON already."""
        return self._call("POST", path, body, headers)

    def patch(self, path: str, document: object) -> Answer:
        """Change something."""
        return self._call("PATCH", path, json.dumps(document).encode())

    def put(self, path: str) -> Answer:
        """Let something be so."""
        return self._call("PUT", path)

    def delete(self, path: str) -> Answer:
        """Take something back."""
        return self._call("DELETE", path)

    def dial(self, path: str) -> "ClientConnection":
        """Open a line to a job: messages both ways, until one side closes it."""
        from websockets.exceptions import InvalidHandshake
        from websockets.sync.client import ClientConnection, connect

        scheme = "wss" if self._parts.scheme == "https" else "ws"
        try:
            made = connect(
                f"{scheme}://{self._parts.netloc}{API}{path}",
                additional_headers={"Authorization": f"Bearer {self._token}"},
                ssl=_trust(self._ca) if scheme == "wss" else None,
                open_timeout=self._timeout_s,
                compression=None,
                max_size=None,
                proxy=None,
            )
            assert isinstance(made, ClientConnection)
            return made
        except InvalidHandshake:
            said = "The server leads nobody there; is it of this version, and the token valid?"
            raise Failure(said, DENIED) from None
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"The server at {self._url} does not answer ({error}).") from None

    def pages(self, most: int, **query: object) -> Iterator[dict[str, Any]]:
        """Yield jobs as the server shows them, the newest first, page by page."""
        cursor = None
        while most > 0:
            page = self.get("/jobs", limit=min(most, PAGE), cursor=cursor, **query).document()
            yield from page["jobs"]
            most, cursor = most - len(page["jobs"]), page["next_cursor"]
            if cursor is None:
                return

    def _waiting(self) -> AbstractContextManager[object]:
        """Return what goes on while the server is waited for."""
        return nullcontext()

    def _open(self) -> "HTTPConnection":
        from http.client import HTTPConnection, HTTPSConnection

        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return HTTPSConnection(
                host, port, timeout=self._timeout_s, context=_trust(self._ca)
            )
        return HTTPConnection(host, port, timeout=self._timeout_s)

    def _call(
        self,
        verb: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        from http.client import HTTPException

        # Nobody tells us when a command ends, so that no connection is kept.
        sent = {"Authorization": f"Bearer {self._token}", "Connection": "close"}
        sent |= headers or {}
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection = self._open()
        try:
            with self._waiting():
                connection.request(verb, API + path, body, sent)
                answer = _read(connection.getresponse())
        except (OSError, HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unreachable(
                f"The server at {self._url} does not answer ({why}); start one with "
                "'interlane up', or set --server."
            ) from None
        finally:
            connection.close()
        if answer.status >= 400:
            raise Failure(_detail(answer), _EXIT.get(answer.status, 1))
        return answer


def heard(line: "ClientConnection") -> Iterator[str | bytes]:
    """Yield what comes over a line until the server closes it as it should."""
    from websockets.exceptions import ConnectionClosedOK

    while True:
        try:
            yield line.recv()
        except ConnectionClosedOK:
            return


def _trust(given: Path | None) -> "SSLContext":
    """Return how servers prove who they are."""
    import ssl

    file = given or os.environ.get("INTERLANE_CA")
    try:
        return ssl.create_default_context(cafile=file or None)
    except OSError as error:
        raise InvalidInput(
            f"{file} holds no certificates ({error.strerror or error}); set --ca or "
            "INTERLANE_CA to a file in PEM."
        ) from None


def job_path(job_id: str) -> str:
    """Return where a job is found."""
    from urllib.parse import quote

    if not job_id or "/" in job_id or job_id in (".", ".."):
        raise InvalidInput(f"There is no job {job_id!r}; 'interlane ps -A' lists all.")
    return f"/jobs/{quote(job_id, safe='')}"


def _read(response: "HTTPResponse") -> Answer:
    return Answer(response.status, dict(response.getheaders()), response.read())


def _detail(answer: Answer) -> str:
    if answer.status == HTTP_UNAUTHORIZED:
        return "The server does not know this token; set INTERLANE_TOKEN to a valid one."
    try:
        return str(answer.document()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"The server answered {answer.status}, which it does not explain."


def _address(folder: Path) -> str:
    try:
        said: dict[str, Any] = json.loads((folder / "server.json").read_text())
    except FileNotFoundError:
        raise Unreachable(
            f"No server was ever started in {folder}; start one with 'interlane up', or set "
            "--server.",
        ) from None
    return str(said["url"])


def _token(folder: Path) -> str:
    try:
        return (folder / "token").read_text().strip()
    except (FileNotFoundError, PermissionError):
        raise Failure(
            f"There is no token in {folder} that may be read; set INTERLANE_TOKEN.", DENIED
        ) from None
