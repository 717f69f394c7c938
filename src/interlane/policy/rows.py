"""A machine's free resources as one row of integers, and questions about a row.

Placement is the hot path: at 6,500 GPUs a scheduler asks thousands of times a second how
many instances of a demand a machine could take.  Objects are too slow for that, so the
kernel's ledger is two integer tables with this layout, one row per machine:

    CPU MEMORY TYPE TYPES GPUS POOLED MIXED NUMBER UP | KIND x 10
    | FREE x g | GPU_MEMORY x g | GPU_TYPE x g

``FREE`` is the free share of each GPU in thousandths, ``GPU_MEMORY`` its free memory,
``GPU_TYPE`` the bit of its type, and ``KIND`` counts what runs there by kind of instance (see
``kind_of``).  ``TYPE`` is the bit of what the machine is called by type, ``TYPES`` the set of
its GPUs' types.  Only where ``MIXED`` is 1 do GPUs differ, so that each is looked at; nearly
all machines are uniform and skip that.  A pooled machine has a single wide "GPU" that holds
all its share.

A demand is a row too (an *ask*), with the layout of the ``ASK_*`` names.  Where ``ASK_BOUND``
is 1, labels and taints leave only some machines to it: one bit per machine, by its ``NUMBER``,
in the words after the other columns.  Everything below is
compiled by numba, and the functions stay readable as plain Python: ``f.py_func`` is the twin
that tests compare with.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.compiling import compiled, inlined
from interlane.model.units import MILLI

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
_BRIEF_MAX: Final = (1 << 31) - 1
_FOLD: Final = 30
"""Type bits are folded to so many; types that fall together are told apart by the row."""
_WILDCARD: Final = 62
_RATE: Final = 1 << 18
ALLOCATED: Final = 1 << 24
"""An allocation rate of 1 in the brief, which rounds down."""
FULLNESS_TIE: Final = 1 << 20
"""A thousandth of idle GPU counts for more than all free CPU and memory: they break ties."""
ANY_FULLNESS: Final = 1 << 62
"""More than any machine has."""
ABSENT: Final = -1
"""Share of a GPU that the machine does not have, in the table of shares."""
POOL: Final = -2
"""Share of a pool's first GPU there: a pool has no single GPUs."""

# How an instance that shares a GPU picks it within its machine.
TIGHTEST: Final = 0
LOWEST: Final = 1
EMPTIEST: Final = 2
DRAWN: Final = 3


def width(slots: int) -> int:
    """Return how many columns a row with so many GPU columns has."""
    return FREE + 3 * slots


def widened(table: NDArray[np.int64], slots: int) -> NDArray[np.int64]:
    """Return a table of machines with more GPU columns than it has."""
    had = slots_of(table)
    wide = np.zeros((len(table), width(slots)), np.int64)
    wide[:, :FREE] = table[:, :FREE]
    for group in range((width(slots) - FREE) // slots):
        narrow = FREE + group * had
        wide[:, FREE + group * slots :][:, :had] = table[:, narrow : narrow + had]
    return wide


@compiled
def slots_of(free):
    """Return how many GPU columns the row's layout has."""
    return (free.shape[1] - FREE) // 3


@compiled
def kind_of(asks, of):
    """Return the kind of an instance: 0 shares one GPU, 1..8 whole GPUs, 9 no GPU."""
    if asks[of, ASK_GPUS] == 0:
        return 9
    if asks[of, ASK_MILLI] < MILLI:
        return 0
    return min(asks[of, ASK_GPUS], 8)


@inlined
def is_of(free, at, slots, gpu, types):
    """Return whether a GPU is of one of these types."""
    return (types >> free[at, FREE + 2 * slots + gpu]) & 1 == 1


@inlined
def may_use(free, at, asks, of):
    """Return whether labels and taints leave this machine to the ask."""
    number = free[at, NUMBER]
    return (asks[of, ASK_WIDTH + (number >> WORD)] >> (number & ((1 << WORD) - 1))) & 1 == 1


@compiled
def is_left_to(free, at, asks, of):
    """Return whether labels and taints leave this machine to the ask; see ``may_use``."""
    return may_use(free, at, asks, of)


@inlined
def admits(free, at, slots, gpu, asks, of):
    """Return whether this GPU has the type, share and memory that the ask wants of each."""
    return (
        free[at, FREE + gpu] >= asks[of, ASK_MILLI]
        and (
            free[at, FREE + slots + gpu] >= asks[of, ASK_GPU_MEMORY]
            or asks[of, ASK_GPU_MEMORY] == 0
        )
        and (free[at, MIXED] == 0 or is_of(free, at, slots, gpu, asks[of, ASK_TYPES]))
    )


@compiled
def gpu_admits(free, at, slots, gpu, asks, of):
    """Return whether this GPU has the type, share and memory that the ask wants of each."""
    return admits(free, at, slots, gpu, asks, of)


@inlined
def _shares(free, at, slots, gpu, asks, of):
    """Return how many instances could each take their share of this one GPU."""
    if not admits(free, at, slots, gpu, asks, of):
        return 0
    count = free[at, FREE + gpu] // asks[of, ASK_MILLI]
    if asks[of, ASK_GPU_MEMORY] > 0:
        count = min(count, free[at, FREE + slots + gpu] // asks[of, ASK_GPU_MEMORY])
    return count


@inlined
def _instances_by_gpu(free, at, asks, of):
    """Return how many instances the GPUs alone could take.

    ``k`` instances of ``n`` distinct GPUs each fit exactly when the GPUs offer ``n k``
    shares without any GPU giving more than ``k`` (each instance uses a GPU once).
    """
    slots = slots_of(free)
    gpus = asks[of, ASK_GPUS]
    if free[at, POOLED] == 1:
        return free[at, FREE] // (gpus * asks[of, ASK_MILLI])
    if gpus > free[at, GPUS]:
        return 0
    if gpus == 1:
        count = 0
        for gpu in range(free[at, GPUS]):
            count += _shares(free, at, slots, gpu, asks, of)
        return count
    if asks[of, ASK_MILLI] == MILLI:
        count = 0
        for gpu in range(free[at, GPUS]):
            if admits(free, at, slots, gpu, asks, of):
                count += 1
        return count // gpus
    most = 0
    while True:
        offered = 0
        for gpu in range(free[at, GPUS]):
            offered += min(_shares(free, at, slots, gpu, asks, of), most + 1)
        if offered < gpus * (most + 1):
            return most
        most += 1


@inlined
def room_for_inlined(free, at, asks, of):
    """Return how many units of the ask fit on the machine now.

    A unit is one instance, or ``ASK_TOGETHER`` instances when a task wants them together.
    """
    # Comparisons first: most machines of a busy cluster are out of the question, and a
    # division costs as much as all of these.  Where others took more than was free there is
    # less than nothing, which keeps away only who needs some of it.
    if (
        free[at, UP] == 0
        or (free[at, CPU] < asks[of, ASK_CPU] and asks[of, ASK_CPU] > 0)
        or (free[at, MEMORY] < asks[of, ASK_MEMORY] and asks[of, ASK_MEMORY] > 0)
    ):
        return 0
    if asks[of, ASK_TYPES] & free[at, TYPES] == 0:
        return 0
    if asks[of, ASK_BOUND] == 1 and not may_use(free, at, asks, of):
        return 0
    if free[at, POOLED] == 1 and asks[of, ASK_GPUS] > 0:
        slots = (free.shape[1] - FREE) // 3
        if free[at, FREE] < asks[of, ASK_GPUS] * asks[of, ASK_MILLI] or (
            free[at, FREE + slots] < asks[of, ASK_GPU_MEMORY] and asks[of, ASK_GPU_MEMORY] > 0
        ):
            return 0
    count = PLENTY
    if asks[of, ASK_CPU] > 0:
        count = min(count, free[at, CPU] // asks[of, ASK_CPU])
    if asks[of, ASK_MEMORY] > 0:
        count = min(count, free[at, MEMORY] // asks[of, ASK_MEMORY])
    if asks[of, ASK_GPUS] > 0:
        count = min(count, _instances_by_gpu(free, at, asks, of))
    return count if asks[of, ASK_TOGETHER] == 1 else count // asks[of, ASK_TOGETHER]


def brief_width(machines: int) -> int:
    """Return the columns of the brief: one a machine, then one a block of them."""
    return machines + (machines + BLOCK - 1) // BLOCK


@inlined
def fullness(brief, at):
    """Return idle GPU share, then free CPU and memory, as one number; the fullest is lowest."""
    return np.int64(brief[BRIEF_IDLE, at]) * FULLNESS_TIE + np.int64(brief[BRIEF_RATE, at])


@inlined
def _folded(types):
    """Return a set of types in 31 bits, the wildcard's apart."""
    low = (types | (types >> _FOLD) | (types >> (2 * _FOLD) & 3)) & ((1 << _FOLD) - 1)
    return low | ((types >> _WILDCARD) & 1) << _FOLD


@inlined
def free_rate(free, total, at):
    """Return how much CPU and memory is free, each as a share of all, in one whole number."""
    cpu = free[at, CPU] / max(total[at, CPU], 1)
    memory = free[at, MEMORY] / max(total[at, MEMORY], 1)
    return np.int64((cpu + memory) * _RATE)


@compiled
def free_milli(free, at):
    """Return the free GPU share of the machine."""
    total = 0
    for gpu in range(free[at, GPUS]):
        total += free[at, FREE + gpu]
    return total


@compiled
def allocation(free, total, at):
    """Return the mean allocation rate over the resources that the machine has."""
    rate = 0.0
    parts = 0
    if total[at, CPU] > 0:
        rate += (total[at, CPU] - free[at, CPU]) / total[at, CPU]
        parts += 1
    if total[at, MEMORY] > 0:
        rate += (total[at, MEMORY] - free[at, MEMORY]) / total[at, MEMORY]
        parts += 1
    gpus = free_milli(total, at)
    if gpus > 0:
        rate += (gpus - free_milli(free, at)) / gpus
        parts += 1
    return rate / parts if parts > 0 else 0.0


@compiled
def summarise(free, total, at, brief, shares):
    """Write a machine's brief (what is free and idle, its type) and the shares of its GPUs."""
    emptiest = 0
    idle = 0
    for gpu in range(free[at, GPUS]):
        here = free[at, FREE + gpu]
        emptiest = max(emptiest, here)
        idle += here
        shares[at, gpu] = POOL if free[at, POOLED] == 1 else max(here, 0)
    for gpu in range(free[at, GPUS], shares.shape[1]):
        shares[at, gpu] = ABSENT
    brief[BRIEF_CPU, at] = min(max(free[at, CPU], 0), _BRIEF_MAX) if free[at, UP] == 1 else -1
    brief[BRIEF_MEMORY, at] = min(max(free[at, MEMORY], 0), _BRIEF_MAX)
    brief[BRIEF_GPU, at] = min(emptiest, _BRIEF_MAX)
    brief[BRIEF_IDLE, at] = min(idle, _BRIEF_MAX)
    brief[BRIEF_TYPES, at] = _folded(free[at, TYPES])
    brief[BRIEF_RATE, at] = free_rate(free, total, at)
    brief[BRIEF_ALLOCATED, at] = np.int32(allocation(free, total, at) * ALLOCATED)
    brief[BRIEF_TYPE, at] = free[at, TYPE]
    brief[BRIEF_HAS, at] = min(free_milli(total, at), _BRIEF_MAX)
    _summarise_block(free.shape[0], at // BLOCK, brief)


@inlined
def _summarise_block(machines, block, brief):
    cpu = brief[BRIEF_CPU, block * BLOCK]
    memory = brief[BRIEF_MEMORY, block * BLOCK]
    gpu = brief[BRIEF_GPU, block * BLOCK]
    idle = brief[BRIEF_IDLE, block * BLOCK]
    rate = brief[BRIEF_RATE, block * BLOCK]
    types = brief[BRIEF_TYPES, block * BLOCK]
    for at in range(block * BLOCK + 1, min((block + 1) * BLOCK, machines)):
        cpu = max(cpu, brief[BRIEF_CPU, at])
        memory = max(memory, brief[BRIEF_MEMORY, at])
        gpu = max(gpu, brief[BRIEF_GPU, at])
        idle = min(idle, brief[BRIEF_IDLE, at])
        rate = min(rate, brief[BRIEF_RATE, at])
        types |= brief[BRIEF_TYPES, at]
    brief[BRIEF_CPU, machines + block] = cpu
    brief[BRIEF_MEMORY, machines + block] = memory
    brief[BRIEF_GPU, machines + block] = gpu
    brief[BRIEF_IDLE, machines + block] = idle
    brief[BRIEF_RATE, machines + block] = rate
    brief[BRIEF_TYPES, machines + block] = types


@inlined
def ask_in_brief(asks, of):
    """Return what the ask wants in the terms of the brief: CPU, memory, GPU share, types."""
    cpu = min(asks[of, ASK_CPU], _BRIEF_MAX)
    memory = min(asks[of, ASK_MEMORY], _BRIEF_MAX)
    milli = asks[of, ASK_MILLI] if asks[of, ASK_GPUS] > 0 else 0
    return cpu, memory, milli, _folded(asks[of, ASK_TYPES])


@inlined
def may_fit(brief, at, wanted):
    """Return whether an ask in brief may fit on a machine, or anywhere in a block."""
    cpu, memory, milli, types = wanted
    # GPUs first: on a busy cluster they decide, and the other columns are not even read.
    return (
        brief[BRIEF_GPU, at] >= milli
        and brief[BRIEF_CPU, at] >= cpu
        and brief[BRIEF_MEMORY, at] >= memory
        and brief[BRIEF_TYPES, at] & types != 0
    )


@compiled
def next_candidate(brief, machines, begin, wanted):
    """Return the first machine from ``begin`` on that may fit, or how many there are."""
    at = begin
    while at < machines:
        if at % BLOCK == 0 and not may_fit(brief, machines + at // BLOCK, wanted):
            at += BLOCK
        elif may_fit(brief, at, wanted):
            return at
        else:
            at += 1
    return machines


@compiled
def room_for(free, at, asks, of):
    """Return how many units of the ask fit on the machine now; see ``room_for_inlined``."""
    return room_for_inlined(free, at, asks, of)


@compiled
def change(free, at, asks, of, mask, instances):
    """Take (``instances`` > 0) or give back (< 0) what the ask uses on the GPUs of ``mask``."""
    free[at, CPU] -= asks[of, ASK_CPU] * instances
    free[at, MEMORY] -= asks[of, ASK_MEMORY] * instances
    free[at, KIND + kind_of(asks, of)] += instances
    if asks[of, ASK_GPUS] == 0:
        return
    slots = slots_of(free)
    if free[at, POOLED] == 1:
        free[at, FREE] -= asks[of, ASK_GPUS] * asks[of, ASK_MILLI] * instances
        return
    for gpu in range(free[at, GPUS]):
        if (mask >> gpu) & 1:
            free[at, FREE + gpu] -= asks[of, ASK_MILLI] * instances
            free[at, FREE + slots + gpu] -= asks[of, ASK_GPU_MEMORY] * instances


@compiled
def was_there(free, at, asks, of, mask):
    """Return whether what an ask took on the GPUs of ``mask`` was there to be taken.

    Asked after ``change``: nothing that the ask uses may be below zero.
    """
    if (asks[of, ASK_CPU] > 0 and free[at, CPU] < 0) or (
        asks[of, ASK_MEMORY] > 0 and free[at, MEMORY] < 0
    ):
        return False
    if asks[of, ASK_GPUS] == 0:
        return mask == 0
    if asks[of, ASK_TYPES] & free[at, TYPES] == 0:
        return False
    if free[at, POOLED] == 1:
        return mask == 0 and free[at, FREE] >= 0
    slots = slots_of(free)
    used = 0
    for gpu in range(free[at, GPUS]):
        if (mask >> gpu) & 1:
            used += 1
            if free[at, FREE + gpu] < 0 or (
                asks[of, ASK_GPU_MEMORY] > 0 and free[at, FREE + slots + gpu] < 0
            ):
                return False
            if free[at, MIXED] == 1 and not is_of(free, at, slots, gpu, asks[of, ASK_TYPES]):
                return False
    return used == asks[of, ASK_GPUS] and mask >> free[at, GPUS] == 0


@compiled
def is_sound(free, total, at):
    """Return whether nothing is held below zero or above what the machine has."""
    for column in range(FREE + 2 * slots_of(free)):
        if TYPE <= column <= UP:
            continue
        if free[at, column] < 0:
            return False
        if (column < KIND or column >= FREE) and free[at, column] > total[at, column]:
            return False
    return True


@compiled
def next_random(state):
    """Advance a 64-bit generator (splitmix) held in ``state[0]`` and return 53 bits of it."""
    state[0] = state[0] + np.uint64(0x9E3779B97F4A7C15)
    mixed = state[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return np.int64(mixed >> np.uint64(11))


@compiled
def _pick_one(free, at, asks, of, choice, rng):
    """Return the GPU for an instance that uses one; lowest number on ties."""
    slots = slots_of(free)
    best = -1
    admitted = 0
    for gpu in range(free[at, GPUS]):
        if not gpu_admits(free, at, slots, gpu, asks, of):
            continue
        admitted += 1
        if (
            best < 0
            or (choice == TIGHTEST and free[at, FREE + gpu] < free[at, FREE + best])
            or (choice == EMPTIEST and free[at, FREE + gpu] > free[at, FREE + best])
            or (choice == DRAWN and next_random(rng) % admitted == 0)
        ):
            best = gpu
    return best


@compiled
def _pick_emptiest(free, at, asks, of):
    """Return the mask of the emptiest GPUs that admit the ask.

    Shares of several GPUs must take the emptiest: any other choice can strand an instance
    that ``room_for`` has promised.
    """
    slots = slots_of(free)
    mask = np.int64(0)
    for _ in range(asks[of, ASK_GPUS]):
        best = -1
        for gpu in range(free[at, GPUS]):
            if (mask >> gpu) & 1 or not gpu_admits(free, at, slots, gpu, asks, of):
                continue
            if best < 0 or _shares(free, at, slots, gpu, asks, of) > _shares(
                free, at, slots, best, asks, of
            ):
                best = gpu
        mask |= np.int64(1) << best
    return mask


@compiled
def choose_gpus(free, at, asks, of, choice, rng):
    """Return the mask of the GPUs that the next instance takes on a machine with room."""
    if asks[of, ASK_GPUS] == 0 or free[at, POOLED] == 1:
        return np.int64(0)
    if asks[of, ASK_GPUS] == 1:
        return np.int64(1) << _pick_one(free, at, asks, of, choice, rng)
    if asks[of, ASK_MILLI] < MILLI:
        return _pick_emptiest(free, at, asks, of)
    slots = slots_of(free)
    mask = np.int64(0)
    wanted = asks[of, ASK_GPUS]
    for gpu in range(free[at, GPUS]):
        if wanted > 0 and gpu_admits(free, at, slots, gpu, asks, of):
            mask |= np.int64(1) << gpu
            wanted -= 1
    return mask
