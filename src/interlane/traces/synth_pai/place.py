"""Put instances on machines with room, in the order of their starts.

This is no scheduler: times are given.  An instance stays with its gang while there is room,
else goes to the first of a few random machines that has room, else to any that has, else to
the emptiest it saw, so that machines hold more than they have only when all are full.
"""

import numpy as np

from interlane.traces.synth_pai.compiled import Coming, Ending, MachineSite, place_all
from interlane.traces.synth_pai.deal import Floats, Ints


class Floor:
    """What runs where now; kept from one batch of instances to the next."""

    def __init__(
        self, *, kind: Ints, gpus: Ints, cpu: Ints, kinds: int, most_running: int, last_s: int
    ) -> None:
        self._first = np.searchsorted(kind, np.arange(kinds)).astype(np.int64)
        self._count = np.bincount(kind, minlength=kinds).astype(np.int64)
        self._gpus = gpus
        self._cpu = cpu
        # Percent of each card and of the cores that is taken.
        self._cards = np.zeros((len(kind), max(int(gpus.max()), 1)), np.int64)
        self._cores = np.zeros(len(kind), np.int64)
        # Ends by the minute: the first slot of each minute, and slots linked to the next.
        # A slot is (next slot, machine, cards as bits, percent of each card, percent of cores).
        self._ends = np.full(last_s // 60 + 2, -1, np.int64)
        self._slots = np.zeros((most_running, 5), np.int64)
        self._slots[:, 0] = np.arange(1, most_running + 1)
        # The minute up to which ends are dealt with, and the first free slot.
        self._state = np.zeros(2, np.int64)

    def place(
        self,
        start_s: Ints,
        end_s: Ints,
        *,
        task: Ints,
        kind: Ints,
        gpu: Ints,
        cpu: Ints,
        lean: Ints,
        heat: Floats,
        rng: Ints,
    ) -> tuple[Ints, Ints]:
        """Return machine and first card (-1: none) of each instance, ordered by start.

        ``lean`` is 1 for instances that go to machines with much ``heat``, -1 for little.
        """
        machine, card = np.empty_like(start_s), np.empty_like(start_s)
        site = MachineSite(
            self._first, self._count, self._gpus, self._cpu, self._cards, self._cores, heat
        )
        ending = Ending(self._ends, self._slots, self._state)
        coming = Coming(start_s, end_s, task, kind, gpu, cpu, lean, rng)
        place_all(site, ending, coming, machine, card)
        return machine, card
