"""What a job asks of the daemon."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from interlane.device import wire
from interlane.device.wire import Flag, Frame, FrameKind
from interlane.model.amounts import memory_bytes
from interlane.model.errors import InvalidField

REQUEST_VARIABLE: Final = "INTERLANE_SHARE_REQUEST"
"""In which a program finds the place that whoever started it has for it."""
LONGEST_S: Final = 1e10
"""Times beyond this count as this: nanoseconds must fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class LaneRequest:
    """A place on a device."""

    name: str
    device: int = wire.ANY_DEVICE
    priority: int = 0
    total_s: float | None = None
    persistent_bytes: int | None = None
    ephemeral_bytes: int | None = None
    is_declared: bool = False
    """Whether the job is held to these bytes, or they are what is to be expected."""
    run: int = 0
    """Number of the ``share run`` that the job belongs to."""
    share: int = 0
    """Thousandths of the device that the job holds, for turns by share; 0: all of it."""
    is_guest: bool = False
    """Whether the context of the job's process is booked by another job."""
    pace: int = 0
    """Thousandths of the time in which an iteration may keep the device busy, where nobody else
    holds the job to its part of the cores; 0: all of it."""
    patience_s: float = 0.0
    """How long to wait for a daemon that does not answer: whoever started the job starts it."""

    def __post_init__(self) -> None:
        if not 0 <= self.device <= wire.ANY_DEVICE:
            rule = f"devices have numbers from 0 to {wire.ANY_DEVICE - 1}"
            raise InvalidField("device", self.device, rule)
        if self.total_s is not None and not 0 <= self.total_s < inf:
            rule = "a device time is 0 seconds or more; leave it out if nobody knows"
            raise InvalidField("time", self.total_s, rule)

    def hello(self, job: int) -> Frame:
        """Return the frame that says this."""
        return Frame(
            FrameKind.HELLO,
            job,
            self.device,
            max(-(2**15), min(self.priority, 2**15 - 1)),
            run=self.run,
            flags=(Flag.DECLARED if self.is_declared else Flag.NONE)
            | (Flag.GUEST if self.is_guest else Flag.NONE),
            share=self.share,
            first=_told(self.persistent_bytes),
            second=_told(self.ephemeral_bytes),
            third=round(min(self.total_s or 0.0, LONGEST_S) * 1e9),
            text=self.name,
        )


def _told(amount: int | None) -> int:
    return wire.UNKNOWN if amount is None else min(amount, wire.UNKNOWN - 1)


def request_in(environment: Mapping[str, str]) -> LaneRequest | None:
    """Return the place that a program was started with; None if it was started by itself."""
    said = environment.get(REQUEST_VARIABLE)
    return None if said is None else LaneRequest(**json.loads(said))


def request_for(
    name: str,
    *,
    memory: str | None = None,
    device: int | None = None,
    priority: int = 0,
    total_s: float | None = None,
    is_guest: bool = False,
) -> LaneRequest:
    """Return a request in people's words: ``memory`` is ``PERSISTENT+EPHEMERAL`` or a sum."""
    persistent, _, ephemeral = (memory or "").partition("+")
    return LaneRequest(
        name,
        wire.ANY_DEVICE if device is None else device,
        priority,
        total_s,
        None if memory is None else memory_bytes("--memory", persistent),
        None if memory is None else memory_bytes("--memory", ephemeral or "0"),
        is_declared=memory is not None,
        is_guest=is_guest,
    )
