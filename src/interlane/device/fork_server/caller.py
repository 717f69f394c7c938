"""The caller's side: have a job forked, wait for it, pass signals on."""

import os
import selectors
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from interlane.device.fork_server.request import (
    LENGTH,
    STATUS,
    ForkRequest,
    request_of,
    socket_of,
)
from interlane.device.rendezvous import credentials
from interlane.model.errors import InterlaneError

ANSWER_S: Final = 5.0
"""Seconds in which a fork server must answer; it forks in milliseconds."""
CODE_LOST: Final = 1
"""Exit code of a job that outlived its fork server, which took the true one with it."""
_TO_THE_GROUP: Final = (signal.SIGINT, signal.SIGQUIT)
"""Signals that a terminal sends to all processes of a job."""


class NoJobForkServer(InterlaneError):
    """No fork server can start the job; start it cold."""


class WarmJob:
    """A job that a fork server has forked; waits and signals like ``subprocess.Popen``."""

    def __init__(self, line: socket.socket, pid: int, pidfd: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._line = line
        self._pidfd = pidfd

    def send_signal(self, number: int) -> None:
        """Pass a signal on, to the whole group where a terminal would."""
        with suppress(ProcessLookupError):
            if self.returncode is not None:
                return
            if number in _TO_THE_GROUP:
                os.killpg(self.pid, number)
            else:
                signal.pidfd_send_signal(self._pidfd, number)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit code, or minus the signal that ended it."""
        if self.returncode is None:
            if not _readable(self._line.fileno(), timeout):
                raise subprocess.TimeoutExpired(f"pid {self.pid}", timeout or 0)
            self.returncode = self._code(timeout)
            self._line.close()
            os.close(self._pidfd)
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code if the job has ended."""
        try:
            return self.wait(timeout=0)
        except subprocess.TimeoutExpired:
            return None

    def _code(self, timeout: float | None) -> int:
        with suppress(ConnectionResetError):
            if told := self._line.recv(STATUS.size):
                code: int = STATUS.unpack(told)[0]
                return code
        # The fork server is dead; the job is not.
        if not _readable(self._pidfd, timeout):
            raise subprocess.TimeoutExpired(f"pid {self.pid}", timeout or 0)
        return CODE_LOST


def _readable(descriptor: int, timeout: float | None) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(timeout))


def start(argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> WarmJob | None:
    """Start a command warm, or return None and see to it that the next start can be."""
    executable = shutil.which(argv[0], path=environment.get("PATH")) if argv else None
    request = request_of(argv, environment)
    if executable is None or request is None:
        return None
    path = socket_of(folder, executable, environment)
    try:
        return fork(request, path)
    except NoJobForkServer:
        launch(path, executable, environment)
        return None


def fork(request: ForkRequest, path: Path, streams: Sequence[int] = (0, 1, 2)) -> WarmJob:
    """Have a job forked by the fork server that listens there."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.settimeout(ANSWER_S)
        line.connect(str(path))
        if credentials(line)[1] != os.getuid():
            raise ConnectionError("it is somebody else's")
        message = request.message
        socket.send_fds(line, [LENGTH.pack(len(message))], list(streams))
        line.sendall(message)
        told, fds, _, _ = socket.recv_fds(line, LENGTH.size, 1)
        if len(told) < LENGTH.size or len(fds) < 1:
            raise ConnectionError("it refused the job")
    except (OSError, ValueError) as error:
        line.close()
        raise NoJobForkServer(f"the fork server at {path} does not answer: {error}.") from None
    line.settimeout(None)
    return WarmJob(line, LENGTH.unpack(told)[0], fds[0])


def launch(path: Path, executable: str, environment: Mapping[str, str]) -> None:
    """Start a fork server, unless one has been; do not wait for its imports."""
    command = "from interlane.device.fork_server.server import main; main()"
    with suppress(OSError):
        subprocess.run(
            [executable, "-c", command, str(path)],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            check=False,
        )


def pid_of(path: Path) -> int:
    """Return the process of the fork server that listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(str(path))
        return credentials(line)[0]


def await_fork_server(path: Path, timeout_s: float) -> bool:
    """Wait until a fork server listens; return whether one does."""
    end_s = monotonic() + timeout_s
    while monotonic() < end_s:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line, suppress(OSError):
            line.connect(str(path))
            return True
        sleep(0.01)
    return False
