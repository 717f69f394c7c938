"""EASY backfilling: a reservation for the head of the queue, from guessed ends.

When the head does not fit, running jobs are imagined to end in the order of their guessed
ends until it would; that is its *shadow time*.  Another job may start now if it is guessed
to end before the shadow time, or if it leaves what the head will need then (Lifka, 1995).

The reservation is kept until it could change for the better or was missed: jobs that end
when they were expected to, and jobs let through, are already accounted for.
"""

from math import inf

import numpy as np
from numpy.typing import NDArray

from interlane.kernel import compiled
from interlane.kernel.ledger import Ledger, Table
from interlane.kernel.queue import Entry
from interlane.kernel.running import Running
from interlane.model import Job
from interlane.policy import rows

OVERDUE_SHARE = 0.5
"""A job past its guess is expected to run on for this share of what it has run."""

UNGUESSED_S = 86_400.0
"""A job without any guess is expected to run for a day."""


def expected_end_s(entry: Entry, now_s: float) -> float:
    """Return when a running job is expected to end."""
    ran_s = now_s - entry.started_s
    left_s = _guess_s(entry.job) - entry.ran_s
    if left_s > ran_s:
        return entry.started_s + left_s
    return now_s + OVERDUE_SHARE * (entry.ran_s + ran_s) + 1.0


def _guess_s(job: Job) -> float:
    return UNGUESSED_S if job.duration_s_guess is None else job.duration_s_guess


class Reservation:
    """What is promised to one waiting job, and what others may still take."""

    def __init__(self, head: Entry, running: Running, ledger: Ledger, now_s: float) -> None:
        self.head = head
        self._ledger = ledger
        self._spare: Table = ledger.free.copy()
        """What is free at the shadow time, after the head has taken its place."""
        self.machines: NDArray[np.bool_] = np.zeros(len(ledger.cluster), np.bool_)
        """Machines that the head will use."""
        self.at_s = self._find_shadow(running, now_s)
        self._take_place()

    def serves(self, head: Entry, now_s: float) -> bool:
        """Return whether the promise still stands: same head, and its time has not come."""
        return self.head is head and now_s < self.at_s

    def improves_when(self, entry: Entry, now_s: float) -> bool:
        """Return whether the end of a job now may allow an earlier start."""
        return expected_end_s(entry, now_s) > self.at_s

    def allows(self, entry: Entry, table: Table, now_s: float) -> bool:
        """Return whether a job may start on these spots without delaying the head."""
        if self.is_short(entry, now_s):
            return True
        return bool(compiled.fits(self._spare, self._ledger.total, self._ledger.asks, table))

    def is_short(self, entry: Entry, now_s: float) -> bool:
        """Return whether a job is guessed to end before the head's time."""
        return now_s + max(_guess_s(entry.job) - entry.ran_s, 0.0) <= self.at_s

    def note_start(self, entry: Entry, table: Table, now_s: float) -> None:
        """Take a job that was let through out of what is spare."""
        if not self.is_short(entry, now_s):
            compiled.take(self._spare, self._ledger.asks, table, 0, len(table))

    def _find_shadow(self, running: Running, now_s: float) -> float:
        """Imagine running jobs to end, soonest first, until the head fits."""
        asks, parts = self._ledger.asks, self.head.shape.parts
        ends = sorted(
            ((expected_end_s(entry, now_s), entry.slot, entry) for entry in running),
            key=lambda end: end[:2],
        )
        low, high = 0, len(ends)
        released = 0
        # Bisection over how many must end: room only grows with every end.
        while low < high:
            middle = (low + high) // 2
            released = self._move_to(ends, released, middle)
            if all(
                compiled.room_on(self._spare, asks, part.profile) >= part.least
                for part in parts
            ):
                high = middle
            else:
                low = middle + 1
        self._move_to(ends, released, low)
        return ends[low - 1][0] if low else inf

    def _move_to(self, ends: list[tuple[float, int, Entry]], released: int, target: int) -> int:
        """Imagine exactly the first ``target`` jobs to have ended."""
        asks = self._ledger.asks
        for _, _, entry in ends[released:target]:
            assert entry.rows is not None
            compiled.undo(self._spare, asks, entry.rows, 0, len(entry.rows))
        for _, _, entry in ends[target:released]:
            assert entry.rows is not None
            compiled.take(self._spare, asks, entry.rows, 0, len(entry.rows))
        return target

    def _take_place(self) -> None:
        """Seat the head at the shadow time, on the first machines that have room for it."""
        for part in self.head.shape.parts:
            asks, profile = self._ledger.asks, part.profile
            left = part.least
            for number in range(len(self._spare)):
                if left == 0:
                    break
                units = min(left, int(rows.room_for(self._spare, number, asks, profile)))
                if units == 0:
                    continue
                self.machines[number] = True
                left -= units
                compiled.seat(
                    self._spare, number, asks, profile, units * part.instances_per_unit
                )
