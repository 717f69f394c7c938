"""The ways to a job from outside: to its terminal, and to ports at which it listens.

A port is the job's if one of its processes listens there: who asks for a port of a job never
gets to what somebody else, or the machine itself, offers at that number.
"""

import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from interlane.engines.local import terminal
from interlane.engines.local.attempt_group import AttemptGroup
from interlane.live.port import NotThere

LISTENS: Final = "0A"
"""The state of a socket that takes connections, in the kernel's tables."""

CONNECT_S: Final = 5.0
TABLES: Final = (
    ("/proc/net/tcp", socket.AF_INET, "127.0.0.1"),
    ("/proc/net/tcp6", socket.AF_INET6, "::1"),
)
EVERYWHERE: Final = ("00000000", "0" * 32)
LOOPBACKS: Final = ("0100007F", "0" * 24 + "01000000")
"""Addresses as the tables write them, of each family."""


def to_terminal(folder: Path) -> socket.socket:
    """Return a socket that leads to the terminal of the attempt whose folder this is."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            made.settimeout(CONNECT_S)
            made.connect(terminal.at(fd))
        finally:
            os.close(fd)
    except OSError as error:
        made.close()
        raise NotThere(f"Its terminal cannot be reached ({error.strerror}).") from None
    return made


def to_port(group: AttemptGroup | None, port: int) -> socket.socket:
    """Return a socket that leads to a port at which an attempt listens."""
    mine = set(_sockets(() if group is None else group.processes()))
    for table, family, address in TABLES:
        for inode in _listening(table, port):
            if inode in mine:
                return _connected(family, address, port)
    raise NotThere(f"No process of the job listens at port {port} of this machine yet.")


def _connected(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.settimeout(CONNECT_S)
    try:
        made.connect((address, port))
    except OSError as error:
        made.close()
        raise NotThere(f"Port {port} of the job does not answer ({error.strerror}).") from None
    return made


def _listening(table: str, port: int) -> Iterator[str]:
    """Yield the sockets that take connections to a port from this machine."""
    try:
        lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return
    for line in lines:
        parts = line.split()
        address, _, number = parts[1].partition(":")
        is_near = address in EVERYWHERE or address in LOOPBACKS
        if parts[3] == LISTENS and is_near and int(number, 16) == port:
            yield parts[9]


def _sockets(processes: Iterable[int]) -> Iterator[str]:
    """Yield the sockets that processes hold."""
    for pid in processes:
        try:
            files = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:  # it has ended
            continue
        for file in files:
            try:
                target = str(file.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                yield target[len("socket:[") : -1]
