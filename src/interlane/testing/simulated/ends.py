"""What descriptors refer to: open files, pipes, processes, bells and sockets."""

import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from interlane.testing.simulated.disk import Node, fault


class OpenEnd:
    """Something open; whoever forks shares it."""

    def __init__(self) -> None:
        self.refs = 0
        self.is_blocking = True

    def is_ready(self) -> bool:
        """Tell whether something can be read."""
        return True

    def read(self, size: int) -> bytes:
        """Return up to so many bytes; nothing at the end."""
        raise fault(errno.EBADF)

    def write(self, data: bytes) -> int:
        """Take bytes; return how many."""
        raise fault(errno.EBADF)

    def closed(self) -> None:
        """Note that nobody refers to it any more."""


class OpenedFile(OpenEnd):
    """A file of the disk."""

    def __init__(self, node: Node, path: str = "", *, appends: bool = False) -> None:
        super().__init__()
        self.node = node
        self.path = path
        self.at = 0
        self._appends = appends

    def read(self, size: int) -> bytes:
        """Return what comes next."""
        found = bytes(self.node.data[self.at : self.at + size])
        self.at += len(found)
        return found

    def write(self, data: bytes) -> int:
        """Write here, or at the end."""
        if self._appends:
            self.at = len(self.node.data)
        self.node.data[self.at : self.at + len(data)] = data
        self.at += len(data)
        return len(data)

    def closed(self) -> None:
        """Let go of locks."""
        if self.node.exclusive is self:
            self.node.exclusive = None
        self.node.shared.discard(self)


class Nothing(OpenEnd):
    """The null device."""

    def read(self, size: int) -> bytes:
        """Return nothing."""
        return b""

    def write(self, data: bytes) -> int:
        """Take everything."""
        return len(data)


@dataclass(eq=False)
class Pipe:
    """What is on its way from those who write to those who read."""

    data: bytearray = field(default_factory=bytearray)
    writers: int = 0
    readers: int = 0


class PipeOut(OpenEnd):
    """The end of a pipe that is read."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__()
        self.pipe = pipe
        pipe.readers = 1

    def is_ready(self) -> bool:
        """Tell whether there is something, or nothing will ever come."""
        return bool(self.pipe.data) or not self.pipe.writers

    def read(self, size: int) -> bytes:
        """Return what is there."""
        found = bytes(self.pipe.data[:size])
        del self.pipe.data[:size]
        return found

    def closed(self) -> None:
        """Let writers fail."""
        self.pipe.readers = 0


class PipeIn(OpenEnd):
    """The end of a pipe that is written."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__()
        self.pipe = pipe
        pipe.writers = 1

    def is_ready(self) -> bool:
        """Tell nothing: it is not read."""
        return False

    def write(self, data: bytes) -> int:
        """Put bytes into the pipe."""
        if not self.pipe.readers:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        self.pipe.data += data
        return len(data)

    def closed(self) -> None:
        """Let readers see the end."""
        self.pipe.writers = 0


class ProcessRef(OpenEnd):
    """A reference to a process, and to no other that gets its number."""

    def __init__(self, has_ended: Callable[[], bool], process: object) -> None:
        super().__init__()
        self.is_ready = has_ended  # type: ignore[method-assign]
        self.process = process


class Bell(OpenEnd):
    """An ``eventfd``."""

    def __init__(self) -> None:
        super().__init__()
        self.rung = 0

    def is_ready(self) -> bool:
        """Tell whether somebody rang."""
        return self.rung > 0


Message = tuple[bytes, list[OpenEnd]]


class Line(OpenEnd):
    """One side of a connection that keeps messages apart."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.pid = pid
        """Of the process that holds this side."""
        self.other: Line | None = None
        self.inbox: deque[Message] = deque()

    def is_ready(self) -> bool:
        """Tell whether a message is there, or none will ever come."""
        return bool(self.inbox) or self.other is None

    def hang_up(self) -> None:
        """Let both sides see the end, once they have read what is there."""
        if self.other is not None:
            self.other.other = None
        self.other = None

    def closed(self) -> None:
        """Let the other side see the end; what it has not read is lost with it."""
        self.hang_up()
        for _, ends in self.inbox:
            for end in ends:
                drop(end)
        self.inbox.clear()


class Listener(OpenEnd):
    """Where connections come in."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.pid = pid
        self.waiting: deque[Line] = deque()
        self.node: Node | None = None
        self.is_open = True

    def is_ready(self) -> bool:
        """Tell whether somebody waits."""
        return bool(self.waiting)

    def closed(self) -> None:
        """Hang up on those who wait."""
        self.is_open = False
        for line in self.waiting:
            line.closed()


def drop(end: OpenEnd) -> None:
    """Let go of one reference."""
    end.refs -= 1
    if end.refs == 0:
        end.closed()
