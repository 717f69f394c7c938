"""Sockets, shared memory and raw files, as code on a simulated machine sees them."""

import errno
import os
import socket
import struct
from array import array
from collections.abc import Sequence
from typing import Final

from interlane.testing.simulated.calls import on, posix
from interlane.testing.simulated.disk import fault
from interlane.testing.simulated.ends import (
    Line,
    Listener,
    Message,
    OpenedFile,
    OpenEnd,
    Pipe,
    PipeIn,
    PipeOut,
    drop,
)
from interlane.testing.simulated.machine import Process

_CREDENTIALS: Final = struct.Struct("iII")
LISTENERS_MAX: Final = 1024
INBOX_MAX: Final = 256
"""Messages that a side keeps before the other cannot send more."""


class SocketCall:
    """A socket of a process."""

    def __init__(
        self, family: int = socket.AF_INET, kind: int = 0, *, number: int | None = None
    ) -> None:
        self._number = on.machine.enter("open").put(OpenEnd()) if number is None else number
        self._blocks = True

    def fileno(self) -> int:
        """Return its descriptor; -1 once it is closed."""
        return self._number

    def setblocking(self, blocks: bool) -> None:  # noqa: FBT001 - as it is there
        """Say whether it waits."""
        self._blocks = blocks

    def bind(self, address: "str | tuple[str, int]") -> None:
        """Take an address; ports are always free."""
        machine = on.machine
        process = machine.enter("make")
        if isinstance(address, str):
            listener = Listener(process.pid)
            listener.node = machine.disk.make(address, is_folder=False)
            listener.node.exclusive = listener
            process.put(listener, self._number)

    def listen(self, backlog: int) -> None:
        """Take connections up."""
        on.machine.enter()

    def connect(self, address: str) -> None:
        """Connect to whoever listens at a path."""
        machine = on.machine
        process = machine.enter("open")
        node = machine.disk.find(address)
        if node is None:
            raise fault(errno.ENOENT, address)
        listener = node.exclusive
        if not isinstance(listener, Listener) or not listener.is_open:
            raise fault(errno.ECONNREFUSED, address)
        mine, theirs = Line(process.pid), Line(listener.pid)
        mine.other, theirs.other = theirs, mine
        theirs.refs += 1  # of the queue
        process.put(mine, self._number)
        listener.waiting.append(theirs)

    def accept(self) -> "tuple[SocketCall, str]":
        """Take up who has waited longest."""
        process = on.machine.enter("open")
        listener = process.end(self._number)
        assert isinstance(listener, Listener)
        if not listener.waiting:
            raise BlockingIOError(errno.EAGAIN, "Try again")
        line = listener.waiting.popleft()
        number = process.put(line)
        drop(line)
        return SocketCall(number=number), ""

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """Return who is at the other end."""
        line = self._line(on.machine.enter())
        pid = 0 if line.other is None else line.other.pid
        return _CREDENTIALS.pack(pid or line.pid, os.getuid(), 0)

    def _line(self, process: Process) -> Line:
        if self._number < 0:
            raise fault(errno.EBADF)
        end = process.end(self._number)
        if not isinstance(end, Line):
            raise fault(errno.ENOTCONN)
        return end

    def send(self, data: bytes) -> int:
        """Send a message."""
        return self.send_with(data, ())

    def send_with(self, data: bytes, descriptors: Sequence[int]) -> int:
        """Send a message, and descriptors along with it."""
        process = on.machine.enter()
        line = self._line(process)
        if line.other is None:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        if len(line.other.inbox) >= INBOX_MAX:
            raise BlockingIOError(errno.EAGAIN, "Try again")
        ends = [process.end(number) for number in descriptors]
        for end in ends:
            end.refs += 1
        line.other.inbox.append((bytes(data), ends))
        return len(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Return the next message."""
        data, ends = self._next(flags)
        for end in ends:
            drop(end)
        return data[:size]

    def recvmsg(
        self, size: int, room: int = 0, flags: int = 0
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        """Return the next message and the descriptors that came with it."""
        data, ends = self._next(flags)
        process = on.machine.current
        numbers = array("i", [process.put(end) for end in ends])
        for end in ends:
            drop(end)
        told = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers.tobytes())] if ends else []
        return data[:size], told, 0, None

    def _next(self, flags: int) -> Message:
        machine = on.machine
        line = self._line(machine.enter())
        if not line.is_ready():
            if not self._blocks or flags & socket.MSG_DONTWAIT:
                raise BlockingIOError(errno.EAGAIN, "Try again")
            machine.wait(line.is_ready)
        return line.inbox.popleft() if line.inbox else (b"", [])

    def shutdown(self, how: int) -> None:
        """Hang up, and leave the descriptor open."""
        self._line(on.machine.enter()).hang_up()

    def close(self) -> None:
        """Hang up."""
        if self._number >= 0:
            number, self._number = self._number, -1
            posix.close(number)

    def __enter__(self) -> "SocketCall":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Sockets:
    """The module ``socket``."""

    AF_UNIX, SOCK_SEQPACKET = socket.AF_UNIX, socket.SOCK_SEQPACKET
    SOL_SOCKET, SO_PEERCRED = socket.SOL_SOCKET, socket.SO_PEERCRED
    SCM_RIGHTS, MSG_DONTWAIT, SHUT_RDWR = (
        socket.SCM_RIGHTS,
        socket.MSG_DONTWAIT,
        socket.SHUT_RDWR,
    )
    CMSG_SPACE = staticmethod(socket.CMSG_SPACE)
    socket = SocketCall

    def gethostname(self) -> str:
        """Return the name of the machine."""
        return "simulated"

    def socketpair(self) -> tuple[SocketCall, SocketCall]:
        """Return two sockets, one for words from signals and one to hear them."""
        process = on.machine.enter("open")
        pipe = Pipe()
        out, into = process.put(PipeOut(pipe)), process.put(PipeIn(pipe))
        return SocketCall(number=out), SocketCall(number=into)

    def send_fds(
        self, line: SocketCall, data: Sequence[bytes], descriptors: Sequence[int]
    ) -> int:
        """Send descriptors."""
        return line.send_with(b"".join(data), descriptors)


class _Memory(bytearray):
    """Memory that several processes see."""

    def close(self) -> None:
        """Do nothing: it goes with whoever saw it last."""


class SharedMemory:
    """The module ``mmap``."""

    PAGESIZE = 4096

    def mmap(self, number: int, size: int) -> bytearray:
        """Return the memory behind a file."""
        end = on.machine.enter("open").end(number)
        assert isinstance(end, OpenedFile)
        if not isinstance(end.node.data, _Memory):
            end.node.data = _Memory(end.node.data)
        return end.node.data


class RawFile:
    """``io.FileIO`` on a descriptor."""

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        """Return its descriptor."""
        if self._number < 0:
            raise ValueError("It is closed.")
        return self._number

    def read(self, size: int) -> bytes | None:
        """Return what is there; None if that is nothing yet."""
        try:
            return posix.read(self.fileno(), size)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Let go of it."""
        if self._number >= 0:
            number, self._number = self._number, -1
            posix.close(number)


class Streams:
    """The module ``io``."""

    FileIO = RawFile
