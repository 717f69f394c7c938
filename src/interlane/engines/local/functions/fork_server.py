"""The fork server: a process that imports what replicas need, and forks them.

    python -P -m interlane.engines.local.functions.fork_server     orders come on descriptor 3

An order is a JSON document in one packet: ``fork`` with the replica's socket, its output and
its page attached, or ``kill``.  What happens is told the same way: ``imported``, ``forked``,
``ended``.

Nothing here outlives the gateway.  The fork server ends when the gateway does (the line closes,
and the kernel sends SIGTERM); a replica ends with its fork server (SIGKILL from the kernel),
and what it has started ends with it as far as it stayed in its process group.  When memory runs
out, replicas are the first to go: they live on what others leave over.
"""

import ctypes
import gc
import io
import json
import os
import resource
import selectors
import signal
import socket
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

from interlane.engines.local.functions.replica import ReplicaOrder, run

LINE: Final = 3
PACKET_BYTES: Final = 1 << 18
FORK_FDS: Final = 3
SLACK_BYTES: Final = 256 << 20
"""Address space that a replica may take beyond its memory before it is refused more."""

_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None)


class ForkServer:
    """Forks replicas on request."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._replicas: dict[int, int] = {}
        """Process -> number of the replica that it is."""
        self._heard, rung = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
        self._rung = rung
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)

    def serve(self) -> None:
        """Serve until the gateway ends; end all replicas then."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._line, selectors.EVENT_READ)
            selector.register(self._heard, selectors.EVENT_READ)
            while all(self._hear(key.fd) for key, _ in selector.select()):
                pass
        self._end()

    def _hear(self, descriptor: int) -> bool:
        """Take one thing in; return whether to go on."""
        if descriptor == self._heard:
            signals = os.read(self._heard, 512)
            self._reap()
            return signal.SIGTERM not in signals
        packet, fds, _, _ = socket.recv_fds(self._line, PACKET_BYTES, FORK_FDS)
        if packet:
            said = json.loads(packet)
            if "fork" in said:
                self._fork(said, fds)
            else:
                self._kill(said["kill"])
        return bool(packet)

    def _fork(self, said: dict[str, Any], fds: list[int]) -> None:
        pid = os.fork()
        if pid == 0:
            self._become(said, *fds)
        for fd in fds:
            os.close(fd)
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)  # both sides do it, so that no kill comes too early
        self._replicas[pid] = said["fork"]
        self._tell(forked=said["fork"], pid=pid, pages=own_pages("self"))

    def _become(self, said: dict[str, Any], line: int, output: int, page: int) -> NoReturn:
        """Be a replica, to its end."""
        code = 1
        try:
            os.setpgid(0, 0)
            _end_with_parent(signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            for descriptor in (self._heard, self._rung, self._line.fileno()):
                os.close(descriptor)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(line_buffering=True)
            Path("/proc/self/oom_score_adj").write_text("1000")
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if said["cores"]:
                os.sched_setaffinity(0, said["cores"])
            if said["memory_bytes"] is not None:
                _limit_memory(said["memory_bytes"])
            run(ReplicaOrder(**said["order"]), socket.socket(fileno=line), page)
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except OSError:
            pass  # the gateway has gone, or does not want us any more
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
            os._exit(code)

    def _kill(self, number: int) -> None:
        for pid, replica in self._replicas.items():
            if replica == number:
                _kill_group(pid)

    def _reap(self) -> None:
        while self._replicas:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _kill_group(pid)  # what it has left behind
            replica = self._replicas.pop(pid)
            self._tell(ended=replica, code=os.waitstatus_to_exitcode(status))

    def _end(self) -> None:
        for pid in self._replicas:
            _kill_group(pid)

    def _tell(self, **said: object) -> None:
        with suppress(OSError):
            self._line.send(json.dumps(said).encode())


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _end_with_parent(number: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def own_pages(process: int | str) -> int:
    """Return the pages in memory that are a process's own, and no file's."""
    _, resident, of_files, *_ = Path(f"/proc/{process}/statm").read_text().split()
    return int(resident) - int(of_files)


def _limit_memory(memory_bytes: int) -> None:
    """Let what a replica asks for in an instant fail; the gateway watches the rest."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])  # data and stack
    most = pages * os.sysconf("SC_PAGE_SIZE") + 2 * memory_bytes + SLACK_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main() -> None:
    """Import what is named in the arguments, then fork replicas."""
    _end_with_parent(signal.SIGTERM)
    with socket.socket(fileno=LINE) as line:
        line.set_inheritable(False)
        try:
            for name in sys.argv[1:]:
                import_module(name)
        except BaseException as error:
            traceback.print_exc()
            line.send(json.dumps({"broken": f"{type(error).__name__}: {error}"}).encode())
            return
        gc.collect()
        gc.freeze()  # what is frozen is not walked by a replica's collector, and stays shared
        line.send(json.dumps({"imported": os.getpid()}).encode())
        ForkServer(line).serve()


if __name__ == "__main__":
    main()
