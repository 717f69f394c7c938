"""Actions: what should be done on the device, in the imperative.  ``Domain`` makes them."""

from dataclasses import dataclass
from typing import NewType

from interlane.model import JobId, Refusal, Wake

LaneId = NewType("LaneId", int)


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """Memory that a job needs on the device.

    Persistent bytes are live between iterations and stay until the job leaves.  Ephemeral
    bytes come on top during an iteration (peak less persistent); jobs of one lane share them.
    """

    persistent_bytes: int
    ephemeral_bytes: int

    def __post_init__(self) -> None:
        # Not InvalidField: whoever reads a request from outside checks it there, with its name.
        if self.persistent_bytes < 0 or self.ephemeral_bytes < 0:
            raise ValueError(f"{self} is below 0")

    @property
    def peak_bytes(self) -> int:
        """What the job holds at the worst moment of an iteration."""
        return self.persistent_bytes + self.ephemeral_bytes


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run iterations in a lane.  ``epoch`` rises with every lease of the domain.

    A message that carries another epoch than the lane's present lease comes from the past
    and changes nothing.
    """

    job_id: JobId
    lane: LaneId
    epoch: int
    granted_s: float
    quantum_s: float
    """How long the holder may go on while others wait, where the order takes turns."""
    taken_from: JobId | None = None
    """Who had the lane before; None: nobody, or the same job."""


@dataclass(frozen=True, slots=True)
class Admit:
    """Let the job allocate: its persistent bytes and its share of the lane are booked."""

    job_id: JobId
    lane: LaneId
    demand: MemoryDemand


@dataclass(frozen=True, slots=True)
class KeepWaiting:
    """Tell the job that it must wait to be admitted, and why."""

    job_id: JobId
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class RefuseTenant:
    """Tell the job that it can never be admitted; the domain has forgotten it."""

    job_id: JobId
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Grant:
    """Let the job run iterations until it is told to stop."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Revoke:
    """Ask the holder to give the lane up at its next iteration boundary."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Name:
    """Tell the holder to whom it may pass the lane at its next boundary, and with what epoch.

    This cannot be cancelled, because the holder may act on it at any moment; it can be
    followed by another, and ends with the lease.
    """

    lease: Lease
    successor: JobId
    successor_epoch: int


@dataclass(frozen=True, slots=True)
class Resize:
    """The lane now has this many bytes; said only while nobody runs in it."""

    lane: LaneId
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Confine:
    """Hold the job to what is booked for it: it needs more than there is.

    Where the backend has no hard cap, stop the job instead.
    """

    job_id: JobId
    needs: MemoryDemand
    booked: MemoryDemand


LaneAction = (
    Admit | KeepWaiting | RefuseTenant | Grant | Revoke | Name | Resize | Confine | Wake
)
