"""Replicas as the gateway sees them: where they are, and what they have in hand."""

import asyncio
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from interlane.engines.local.functions.fork_servers import Process
from interlane.engines.local.functions.wire import Reader
from interlane.live.functions.calls import Call

if TYPE_CHECKING:
    from interlane.live.functions.deployed import Deployed

SERVED_MAX: Final = 4_096
"""Calls of a replica that are measured between two looks, the newest of them."""


class State(StrEnum):
    """Where a replica stands."""

    LOADING = "loading"
    READY = "ready"
    LEAVING = "leaving"
    """It takes no more calls, and ends when those that it has are over."""
    GONE = "gone"


@dataclass(slots=True, eq=False)
class Device:
    """A device, and what functions do there."""

    gpu: str
    """Its name in the lender's books."""
    number: int
    """Its number among all."""
    visible: str
    """What ``CUDA_VISIBLE_DEVICES`` calls it; emulated devices are no GPUs."""
    cores: tuple[int, ...]
    """The cores that an emulated device consists of; empty for all."""
    calls: int = 0
    """Calls that were ever made there."""
    in_hand: int = 0
    """Calls that have not been answered."""


@dataclass(frozen=True, slots=True)
class Site:
    """The place of a replica."""

    id: str
    """Under which the lender knows the replica."""
    device: Device


class Replica(asyncio.Protocol):
    """One process that answers."""

    def __init__(self, owner: "Deployed", number: int, site: Site, begun_s: float) -> None:
        self.owner = owner
        self.number = number
        self.site = site
        self.begun_s = begun_s
        self.ready_s = float("inf")
        self.state = State.LOADING
        self.process: Process | None = None
        self.calls: dict[int, tuple[float, list[Call]]] = {}
        """Number of the frame -> when it was sent, and what was in it."""
        self.served_s: deque[float] = deque(maxlen=SERVED_MAX)
        """What calls took for each item, since somebody looked."""
        self.was_called = False
        """Before somebody looked last."""
        self.memory_mib = 0.0
        self.failure: str | None = None
        """Why it cannot be loaded, or had to be killed."""
        self.begun = memoryview(b"")
        """Numbers of the frames that it began with last, one place for each of its threads."""
        self._reader = Reader()
        self._line: Any = None

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        self._line.write(frame)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the line."""
        self._line = transport

    def data_received(self, data: bytes) -> None:
        """Hear answers; who talks nonsense is killed."""
        try:
            for frame in self._reader.take(data):
                self.owner.heard(self, frame)
        except ValueError:
            self.kill("It wrote to the gateway's line.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that nothing more will be answered."""
        self.owner.cut_off(self)

    def take_served_s(self) -> list[float]:
        """Return what calls took since last asked; the very first is no measure of others."""
        served_s = list(self.served_s)
        self.served_s.clear()
        if served_s and not self.was_called:
            self.was_called = True
            del served_s[0]
        return served_s

    def kill(self, why: str | None = None) -> None:
        """End the process; its end is heard of later."""
        self.failure = self.failure or why
        if self.process is not None:
            self.process.kill()
