"""Where machines are: the domains of every level of the cluster's topology.

A level is the key of a label, a domain one of its values; ``machine`` is a level too, whose
domains are single machines.  A machine without the label is in no domain of that level.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from interlane.model import Machine
from interlane.model.cluster import MACHINE_LEVEL, check_topology


@dataclass(frozen=True)
class Domains:
    """The domains of one level."""

    level: str
    names: tuple[str, ...]
    of: NDArray[np.int64]
    """The domain of each row of the ledger; -1 for none."""

    @cached_property
    def apart(self) -> NDArray[np.bool_]:
        """Machines that are in no domain."""
        apart: NDArray[np.bool_] = self.of < 0
        return apart

    def outside(self, domain: int) -> NDArray[np.bool_]:
        """Return the machines that are not in a domain."""
        outside: NDArray[np.bool_] = self.of != domain
        return outside

    def sums(self, amounts: NDArray[np.signedinteger]) -> NDArray[np.int64]:
        """Return the sums of amounts of machines, by domain."""
        sums = np.zeros(len(self.names), np.int64)
        np.add.at(sums, self.of[~self.apart], amounts[~self.apart])
        return sums


class TopologyDomains:
    """Keeps the domains while machines come and go."""

    def __init__(self, levels: Sequence[str]) -> None:
        self._named = tuple(levels)
        self.levels = (*levels, MACHINE_LEVEL)
        """The widest first."""
        self._machines: dict[int, Machine] = {}
        self._members: dict[tuple[str, str], set[int]] = {}
        """(level, domain) -> the numbers of its machines."""
        self._domains: dict[str, Domains] = {}

    def check(self, number: int | None, machine: Machine) -> None:
        """Refuse a machine whose labels contradict those of machines that are there."""
        labels = dict(machine.labels)
        for wide, narrow in pairwise(self._named):
            others = self._members.get((narrow, labels.get(narrow, "")), set()) - {number}
            if others:
                other = self._machines[min(others)]
                check_topology((wide, narrow), (other, machine))

    def put(self, number: int, machine: Machine | None) -> None:
        """Note which machine has a number from now on, if any."""
        before = self._machines.pop(number, None)
        for place in () if before is None else self._places(before):
            self._members[place].discard(number)
        if machine is not None:
            self._machines[number] = machine
            for place in self._places(machine):
                self._members.setdefault(place, set()).add(number)
        self._domains.clear()

    def _places(self, machine: Machine) -> list[tuple[str, str]]:
        return [(key, value) for key, value in machine.labels if key in self._named]

    def domains(self, level: str, height: int) -> Domains:
        """Return the domains of a level, for tables with so many rows."""
        found = self._domains.get(level)
        if found is None or len(found.of) != height:
            found = self._domains[level] = self._find(level, height)
        return found

    def _find(self, level: str, height: int) -> Domains:
        names: dict[str, int] = {}
        of = np.full(height, -1, np.int64)
        for number, machine in sorted(self._machines.items()):
            name = machine.id if level == MACHINE_LEVEL else machine.label(level)
            if name is not None:
                of[number] = names.setdefault(name, len(names))
        return Domains(level, tuple(names), of)
