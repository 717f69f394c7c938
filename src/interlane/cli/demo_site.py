"""A server of the demo's own: started for it, asked by it, and gone with it."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from interlane.cli.client import ApiClient, ServerOptions, job_path
from interlane.model.errors import InterlaneError

PR_SET_PDEATHSIG: Final = 1
END_S: Final = 20.0
"""Seconds that a server gets to end."""


@dataclass(frozen=True, slots=True)
class DemoServer:
    """A server that runs."""

    folder: Path
    url: str
    page: str | None
    """Where its pages let somebody in without a token, once."""

    def client(self) -> ApiClient:
        """Return somebody who speaks to it."""
        return ApiClient(ServerOptions(self.url, self.folder))

    def job(self, job_id: str) -> dict[str, Any]:
        """Return how a job stands."""
        return self.client().get(job_path(job_id)).document()

    def printed(self, job_id: str) -> str:
        """Return what a job printed."""
        return self.client().get(f"{job_path(job_id)}/log").body.decode()


@contextmanager
def site(folder: Path, devices: str, cores: Sequence[int]) -> Iterator[DemoServer]:
    """Run a server whose devices are these cores."""
    words = ["up", "--devices", devices, "--port", "0", "--state", str(folder)]
    words += ["--placer", "pack"]  # jobs are to share a device, not to find an idle one
    process = subprocess.Popen(
        (sys.executable, "-m", "interlane", *words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # control-C is for the demo, which ends it in its own way
        preexec_fn=lambda: _prepare(cores),
    )
    assert process.stderr is not None
    rest = threading.Thread(target=process.stderr.read, daemon=True)
    with process:
        try:
            serves = _serving(process.stderr, folder)
            rest.start()  # what it says later is passed over
            yield serves
        finally:
            _end(process, folder)
            if rest.ident is not None:
                rest.join()


def _prepare(cores: Sequence[int]) -> None:
    """Keep the server to these cores, and let it end with the demo, whatever ends that."""
    os.sched_setaffinity(0, cores)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _serving(said_by: IO[str], folder: Path) -> DemoServer:
    """Wait until a server says that it serves."""
    said: list[str] = []
    for line in said_by:
        said.append(line.strip())
        if line.startswith("Serving at "):
            return DemoServer(folder, line.split()[2].rstrip(";"), _page(said))
    raise InterlaneError(f"The demo's server did not start: {' '.join(said[-3:])}")


def _page(said: Sequence[str]) -> str | None:
    links = (word for line in said for word in line.split() if "/login?" in word)
    return next(links, None)


def _end(process: "subprocess.Popen[str]", folder: Path) -> None:
    """Cancel what still runs, and end the server."""
    if process.poll() is None and (folder / "server.json").exists():
        _cancel_all(folder)
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _cancel_all(folder: Path) -> None:
    client = ApiClient(ServerOptions(None, folder))
    for state in ("queued", "starting", "running"):
        for job in client.pages(1_000, state=state):
            client.delete(job_path(job["id"]))
