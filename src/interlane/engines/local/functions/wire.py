"""What gateway and replicas send each other: frames of a few items each.

A frame is its length, what it is, a number that an answer repeats, and items; an item is a
status, a length and bytes.  Bodies are never looked into on the way.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

_HEAD: Final = Struct("!IBI")
_ITEM: Final = Struct("!BI")
_AFTER_LENGTH: Final = _HEAD.size - 4

FRAME_BYTES_MAX: Final = 1 << 28
"""A frame that claims more is no frame: whoever sent it is broken."""

SLACK_BYTES: Final = 1 << 20
"""What a frame of answers has beside them."""


class ReplicaFrameKind(IntEnum):
    """What a frame is."""

    CALL = 0
    """Items are inputs; the handler sees them together."""
    ANSWER = 1
    """Items are outputs, in the order of the call's."""
    READY = 2
    """The handler is loaded."""
    FAILED = 3
    """The handler cannot be loaded; the item says why."""


class Status(IntEnum):
    """How a call went for one item."""

    GOOD = 0
    RAISED = 1
    """The handler raised; the bytes are what it said."""
    NOT_JSON = 2
    """The input is not JSON; the bytes say where."""


class Item(NamedTuple):
    """One input or output."""

    status: int
    data: bytes


class ReplicaFrame(NamedTuple):
    """One message."""

    kind: int
    number: int
    items: list[Item]


def packed(kind: ReplicaFrameKind, number: int, items: Sequence[tuple[int, bytes]]) -> bytes:
    """Return a frame as it is sent."""
    parts = [b""]
    for status, data in items:
        parts += (_ITEM.pack(status, len(data)), data)
    body = b"".join(parts)
    return _HEAD.pack(_AFTER_LENGTH + len(body), kind, number) + body


class Reader:
    """Makes frames of bytes as they come in."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bytes = bytearray()
        self._frame_bytes_max = frame_bytes_max

    def take(self, data: bytes) -> Iterator[ReplicaFrame]:
        """Yield the frames that are complete; raise ``ValueError`` where there is none."""
        held = self._bytes
        held += data
        begin = 0
        while len(held) - begin >= _HEAD.size:
            length, kind, number = _HEAD.unpack_from(held, begin)
            if not _AFTER_LENGTH <= length <= self._frame_bytes_max:
                raise ValueError(f"a frame of {length} bytes")
            end = begin + 4 + length
            if len(held) < end:
                break
            yield ReplicaFrame(kind, number, _items(held, begin + _HEAD.size, end))
            begin = end
        del held[:begin]


def _items(held: bytearray, at: int, end: int) -> list[Item]:
    items = []
    while at < end:
        status, length = _ITEM.unpack_from(held, at)
        at += _ITEM.size + length
        if at > end:
            raise ValueError("an item that is longer than its frame")
        items.append(Item(status, bytes(held[at - length : at])))
    return items
