"""The tables of the hot path: their columns by name, and the rows of machines and demands.

Placement asks thousands of times a second how many instances of a demand a machine could take.
Objects are too slow for that, so machines, demands, placements and waiting groups are rows of
integers, and what reads them is compiled.  Scheduler, placers and figures share one layout:

    a machine   CPU MEMORY TYPE TYPES GPUS POOLED MIXED NUMBER UP | KIND x 10
                | FREE x g | GPU_MEMORY x g | GPU_TYPE x g

``FREE`` is the free share of each GPU in thousandths, ``GPU_MEMORY`` its free memory,
``GPU_TYPE`` the bit of its type, and ``KIND`` counts what runs there by kind of instance (see
``kind_of``).  ``TYPE`` is the bit of what the machine is called by type, ``TYPES`` the set of
its GPUs' types.  Only where ``MIXED`` is 1 do GPUs differ, so that each is looked at; nearly
all machines are uniform and skip that.  A pooled machine has a single wide "GPU" that holds
all its share.

A demand is a row too (an *ask*, ``ASK_*``).  Where ``ASK_BOUND`` is 1, labels and taints leave
only some machines to it: one bit per machine, by its ``NUMBER``, in the words after the other
columns.  A *placement* (``AT_*``) has one row per spot, a table of *typical* demands
(``TYPICAL_*``) one per kind.

Compiled code takes its tables in a few named tuples.  From Python they come as plain ones,
which numba recognises several times faster; whoever takes them names them again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlane.model import MILLI, Demand, InvalidInput, Machine

Table = NDArray[np.int64]

# -- columns ------------------------------------------------------------------------------

CPU: Final = 0
MEMORY: Final = 1
TYPE: Final = 2
TYPES: Final = 3
GPUS: Final = 4
POOLED: Final = 5
MIXED: Final = 6
NUMBER: Final = 7
UP: Final = 8
KIND: Final = 9
KINDS: Final = 10
FREE: Final = KIND + KINDS

ASK_GPUS: Final = 0
ASK_MILLI: Final = 1
ASK_GPU_MEMORY: Final = 2
ASK_CPU: Final = 3
ASK_MEMORY: Final = 4
ASK_TYPES: Final = 5
ASK_TOGETHER: Final = 6
ASK_BOUND: Final = 7
ASK_WIDTH: Final = 8
WORD: Final = 5
"""A word of an ask's machines has 2 to this power of bits."""

ANY_TYPE: Final = -1
"""Type mask of a demand that any GPU type satisfies: all bits set."""

PLENTY: Final = 1 << 30
"""How many instances fit where nothing that they ask for is limited."""

# Columns of a placement row.
AT_MACHINE: Final = 0
AT_MASK: Final = 1
AT_INSTANCES: Final = 2
AT_ASK: Final = 3
AT_TASK: Final = 4
AT_WIDTH: Final = 5
HELD_BY: Final = AT_TASK
"""In the rows of several jobs: whose row it is, instead of the task."""

# Columns of a typical demand.
TYPICAL_GPUS: Final = 0
TYPICAL_MILLI: Final = 1
TYPICAL_CPU: Final = 2
TYPICAL_TYPES: Final = 3
TYPICAL_WIDTH: Final = 4

# Columns of the group tables: the key of each group's head, and what it asks for.
KEY_RANK: Final = 0
KEY_VALUE: Final = 1
KEY_SLOPE: Final = 2
KEY_SERIAL: Final = 3
KEY_SHORTEST: Final = 4
KEY_WIDTH: Final = 5
GROUP_PROFILE: Final = 0
GROUP_NEED: Final = 1
GROUP_BARRED: Final = 2
GROUP_MOST: Final = 3
"""Units that a job may use, or 0 if room alone does not place it: several tasks, domains."""
GROUP_WIDTH: Final = 4

# Who has room once a job has been placed.
NOBODY: Final = 0
SAME_GROUP: Final = 1
"""Only the group that the job is from, if somebody is left in it."""
ANYBODY: Final = 2
"""Others too, or nobody has looked."""

# Columns of the cursor table, one row per profile.
ROOM_CURSOR: Final = 0
SCORE_CURSOR: Final = 1
ASKED_CURSOR: Final = 2
"""Where the change list ended when the profile was last placed."""
ENOUGH: Final = 3
"""No cursor: units beyond which the profile's room need not be counted now."""
CURSORS: Final = 4

# A machine in brief: all that a first look needs, in columns that fit the fastest cache.
# After the machines come *blocks* of neighbours in brief: the most that any of them has free,
# the least that any has idle.  Where a block falls short, none of its machines is looked at.
BRIEF_CPU: Final = 0
BRIEF_MEMORY: Final = 1
BRIEF_GPU: Final = 2
BRIEF_IDLE: Final = 3
BRIEF_TYPES: Final = 4
BRIEF_RATE: Final = 5
BRIEF_ALLOCATED: Final = 6
BRIEF_TYPE: Final = 7
BRIEF_HAS: Final = 8
BRIEF_HEIGHT: Final = 9
BLOCK: Final = 16
ABSENT: Final = -1
"""Share of a GPU that the machine does not have, in the table of shares."""
POOL: Final = -2
"""Share of a pool's first GPU there: a pool has no single GPUs."""

# -- tables that go together --------------------------------------------------------------


class Machines(NamedTuple):
    """The ledger: what machines have and have free, and all demands that are known."""

    free: Table
    total: Table
    asks: Table
    brief: NDArray[np.int32]
    """The machines in brief, then blocks of them."""
    shares: NDArray[np.int16]
    """The free share of each GPU, as the brief has the rest."""
    changes: Table
    """Machines that changed, in order, from 0 to ``changed``."""
    changed: int


class RoomIndex(NamedTuple):
    """How many units of each profile each machine could take, and how good it is for them."""

    cursors: Table
    """How far each profile has read the change list."""
    rooms: NDArray[np.int32]
    sums: Table
    """The sum of each row of ``rooms``."""
    scores: NDArray[np.float64]


class Waiting(NamedTuple):
    """The groups of a queue."""

    profiles: Table
    """Profiles that somebody waits for, from 0 to ``waited_for``."""
    waited_for: int
    active: Table
    """Groups with somebody in them, from 0 to ``actives``."""
    actives: int
    keys: NDArray[np.float64]
    groups: Table


class RuleArgs(NamedTuple):
    """A placer's rule, and what it knows."""

    score: int
    spread: int
    gpu_choice: int
    choices: int
    typical: Table
    weights: NDArray[np.float64]
    random: NDArray[np.uint64]
    """The state of the random numbers that the rule draws."""


class WantedTask(NamedTuple):
    """One task that is to be placed: ``least`` to ``most`` units of a profile."""

    profile: int
    task: int
    least: int
    most: int


class Holdings(NamedTuple):
    """What jobs hold that might be stopped, sorted by machine and by job."""

    held: Table
    """Placement rows with ``HELD_BY``, those of one holder in a row."""
    by_machine: Table
    """The rows in the order of machines, then of cost."""
    starts: Table
    """Where each machine's part of ``by_machine`` begins; one more at the end."""
    first: Table
    """Where each holder's rows begin; one more at the end."""
    cost: NDArray[np.float64]
    """What stopping each holder costs."""


# -- rows ---------------------------------------------------------------------------------

WILDCARD: Final = "ANY"
"""GPU type of machines that any demand accepts: pools that do not tell their GPUs apart."""

WILDCARD_BIT: Final = 62


class TypeBits:
    """Gives every GPU type its bit, so that a set of types is one integer."""

    def __init__(self) -> None:
        self._bits = {WILDCARD: WILDCARD_BIT}
        self.seen: frozenset[str] = frozenset()
        """Types that some machine has had."""

    def add(self, gpu_types: Iterable[str]) -> list[str]:
        """Give bits to types that have none yet; return them."""
        named = dict.fromkeys(gpu_types)
        new = [one for one in named if one not in self._bits]
        if len(self._bits) - 1 + len(new) > WILDCARD_BIT:
            raise InvalidInput(
                f"GPU type {new[-1]} is one too many; machines of at most {WILDCARD_BIT} "
                "types are told apart."
            )
        for one in new:
            self._bits[one] = len(self._bits) - 1
        self.seen = self.seen.union(named)
        return new

    def bit(self, gpu_type: str) -> int:
        """Return the bit of a type that some machine has had."""
        return self._bits[gpu_type]

    def bits(self, gpu_type: str) -> list[int]:
        """Return the bit of a type, or none if no machine has had it."""
        return [self._bits[gpu_type]] if gpu_type in self._bits else []

    def mask(self, types: frozenset[str]) -> int:
        """Return the bits of the types that will do; unknown types have none."""
        if not types:
            return ANY_TYPE
        mask = 1 << WILDCARD_BIT
        for gpu_type in types:
            if gpu_type in self._bits:
                mask |= 1 << self._bits[gpu_type]
        return mask


def machine_row(machine: Machine, bit: Callable[[str], int], slots: int) -> Table:
    """Return an idle machine as a row; ``bit`` says which bit a GPU type has."""
    row: Table = np.zeros(width(slots), np.int64)
    row[CPU] = machine.cpu_milli
    row[MEMORY] = machine.memory_mib
    row[TYPE] = bit(machine.gpu_type)
    row[TYPES] = 1 << bit(machine.gpu_type)
    row[POOLED] = machine.pooled
    row[MIXED] = bool(machine.devices)
    row[UP] = 1
    milli, memory, kinds = (row[FREE + group * slots :][:slots] for group in range(3))
    if machine.pooled:
        row[GPUS], milli[0], memory[0] = 1, machine.gpu_milli, machine.gpu_memory_mib
        return row
    row[GPUS] = gpus = machine.gpus
    milli[:gpus], memory[:gpus], kinds[:gpus] = MILLI, machine.gpu_memory_mib, row[TYPE]
    for number, device in enumerate(machine.devices):
        milli[number], memory[number] = device.compute_milli, device.memory_mib
        kinds[number] = bit(device.type)
    if machine.devices:
        row[TYPES] = sum(1 << bit(kind) for kind in machine.gpu_types)
    return row


def slots_for(machines: Iterable[Machine]) -> int:
    """Return how many GPU columns these machines need."""
    return max([1, *(1 if machine.pooled else machine.gpus for machine in machines)])


def typical_rows(demands: Sequence[Demand], mask: Callable[[frozenset[str]], int]) -> Table:
    """Return typical demands as rows; ``mask`` says which bits a set of GPU types has."""
    table = np.empty((len(demands), TYPICAL_WIDTH), np.int64)
    for row, one in zip(table, demands, strict=True):
        row[:] = one.gpus, one.gpu_milli, one.cpu_milli, mask(one.gpu_types)
    return table


def width(slots: int) -> int:
    """Return how many columns a row with so many GPU columns has."""
    return FREE + 3 * slots


def widened(table: NDArray[np.int64], slots: int) -> NDArray[np.int64]:
    """Return a table of machines with more GPU columns than it has."""
    had = (table.shape[1] - FREE) // 3
    wide = np.zeros((len(table), width(slots)), np.int64)
    wide[:, :FREE] = table[:, :FREE]
    for group in range((width(slots) - FREE) // slots):
        narrow = FREE + group * had
        wide[:, FREE + group * slots :][:, :had] = table[:, narrow : narrow + had]
    return wide
