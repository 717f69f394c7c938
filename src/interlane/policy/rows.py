"""A machine's free resources as one row of integers, and questions about a row.

Placement is the hot path: at 6,500 GPUs a scheduler asks thousands of times a second how
many instances of a demand a machine could take.  Objects are too slow for that, so the
kernel's books are two integer tables with this layout, one row a machine:

    CPU MEMORY TYPE GPUS POOLED UP | KIND x 10 | FREE x g | GPU_MEMORY x g

``FREE`` is the free share of each GPU in thousandths, ``GPU_MEMORY`` its free memory, and
``KIND`` counts what runs there by kind of instance (see ``kind_of``).  ``TYPE`` is the bit of
the machine's GPU type.  A pooled machine has a single wide "GPU" that holds all its share.

A demand is a row too (an *ask*), with the layout of the ``ASK_*`` names.  Everything below is
compiled by numba, and the functions stay readable as plain Python: ``f.py_func`` is the twin
that tests compare with.
"""

from typing import Final

import numpy as np
from numba import njit

from interlane.model.units import MILLI

CPU: Final = 0
MEMORY: Final = 1
TYPE: Final = 2
GPUS: Final = 3
POOLED: Final = 4
UP: Final = 5
KIND: Final = 6
KINDS: Final = 10
FREE: Final = KIND + KINDS

ASK_GPUS: Final = 0
ASK_MILLI: Final = 1
ASK_GPU_MEMORY: Final = 2
ASK_CPU: Final = 3
ASK_MEMORY: Final = 4
ASK_TYPES: Final = 5
ASK_TOGETHER: Final = 6
ASK_WIDTH: Final = 7

ANY_TYPE: Final = -1
"""Type mask of a demand that any GPU type satisfies: all bits set."""

PLENTY: Final = 1 << 40
"""How many instances fit where nothing that they ask for is limited."""

# How an instance that shares a GPU picks it within its machine.
TIGHTEST: Final = 0
LOWEST: Final = 1
EMPTIEST: Final = 2
DRAWN: Final = 3


@njit(cache=True)
def slots_of(row):  # type: ignore[no-untyped-def]
    """Return how many GPU columns the row's layout has."""
    return (row.shape[0] - FREE) // 2


@njit(cache=True)
def kind_of(ask):  # type: ignore[no-untyped-def]
    """Return the kind of an instance: 0 shares one GPU, 1..8 whole GPUs, 9 no GPU."""
    if ask[ASK_GPUS] == 0:
        return 9
    if ask[ASK_MILLI] < MILLI:
        return 0
    return min(ask[ASK_GPUS], 8)


@njit(cache=True)
def gpu_admits(row, slots, gpu, ask):  # type: ignore[no-untyped-def]
    """Return whether this GPU has the share and memory that the ask wants of each GPU."""
    return (
        row[FREE + gpu] >= ask[ASK_MILLI] and row[FREE + slots + gpu] >= ask[ASK_GPU_MEMORY]
    )


@njit(cache=True)
def _shares(row, slots, gpu, ask):  # type: ignore[no-untyped-def]
    """Return how many instances could each take their share of this one GPU."""
    count = row[FREE + gpu] // ask[ASK_MILLI]
    if ask[ASK_GPU_MEMORY] > 0:
        count = min(count, row[FREE + slots + gpu] // ask[ASK_GPU_MEMORY])
    return count


@njit(cache=True)
def _instances_by_gpu(row, ask):  # type: ignore[no-untyped-def]
    """Return how many instances the GPUs alone could take.

    ``k`` instances of ``n`` distinct GPUs each fit exactly when the GPUs offer ``n k``
    shares without any GPU giving more than ``k`` (each instance uses a GPU once).
    """
    slots = slots_of(row)
    gpus = ask[ASK_GPUS]
    if row[POOLED] == 1:
        return row[FREE] // (gpus * ask[ASK_MILLI])
    if gpus > row[GPUS]:
        return 0
    if gpus == 1:
        count = 0
        for gpu in range(row[GPUS]):
            count += _shares(row, slots, gpu, ask)
        return count
    if ask[ASK_MILLI] == MILLI:
        count = 0
        for gpu in range(row[GPUS]):
            if gpu_admits(row, slots, gpu, ask):
                count += 1
        return count // gpus
    most = 0
    while True:
        offered = 0
        for gpu in range(row[GPUS]):
            offered += min(_shares(row, slots, gpu, ask), most + 1)
        if offered < gpus * (most + 1):
            return most
        most += 1


@njit(cache=True)
def room_for(row, ask):  # type: ignore[no-untyped-def]
    """Return how many units of the ask fit on the machine now.

    A unit is one instance, or ``ASK_TOGETHER`` instances when a task wants them together.
    """
    if row[UP] == 0:
        return 0
    if ask[ASK_GPUS] > 0 and (ask[ASK_TYPES] >> row[TYPE]) & 1 == 0:
        return 0
    count = PLENTY
    if ask[ASK_CPU] > 0:
        count = row[CPU] // ask[ASK_CPU]
    if ask[ASK_MEMORY] > 0:
        count = min(count, row[MEMORY] // ask[ASK_MEMORY])
    if ask[ASK_GPUS] > 0 and count > 0:
        count = min(count, _instances_by_gpu(row, ask))
    return count // ask[ASK_TOGETHER]


@njit(cache=True)
def change(row, ask, mask, instances):  # type: ignore[no-untyped-def]
    """Take (``instances`` > 0) or give back (< 0) what the ask uses on the GPUs of ``mask``."""
    row[CPU] -= ask[ASK_CPU] * instances
    row[MEMORY] -= ask[ASK_MEMORY] * instances
    row[KIND + kind_of(ask)] += instances
    if ask[ASK_GPUS] == 0:
        return
    slots = slots_of(row)
    if row[POOLED] == 1:
        row[FREE] -= ask[ASK_GPUS] * ask[ASK_MILLI] * instances
        return
    for gpu in range(row[GPUS]):
        if (mask >> gpu) & 1:
            row[FREE + gpu] -= ask[ASK_MILLI] * instances
            row[FREE + slots + gpu] -= ask[ASK_GPU_MEMORY] * instances


@njit(cache=True)
def is_sound(row, total):  # type: ignore[no-untyped-def]
    """Return whether nothing is held below zero or above what the machine has."""
    for column in range(row.shape[0]):
        if column == TYPE or column == GPUS or column == POOLED or column == UP:
            continue
        if row[column] < 0:
            return False
        if (column < KIND or column >= FREE) and row[column] > total[column]:
            return False
    return True


@njit(cache=True)
def next_random(state):  # type: ignore[no-untyped-def]
    """Advance a 64-bit generator (splitmix) held in ``state[0]`` and return 53 bits of it."""
    state[0] = state[0] + np.uint64(0x9E3779B97F4A7C15)
    mixed = state[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return np.int64(mixed >> np.uint64(11))


@njit(cache=True)
def _pick_one(row, ask, choice, dice):  # type: ignore[no-untyped-def]
    """Return the GPU for an instance that uses one; lowest number on ties."""
    slots = slots_of(row)
    best = -1
    admitted = 0
    for gpu in range(row[GPUS]):
        if not gpu_admits(row, slots, gpu, ask):
            continue
        admitted += 1
        if (
            best < 0
            or (choice == TIGHTEST and row[FREE + gpu] < row[FREE + best])
            or (choice == EMPTIEST and row[FREE + gpu] > row[FREE + best])
            or (choice == DRAWN and next_random(dice) % admitted == 0)
        ):
            best = gpu
    return best


@njit(cache=True)
def _pick_emptiest(row, ask):  # type: ignore[no-untyped-def]
    """Return the mask of the emptiest GPUs that admit the ask.

    Shares of several GPUs must take the emptiest: any other choice can strand an instance
    that ``room_for`` has promised.
    """
    slots = slots_of(row)
    mask = np.int64(0)
    for _ in range(ask[ASK_GPUS]):
        best = -1
        for gpu in range(row[GPUS]):
            if (mask >> gpu) & 1 or not gpu_admits(row, slots, gpu, ask):
                continue
            if best < 0 or _shares(row, slots, gpu, ask) > _shares(row, slots, best, ask):
                best = gpu
        mask |= np.int64(1) << best
    return mask


@njit(cache=True)
def choose_gpus(row, ask, choice, dice):  # type: ignore[no-untyped-def]
    """Return the mask of the GPUs that the next instance takes on a machine with room."""
    if ask[ASK_GPUS] == 0 or row[POOLED] == 1:
        return np.int64(0)
    if ask[ASK_GPUS] == 1:
        return np.int64(1) << _pick_one(row, ask, choice, dice)
    if ask[ASK_MILLI] < MILLI:
        return _pick_emptiest(row, ask)
    slots = slots_of(row)
    mask = np.int64(0)
    wanted = ask[ASK_GPUS]
    for gpu in range(row[GPUS]):
        if wanted > 0 and gpu_admits(row, slots, gpu, ask):
            mask |= np.int64(1) << gpu
            wanted -= 1
    return mask
