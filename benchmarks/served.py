"""A server to be measured, and somebody who speaks to it with as little as possible."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

API = "/api/v1"


@contextmanager
def served(state: Path) -> Iterator[int]:
    """Run a server with two emulated devices; yields its process."""
    command = (sys.executable, "-m", "interlane", "up", "--devices", "cpu:2", "--port", "0")
    server = subprocess.Popen((*command, "--state", str(state)), stderr=subprocess.PIPE)
    assert server.stderr is not None
    for line in server.stderr:
        if line.startswith(b"Serving"):
            break
    try:
        yield server.pid
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate()


class Caller:
    """One connection to a server, kept open."""

    def __init__(self, state: Path) -> None:
        self.url = urlsplit(json.loads((state / "server.json").read_text())["url"])
        self.token = (state / "token").read_text()
        self._connection = HTTPConnection(self.url.hostname or "", self.url.port)

    def ask(self, method: str, path: str, document: object = None) -> Any:  # noqa: ANN401
        """Return the server's answer, which must be good."""
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
        }
        body = None if document is None else json.dumps(document)
        self._connection.request(method, API + path, body, headers)
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status >= 300:
            raise AssertionError(said)
        return json.loads(said)


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    """Return the memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
