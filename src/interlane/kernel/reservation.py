"""EASY backfilling: a reservation for the head of the queue, from estimated ends.

When the head does not fit, running jobs are imagined to end in the order of their estimated
ends until it would; that is its *shadow time*.  Another job may start now if it is estimated
to end before the shadow time, or if it leaves what the head will need then (Lifka, 1995).

The reservation is kept until it could change for the better or was missed: jobs that end
when they were expected to, and jobs let through, are already accounted for.
"""

from functools import cached_property
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.kernel import compiled
from interlane.kernel.ledger import Ledger
from interlane.kernel.queue import QueuedJob
from interlane.kernel.running import Running
from interlane.tables import Table
from interlane.tables.compiled import change_rows

_FIRST_LOOK: Final = 256
"""How many ends are imagined at first; then eight times as many, and so on."""


class Reservation:
    """What is promised to one waiting job, and what others may still take."""

    def __init__(self, head: QueuedJob, running: Running, ledger: Ledger, now_s: float) -> None:
        self.head = head
        self.trusts_estimates = True
        """Whether others may pass because they are estimated to end in time."""
        self._ledger = ledger
        self._running = running
        self.spare: Table = ledger.free.copy()
        """What is free at the shadow time, after the head has taken its place."""
        self.machines: NDArray[np.bool_] = np.zeros(ledger.height, np.bool_)
        """Machines that the head will use."""
        self._apart: NDArray[np.bool_] = np.zeros(ledger.height, np.bool_)
        """Machines outside of the domain that the head will be in, if it wants to be in one."""
        self.at_s = self._find_shadow(now_s)
        self._take_place()

    @cached_property
    def reserved(self) -> Table:
        """Return the numbers of the machines that the head will use."""
        return np.nonzero(self.machines)[0]

    def serves(self, head: QueuedJob, now_s: float) -> bool:
        """Return whether the promise still stands: same head, and its time has not come."""
        return self.head is head and now_s < self.at_s

    def improves_when(self, entry: QueuedJob, now_s: float) -> bool:
        """Return whether the end of a job now may allow an earlier start."""
        return self._running.expected_end_s(entry, now_s) > self.at_s

    def left_s(self, now_s: float) -> float:
        """Return how long a job may take to end before the head's time; below 0 if none may."""
        # A head that can start at no time that is known is not delayed by anybody.
        return self.at_s - now_s if self.trusts_estimates or self.at_s == inf else -1.0

    def is_short(self, entry: QueuedJob, now_s: float) -> bool:
        """Return whether a job should end before the head's time, however it starts."""
        if self.left_s(now_s) < 0:
            return False
        return now_s + entry.left_s() / entry.job.request.least_ratio <= self.at_s

    def spares(self, table: Table) -> bool:
        """Return whether these spots leave the head what it will need."""
        return bool(compiled.fits(self.spare, self._ledger.asks, table, runs=False))

    def take(self, table: Table) -> None:
        """Take spots that were let through out of what is spare."""
        change_rows(self.spare, self._ledger.asks, table, 0, len(table), 1)

    def _find_shadow(self, now_s: float) -> float:
        """Imagine running jobs to end, soonest first, until the head fits."""
        asks, parts, running = self._ledger.asks, self.head.shape.parts, self._running
        assert running.held is not None
        profiles = np.array([part.profile for part in parts])
        domain, count = self._domains()
        missing = np.stack(
            [
                part.least - compiled.room_by(self.spare, asks, part.profile, domain, count)
                for part in parts
            ]
        )
        seen, look = 0, _FIRST_LOOK
        while seen < len(running):
            slots, ends_s = running.soonest(now_s, look)
            at, where = compiled.imagine_ends(
                self.spare, asks, profiles, missing, domain, running.held.tables, slots[seen:]
            )
            if at >= 0:
                last = seen + at
                self._apart = domain != where
                together = slots[last + 1 : np.searchsorted(ends_s, ends_s[last], "right")]
                compiled.imagine_end(self.spare, asks, running.held.tables, together)
                return float(ends_s[last])
            seen, look = len(slots), 8 * look
        return inf

    def _domains(self) -> tuple[Table, int]:
        """Return the domain of each machine in one of which the head must be, and how many."""
        same = self.head.shape.closeness.same
        if same is None:
            return np.zeros(self._ledger.height, np.int64), 1
        domains = self._ledger.domains(same)
        return domains.of, len(domains.names)

    def _take_place(self) -> None:
        """Seat the head at the shadow time, on the first machines that have room for it."""
        for part in self.head.shape.parts:
            compiled.seat(
                self.spare, self._ledger.asks, part.profile, part.least, self._apart,
                self.machines,
            )  # fmt: skip
