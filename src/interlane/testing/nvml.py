"""NVIDIA's library as its documentation describes it, over GPUs made by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace


class FakeNvmlError(Exception):
    """What the driver answers when it cannot."""


@dataclass(frozen=True, slots=True)
class CardSlice:
    """A MIG slice of a card."""

    name: str
    uuid: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU; ``mig`` None means that it cannot be cut up."""

    name: str
    memory_bytes: int
    used_bytes: int = 0
    mig: bool | None = None
    uuid: str = "GPU-0"
    parts: Sequence[CardSlice | None] = ()
    """By number; None where there is no slice."""


@dataclass
class FakeNvml:
    """The names of ``pynvml`` over a list of cards; handles are the cards and their parts."""

    cards: Sequence[Card] = ()
    NVMLError: type[Exception] = FakeNvmlError
    calls: list[str] = field(default_factory=list)

    def nvmlInit(self) -> None:
        """Note the call."""
        self.calls.append("init")

    def nvmlShutdown(self) -> None:
        """Note the call."""
        self.calls.append("shutdown")

    def nvmlDeviceGetCount(self) -> int:
        """Return how many cards there are."""
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        """Return a card."""
        return self.cards[index]

    def nvmlDeviceGetName(self, handle: Card | CardSlice) -> str:
        """Return the name of a card or slice."""
        return handle.name

    def nvmlDeviceGetUUID(self, handle: Card | CardSlice) -> str:
        """Return its identifier."""
        return handle.uuid

    def nvmlDeviceGetMemoryInfo(self, handle: Card | CardSlice) -> SimpleNamespace:
        """Return its memory."""
        return SimpleNamespace(total=handle.memory_bytes, used=getattr(handle, "used_bytes", 0))

    def nvmlDeviceGetMigMode(self, handle: Card) -> tuple[int, int]:
        """Return the mode now and after a reset, or that there is none."""
        if handle.mig is None:
            raise FakeNvmlError("not supported")
        return int(handle.mig), int(handle.mig)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Card) -> int:
        """Return how many slices there can be."""
        return len(handle.parts)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Card, index: int) -> CardSlice:
        """Return a slice, or that there is none."""
        part = handle.parts[index]
        if part is None:
            raise FakeNvmlError("not found")
        return part
