"""The fork server: a process that imports what replicas of one user need, and forks them.

    python -P -m interlane.engines.local.functions.fork_server GROUPS [MODULE ...]

Orders come on descriptor 3.  An order is a JSON document in one packet: ``fork`` with the
replica's socket, its output and its page attached, or ``kill``.  What happens is told the same
way: ``grouped``, ``imported``, ``forked``, ``ended``.

Nothing here outlives the gateway.  The fork server ends when the gateway does (the line closes,
and the kernel sends SIGTERM); a replica ends with its fork server (SIGKILL from the kernel).
Both have a group (``attempt_group``) in which everything is that they start; groups are made
here, because that may take long on a machine that is short of everything.  The gateway ends the
group of a replica before it says that the replica has ended; when the gateway itself is killed,
the fork server does.  When memory runs out, replicas are the first to go: they live on what
others leave over.
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

from interlane.engines.local.attempt_group import AttemptGroup, descendants
from interlane.engines.local.functions.replica import ReplicaOrder, run
from interlane.engines.local.groups import FUNCTIONS, AttemptGroups, GroupLimits

LINE: Final = 3
PACKET_BYTES: Final = 1 << 18
FORK_FDS: Final = 3
SLACK_BYTES: Final = 256 << 20
"""Address space that a replica may take beyond its memory before it is refused more."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None)


class ForkServer:
    """Forks replicas on request."""

    def __init__(self, line: socket.socket, groups: AttemptGroups, limits: GroupLimits) -> None:
        self._line = line
        self._make = groups
        self._limits = limits
        self._replicas: dict[int, int] = {}
        """Process -> number of the replica that it is."""
        self._groups: dict[int, AttemptGroup] = {}
        """By the number of the replica, of those that have not ended."""
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
        number = said["fork"]
        try:
            group = self._make.make(f"{FUNCTIONS}replica.{number}", self._limits)
        except OSError as error:
            self._tell(failed=number, why=f"It could not have a group ({error.strerror}).")
            for fd in fds:
                os.close(fd)
            return
        self._groups[number] = group
        self._tell(grouped=number, group=group.document)  # first: whatever happens, it is known
        pid = os.fork()
        if pid == 0:
            self._become(said, group, *fds)
        for fd in fds:
            os.close(fd)
        self._replicas[pid] = said["fork"]
        self._tell(forked=said["fork"], pid=pid, pages=own_pages("self"))

    def _become(
        self, said: dict[str, Any], group: AttemptGroup, line: int, output: int, page: int
    ) -> NoReturn:
        """Be a replica, to its end."""
        code = 1
        try:
            os.setsid()
            _end_with_parent(signal.SIGKILL)
            group.join()
            os.environ.update(group.variables)
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
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            replica = self._replicas.pop(pid, None)
            if replica is None:
                continue  # the orphan of a replica
            _kill_group(pid)  # what it has left behind
            if self._groups.pop(replica).is_marked:
                self._kill_strays()
            self._tell(ended=replica, code=os.waitstatus_to_exitcode(status))

    def _kill_strays(self) -> None:
        """Kill what has lost its replica, where no control group says whose it was.

        Orphans fall to this process.  Those that carry the mark of a replica which lives are
        its own business.
        """
        kept = {pid for group in self._groups.values() for pid in group.processes()}
        kept |= {below for pid in self._replicas for below in descendants(pid)}
        for pid in set(descendants(os.getpid())) - kept - self._replicas.keys():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _end(self) -> None:
        for pid in self._replicas:
            _kill_group(pid)
        for group in self._groups.values():
            group.kill()

    def _tell(self, **said: object) -> None:
        with suppress(OSError):
            self._line.send(json.dumps(said).encode())


def _kill_group(pid: int) -> None:
    """Kill a replica and its process group; alone, while it has none yet."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


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
    """Join a group, import what is named in the other arguments, then fork replicas."""
    _end_with_parent(signal.SIGTERM)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    said = json.loads(sys.argv[1])
    groups, limits = AttemptGroups.of(said), GroupLimits(processes=said["processes"])
    with socket.socket(fileno=LINE) as line:
        line.set_inheritable(False)
        group = groups.make(f"{FUNCTIONS}forks.{os.getpid()}", limits)
        line.send(json.dumps({"grouped": None, "group": group.document}).encode())
        group.join()
        os.environ.update(group.variables)
        try:
            for name in sys.argv[2:]:
                import_module(name)
        except BaseException as error:
            traceback.print_exc()
            line.send(json.dumps({"broken": f"{type(error).__name__}: {error}"}).encode())
            return
        gc.collect()
        gc.freeze()  # what is frozen is not walked by a replica's collector, and stays shared
        line.send(json.dumps({"imported": os.getpid()}).encode())
        ForkServer(line, groups, limits).serve()


if __name__ == "__main__":
    main()
