"""The server's side of nurseries: start them, hand them orders, hear what became of them."""

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

from interlane.engines.local.functions.fork_server import LINE, PACKET_BYTES
from interlane.engines.local.functions.replica import Order
from interlane.engines.local.launch import KEPT
from interlane.model import InterlaneError

ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
"""A fork copies one thread, and functions live on what others leave over of the cores."""

MODULE: Final = "interlane.engines.local.functions.fork_server"


END_S: Final = 2.0
"""Seconds that a nursery gets to end its replicas."""

OnEnd = Callable[[str], None]
"""Told why a replica's process is gone."""


class NoNursery(InterlaneError):
    """A nursery cannot fork."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What replicas need of their nursery; those that need the same share one."""

    preload: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


@dataclass(slots=True, eq=False)
class Process:
    """A replica's process, as far as it is known."""

    on_end: OnEnd
    kill: Callable[[], None]
    pid: int | None = None
    inherited_pages: int = 0
    """Memory that it has from its nursery."""


@dataclass(slots=True, eq=False)
class _Nursery:
    pid: int
    pidfd: int
    line: socket.socket
    replicas: dict[int, Process] = field(default_factory=dict)
    broken: str | None = None


class Nurseries:
    """All nurseries of a server, by what replicas need of them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._nurseries: dict[Needs, _Nursery] = {}
        self._all: set[_Nursery] = set()

    def prepare(self, needs: Needs) -> None:
        """See to it that there is a nursery, so that imports are over when one is needed."""
        if needs not in self._nurseries:
            self._nurseries[needs] = self._start(needs)

    def fork(
        self,
        needs: Needs,
        number: int,
        order: Order,
        *,
        memory_bytes: int | None,
        cores: tuple[int, ...],
        fds: tuple[int, int, int],
        on_end: OnEnd,
    ) -> Process:
        """Have a replica forked with a socket, an output and a page, or raise ``NoNursery``."""
        self.prepare(needs)
        nursery = self._nurseries[needs]
        limits = {"memory_bytes": memory_bytes, "cores": cores}
        packet = json.dumps({"fork": number, "order": asdict(order), **limits}).encode()
        if nursery.broken is not None:
            raise NoNursery(nursery.broken)
        if len(packet) > PACKET_BYTES:
            raise NoNursery("Its order is too long; shorten env.")
        try:
            socket.send_fds(nursery.line, [packet], list(fds))
        except OSError as error:
            raise NoNursery(f"Its nursery does not answer ({error.strerror}).") from None
        process = Process(on_end, lambda: _send(nursery, kill=number))
        nursery.replicas[number] = process
        return process

    def keep_only(self, needed: set[Needs]) -> None:
        """End nurseries that nobody needs any more."""
        for needs in [one for one in self._nurseries if one not in needed]:
            self._nurseries.pop(needs).line.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End all nurseries, and with them all replicas."""
        for nursery in list(self._all):
            _end(nursery)
            self._forget(nursery)
        self._nurseries.clear()

    # -- one nursery ------------------------------------------------------------------

    def _start(self, needs: Needs) -> _Nursery:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            pid = os.posix_spawn(
                sys.executable,
                (sys.executable, "-P", "-m", MODULE, *needs.preload),
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
        nursery = _Nursery(pid, os.pidfd_open(pid), ours)
        self._all.add(nursery)
        self._loop.add_reader(ours.fileno(), self._hear, nursery)
        self._loop.add_reader(nursery.pidfd, self._ended, nursery)
        return nursery

    def _hear(self, nursery: _Nursery) -> None:
        with suppress(BlockingIOError, ConnectionResetError):
            while packet := nursery.line.recv(PACKET_BYTES):
                self._told(nursery, json.loads(packet))
            self._loop.remove_reader(nursery.line.fileno())

    def _told(self, nursery: _Nursery, said: Mapping[str, Any]) -> None:
        if "broken" in said:
            nursery.broken = f"Its imports failed: {said['broken']}"
        elif "forked" in said:
            replica = nursery.replicas[said["forked"]]
            replica.pid, replica.inherited_pages = said["pid"], said["pages"]
        elif "ended" in said:
            nursery.replicas.pop(said["ended"]).on_end(_ending(said["code"]))

    def _ended(self, nursery: _Nursery) -> None:
        """Note the end of a nursery; the next fork starts another."""
        self._hear(nursery)
        os.waitpid(nursery.pid, 0)
        self._forget(nursery)
        for needs, one in list(self._nurseries.items()):
            if one is nursery:
                del self._nurseries[needs]
        for replica in nursery.replicas.values():
            replica.on_end(nursery.broken or "Its nursery has ended.")

    def _forget(self, nursery: _Nursery) -> None:
        self._all.discard(nursery)
        for descriptor in (nursery.line.fileno(), nursery.pidfd):
            self._loop.remove_reader(descriptor)
        nursery.line.close()
        os.close(nursery.pidfd)


def _end(nursery: _Nursery) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(nursery.pidfd, number)
        if select([nursery.pidfd], [], [], END_S)[0]:
            break
    os.waitpid(nursery.pid, 0)


def _ending(code: int) -> str:
    if code < 0:
        return f"It was ended by {signal.Signals(-code).name}."
    return f"It ended with exit code {code}."


def _send(nursery: _Nursery, **said: object) -> None:
    with suppress(OSError):
        nursery.line.send(json.dumps(said).encode())


def _environment(own: tuple[tuple[str, str], ...]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in (*KEPT, "PYTHONPATH") if name in os.environ}
    return {**kept, **ONE_THREAD, **dict(own)}
