"""The books: what every machine has free, and who holds what.

Only ``hold`` and ``release`` change the books, and ``hold`` is a referee: a placement that
does not fit changes nothing, whatever policy proposed it.  Every change is noted in a list
that the room index reads (see ``compiled``).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.kernel import compiled
from interlane.model import (
    CapacityViolated,
    Cluster,
    Demand,
    InvalidInput,
    Machine,
    MachineId,
    Placement,
    Spot,
)
from interlane.policy import rows

Table = NDArray[np.int64]

WILDCARD: Final = "ANY"
"""GPU type of machines that any demand accepts: pools that do not tell their GPUs apart."""

_WILDCARD_BIT: Final = 62
_CHANGES: Final = 1 << 16


class TypeBits:
    """Gives every GPU type its bit, so that a set of types is one integer."""

    def __init__(self, cluster: Cluster) -> None:
        self._bits = {WILDCARD: _WILDCARD_BIT}
        for machine in cluster:
            self._bits.setdefault(machine.gpu_type, len(self._bits) - 1)

    def bit(self, gpu_type: str) -> int:
        """Return the bit of a type that a machine of the cluster has."""
        return self._bits[gpu_type]

    def bits(self, gpu_type: str) -> list[int]:
        """Return the bit of a type, or none if no machine has it."""
        return [self._bits[gpu_type]] if gpu_type in self._bits else []

    def mask(self, types: frozenset[str]) -> int:
        """Return the bits of the types that will do; unknown types have none."""
        if not types:
            return rows.ANY_TYPE
        mask = 1 << _WILDCARD_BIT
        for gpu_type in types:
            if gpu_type in self._bits:
                mask |= 1 << self._bits[gpu_type]
        return mask


class Ledger:
    """What is free, as integers; see ``policy.rows`` for the layout of a row."""

    wildcard: Final = WILDCARD

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.types = TypeBits(cluster)
        self.total: Table = _table(cluster, self.types)
        """Capacity, one row a machine; never changes."""
        self.free: Table = self.total.copy()
        """What is left; ``UP`` is 0 for machines that are lost."""
        self.brief = np.zeros((rows.BRIEF_HEIGHT, rows.brief_width(len(cluster))), np.int32)
        """The machines in brief; agrees with ``free`` once changes are noted."""
        slots = (self.free.shape[1] - rows.FREE) // 2
        self.shares = np.full((len(cluster), slots), rows.ABSENT, np.int16)
        """Free share of each GPU, as the brief has the rest."""
        self._summarise_all()
        self.asks: Table = np.empty((64, rows.ASK_WIDTH), np.int64)
        """Demands as rows, by profile number; written by ``ask``."""
        self.profiles = 0
        self.changes = np.empty(_CHANGES, np.int64)
        """Machines that changed, in order, from 0 to ``changed``."""
        self.changed = 0
        self.change_lists = 0
        """How often the change list began anew; readers of an older one start over."""
        self.releases = 0
        """How often anything became free: while it stands still, a refusal stays valid."""
        self._index = {machine.id: number for number, machine in enumerate(cluster)}
        self._spots: dict[tuple[int, int, int, int], Spot] = {}
        self._of_one: dict[tuple[int, int, int, int], Placement] = {}
        """Placements of a single spot, which are shared like spots."""
        self._proposed: tuple[Placement, Table] | None = None

    def machine(self, number: int) -> Machine:
        """Return the machine with this number in cluster order."""
        return self.cluster.machines[number]

    def number(self, machine_id: MachineId) -> int:
        """Return the machine's number in cluster order."""
        number = self._index.get(machine_id)
        if number is None:
            raise InvalidInput(
                f"Machine {machine_id} is not known; the cluster has {len(self._index)} others."
            )
        return number

    def knows(self, machine_id: MachineId) -> bool:
        """Return whether the cluster has such a machine."""
        return machine_id in self._index

    def add_ask(self, demand: Demand, types: frozenset[str], together: int) -> int:
        """Enter a demand and return its profile number."""
        if self.profiles == len(self.asks):
            self.asks = np.concatenate([self.asks, np.empty_like(self.asks)])
        self.asks[self.profiles] = (
            demand.gpus,
            demand.gpu_milli,
            demand.gpu_memory_mib,
            demand.cpu_milli,
            demand.memory_mib,
            self.types.mask(types),
            together,
        )
        self.profiles += 1
        return self.profiles - 1

    def to_placement(self, table: Table) -> Placement:
        """Return placement rows as the model's words; spots are shared between placements."""
        lines = table.tolist()
        if len(lines) == 1:
            machine, mask, count, _, task = lines[0]
            placement = self._placement_of_one(machine, mask, count, task)
        else:
            known = self._spots.get
            placement = Placement(
                tuple(
                    [
                        known((machine, mask, count, task))
                        or self._new_spot(machine, mask, count, task)
                        for machine, mask, count, _, task in lines
                    ]
                )
            )
        self._proposed = placement, table
        return placement

    def _placement_of_one(
        self, machine: int, mask: int, instances: int, task: int
    ) -> Placement:
        key = machine, mask, instances, task
        placement = self._of_one.get(key)
        if placement is None:
            spot = self._spots.get(key) or self._new_spot(*key)
            placement = self._of_one[key] = Placement((spot,))
        return placement

    def _new_spot(self, machine: int, mask: int, instances: int, task: int) -> Spot:
        gpus = tuple(gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1)
        spot = Spot(self.cluster.machines[machine].id, gpus, instances, task)
        self._spots[machine, mask, instances, task] = spot
        return spot

    def forget_proposal(self) -> None:
        """Have the next placement turned into rows from its own words."""
        self._proposed = None

    def to_rows(self, placement: Placement, profiles: Sequence[int]) -> Table:
        """Return a placement as rows; ``profiles`` are those of the job's tasks."""
        if self._proposed is not None and self._proposed[0] is placement:
            return self._proposed[1]
        table = np.empty((len(placement.spots), compiled.AT_WIDTH), np.int64)
        for row, spot in zip(table, placement.spots, strict=True):
            mask = sum(1 << gpu for gpu in spot.gpus)
            row[:] = (
                self._index[spot.machine],
                mask,
                spot.instances,
                profiles[spot.task],
                spot.task,
            )
        return table

    def hold(self, table: Table) -> bool:
        """Take a placement from the books, or return False and change nothing."""
        self.make_way(len(table))
        end = compiled.hold(
            self.free, self.total, self.asks, table, self.brief, self.shares, self.changes,
            self.changed,
        )  # fmt: skip
        if end < 0:
            return False
        self.changed = end
        return True

    def release(self, table: Table) -> None:
        """Give a placement back."""
        self.make_way(len(table))
        self.changed = compiled.release(
            self.free, self.total, self.asks, table, self.brief, self.shares, self.changes,
            self.changed,
        )  # fmt: skip
        self.releases += 1

    def set_up(self, number: int, *, up: bool) -> None:
        """Note that a machine was lost or has returned."""
        self.make_way(1)
        self.free[number, rows.UP] = up
        rows.summarise(self.free, self.total, number, self.brief, self.shares)
        self.changes[self.changed] = number
        self.changed += 1
        self.releases += up

    def note_changes(self, table: Table) -> None:
        """Tell the room index that the machines of these rows were touched."""
        self.make_way(len(table))
        self.changed = compiled.note_changes(
            self.free, self.total, table, self.brief, self.shares, self.changes, self.changed
        )

    def _summarise_all(self) -> None:
        for number in range(len(self.free)):
            rows.summarise(self.free, self.total, number, self.brief, self.shares)

    def make_way(self, more: int) -> None:
        """Begin a new change list when the old one is full."""
        if self.changed + more <= len(self.changes):
            return
        if more > len(self.changes):
            self.changes = np.empty(2 * more, np.int64)
        self.changed = 0
        self.change_lists += 1

    def idle(self) -> tuple[int, int]:
        """Return the GPU share and the CPU that are free, over all machines that are up."""
        up = self.free[:, rows.UP] == 1
        slots = (self.free.shape[1] - rows.FREE) // 2
        gpu = self.free[up, rows.FREE : rows.FREE + slots].sum()
        return int(gpu), int(self.free[up, rows.CPU].sum())

    def check(self, held: Sequence[Table]) -> None:
        """Compare the books with everything that is held; raise if they do not balance."""
        expected = self.total.copy()
        expected[:, rows.UP] = self.free[:, rows.UP]
        for table in held:
            compiled.change_rows(expected, self.asks, table, 0, len(table), 1)
        if (expected != self.free).any():
            number, column = (int(at[0]) for at in np.nonzero(expected != self.free))
            raise CapacityViolated(
                f"Machine {self.machine(number).id} has {self.free[number, column]} free in "
                f"column {column}, but its jobs leave {expected[number, column]}."
            )
        sound = [bool(rows.is_sound(self.free, self.total, at)) for at in range(len(self.free))]
        if not all(sound):
            raise CapacityViolated(
                f"Machine {self.machine(sound.index(False)).id} is overcommitted."
            )


def _table(cluster: Cluster, types: TypeBits) -> Table:
    slots = max(1, *(1 if machine.pooled else machine.gpus for machine in cluster), 1)
    table = np.zeros((len(cluster), rows.FREE + 2 * slots), np.int64)
    for row, machine in zip(table, cluster, strict=True):
        row[rows.CPU] = machine.cpu_milli
        row[rows.MEMORY] = machine.memory_mib
        row[rows.TYPE] = types.bit(machine.gpu_type)
        row[rows.POOLED] = machine.pooled
        row[rows.UP] = 1
        if machine.pooled:
            row[rows.GPUS] = 1
            row[rows.FREE] = machine.gpu_milli
            row[rows.FREE + slots] = machine.gpu_memory_mib
        else:
            row[rows.GPUS] = machine.gpus
            row[rows.FREE : rows.FREE + machine.gpus] = 1000
            row[rows.FREE + slots : rows.FREE + slots + machine.gpus] = machine.gpu_memory_mib
    return table
