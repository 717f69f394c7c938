"""Replicas as the gateway knows them: where they are, and what they have in hand."""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from interlane.live.functions.calls import Call
from interlane.live.functions.port import ReplicaLoaded
from interlane.model import GpuRef

SERVED_MAX: Final = 4_096
"""Calls of a replica that are measured between two looks, the newest of them."""


class ReplicaState(StrEnum):
    """Where a replica stands."""

    LOADING = "loading"
    READY = "ready"
    LEAVING = "leaving"
    """It takes no more calls, and ends when those that it has are over."""
    GONE = "gone"


@dataclass(slots=True, eq=False)
class FunctionDevice:
    """A device, and what functions do there."""

    gpu: GpuRef
    calls: int = 0
    """Calls that were ever made there."""
    in_hand: int = 0
    """Calls that have not been answered."""


class Replica:
    """One replica of a function."""

    def __init__(self, number: int, device: FunctionDevice, begun_s: float) -> None:
        self.number = number
        self.device = device
        self.begun_s = begun_s
        self.ready_s = float("inf")
        self.state = ReplicaState.LOADING
        self.loaded: ReplicaLoaded | None = None
        """What the engine runs."""
        self.calls: dict[int, tuple[float, list[Call]]] = {}
        """By number: when they were sent, and what goes together."""
        self.served_s: deque[float] = deque(maxlen=SERVED_MAX)
        """What calls took for each item, since somebody looked."""
        self.was_called = False
        """Before somebody looked last."""
        self.memory_mib = 0.0
        self.failure: str | None = None
        """Why it cannot be loaded, or had to be killed."""

    def take_served_s(self) -> list[float]:
        """Return what calls took since last asked; the very first is no measure of others."""
        served_s = list(self.served_s)
        self.served_s.clear()
        if served_s and not self.was_called:
            self.was_called = True
            del served_s[0]
        return served_s

    def measure(self) -> float:
        """Return the memory that it has taken; 0 where nobody can tell."""
        found = None if self.loaded is None else self.loaded.memory_mib()
        self.memory_mib = found or 0.0
        return self.memory_mib

    def kill(self, why: str | None = None) -> None:
        """End it; its end is heard of later."""
        self.failure = self.failure or why
        if self.loaded is not None:
            self.loaded.kill()
