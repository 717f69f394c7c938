"""The other side of fork servers: start them, hand them orders, hear what became of them."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from select import select
from typing import Any, Final

from interlane.engines.local.attempt_group import AttemptGroup
from interlane.engines.local.functions.fork_server import LINE, PACKET_BYTES
from interlane.engines.local.functions.replica import ReplicaOrder
from interlane.engines.local.groups import AttemptGroups, GroupLimits
from interlane.engines.local.launch import KEPT
from interlane.model import InterlaneError

ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
"""A fork copies one thread, and functions live on what others leave over of the cores."""

MODULE: Final = "interlane.engines.local.functions.fork_server"


IDLE_MAX: Final = 16
"""Fork servers without a replica; the one that was used longest ago makes way."""

IDLE_S: Final = 600.0
"""Seconds after which a fork server without a replica ends; the next replica starts another."""

END_S: Final = 2.0
"""Seconds that a fork server gets to end its replicas."""

OnEnd = Callable[[str], None]
"""Told why a replica's process is gone."""


class NoForkServer(InterlaneError):
    """A fork server cannot fork."""


@dataclass(frozen=True, slots=True)
class ForkServerNeeds:
    """What replicas need of their fork server; those of a user that need the same share one.

    A handler can kill the process that it was forked from: so nobody else's come from there.
    """

    user: str
    preload: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


@dataclass(slots=True, eq=False)
class ReplicaProcess:
    """A replica's process, as far as it is known."""

    on_end: OnEnd
    kill: Callable[[], None]
    group: AttemptGroup | None = None
    """Everything that it has started, wherever that has gone; None before it has a group."""
    pid: int | None = None
    inherited_pages: int = 0
    """Memory that it has from its fork server."""


@dataclass(slots=True, eq=False)
class _ForkServer:
    pid: int
    pidfd: int
    line: socket.socket
    group: AttemptGroup | None = None
    replicas: dict[int, ReplicaProcess] = field(default_factory=dict)
    broken: str | None = None
    idle_s: float = 0.0
    """Since when it had no replica, while it has none."""


class ForkServers:
    """All fork servers, by what replicas need of them; used on the event loop."""

    def __init__(
        self, groups: AttemptGroups | None = None, limits: GroupLimits | None = None
    ) -> None:
        """Let every replica have a group of its own, and limits as a whole."""
        self._groups = json.dumps(
            {
                **(groups or AttemptGroups()).document,
                "processes": None if limits is None else limits.processes,
            }
        )
        self._fork_servers: dict[ForkServerNeeds, _ForkServer] = {}
        self._all: set[_ForkServer] = set()
        self._ending: set[asyncio.Future[None]] = set()
        """Groups of which something is left."""

    def prepare(self, needs: ForkServerNeeds) -> None:
        """See to it that there is a fork server, so that imports are over when it is needed."""
        if needs not in self._fork_servers:
            self._fork_servers[needs] = self._start(needs)
            self._watch(self._fork_servers[needs])

    def fork(
        self,
        needs: ForkServerNeeds,
        number: int,
        order: ReplicaOrder,
        *,
        memory_bytes: int | None,
        cores: tuple[int, ...],
        fds: tuple[int, int, int],
        on_end: OnEnd,
    ) -> ReplicaProcess:
        """Have a replica forked with a socket, an output and a page, or raise."""
        self.prepare(needs)
        fork_server = self._fork_servers[needs]
        if fork_server.broken is not None:
            raise NoForkServer(fork_server.broken)
        limits = {"memory_bytes": memory_bytes, "cores": cores}
        packet = json.dumps({"fork": number, "order": asdict(order), **limits}).encode()
        if len(packet) > PACKET_BYTES:
            raise NoForkServer("Its order is too long; shorten env.")
        try:
            socket.send_fds(fork_server.line, [packet], list(fds))
        except OSError as error:
            said = f"Its fork server does not answer ({error.strerror})."
            raise NoForkServer(said) from None
        process = ReplicaProcess(on_end, lambda: _send(fork_server, kill=number))
        fork_server.replicas[number] = process
        self._fork_servers[needs] = self._fork_servers.pop(needs)  # used last
        return process

    def _watch(self, fork_server: _ForkServer) -> None:
        """End a fork server that is idle now, unless it is used again soon."""
        fork_server.idle_s = (loop := asyncio.get_running_loop()).time()
        loop.call_later(IDLE_S, self._end_if_idle, fork_server, fork_server.idle_s)
        self._end_idle(IDLE_MAX)

    def _end_if_idle(self, fork_server: _ForkServer, since_s: float) -> None:
        if not fork_server.replicas and fork_server.idle_s == since_s:
            self._let_go([one for one, it in self._fork_servers.items() if it is fork_server])

    def _end_idle(self, most: int) -> None:
        """End fork servers that have no replica, the one that was used longest ago first."""
        idle = [needs for needs, one in self._fork_servers.items() if not one.replicas]
        self._let_go(idle[: max(0, len(idle) - most)])

    def _let_go(self, unneeded: list[ForkServerNeeds]) -> None:
        for needs in unneeded:
            self._fork_servers.pop(needs).line.shutdown(socket.SHUT_WR)

    def keep_only(self, needed: set[ForkServerNeeds]) -> None:
        """End fork servers that nobody needs any more."""
        self._let_go([one for one in self._fork_servers if one not in needed])

    def close(self) -> None:
        """End all fork servers, and with them all replicas."""
        for fork_server in list(self._all):
            _end(fork_server)
            self._forget(fork_server)
            groups = [one.group for one in fork_server.replicas.values()]
            for group in (*groups, fork_server.group):
                if group is not None:
                    group.end()
        self._fork_servers.clear()

    # -- one fork server --------------------------------------------------------------

    def _start(self, needs: ForkServerNeeds) -> _ForkServer:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = ("-P", "-m", MODULE, self._groups, *needs.preload)
        with theirs:
            pid = os.posix_spawn(
                sys.executable,
                (sys.executable, *words),
                _environment(needs.env),
                file_actions=(
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), LINE),
                ),
                setsid=True,
                setsigdef=(signal.SIGTERM, signal.SIGINT),
            )
        ours.setblocking(False)
        fork_server = _ForkServer(pid, os.pidfd_open(pid), ours)
        self._all.add(fork_server)
        loop = asyncio.get_running_loop()
        loop.add_reader(ours.fileno(), self._hear, fork_server)
        loop.add_reader(fork_server.pidfd, self._ended, fork_server)
        return fork_server

    def _hear(self, fork_server: _ForkServer) -> None:
        with suppress(BlockingIOError, ConnectionResetError):
            while packet := fork_server.line.recv(PACKET_BYTES):
                self._told(fork_server, json.loads(packet))
            asyncio.get_running_loop().remove_reader(fork_server.line.fileno())

    def _told(self, fork_server: _ForkServer, said: Mapping[str, Any]) -> None:
        if "broken" in said:
            fork_server.broken = f"Its imports failed: {said['broken']}"
        elif "grouped" in said:
            number = said["grouped"]
            whose = fork_server if number is None else fork_server.replicas[number]
            whose.group = AttemptGroup(said["group"])
        elif "failed" in said:
            fork_server.replicas.pop(said["failed"]).on_end(said["why"])
        elif "forked" in said:
            replica = fork_server.replicas[said["forked"]]
            replica.pid, replica.inherited_pages = said["pid"], said["pages"]
        elif "ended" in said:
            self._over(fork_server.replicas.pop(said["ended"]), _ending(said["code"]))
            if not fork_server.replicas and fork_server.broken is None:
                self._watch(fork_server)

    def _ended(self, fork_server: _ForkServer) -> None:
        """Note the end of a fork server; the next fork starts another."""
        self._hear(fork_server)
        os.waitpid(fork_server.pid, 0)
        self._forget(fork_server)
        for needs, one in list(self._fork_servers.items()):
            if one is fork_server:
                del self._fork_servers[needs]
        for replica in fork_server.replicas.values():
            self._over(replica, fork_server.broken or "Its fork server has ended.")
        self._end_group(fork_server.group, lambda: None)

    def _over(self, replica: ReplicaProcess, why: str) -> None:
        """Tell of an end once nothing is left of the replica."""
        self._end_group(replica.group, lambda: replica.on_end(why))

    def _end_group(self, group: AttemptGroup | None, then: Callable[[], None]) -> None:
        """End a group, in a thread because that may take time."""
        if group is None:
            then()
            return
        ending = asyncio.ensure_future(asyncio.to_thread(group.end))
        self._ending.add(ending)

        def ended(_: object) -> None:
            self._ending.discard(ending)
            then()

        ending.add_done_callback(ended)

    def _forget(self, fork_server: _ForkServer) -> None:
        self._all.discard(fork_server)
        for descriptor in (fork_server.line.fileno(), fork_server.pidfd):
            asyncio.get_running_loop().remove_reader(descriptor)
        fork_server.line.close()
        os.close(fork_server.pidfd)


def _end(fork_server: _ForkServer) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(fork_server.pidfd, number)
        if select([fork_server.pidfd], [], [], END_S)[0]:
            break
    os.waitpid(fork_server.pid, 0)


def _ending(code: int) -> str:
    if code < 0:
        return f"It was ended by {signal.Signals(-code).name}."
    return f"It ended with exit code {code}."


def _send(fork_server: _ForkServer, **said: object) -> None:
    with suppress(OSError):
        fork_server.line.send(json.dumps(said).encode())


def _environment(own: tuple[tuple[str, str], ...]) -> dict[str, str]:
    kept = {
        name: os.environ[name] for name in (*KEPT, "TMPDIR", "PYTHONPATH") if name in os.environ
    }
    return {**kept, **ONE_THREAD, **dict(own)}
