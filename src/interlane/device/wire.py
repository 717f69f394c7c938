"""What a job and the device daemon say to each other: frames of one size.

A connection is a Unix socket of type SOCK_SEQPACKET, so a message arrives whole or not at
all, and a frame of another length is simply wrong.  Nothing in a frame is trusted: ``read``
returns None for what it does not understand, and never raises.

    job     HELLO (who, what it needs), ACQUIRE, YIELD, RELEASE, RESIZE, EXTEND, BYE
    daemon  ADMIT | QUEUED | REJECT (why), GRANT (epoch, quantum), HEIR
    anyone  STATUS, answered by a STATUS that brings a file with JSON along
"""

import struct
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

MAGIC: Final = b"IL"
VERSION: Final = 3
_LAYOUT: Final = struct.Struct("<2sBBHhIIIHQQQQQ442s")
FRAME_BYTES: Final = _LAYOUT.size
TEXT_BYTES: Final = 442
UNKNOWN: Final = 2**64 - 1
"""An amount that the sender does not know."""
ANY_DEVICE: Final = 2**16 - 1
U64: Final = 2**64 - 1


class FrameKind(IntEnum):
    """What a frame says."""

    HELLO = 1
    ADMIT = 2
    QUEUED = 3
    REJECT = 4
    ACQUIRE = 5
    GRANT = 6
    YIELD = 7
    RELEASE = 8
    RESIZE = 9
    EXTEND = 10
    STATUS = 11
    BYE = 12
    SUCCESSOR = 13


class Flag(IntFlag):
    """Remarks on a frame."""

    NONE = 0
    REATTACH = 1
    """HELLO: this job was admitted by an earlier daemon, or lost its connection."""
    HOLDS = 2
    """HELLO: and it holds the lease of ``epoch``."""
    DECLARED = 4
    """HELLO: the job promised to need no more than this, and is held to it."""
    GUEST = 8
    """HELLO: the job lives in a process whose context another job is booked for."""


class Frame(NamedTuple):
    """One message.  What the three numbers mean depends on the kind.

    A tuple: every hand-over makes three, and a frozen dataclass takes five times as long.

    ===============  ====================  ====================  ==================
    kind             first                 second                third
    ===============  ====================  ====================  ==================
    HELLO, RESIZE    persistent bytes      ephemeral bytes       total time, ns
    ADMIT            persistent bytes      ephemeral bytes       cores (bit set)
    GRANT            quantum, ns           -                     -
    EXTEND           time to add, ns       -                     -
    STATUS (answer)  length of the file    -                     -
    ===============  ====================  ====================  ==================
    """

    kind: FrameKind
    job: int = 0
    device: int = ANY_DEVICE
    priority: int = 0
    lane: int = 0
    run: int = 0
    """Number of the ``share run`` that a job belongs to; 0: of none."""
    flags: Flag = Flag.NONE
    share: int = 0
    """HELLO: thousandths of the device that the job holds; 0: as one that holds all of it."""
    epoch: int = 0
    first: int = 0
    second: int = 0
    third: int = 0
    text: str = ""


def packed(frame: Frame) -> bytes:
    """Return a frame as bytes; text that is too long is cut."""
    # The layout has the job's number behind the small ones, where it is aligned.
    small, large = frame[2:8], frame[8:12]
    text = _cut(frame.text)
    return _LAYOUT.pack(MAGIC, VERSION, frame.kind, *small, frame.job, *large, text)


def read(message: bytes) -> Frame | None:
    """Return the frame that a message holds, or None where it holds none."""
    if len(message) != FRAME_BYTES or not message.startswith(_BEGINNING):
        return None
    _, _, number, device, priority, lane, run, bits, share, job, *rest = _LAYOUT.unpack(message)
    epoch, first, second, third, text = rest
    kind, flags = _KINDS.get(number), _FLAGS.get(bits)
    if kind is None or flags is None:
        return None
    told = _printable(text.rstrip(b"\0").decode("utf-8", "replace")) if text[0] else ""
    small = device, priority, lane, run, flags, share
    return Frame._make((kind, job, *small, epoch, first, second, third, told))


_BEGINNING: Final = MAGIC + bytes([VERSION])
_KINDS: Final = {int(kind): kind for kind in FrameKind}
_FLAGS: Final = {bits: Flag(bits) for bits in range(sum(Flag) + 1)}


def _cut(text: str) -> bytes:
    """Return text that fits, never ending inside a character."""
    return text.encode("utf-8", "replace")[:TEXT_BYTES].decode("utf-8", "ignore").encode()


def _printable(text: str) -> str:
    """Return text without what would move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
