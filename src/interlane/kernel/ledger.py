"""The ledger: what every machine has free, and who holds what.

Only ``hold`` and ``release`` change what jobs hold, and ``hold`` is a referee: a placement
that does not fit changes nothing, whatever policy proposed it.  Machines come, change and go
by ``put``, ``remove``, ``set_up``, ``drain`` and ``occupy``.  Every change is noted in a list
that the room index reads (see ``compiled``).

A machine has one row of the tables and keeps it while it is known, so that holders find their
machine by its number.  Rows without a machine (a spare one, or one whose machine has left) are
never up.  What is free is always ``total - held - occupied``, and may be below zero where
others took more than was free: there is no room then, but nobody is thrown out.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from interlane import tables
from interlane.kernel import compiled
from interlane.kernel.eligibility import Eligibility
from interlane.kernel.topology import Domains, TopologyDomains
from interlane.model import (
    CapacityViolated,
    Cluster,
    Demand,
    InvalidField,
    InvalidInput,
    Machine,
    MachineId,
    Occupied,
    Placement,
    Spot,
)
from interlane.policy import rows
from interlane.tables import Table
from interlane.tables.compiled import change_rows, slots_of

_CHANGES: Final = 1 << 16


class Ledger:
    """What is free, as integers; see ``tables`` for the layout of a row."""

    wildcard: Final = tables.WILDCARD

    def __init__(self, cluster: Cluster) -> None:
        self._cluster: Cluster | None = cluster
        """The machines that are known; None when it must be put together anew."""
        self._named = cluster
        """Where the cluster's name and its other settings are taken from."""
        self._machines: list[Machine | None] = [*cluster] or [None]
        """The machine of each row."""
        self._index = {machine.id: number for number, machine in enumerate(cluster)}
        self.types = tables.TypeBits()
        self.topology = TopologyDomains(cluster.topology)
        """Where the machines are."""
        self._eligibility = Eligibility()
        for number, machine in enumerate(cluster):
            self.types.add(_types_of(machine))
            self.topology.put(number, machine)
            self._eligibility.put(number, machine)
        self.generation = 0
        """Rises when a machine joins, changes or leaves: what fits at all may be another."""
        self.lost: set[int] = set()
        """Machines that are away."""
        self.drained: set[int] = set()
        """Machines that take nothing new."""
        self._occupied: dict[int, Occupied] = {}
        """What others have of machines."""
        self.total: Table = np.zeros(
            (len(self._machines), tables.width(tables.slots_for(cluster))), np.int64
        )
        """Capacity, one row per machine."""
        for number, machine in enumerate(cluster):
            self.total[number] = self.row_of(machine, number)
        self.free: Table = self.total.copy()
        """What is left; ``UP`` is 0 for machines that take nothing new."""
        self._begin_brief()
        self.asks: Table = np.empty((64, tables.ASK_WIDTH), np.int64)
        """Demands as rows, by profile number; written by ``add_ask``."""
        self._asked_types: list[frozenset[str]] = []
        """The GPU types of each, by name: machines of a new type may come."""
        self._classes: Table = np.zeros(64, np.int64)
        """The class of each, by labels that it selects and taints that it tolerates."""
        self.profiles = 0
        self.changes = np.empty(_CHANGES, np.int64)
        """Machines that changed, in order, from 0 to ``changed``."""
        self.changed = 0
        self.change_lists = 0
        """How often the change list began anew; readers of an older one start over."""
        self.releases = 0
        """How often anything became free: while it stands still, a refusal stays valid."""
        self._spots: dict[tuple[int, int, int, int], Spot] = {}
        self._of_one: dict[tuple[int, int, int, int], Placement] = {}
        """Placements of a single spot, which are shared like spots."""
        self._proposed: tuple[Placement, Table] | None = None

    # -- which machines there are -------------------------------------------------------

    @property
    def cluster(self) -> Cluster:
        """The machines that are known, lost and drained ones included, in order of rows."""
        if self._cluster is None:
            known = tuple(machine for machine in self._machines if machine is not None)
            named = self._named
            self._cluster = Cluster(named.name, known, named.clips_requests, named.topology)
        return self._cluster

    @property
    def tables(self) -> tuple[Any, ...]:
        """All tables as they are now, in the order of ``tables.Machines``."""
        return (
            self.free, self.total, self.asks, self.brief, self.shares, self.changes,
            self.changed,
        )  # fmt: skip

    @property
    def height(self) -> int:
        """How many rows there are, those without a machine included."""
        return len(self._machines)

    def numbered(self) -> Iterator[tuple[int, Machine]]:
        """Yield the machines that are known with their numbers."""
        return ((at, one) for at, one in enumerate(self._machines) if one is not None)

    @property
    def is_whole(self) -> bool:
        """Whether all of every machine can be had: none is lost, drained or occupied."""
        return bool(self._index) and not (self.lost or self.drained or self._occupied)

    def machine(self, number: int) -> Machine:
        """Return the machine with this number."""
        machine = self._machines[number]
        assert machine is not None, f"row {number} has no machine"
        return machine

    def number(self, machine_id: MachineId) -> int:
        """Return the machine's number."""
        number = self._index.get(machine_id)
        if number is None:
            raise InvalidInput(
                f"Machine {machine_id} is not known; the cluster has {len(self._index)} others."
            )
        return number

    def knows(self, machine_id: MachineId) -> bool:
        """Return whether the cluster has such a machine."""
        return machine_id in self._index

    def domains(self, level: str) -> Domains:
        """Return the domains of a level of the topology."""
        return self.topology.domains(level, self.height)

    def row_of(self, machine: Machine, number: int) -> Table:
        """Return a machine as a row; it must have been made ready for."""
        row = tables.machine_row(machine, self.types.bit, slots_of(self.total))
        row[tables.NUMBER] = number
        return row

    def make_ready_for(self, machine: Machine) -> None:
        """Give a machine that comes the bits and columns that it needs, or refuse it."""
        self.topology.check(self._index.get(machine.id), machine)
        for gpu_type in self.types.add(_types_of(machine)):
            for profile, types in enumerate(self._asked_types):
                if gpu_type in types:
                    self.asks[profile, tables.ASK_TYPES] |= 1 << self.types.bit(gpu_type)
        slots = tables.slots_for([machine])
        if slots > slots_of(self.total):
            self.total = tables.widened(self.total, slots)
            self.free = tables.widened(self.free, slots)
            self._begin_brief()
            self._begin_changes()

    def put(self, machine: Machine) -> None:
        """Let a machine join, or be from now on as this one is.

        Whatever is held there must fit, see ``Machines``.
        """
        self.make_ready_for(machine)
        number = self._index.get(machine.id)
        if number is None:
            number = self._index[machine.id] = self._vacant_row()
        before = self.total[number] - self._taken(number) - self.free[number]
        self._set_machine(number, machine)
        self.total[number] = self.row_of(machine, number)
        self.free[number] = self.total[number] - self._taken(number) - before
        self.free[number, tables.TYPE : tables.UP + 1] = self.total[
            number, tables.TYPE : tables.UP + 1
        ]
        self._refresh(number)

    def remove(self, number: int) -> None:
        """Let a machine leave on which nothing is held."""
        del self._index[self.machine(number).id]
        self._set_machine(number, None)
        self.lost.discard(number)
        self.drained.discard(number)
        self._occupied.pop(number, None)
        self.total[number] = 0
        self.free[number] = 0
        self._refresh(number)

    def set_up(self, number: int, *, up: bool) -> None:
        """Note that a machine was lost or has returned."""
        (self.lost.discard if up else self.lost.add)(number)
        self._refresh(number)

    def drain(self, number: int, *, drained: bool) -> None:
        """Let a machine take nothing new, or take work again."""
        (self.drained.add if drained else self.drained.discard)(number)
        self._refresh(number)

    def occupy(self, sight: Occupied) -> None:
        """Note what others have of a machine now."""
        number = self.number(sight.machine_id)
        _check_sight(sight, self.machine(number))
        before = self._taken(number)
        self._occupied[number] = sight
        taken = self._taken(number)
        if not taken.any():
            del self._occupied[number]
        self.free[number] += before - taken
        self._refresh(number)

    def forget_occupied(self, number: int) -> None:
        """Forget what others have of a machine, which is another from now on."""
        self.free[number] += self._taken(number)
        self._occupied.pop(number, None)

    def occupied(self) -> Iterator[tuple[int, Table]]:
        """Yield the machines that others have a part of, and what."""
        return ((number, self._taken(number)) for number in sorted(self._occupied))

    def _taken(self, number: int) -> Table:
        """Return what others have of a machine as a row: no more than there is."""
        row: Table = np.zeros(self.total.shape[1], np.int64)
        sight = self._occupied.get(number)
        if sight is not None:
            total, slots = self.total[number], slots_of(self.total)
            row[tables.CPU], row[tables.MEMORY] = sight.cpu_milli, sight.memory_mib
            for gpu in sight.gpus:
                at = 0 if total[tables.POOLED] else gpu.index
                if at < total[tables.GPUS]:  # it may have had more when it was looked at
                    row[tables.FREE + at] += gpu.milli
                    row[tables.FREE + slots + at] += gpu.memory_mib
            np.minimum(row, total, out=row)
        return row

    def _vacant_row(self) -> int:
        """Return the first row without a machine; there are twice as many if none is left."""
        if None not in self._machines:
            more = len(self._machines)
            self._machines += [None] * more
            self.total = np.concatenate([self.total, np.zeros_like(self.total[:more])])
            self.free = np.concatenate([self.free, np.zeros_like(self.free[:more])])
            self._begin_brief()
            self._begin_changes()
        # Another machine may have had the row, and spots say whose they are.
        self._spots.clear()
        self._of_one.clear()
        self._proposed = None
        return self._machines.index(None)

    def _set_machine(self, number: int, machine: Machine | None) -> None:
        self._machines[number] = machine
        self._cluster = None
        self.generation += 1
        self.topology.put(number, machine)
        self._eligibility.put(number, machine)
        self._bind_asks()

    def _bind_asks(self) -> None:
        """Write down which machines are left to each demand, where that matters."""
        bound, words = self._eligibility.bound, self._eligibility.words
        width = tables.ASK_WIDTH + (words.shape[1] if bound.any() else 0)
        if width != self.asks.shape[1]:
            asks = np.zeros((len(self.asks), width), np.int64)
            asks[:, : tables.ASK_WIDTH] = self.asks[:, : tables.ASK_WIDTH]
            self.asks = asks
        of = self._classes[: self.profiles]
        self.asks[: self.profiles, tables.ASK_BOUND] = bound[of]
        if width > tables.ASK_WIDTH:
            self.asks[: self.profiles, tables.ASK_WIDTH :] = words[of]

    def _refresh(self, number: int) -> None:
        """Let everybody see what has become of a machine."""
        is_up = (
            self._machines[number] is not None
            and number not in self.lost
            and number not in self.drained
        )
        self.make_way(1)
        self.free[number, tables.UP] = is_up
        rows.summarise(self.free, self.total, number, self.brief, self.shares)
        self.changes[self.changed] = number
        self.changed += 1
        self.releases += is_up

    # -- demands and placements as rows -------------------------------------------------

    def add_ask(self, demand: Demand, types: frozenset[str], together: int) -> int:
        """Enter a demand and return its profile number."""
        if self.profiles == len(self.asks):
            self.asks = np.concatenate([self.asks, np.empty_like(self.asks)])
            self._classes = np.concatenate([self._classes, np.zeros_like(self._classes)])
        self.asks[self.profiles, : tables.ASK_WIDTH] = (
            demand.gpus,
            demand.gpu_milli,
            demand.gpu_memory_mib,
            demand.cpu_milli,
            demand.memory_mib,
            self.types.mask(types),
            together,
            0,
        )
        self._asked_types.append(types)
        self._classes[self.profiles] = self._eligibility.class_of(demand)
        self.profiles += 1
        if self._eligibility.bound.any():
            self._bind_asks()
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
        spot = Spot(self.machine(machine).id, gpus, instances, task)
        self._spots[machine, mask, instances, task] = spot
        return spot

    def forget_proposal(self) -> None:
        """Have the next placement turned into rows from its own words."""
        self._proposed = None

    def to_rows(self, placement: Placement, profiles: Sequence[int]) -> Table:
        """Return a placement as rows; ``profiles`` are those of the job's tasks."""
        if self._proposed is not None and self._proposed[0] is placement:
            return self._proposed[1]
        table = np.empty((len(placement.spots), tables.AT_WIDTH), np.int64)
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

    def hold(self, table: Table, *, runs: bool = False) -> bool:
        """Take a placement from the ledger, or return False and change nothing.

        What ``runs`` already may be where nothing new is placed.
        """
        self.make_way(len(table))
        end = compiled.hold(self.tables, table, runs)
        if end < 0:
            return False
        self.changed = end
        return True

    def hold_again(self, table: Table) -> bool:
        """Hold what runs already: on drained machines too, whatever others have of them."""
        machines = set(table[:, tables.AT_MACHINE].tolist())
        if machines & self.lost:
            return False
        taken = {number: self._taken(number) for number in machines}
        for number, row in taken.items():
            self.free[number] += row
        held = self.hold(table, runs=True)
        for number, row in taken.items():
            self.free[number] -= row
        self.note_changes(table)
        return held

    def release(self, table: Table) -> None:
        """Give a placement back."""
        self.make_way(len(table))
        self.changed = compiled.release(self.tables, table)
        self.releases += 1

    def note_changes(self, table: Table) -> None:
        """Tell the room index that the machines of these rows were touched."""
        self.make_way(len(table))
        self.changed = compiled.note_changes(self.tables, table)

    def _begin_brief(self) -> None:
        """Write the brief anew, for tables of another size."""
        machines, slots = len(self.free), slots_of(self.free)
        self.brief = np.zeros((tables.BRIEF_HEIGHT, rows.brief_width(machines)), np.int32)
        """The machines in brief; agrees with ``free`` once changes are noted."""
        self.shares = np.full((machines, slots), tables.ABSENT, np.int16)
        """Free share of each GPU, as the brief has the rest."""
        for number in range(machines):
            rows.summarise(self.free, self.total, number, self.brief, self.shares)

    def make_way(self, more: int) -> None:
        """Begin a new change list when the old one is full."""
        if self.changed + more <= len(self.changes):
            return
        if more > len(self.changes):
            self.changes = np.empty(2 * more, np.int64)
        self._begin_changes()

    def _begin_changes(self) -> None:
        self.changed = 0
        self.change_lists += 1

    def idle(self) -> tuple[int, int]:
        """Return the GPU share and the CPU that are free, over all machines that are up."""
        up = np.maximum(self.free[self.free[:, tables.UP] == 1], 0)
        slots = slots_of(self.free)
        gpu = up[:, tables.FREE : tables.FREE + slots].sum()
        return int(gpu), int(up[:, tables.CPU].sum())

    def check(self, held: Sequence[Table]) -> None:
        """Compare the ledger with everything that is held; raise if it does not balance."""
        expected = self.total.copy()
        expected[:, tables.UP] = self.free[:, tables.UP]
        for table in held:
            change_rows(expected, self.asks, table, 0, len(table), 1)
        sound = [bool(rows.is_sound(expected, self.total, at)) for at in range(len(self.free))]
        if not all(sound):
            raise CapacityViolated(f"{self._name(sound.index(False))} is overcommitted.")
        for number, taken in self.occupied():
            expected[number] -= taken
        if (expected != self.free).any():
            number, column = (int(at[0]) for at in np.nonzero(expected != self.free))
            raise CapacityViolated(
                f"{self._name(number)} has {self.free[number, column]} free in "
                f"column {column}, but its jobs leave {expected[number, column]}."
            )

    def _name(self, number: int) -> str:
        machine = self._machines[number]
        return f"Row {number} without a machine" if machine is None else f"Machine {machine.id}"


def _types_of(machine: Machine) -> list[str]:
    """Return the types of its GPUs, and what it is called as a whole."""
    return [machine.gpu_type, *sorted(machine.gpu_types)]


def _check_sight(sight: Occupied, machine: Machine) -> None:
    """Refuse amounts below zero and GPUs that the machine does not have."""
    of = f"of machine {machine.id}"
    for gpu in sight.gpus:
        if not 0 <= gpu.index < machine.gpus:
            raise InvalidField(f"occupied GPU {of}", gpu.index, f"it has {machine.gpus}")
    least = min([sight.cpu_milli, sight.memory_mib,
                 *(min(gpu.milli, gpu.memory_mib) for gpu in sight.gpus)])  # fmt: skip
    if least < 0:
        raise InvalidField(f"occupied amount {of}", least, "it must be 0 or more")
