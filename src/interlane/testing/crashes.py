"""Real servers that are started, asked and killed."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

COMMAND = (sys.executable, "-m", "interlane")
ASK_S = 60.0


def up(state: Path, *more: str, devices: str = "cpu:2") -> "subprocess.Popen[bytes]":
    """Start a server on a folder; what it says is to be read from its standard error."""
    words = ("up", "--devices", devices, "--port", "0", "--state", str(state), *more)
    return subprocess.Popen(
        (*COMMAND, *words),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def started(
    state: Path, *more: str, until: bytes = b"Serving", devices: str = "cpu:2"
) -> "subprocess.Popen[bytes]":
    """Start a server on a folder, and wait until it says that it serves or something else."""
    server = up(state, *more, devices=devices)
    assert server.stderr is not None
    for line in server.stderr:
        if line.startswith(until):
            return server
    raise AssertionError("The server did not come back.")


def ended(server: "subprocess.Popen[bytes]") -> None:
    """Wait until a server has ended."""
    assert server.stderr is not None
    server.stderr.close()
    server.wait()


def ask(state: Path, method: str, path: str, document: object = None, **headers: str) -> bytes:
    """Ask the server of a folder as its admin; return what it answers, or raise."""
    url = json.loads((state / "server.json").read_text())["url"]
    told = {
        "Authorization": f"Bearer {(state / 'token').read_text()}",
        "Content-Type": "application/json",
        **{name.replace("_", "-"): text for name, text in headers.items()},
    }
    body = None if document is None else json.dumps(document).encode()
    asked = Request(f"{url}/api/v1{path}", body, told, method=method)
    try:
        with urlopen(asked, timeout=ASK_S) as answer:
            said: bytes = answer.read()
            return said
    except HTTPError as error:
        error.close()
        raise


def submit(state: Path, job: Mapping[str, object], key: str) -> str:
    """Submit a job to the server of a folder; return its id."""
    return str(json.loads(ask(state, "POST", "/jobs", job, Idempotency_Key=key))["id"])
