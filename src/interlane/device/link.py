"""A connection of a job to a daemon, and what came with its admission."""

import os
import select
import socket
import sys
from array import array
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final

from interlane.device import wire
from interlane.device.page import SUCCESSOR, TOLD, SharedPage
from interlane.device.rendezvous import credentials, strangers_folder
from interlane.device.wire import Frame, FrameKind
from interlane.model.errors import Unreachable

EPOCH_BYTES: Final = 8
ADMITTED_WITH: Final = 3
"""Descriptors that come with an ADMIT: the page, the bell, the end of a pipe."""


class NoDaemon(Unreachable):
    """Nobody listens on the socket, or not to us."""

    def __init__(self, path: Path, *, is_denied: bool = False) -> None:
        what = (
            f"the device daemon at {path} serves another user; start your own"
            if is_denied
            else f"no device daemon answers at {path}; start one"
        )
        super().__init__(f"{what} with 'interlane share daemon'.")


class StrangersDaemon(NoDaemon):
    """Somebody else listens on the socket: whoever believed them would do what they say."""

    def __init__(self, path: Path, whose: str) -> None:
        Unreachable.__init__(
            self,
            f"the socket {path} belongs to {whose}, who is neither you nor root; name another "
            "with --socket, or remove it.",
        )


@dataclass(slots=True)
class Link:
    """One connection to one daemon, with the page, bell and pipe that came with admission."""

    line: socket.socket
    admission: Frame
    page: SharedPage
    bell: int
    baton: FileIO
    """Whoever passes the lane to this job writes the epoch of its lease here."""
    successor_pipe: int = -1
    """Where to write to the job that the daemon has named as the next."""
    heard: int = 0
    """HEIR frames that were read."""
    is_lost: bool = False
    """Whether another daemon was told what this job holds: nothing may change hands here."""

    def close(self) -> None:
        """Close the line; the page goes when the job has looked at it for the last time."""
        self.line.close()
        os.close(self.bell)
        self.baton.close()
        if self.successor_pipe >= 0:
            os.close(self.successor_pipe)

    def epoch(self) -> int | None:
        """Wait for the epoch of a lease, from the daemon or from the holder before.

        None when the daemon is gone; 0 when it was something else that came.
        """
        try:
            poll = select.poll()
            poll.register(self.baton, select.POLLIN)
            poll.register(self.line, select.POLLIN)
            poll.poll()
            if passed := self.baton.read(EPOCH_BYTES):
                return int.from_bytes(passed, sys.byteorder)
            frame = self._receive()
        except (OSError, ValueError):  # closed, by us or by the daemon
            return None
        if frame is None:
            return None
        return frame.epoch if frame.kind is FrameKind.GRANT else 0

    def successor(self) -> int:
        """Return the epoch of the lease that may be passed on, into ``heir_pipe``; 0: none.

        The daemon may name another successor meanwhile, which shows in one of the two words.
        """
        words = self.page.words
        epoch = int(words[SUCCESSOR])
        self.hear()
        return epoch if (words[SUCCESSOR], words[TOLD]) == (epoch, self.heard) else 0

    def hear(self) -> None:
        """Take in whom the daemon has named; a look at one word if it is nobody new."""
        with suppress(OSError):
            while self.heard < self.page.words[TOLD] and self._receive(socket.MSG_DONTWAIT):
                pass

    def tell_successor(self, epoch: int) -> None:
        """Let the successor run; one that is gone is the daemon's business."""
        with suppress(OSError):
            os.write(self.successor_pipe, epoch.to_bytes(EPOCH_BYTES, sys.byteorder))

    def _receive(self, flags: int = 0) -> Frame | None:
        """Return the next frame, None if there is none; keep the pipe that a HEIR brings."""
        message, descriptors = received(self.line, flags)
        frame = wire.read(message)
        if frame is not None and frame.kind is FrameKind.SUCCESSOR and descriptors:
            self.heard += 1
            if self.successor_pipe >= 0:
                os.close(self.successor_pipe)
            self.successor_pipe = descriptors[0]
        return frame


def connected(path: Path) -> socket.socket:
    """Return a connection to the daemon; one that a stranger has put there is refused."""
    whose = strangers_folder(path.parent)
    if whose is not None:
        raise StrangersDaemon(path, whose)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        line.connect(str(path))
        _, uid = credentials(line)
    except OSError as error:
        line.close()
        raise NoDaemon(path, is_denied=isinstance(error, PermissionError)) from None
    if uid not in (os.getuid(), 0):
        line.close()
        raise StrangersDaemon(path, f"user {uid}")
    return line


def received(line: socket.socket, flags: int = 0) -> tuple[bytes, list[int]]:
    """Return the next message and the descriptors that came with it."""
    integer = array("i")
    message, ancillary, _, _ = line.recvmsg(
        wire.FRAME_BYTES, socket.CMSG_SPACE(ADMITTED_WITH * integer.itemsize), flags
    )
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            integer.frombytes(data[: len(data) - len(data) % integer.itemsize])
    return message, list(integer)
