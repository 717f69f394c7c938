"""Which machines labels and taints leave to whom.

Demands with the same selectors and tolerations are one *class*, and a class has one bit per
machine.  Where nobody selects and no machine is tainted, no class is *bound* and nobody looks
at the bits.
"""

import numpy as np
from numpy.typing import NDArray

from interlane.model import Demand, Label, Machine
from interlane.tables import WORD

Labels = frozenset[Label]

_BITS = 1 << WORD


def may_use(machine: Machine, demand: Demand) -> bool:
    """Return whether a machine has all labels that are selected and only tolerated taints."""
    return demand.selectors <= set(machine.labels) and demand.tolerations >= set(machine.taints)


class Eligibility:
    """Classes of demands, and the machines of each."""

    def __init__(self) -> None:
        self._demands: dict[tuple[Labels, Labels], Demand] = {}
        """One demand of each class, in the order of their numbers."""
        self._numbers: dict[tuple[Labels, Labels], int] = {}
        self._machines: dict[int, Machine] = {}
        self._tainted: set[int] = set()
        self.words: NDArray[np.int64] = np.zeros((0, 1), np.int64)
        """The bits of each class, by machine number."""

    @property
    def bound(self) -> NDArray[np.bool_]:
        """Which classes are kept from some machines."""
        tainted = bool(self._tainted)
        return np.array([tainted or bool(selects) for selects, _ in self._demands], np.bool_)

    def class_of(self, demand: Demand) -> int:
        """Return the number of a demand's class."""
        key = demand.selectors, demand.tolerations
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._demands)
            self._demands[key] = demand
            none = np.zeros((1, self.words.shape[1]), np.int64)
            self.words = np.concatenate([self.words, none])
            for at, machine in self._machines.items():
                self._set(number, at, may=may_use(machine, demand))
        return number

    def put(self, at: int, machine: Machine | None) -> None:
        """Note which machine has a number from now on, if any."""
        self._machines.pop(at, None)
        self._tainted.discard(at)
        if machine is not None:
            self._machines[at] = machine
            if machine.taints:
                self._tainted.add(at)
        missing = (at >> WORD) + 1 - self.words.shape[1]
        if missing > 0:
            more = np.zeros((len(self.words), missing), np.int64)
            self.words = np.concatenate([self.words, more], axis=1)
        for number, demand in enumerate(self._demands.values()):
            self._set(number, at, may=machine is not None and may_use(machine, demand))

    def _set(self, number: int, at: int, *, may: bool) -> None:
        bit = 1 << at % _BITS
        word = int(self.words[number, at >> WORD])
        self.words[number, at >> WORD] = word | bit if may else word & ~bit
