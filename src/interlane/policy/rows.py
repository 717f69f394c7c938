"""Questions about a machine's row: what fits there, on which GPUs, and how full it is.

``tables`` has the layout.  Everything here is compiled by numba, and the functions stay
readable as plain Python: ``f.py_func`` is the twin that tests compare with.
"""

from typing import Final

import numpy as np

from interlane.compiling import compiled, inlined
from interlane.model.units import MILLI
from interlane.tables import (
    ABSENT,
    ASK_BOUND,
    ASK_CPU,
    ASK_GPU_MEMORY,
    ASK_GPUS,
    ASK_MEMORY,
    ASK_MILLI,
    ASK_TOGETHER,
    ASK_TYPES,
    ASK_WIDTH,
    BLOCK,
    BRIEF_ALLOCATED,
    BRIEF_CPU,
    BRIEF_GPU,
    BRIEF_HAS,
    BRIEF_IDLE,
    BRIEF_MEMORY,
    BRIEF_RATE,
    BRIEF_TYPE,
    BRIEF_TYPES,
    CPU,
    FREE,
    GPUS,
    KIND,
    MEMORY,
    MIXED,
    NUMBER,
    PLENTY,
    POOL,
    POOLED,
    TYPE,
    TYPES,
    UP,
    WILDCARD_BIT,
    WORD,
)
from interlane.tables.compiled import free_milli, is_of, slots_of

_BRIEF_MAX: Final = (1 << 31) - 1
_FOLD: Final = 30
"""Type bits are folded to so many; types that fall together are told apart by the row."""
_RATE: Final = 1 << 18
ALLOCATED: Final = 1 << 24
"""An allocation rate of 1 in the brief, which rounds down."""
FULLNESS_TIE: Final = 1 << 20
"""A thousandth of idle GPU counts for more than all free CPU and memory: they break ties."""
ANY_FULLNESS: Final = 1 << 62
"""More than any machine has."""

# How an instance that shares a GPU picks it within its machine.
TIGHTEST: Final = 0
LOWEST: Final = 1
EMPTIEST: Final = 2
DRAWN: Final = 3


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
        # A whole GPU serves one instance, so that counting GPUs is enough.
        count = 0
        for gpu in range(free[at, GPUS]):
            if admits(free, at, slots, gpu, asks, of):
                count += 1
        return count // gpus
    # Shares of several GPUs: raise k until the offers, cut at k each, no longer reach n k.
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
    return low | ((types >> WILDCARD_BIT) & 1) << _FOLD


@inlined
def free_rate(free, total, at):
    """Return how much CPU and memory is free, each as a share of all, in one whole number."""
    cpu = free[at, CPU] / max(total[at, CPU], 1)
    memory = free[at, MEMORY] / max(total[at, MEMORY], 1)
    return np.int64((cpu + memory) * _RATE)


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
    # A machine that is not up has less CPU than nothing: even an empty ask does not fit.
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
    """Write a block's brief from scratch: its best may just have become worse."""
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
        # Only at the beginning of a block: inside of it, the block may fit by another machine.
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
def room_on(free, asks, of):
    """Return how many units of the ask fit on all these machines together."""
    total = 0
    for at in range(free.shape[0]):
        total += room_for(free, at, asks, of)
    return total


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
            # The n-th GPU replaces the choice once in n times: each is as likely as the next.
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
