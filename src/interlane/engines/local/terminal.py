"""The terminal of a job: a pseudo-terminal, and a socket at which somebody takes its other end.

The shim holds it, so that it outlives the server.  One at a time may be attached; who comes
later takes the place of who was there.  What the job prints goes to them as it is, and into
the log.  They send frames: a letter, the length in four bytes, and as many bytes; ``d`` is for
what is typed, ``w`` for the size of the window, two bytes of rows and two of columns.

Shims use this file, too: so it imports the standard library only, and little of that.
"""

import fcntl
import os
import socket
import struct
import termios
import time

SOCKET = "terminal"
"""The file of a run's folder at which one attaches."""

TYPED, WINDOW = b"d", b"w"
HEAD = struct.Struct("!cI")
SIZE = struct.Struct("!HH")
FRAME_MAX = 1 << 16
CHUNK_BYTES = 1 << 16
RECENT_BYTES = 1 << 13
HELD_MAX = 1 << 18
"""Bytes that wait for somebody slow; the job waits with them."""


def at(folder_fd: int) -> str:
    """Return the socket's path in an open folder; paths of sockets must be short."""
    return f"/proc/self/fd/{folder_fd}/{SOCKET}"


def frame(kind: bytes, data: bytes) -> bytes:
    """Return what is sent to a terminal."""
    return HEAD.pack(kind, len(data)) + data


class JobTerminal:
    """See the module's text; used by one thread, which waits for its files."""

    def __init__(self, folder: str, order: dict) -> None:  # type: ignore[type-arg]
        """Open a terminal as an order wants it: rows, columns, and patience with nobody."""
        self.master, self.slave = os.openpty()
        self.away_s = float("inf") if order["away_s"] is None else order["away_s"]
        self.away_at_s = time.monotonic() + self.away_s
        """When it is over with whoever is not attached."""
        self._resize(order["rows"], order["columns"])
        os.set_blocking(self.master, False)
        self._folder = folder
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._listener.bind(at(fd))
        finally:
            os.close(fd)
        self._listener.listen(4)
        self._client: socket.socket | None = None
        self._heard = b""
        """Sent by the client, and not a whole frame yet."""
        self._typed = b""
        """For the job."""
        self._shown = b""
        """For the client."""
        self._recent = b""
        """The end of what was printed: who comes sees where the job is."""
        self.is_open = True

    def give_to(self, uid: int, gid: int) -> None:
        """Let an account use it."""
        os.fchown(self.slave, uid, gid)
        os.fchmod(self.slave, 0o620)

    def control(self) -> None:
        """Make it the terminal of the calling process, the first of its session."""
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
        for fd in (0, 1, 2):
            os.dup2(self.slave, fd)

    # -- waiting ----------------------------------------------------------------------

    def readers(self) -> list:  # type: ignore[type-arg]
        """Return what to wait for until there is something to read."""
        wanted: list = [self._listener]  # type: ignore[type-arg]
        if self.is_open and len(self._shown) < HELD_MAX:
            wanted.append(self.master)
        if self._client is not None and len(self._typed) < HELD_MAX:
            wanted.append(self._client)
        return wanted

    def writers(self) -> list:  # type: ignore[type-arg]
        """Return what to wait for until there is room to write."""
        wanted: list = []  # type: ignore[type-arg]
        if self.is_open and self._typed:
            wanted.append(self.master)
        if self._client is not None and self._shown:
            wanted.append(self._client)
        return wanted

    def turn(self, ready: list, roomy: list) -> bytes:  # type: ignore[type-arg]
        """Read and write what can be; return what the job has printed."""
        printed = self._read_job() if self.master in ready else b""
        self._recent = (self._recent + printed)[-RECENT_BYTES:]
        if self._client is not None:
            self._shown += printed
        if self._client in ready:
            self._read_client()
        if self.master in roomy and self.is_open:
            self._typed = self._typed[self._write(self.master) :]
        if self._client is not None and self._client in roomy:
            self._send()
        if self._listener in ready:
            self._accept()
        return printed

    def close(self) -> None:
        """Let go of everything; whoever is attached gets the rest first."""
        if self._client is not None:
            try:
                self._client.settimeout(1.0)
                self._client.sendall(self._shown)
            except OSError:
                pass
            self._client.close()
        self._listener.close()
        try:
            os.unlink(os.path.join(self._folder, SOCKET))
        except OSError:
            pass

    # -- both ends --------------------------------------------------------------------

    def _read_job(self) -> bytes:
        try:
            data = os.read(self.master, CHUNK_BYTES)
        except BlockingIOError:
            return b""
        except OSError:  # nobody has the inner end any more
            data = b""
        self.is_open = bool(data)
        return data

    def _write(self, fd: int) -> int:
        try:
            return os.write(fd, self._typed)
        except BlockingIOError:
            return 0
        except OSError:
            return len(self._typed)

    def _accept(self) -> None:
        try:
            taken, _ = self._listener.accept()
        except OSError:
            return
        self._leave()
        taken.setblocking(False)
        self._client, self.away_at_s = taken, float("inf")
        self._shown = self._recent

    def _leave(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client, self._heard, self._shown = None, b"", b""
        self.away_at_s = time.monotonic() + self.away_s

    def _send(self) -> None:
        assert self._client is not None
        try:
            self._shown = self._shown[self._client.send(self._shown) :]
        except BlockingIOError:
            pass
        except OSError:
            self._leave()

    def _read_client(self) -> None:
        assert self._client is not None
        try:
            data = self._client.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._leave()
            return
        self._heard += data
        while len(self._heard) >= HEAD.size:
            kind, length = HEAD.unpack_from(self._heard)
            if length > FRAME_MAX:
                self._leave()
                return
            if len(self._heard) < HEAD.size + length:
                return
            said = self._heard[HEAD.size : HEAD.size + length]
            self._heard = self._heard[HEAD.size + length :]
            if kind == TYPED:
                self._typed += said
            elif kind == WINDOW and length == SIZE.size:
                self._resize(*SIZE.unpack(said))

    def _resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
