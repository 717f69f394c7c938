"""How good a machine is for a demand: the scoring rules of the placers, compiled.

Each rule maps one machine's row (see ``rows``), its totals and one ask to a number; the
machine with the highest number wins, and the first in cluster order on ties.  Rules marked
*whole* drop fractions, because the published programs score in whole numbers and their
results hinge on the ties that this makes ("Beware of Fragmentation", ATC'23; the tie rule is
the smallest node name in the authors' scheduler).

The fragmentation rules know the *typical demands* of the workload: one row of ``typical`` a
kind (GPUS, MILLI, CPU, TYPES) and its weight in ``weights``.
"""

from enum import IntEnum
from typing import Final

import numpy as np
from numba import njit

from interlane.model.units import MILLI
from interlane.policy.rows import (
    ASK_CPU,
    ASK_GPUS,
    ASK_MILLI,
    CPU,
    FREE,
    GPUS,
    KIND,
    KINDS,
    MEMORY,
    POOLED,
    TYPE,
    gpu_admits,
    kind_of,
    slots_of,
)


class Score(IntEnum):
    """Names of the rules; the numbers are what compiled code switches on."""

    FIRST = 0
    PACK = 1
    BALANCE = 2
    RANDOM = 3
    DOT_PRODUCT = 4
    GPU_CLUSTERING = 5
    GPU_PACKING = 6
    BEST_FIT = 7
    FGD = 8
    PAI_BALANCE = 9


_FIRST: Final = int(Score.FIRST)
_PACK: Final = int(Score.PACK)
_BALANCE: Final = int(Score.BALANCE)
_RANDOM: Final = int(Score.RANDOM)
_DOT_PRODUCT: Final = int(Score.DOT_PRODUCT)
_GPU_CLUSTERING: Final = int(Score.GPU_CLUSTERING)
_GPU_PACKING: Final = int(Score.GPU_PACKING)
_BEST_FIT: Final = int(Score.BEST_FIT)
_FGD: Final = int(Score.FGD)
_PAI_BALANCE: Final = int(Score.PAI_BALANCE)

TYPICAL_GPUS: Final = 0
TYPICAL_MILLI: Final = 1
TYPICAL_CPU: Final = 2
TYPICAL_TYPES: Final = 3
TYPICAL_WIDTH: Final = 4

CPU_SCALE: Final = 128_000.0
"""The FGD authors normalise CPU by 128 cores ..."""

GPU_SCALE: Final = 8_000.0
"""... and GPU by 8 cards."""


@njit(cache=True)
def free_milli(row):  # type: ignore[no-untyped-def]
    """Return the free GPU share of the machine."""
    total = 0
    for gpu in range(row[GPUS]):
        total += row[FREE + gpu]
    return total


@njit(cache=True)
def fragments(row, cpu, typical, weights):  # type: ignore[no-untyped-def]
    """Return the idle GPU share that typical demands cannot use here (FGD, section 3).

    For a kind that does not fit at all the whole idle share is a fragment; otherwise only
    what lies on GPUs with less left than the kind asks of each.
    """
    idle = free_milli(row)
    if idle == 0:
        return 0.0
    lost = 0.0
    for kind in range(typical.shape[0]):
        gpus = typical[kind, TYPICAL_GPUS]
        milli = typical[kind, TYPICAL_MILLI]
        if (
            gpus == 0
            or cpu < typical[kind, TYPICAL_CPU]
            or (typical[kind, TYPICAL_TYPES] >> row[TYPE]) & 1 == 0
        ):
            lost += weights[kind] * idle
            continue
        if row[POOLED] == 1:
            if idle < gpus * milli:
                lost += weights[kind] * idle
            continue
        usable = 0
        slivers = 0
        for gpu in range(row[GPUS]):
            if row[FREE + gpu] >= milli:
                usable += 1
            else:
                slivers += row[FREE + gpu]
        lost += weights[kind] * (slivers if usable >= gpus else idle)
    return lost


@njit(cache=True)
def _whole_gpus_after(row, ask, sign):  # type: ignore[no-untyped-def]
    """Take (+1) or give back (-1) the lowest-numbered GPUs that a multi-GPU ask would use."""
    slots = slots_of(row)
    wanted = ask[ASK_GPUS]
    if row[POOLED] == 1:
        row[FREE] -= sign * wanted * ask[ASK_MILLI]
        return
    for gpu in range(row[GPUS]):
        if wanted == 0:
            return
        if sign > 0 and gpu_admits(row, slots, gpu, ask):
            row[FREE + gpu] -= ask[ASK_MILLI]
            wanted -= 1


@njit(cache=True)
def _sigmoid_100(gain):  # type: ignore[no-untyped-def]
    """Return the published whole score of a fragment reduction in thousandths of a GPU."""
    return np.floor(100.0 / (1.0 + np.exp(-gain / 1000.0)))


@njit(cache=True)
def fgd_gain(row, ask, typical, weights):  # type: ignore[no-untyped-def]
    """Return (fragment reduction, GPU) of the best way to place one instance here.

    The GPU is meaningful for an instance that uses a single one; first on ties.
    """
    cpu_after = row[CPU] - ask[ASK_CPU]
    before = fragments(row, row[CPU], typical, weights)
    if ask[ASK_GPUS] == 0:
        return before - fragments(row, cpu_after, typical, weights), -1
    if ask[ASK_GPUS] > 1 or row[POOLED] == 1:
        scratch = row.copy()
        _whole_gpus_after(scratch, ask, 1)
        return before - fragments(scratch, cpu_after, typical, weights), -1
    slots = slots_of(row)
    best = -np.inf
    best_gpu = -1
    for gpu in range(row[GPUS]):
        if not gpu_admits(row, slots, gpu, ask):
            continue
        repeated = False
        for earlier in range(gpu):
            # Equal GPUs give equal gains, and the first of them wins anyway.
            if row[FREE + earlier] == row[FREE + gpu] and gpu_admits(row, slots, earlier, ask):
                repeated = True
                break
        if repeated:
            continue
        row[FREE + gpu] -= ask[ASK_MILLI]
        gain = before - fragments(row, cpu_after, typical, weights)
        row[FREE + gpu] += ask[ASK_MILLI]
        if gain > best:
            best = gain
            best_gpu = gpu
    return best, best_gpu


@njit(cache=True)
def _utilisation(row, total, ask):  # type: ignore[no-untyped-def]
    """Return the mean allocation rate over the resources that the machine has."""
    rate = 0.0
    parts = 0
    if total[CPU] > 0:
        rate += (total[CPU] - row[CPU]) / total[CPU]
        parts += 1
    if total[MEMORY] > 0:
        rate += (total[MEMORY] - row[MEMORY]) / total[MEMORY]
        parts += 1
    gpus = free_milli(total)
    if gpus > 0:
        rate += (gpus - free_milli(row)) / gpus
        parts += 1
    return rate / parts if parts > 0 else 0.0


@njit(cache=True)
def _pai_utilisation(row, total):  # type: ignore[no-untyped-def]
    """Return the published node order of load balancing: percent, half to even.

    The simulator divides hundredths by hundredths, so the quotient is the same as here.
    """
    cpu = (total[CPU] - row[CPU]) / total[CPU] if total[CPU] > 0 else 0.0
    gpus = free_milli(total)
    if gpus == 0:
        return np.rint(100.0 * cpu)
    gpu = (gpus - free_milli(row)) / gpus
    return np.rint(100.0 * (gpu + cpu) / 2.0)


@njit(cache=True)
def _clustering(row, total, ask):  # type: ignore[no-untyped-def]
    """Score machines that already host this kind of task highest (whole)."""
    if ask[ASK_GPUS] == 0:
        return 0.0
    kind = kind_of(ask)
    same = row[KIND + kind] > 0
    other = False
    for index in range(KINDS - 1):
        if index != kind and row[KIND + index] > 0:
            other = True
    if same and not other:
        base = 75.0
    elif same:
        base = 50.0
    elif not other:
        base = 25.0
    else:
        base = 0.0
    return base + np.floor(25.0 * (GPU_SCALE - free_milli(row)) / GPU_SCALE)


@njit(cache=True)
def _packing(row, total, ask):  # type: ignore[no-untyped-def]
    """Prefer used GPUs, then free GPUs of used machines, then free machines (whole)."""
    if ask[ASK_GPUS] == 0:
        return 0.0
    slots = slots_of(row)
    untouched = 0
    for gpu in range(row[GPUS]):
        if row[FREE + gpu] == total[FREE + gpu]:
            untouched += 1
    if untouched == row[GPUS]:
        return 33.0 - row[GPUS]
    if ask[ASK_GPUS] == 1:
        tightest = -1
        for gpu in range(row[GPUS]):
            if row[FREE + gpu] == total[FREE + gpu] or not gpu_admits(row, slots, gpu, ask):
                continue
            if tightest < 0 or row[FREE + gpu] < tightest:
                tightest = row[FREE + gpu]
        if tightest >= 0:
            return max(50.0, 100.0 - np.floor(tightest / 10.0 / 10.0))
    return max(33.0, 50.0 - ask[ASK_GPUS])


@njit(cache=True)
def _best_fit(row, total, ask):  # type: ignore[no-untyped-def]
    """Leave the least CPU and GPU behind (whole)."""
    cpu = (row[CPU] - ask[ASK_CPU]) / CPU_SCALE
    gpu = (free_milli(row) - ask[ASK_GPUS] * ask[ASK_MILLI]) / GPU_SCALE
    return np.floor(100.0 * (1.0 - 0.5 * cpu - 0.5 * gpu))


@njit(cache=True)
def _dot_product(row, total, ask):  # type: ignore[no-untyped-def]
    """Prefer the smallest product of what is free and what is asked (whole)."""
    cpu = row[CPU] / CPU_SCALE * ask[ASK_CPU] / CPU_SCALE
    gpu = free_milli(row) / GPU_SCALE * ask[ASK_GPUS] * ask[ASK_MILLI] / GPU_SCALE
    return np.floor(100.0 * (1.0 - (cpu + gpu) / 2.0))


@njit(cache=True)
def _pack(row, total, ask):  # type: ignore[no-untyped-def]
    """Prefer the machine with the least free GPU, then the least free CPU."""
    memory = 0.0 if total[MEMORY] == 0 else row[MEMORY] / total[MEMORY]
    cpu = 0.0 if total[CPU] == 0 else row[CPU] / total[CPU]
    if ask[ASK_GPUS] == 0:
        # Work without GPUs goes where it blocks the fewest of them.
        return -1000.0 * free_milli(row) - cpu - memory
    slots = slots_of(row)
    left = np.int64(0)
    if row[POOLED] == 0 and ask[ASK_GPUS] == 1:
        left = MILLI
        for gpu in range(row[GPUS]):
            if gpu_admits(row, slots, gpu, ask):
                left = min(left, row[FREE + gpu] - ask[ASK_MILLI])
    return -100_000.0 * left - free_milli(row) - 0.5 * (cpu + memory)


@njit(cache=True)
def score(rule, row, total, ask, typical, weights):  # type: ignore[no-untyped-def]
    """Return the score of one machine under one rule; the caller knows that it has room."""
    if rule == _PACK:
        return _pack(row, total, ask)
    if rule == _BALANCE:
        return -_utilisation(row, total, ask)
    if rule == _DOT_PRODUCT:
        return _dot_product(row, total, ask)
    if rule == _GPU_CLUSTERING:
        return _clustering(row, total, ask)
    if rule == _GPU_PACKING:
        return _packing(row, total, ask)
    if rule == _BEST_FIT:
        return _best_fit(row, total, ask)
    if rule == _FGD:
        return _sigmoid_100(fgd_gain(row, ask, typical, weights)[0])
    if rule == _PAI_BALANCE:
        return -_pai_utilisation(row, total)
    return 0.0
