"""The daemon's side of one job: its connection, its page, and what is told through them."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final, Protocol

from interlane.device import page
from interlane.device.page import SharedPage, make_page
from interlane.device.wire import U64, Frame, FrameKind
from interlane.lanes.actions import Lease, MemoryDemand
from interlane.lanes.events import Switched
from interlane.model import MILLI, JobId, Refusal

MOST_SUCCESSORS: Final = 32
"""That a holder is told of in one lease: it reads of them only when it gives that up."""
LONGEST_SWITCH_NS: Final = 10_000_000_000


class JobConnection(Protocol):
    """A connection to a job."""

    def send(self, frame: Frame, descriptors: Sequence[int] = ()) -> None:
        """Send a frame; a line that cannot take it is closed later."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


@dataclass(slots=True, eq=False)
class SharedJob:
    """A job of the daemon, from its HELLO until its process is gone or it says BYE."""

    id: JobId
    key: int
    """The job's own number, by which it is known again."""
    pid: int
    name: str
    expected: MemoryDemand | None
    """What the job said it needs; None: nobody knows yet."""
    is_declared: bool
    """Whether the job is held to that."""
    priority: int = 0
    total_s: float | None = None
    processes: int = 1
    """With a context on the device; 0 for a guest in the process of another job."""
    share: int = 0
    """Thousandths of the device that it holds; 0: all of it."""
    run: int = 0
    """Number of the ``share run`` that it belongs to; 0: of none."""
    pidfd: int = -1
    """Tells when its process is gone."""
    line: JobConnection | None = None
    """None while the job is away: its memory stays booked until its process is gone."""
    page: SharedPage | None = None
    bell: int = -1
    baton: int = -1
    """Where the holder before writes the epoch of the lease that it passes to this job."""
    told_of: SharedPage | None = None
    """The page of the successor that the job was told of last."""
    told: int = 0
    """How often it was told of one."""
    told_at_grant: int = 0
    iterations_before: int = 0
    busy_before_ns: int = 0
    """Until the present lease."""
    took_from_ns: int = 0
    """When the holder before began to give the lane up for this job; 0: nobody did."""
    measured: MemoryDemand | None = None
    ancestors: frozenset[int] = frozenset()
    """Processes that its own descends from."""
    limit_bytes: int = 0
    """What it is held to; 0: nothing."""
    asked: int = 0
    """How often it was asked what it holds."""
    gives_way: bool = False
    """Whether it is booked with what it holds, whatever it declared: its children need room."""
    gave_way: bool = False
    """Whether it has said since what that is."""
    still_since_s: float | None = None
    """Since when nothing runs in its iteration, as far as it was looked at."""
    overdue_stage: int = 0
    overdue_next_s: float = 0.0

    @property
    def weight(self) -> float:
        """Its share of turns against those of others."""
        return (self.share or MILLI) / MILLI

    # -- its page --------------------------------------------------------------------------

    def word(self, which: int) -> int:
        """Return a word of the job's page."""
        return 0 if self.page is None else int(self.page.words[which])

    def write(self, which: int, value: int) -> None:
        """Write a word of the job's page."""
        if self.page is not None:
            self.page.words[which] = value & U64

    @property
    def present_ns(self) -> int:
        """How long the job has been on a device, under whichever daemon."""
        admitted_ns = self.word(page.ADMITTED_NS)
        return monotonic_ns() - admitted_ns if admitted_ns else 0

    @property
    def lease_iterations(self) -> int:
        """Iterations of the present lease."""
        return max(0, self.word(page.ITERATIONS) - self.iterations_before)

    def begin_lease(self) -> None:
        """Count from here on; the job does not run yet."""
        self.iterations_before = self.word(page.ITERATIONS)
        self.busy_before_ns = self.word(page.BUSY_NS)

    def end_lease(self) -> None:
        """Forget the present lease."""
        self.still_since_s = None
        self.took_from_ns = self.overdue_stage = 0
        self.overdue_next_s = 0.0

    def switched(self) -> Switched | None:
        """Return what taking the lane over cost, if it was taken over from somebody."""
        way_ns = self.word(page.TAKEN_NS) - self.took_from_ns
        if not self.took_from_ns or not 0 < way_ns < LONGEST_SWITCH_NS:
            return None
        first_ns, others = self.word(page.FIRST_NS), self.lease_iterations - 1
        if not first_ns or others < 1:
            return Switched(way_ns / 1e9, None)
        others_ns = self.word(page.BUSY_NS) - self.busy_before_ns - first_ns
        return Switched(way_ns / 1e9, (first_ns - others_ns / others) / 1e9)

    # -- what it is told -------------------------------------------------------------------

    def send(self, frame: Frame, descriptors: Sequence[int] = ()) -> None:
        """Send the job a frame, if it is there."""
        if self.line is not None:
            self.line.send(frame, descriptors)

    def answer(self, kind: FrameKind, refusal: Refusal) -> None:
        """Tell the job why not, or not yet."""
        self.send(Frame(kind, self.key, text=f"{refusal.reason} {refusal.remedy}"))

    def admit(self, frame: Frame) -> None:
        """Tell the job that it is in, and give it a new page, bell and pipe."""
        self.close_page()
        self.told_of, self.told = None, 0
        self.page, descriptor = make_page()
        self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        grants, self.baton = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self.write(page.LIMIT_BYTES, self.limit_bytes)
            self.send(frame, (descriptor, self.bell, grants))
        finally:
            os.close(descriptor)
            os.close(grants)

    def grant(self, lease: Lease, device: int) -> None:
        """Tell the job that it has its lane."""
        quantum_ns = round(lease.quantum_s * 1e9)
        self.send(
            Frame(
                FrameKind.GRANT,
                self.key,
                device,
                lane=lease.lane,
                epoch=lease.epoch,
                first=quantum_ns,
            )
        )

    def name_successor(self, successor: "SharedJob", epoch: int) -> None:
        """Give the holder what it needs to pass its lane on: an epoch, where to write it."""
        self.write(page.SUCCESSOR, 0)
        successor.begin_lease()
        if self.told_of is not successor.page:
            if successor.page is None or self.told - self.told_at_grant >= MOST_SUCCESSORS:
                return
            self.told_of = successor.page
            self.told += 1
            self.send(Frame(FrameKind.SUCCESSOR, self.key), (successor.baton,))
            self.write(page.TOLD, self.told)
        self.write(page.SUCCESSOR, epoch)

    def revoke(self, epoch: int) -> None:
        """Ask for a lease back: at the end of the iteration, or now if there is none."""
        self.write(page.REVOKE, epoch)
        if not self.word(page.BEGAN_NS):
            self.ring()

    def ring(self) -> None:
        """Let the job's watcher look at its page."""
        if self.bell >= 0:
            with suppress(OSError):
                os.eventfd_write(self.bell, 1)

    def ask(self) -> None:
        """Ask the job what it holds, iterations or not."""
        self.asked += 1
        self.write(page.ASKED, self.asked)
        self.ring()

    def confine(self, limit_bytes: int) -> None:
        """Hold the job to so many bytes, from its next boundary on."""
        self.limit_bytes = limit_bytes
        self.write(page.LIMIT_BYTES, limit_bytes)

    def kill(self, number: signal.Signals) -> None:
        """Send its process a signal, unless that is gone."""
        with suppress(OSError):
            signal.pidfd_send_signal(self.pidfd, number)

    def close_page(self) -> None:
        """Let go of what is shared with the job."""
        if self.page is not None:
            self.page.close()
            os.close(self.bell)
            os.close(self.baton)
        self.page, self.bell, self.baton = None, -1, -1
