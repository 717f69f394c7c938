"""The fork server: import torch, listen, fork."""

import fcntl
import gc
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from interlane.device.fork_server import child
from interlane.device.fork_server.request import (
    LENGTH,
    MOST_BYTES,
    STATUS,
    ForkRequest,
    read_request,
)
from interlane.device.rendezvous import credentials

IDLE_S: Final = 600.0
"""Seconds without a job after which a fork server ends."""
ARRIVAL_S: Final = 5.0
"""Seconds in which a request must have arrived."""
STREAMS: Final = 3


def main() -> None:
    """Be the fork server of a socket, and in every fork of it a job."""
    path = Path(sys.argv[1])
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    if not sys.flags.safe_path:
        del sys.path[0]
    _go_on_in_a_fork()
    from_imports = preload()
    _go_on_in_a_fork()
    if len(tuple(Path("/proc/self/task").iterdir())) > 1:
        return
    listener = _listen(path)
    job = JobForkServer(listener).serve()
    if job is None:
        path.unlink(missing_ok=True)
        return
    os.close(lock)
    child.run(job, from_imports)


def _go_on_in_a_fork() -> None:
    """Let whoever waits for this process go on, and its threads end."""
    if os.fork():
        os._exit(0)


def preload() -> dict[str, str]:
    """Import what jobs import; return the variables that the imports have set."""
    before = dict(os.environ)
    import torch

    # The first optimizer imports as much again.
    torch.optim.Adam(torch.nn.Linear(1, 1).parameters())
    gc.collect()
    # What is frozen is not walked by a child's collector, and so stays shared.
    gc.freeze()
    return {name: value for name, value in os.environ.items() if name not in before}


def _listen(path: Path) -> socket.socket:
    """Listen; whoever holds the lock may remove what a dead fork server left."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o177)
    listener.bind(str(path))
    os.umask(umask)
    listener.listen(64)
    listener.setblocking(False)
    return listener


@dataclass(slots=True, eq=False)
class _Call:
    """A connection whose request is arriving, or whose job runs."""

    line: socket.socket
    since_s: float
    streams: list[int] = field(default_factory=list)
    received: bytearray = field(default_factory=bytearray)
    pid: int = 0
    pidfd: int = -1

    def close(self) -> None:
        self.line.close()
        self.close_streams()
        if self.pidfd >= 0:
            os.close(self.pidfd)

    def close_streams(self) -> None:
        for stream in self.streams:
            os.close(stream)
        self.streams = []

    def receive(self) -> ForkRequest | None:
        """Take what has arrived; return the request when it is whole."""
        data, streams, _, _ = socket.recv_fds(self.line, 1 << 16, STREAMS)
        self.streams += streams
        self.received += data
        if not data or len(self.streams) > STREAMS:
            raise ValueError("the caller left, or sent too many streams")
        if len(self.received) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self.received)
        if length > MOST_BYTES or len(self.received) > LENGTH.size + length:
            raise ValueError("the request is too long")
        if len(self.received) < LENGTH.size + length:
            return None
        if len(self.streams) < STREAMS:
            raise ValueError("there are three standard streams")
        return read_request(bytes(self.received[LENGTH.size :]))


class JobForkServer:
    """Forks jobs on request until nobody has asked for a while."""

    def __init__(self, listener: socket.socket, idle_s: float = IDLE_S) -> None:
        self._listener = listener
        self._idle_s = idle_s
        self._calls: set[_Call] = set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, None)

    def serve(self) -> ForkRequest | None:
        """Serve; return None in the server at its end, and in a child what it is to run."""
        active_s = monotonic()
        while self._calls or (self._is_reachable() and monotonic() - active_s < self._idle_s):
            for key, _ in self._selector.select(timeout=1.0):
                active_s = monotonic()
                if key.data is None:
                    self._accept()
                elif key.data in self._calls and (job := self._heard(key.data, key.fd)):
                    return job
            self._drop_the_slow(monotonic())
        return None

    def _is_reachable(self) -> bool:
        """Tell whether anybody can still find the socket."""
        return Path(self._listener.getsockname()).exists()

    def _accept(self) -> None:
        with suppress(OSError):
            line, _ = self._listener.accept()
            _, uid = credentials(line)
            if uid != os.getuid():
                line.close()
                return
            line.setblocking(False)
            call = _Call(line, monotonic())
            self._calls.add(call)
            self._selector.register(line, selectors.EVENT_READ, call)

    def _heard(self, call: _Call, descriptor: int) -> ForkRequest | None:
        if call.pid:
            if descriptor == call.pidfd:
                self._ended(call)
            else:
                self._abandoned(call)
            return None
        try:
            request = call.receive()
            return None if request is None else self._fork(call, request)
        except BlockingIOError:
            return None
        except (OSError, ValueError):
            self._forget(call)
            return None

    def _fork(self, call: _Call, request: ForkRequest) -> ForkRequest | None:
        pid = os.fork()
        if pid == 0:
            self._leave_to_the_parent(call)
            return request
        # Both sides do this, so that a signal to the group cannot come too early.
        os.setpgid(pid, pid)
        call.pid, call.pidfd = pid, os.pidfd_open(pid)
        self._selector.register(call.pidfd, selectors.EVENT_READ, call)
        call.close_streams()
        with suppress(OSError):
            socket.send_fds(call.line, [LENGTH.pack(pid)], [call.pidfd])
        return None

    def _leave_to_the_parent(self, call: _Call) -> None:
        """Keep nothing in a child but the standard streams of its caller."""
        os.setpgid(0, 0)
        for target, stream in enumerate(call.streams):
            os.dup2(stream, target)
        self._selector.close()
        self._listener.close()
        for any_call in self._calls:
            any_call.close()

    def _ended(self, call: _Call) -> None:
        _, status = os.waitpid(call.pid, 0)
        with suppress(OSError):
            call.line.send(STATUS.pack(os.waitstatus_to_exitcode(status)))
        self._forget(call)

    def _abandoned(self, call: _Call) -> None:
        """End a job whose caller was killed: had it been started cold, it would be dead."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(call.pidfd, signal.SIGKILL)
        self._selector.unregister(call.line)

    def _drop_the_slow(self, now_s: float) -> None:
        waiting = [call for call in self._calls if not call.pid]
        for call in waiting:
            if now_s - call.since_s > ARRIVAL_S:
                self._forget(call)

    def _forget(self, call: _Call) -> None:
        for what in (call.line, call.pidfd):
            with suppress(KeyError, ValueError):
                self._selector.unregister(what)
        self._calls.discard(call)
        call.close()
