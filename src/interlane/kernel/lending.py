"""Machines that plans only lend: who borrows them, and when there is more to reclaim."""

import numpy as np
from numpy.typing import NDArray

from interlane.kernel.ledger import Ledger
from interlane.kernel.queue import QueuedJob, QueueGroup
from interlane.model import JobId
from interlane.tables import AT_MACHINE, Table


class LentTypes:
    """Who is on machines of the types that any stage of a plan borrows."""

    def __init__(self, ledger: Ledger, types: frozenset[str]) -> None:
        self._ledger = ledger
        self.types = types
        self.borrowers: dict[JobId, QueuedJob] = {}
        """Jobs on machines that are only lent to them, in the order of their starts."""
        self._returned = 0
        """How often who has a right to such machines gave some back."""
        self._lendable: NDArray[np.bool_] = np.zeros(0, np.bool_)
        """Which machines may be lent, by their numbers."""
        self.follow_machines()

    def follow_machines(self) -> None:
        """Take in that machines joined, changed or left."""
        self._lendable = np.zeros(self._ledger.height, np.bool_)
        for number, machine in self._ledger.numbered():
            kinds = {machine.gpu_type, *machine.gpu_types}
            self._lendable[number] = not kinds.isdisjoint(self.types)

    def note(self, entry: QueuedJob, table: Table) -> None:
        """Note whether a job has started on a machine that is only lent to it."""
        stage = entry.shape.stage
        if stage is not None and stage.lent and self._lends(table):
            entry.borrows = True
            self.borrowers[entry.job.id] = entry

    def note_shrunk(self, entry: QueuedJob, kept: Table) -> None:
        """Note that a job has only these rows left."""
        self._returned += 1
        if entry.borrows:
            self._forget(entry)
            self.note(entry, kept)

    def note_released(self, entry: QueuedJob, table: Table) -> None:
        """Note that a job gives these rows back, borrowed or its own."""
        if entry.borrows:
            self._forget(entry)
        elif self._lends(table):
            self._returned += 1

    def note_machines(self) -> None:
        """Note that there may be more to reclaim, because of a machine."""
        self._returned += 1

    def reclaimable(self, group: QueueGroup) -> int:
        """Return a count that rises when the group may reclaim what it could not before.

        Borrowers take what is free and give back what is lent, which makes no difference to
        jobs that use machines of these types only.
        """
        only = all(part.types and part.types <= self.types for part in group.shape.parts)
        return self._returned if only else self._ledger.releases

    def _lends(self, table: Table) -> bool:
        return bool(self._lendable[table[:, AT_MACHINE]].any())

    def _forget(self, entry: QueuedJob) -> None:
        entry.borrows = False
        del self.borrowers[entry.job.id]
