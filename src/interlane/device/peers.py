"""Connections: whatever comes in is read as a frame, or ends the connection that it came by.

Nobody who is silent, floods, or does not read what it is sent keeps anybody else out.
"""

import errno
import os
import selectors
import socket
from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from interlane.device import wire
from interlane.device.rendezvous import credentials
from interlane.device.wire import Frame, FrameKind

STRANGERS: Final = 512
"""Connections that may be open without having said who they are."""
STRANGER_S: Final = 5.0
FRAMES_PER_TURN: Final = 32
"""Frames read from one connection before others are looked at."""
NOISE_PER_TICK: Final = 1000
"""Frames that change nothing, after which a connection is closed."""


@dataclass(slots=True, eq=False)
class Peer:
    """One connection."""

    line: socket.socket
    pid: int
    since_s: float
    peers: "Peers"
    job: int = 0
    """Number of the job that speaks here; 0: nobody has said HELLO."""
    noise: int = 0
    """Frames since the last tick that changed nothing."""

    @property
    def is_open(self) -> bool:
        """Whether the connection has not been closed."""
        return self.line.fileno() >= 0

    def send(self, frame: Frame, descriptors: Sequence[int] = ()) -> None:
        """Send a frame; a client that does not read what it is sent is cut off."""
        try:
            if descriptors:
                socket.send_fds(self.line, [wire.packed(frame)], list(descriptors))
            else:
                self.line.send(wire.packed(frame))
        except OSError:
            self.peers.broken.append(self)

    def refuse(self, why: str) -> None:
        """Say why, and end the connection."""
        self.send(Frame(FrameKind.REJECT, text=why))
        self.close()

    def close(self) -> None:
        """End the connection."""
        self.peers.close(self)


class Peers:
    """All connections of a daemon."""

    def __init__(
        self,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        *,
        take: Callable[[Peer, Frame], None],
        lost: Callable[[Peer], None],
        served: Callable[[], Container[int]],
    ) -> None:
        """Listen.

        Args:
            listener: where connections come in.
            selector: what waits for them, and for what they bring.
            take: called with each frame.
            lost: called when the connection of a job has ended.
            served: returns the users whose connections are taken up.
        """
        self._listener = listener
        self._selector = selector
        self._take = take
        self._lost = lost
        self._served = served
        self._peers: OrderedDict[int, Peer] = OrderedDict()
        """By descriptor, the oldest first."""
        self.broken: list[Peer] = []
        """Could not be sent something; they are closed before the next wait."""
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def drop_broken(self) -> None:
        """Close connections that could not be sent something."""
        while self.broken:
            peer = self.broken.pop()
            if peer.is_open:
                self._hear(peer)  # it may have said BYE before it hung up
            if peer.is_open:
                self.close(peer)

    def tick(self, now_s: float) -> None:
        """Close those that do not say who they are; forgive the others their noise."""
        for peer in self._strangers():
            if now_s - peer.since_s > STRANGER_S:
                self.close(peer)
        for peer in self._peers.values():
            peer.noise = 0

    def close(self, peer: Peer) -> None:
        """End a connection."""
        if self._peers.pop(peer.line.fileno(), None) is None:
            return
        self._selector.unregister(peer.line)
        peer.line.close()
        if peer.job:
            self._lost(peer)

    def close_all(self) -> None:
        """End everything, and listen no more."""
        for peer in list(self._peers.values()):
            self.close(peer)
        self._selector.unregister(self._listener)
        self._listener.close()

    def _strangers(self) -> list[Peer]:
        return [peer for peer in self._peers.values() if not peer.job]

    def _accept(self) -> None:
        for _ in range(FRAMES_PER_TURN):
            try:
                line, _ = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._make_room()
                return
            self._greet(line)

    def _greet(self, line: socket.socket) -> None:
        line.setblocking(False)
        pid, uid = credentials(line)
        peer = Peer(line, pid, monotonic(), self)
        if len(self._strangers()) >= STRANGERS:
            self._make_room()
        self._peers[line.fileno()] = peer
        self._selector.register(line, selectors.EVENT_READ, lambda: self._hear(peer))
        if uid not in self._served():
            peer.refuse(f"The daemon serves user {os.getuid()}, you are user {uid}.")

    def _make_room(self) -> None:
        for oldest in self._strangers()[:1]:
            self.close(oldest)

    def _hear(self, peer: Peer) -> None:
        """Take in what a connection brings."""
        for _ in range(FRAMES_PER_TURN):
            try:
                message = peer.line.recv(wire.FRAME_BYTES + 1)
            except BlockingIOError:
                return
            except ConnectionResetError:
                continue  # it left with our words unread; its own are still there
            except OSError:
                message = b""
            frame = wire.read(message)
            if not message:
                peer.close()
            elif frame is None or peer.noise > NOISE_PER_TICK:
                peer.refuse("The daemon does not understand; is it of another version?")
            else:
                self._take(peer, frame)
            if not peer.is_open:
                return
