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

from interlane.model.units import MILLI
from interlane.policy.packing import pack_score
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
    compiled,
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


@compiled
def free_milli(free, at):
    """Return the free GPU share of the machine."""
    total = 0
    for gpu in range(free[at, GPUS]):
        total += free[at, FREE + gpu]
    return total


@compiled
def fragments(free, at, cpu, typical, weights):
    """Return the idle GPU share that typical demands cannot use here (FGD, section 3).

    For a kind that does not fit at all the whole idle share is a fragment; otherwise only
    what lies on GPUs with less left than the kind asks of each.
    """
    idle = free_milli(free, at)
    if idle == 0:
        return 0.0
    lost = 0.0
    for kind in range(typical.shape[0]):
        gpus = typical[kind, TYPICAL_GPUS]
        milli = typical[kind, TYPICAL_MILLI]
        if (
            gpus == 0
            or cpu < typical[kind, TYPICAL_CPU]
            or (typical[kind, TYPICAL_TYPES] >> free[at, TYPE]) & 1 == 0
        ):
            lost += weights[kind] * idle
            continue
        if free[at, POOLED] == 1:
            if idle < gpus * milli:
                lost += weights[kind] * idle
            continue
        usable = 0
        slivers = 0
        for gpu in range(free[at, GPUS]):
            if free[at, FREE + gpu] >= milli:
                usable += 1
            else:
                slivers += free[at, FREE + gpu]
        lost += weights[kind] * (slivers if usable >= gpus else idle)
    return lost


@compiled
def _after_whole(free, at, asks, of, cpu, typical, weights):
    """Return the fragments after an ask of several GPUs took the lowest-numbered ones."""
    slots = slots_of(free)
    wanted = asks[of, ASK_GPUS]
    if free[at, POOLED] == 1:
        free[at, FREE] -= wanted * asks[of, ASK_MILLI]
        after = fragments(free, at, cpu, typical, weights)
        free[at, FREE] += wanted * asks[of, ASK_MILLI]
        return after
    taken = np.int64(0)
    for gpu in range(free[at, GPUS]):
        if wanted > 0 and gpu_admits(free, at, slots, gpu, asks, of):
            free[at, FREE + gpu] -= asks[of, ASK_MILLI]
            taken |= np.int64(1) << gpu
            wanted -= 1
    after = fragments(free, at, cpu, typical, weights)
    for gpu in range(free[at, GPUS]):
        if (taken >> gpu) & 1:
            free[at, FREE + gpu] += asks[of, ASK_MILLI]
    return after


@compiled
def _sigmoid_100(gain):
    """Return the published whole score of a fragment reduction in thousandths of a GPU."""
    return np.floor(100.0 / (1.0 + np.exp(-gain / 1000.0)))


@compiled
def fgd_gain(free, at, asks, of, typical, weights):
    """Return (fragment reduction, GPU) of the best way to place one instance here.

    The GPU is meaningful for an instance that uses a single one; first on ties.
    """
    cpu_after = free[at, CPU] - asks[of, ASK_CPU]
    before = fragments(free, at, free[at, CPU], typical, weights)
    if asks[of, ASK_GPUS] == 0:
        return before - fragments(free, at, cpu_after, typical, weights), -1
    if asks[of, ASK_GPUS] > 1 or free[at, POOLED] == 1:
        return before - _after_whole(free, at, asks, of, cpu_after, typical, weights), -1
    slots = slots_of(free)
    best = -np.inf
    best_gpu = -1
    for gpu in range(free[at, GPUS]):
        if not gpu_admits(free, at, slots, gpu, asks, of):
            continue
        repeated = False
        for earlier in range(gpu):
            # Equal GPUs give equal gains, and the first of them wins anyway.
            if free[at, FREE + earlier] == free[at, FREE + gpu] and gpu_admits(
                free, at, slots, earlier, asks, of
            ):
                repeated = True
                break
        if repeated:
            continue
        free[at, FREE + gpu] -= asks[of, ASK_MILLI]
        gain = before - fragments(free, at, cpu_after, typical, weights)
        free[at, FREE + gpu] += asks[of, ASK_MILLI]
        if gain > best:
            best = gain
            best_gpu = gpu
    return best, best_gpu


@compiled
def _utilisation(free, total, at, asks, of):
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
def _pai_utilisation(free, total, at):
    """Return the published node order of load balancing: percent, half to even.

    The simulator divides hundredths by hundredths, so the quotient is the same as here.
    """
    cpu = (total[at, CPU] - free[at, CPU]) / total[at, CPU] if total[at, CPU] > 0 else 0.0
    gpus = free_milli(total, at)
    if gpus == 0:
        return np.rint(100.0 * cpu)
    gpu = (gpus - free_milli(free, at)) / gpus
    return np.rint(100.0 * (gpu + cpu) / 2.0)


@compiled
def _clustering(free, total, at, asks, of):
    """Score machines that already host this kind of task highest (whole)."""
    if asks[of, ASK_GPUS] == 0:
        return 0.0
    kind = kind_of(asks, of)
    same = free[at, KIND + kind] > 0
    other = False
    for index in range(KINDS - 1):
        if index != kind and free[at, KIND + index] > 0:
            other = True
    if same and not other:
        base = 75.0
    elif same:
        base = 50.0
    elif not other:
        base = 25.0
    else:
        base = 0.0
    return base + np.floor(25.0 * (GPU_SCALE - free_milli(free, at)) / GPU_SCALE)


@compiled
def _packing(free, total, at, asks, of):
    """Prefer used GPUs, then free GPUs of used machines, then free machines (whole)."""
    if asks[of, ASK_GPUS] == 0:
        return 0.0
    slots = slots_of(free)
    untouched = 0
    for gpu in range(free[at, GPUS]):
        if free[at, FREE + gpu] == total[at, FREE + gpu]:
            untouched += 1
    if untouched == free[at, GPUS]:
        return 33.0 - free[at, GPUS]
    if asks[of, ASK_GPUS] == 1:
        tightest = -1
        for gpu in range(free[at, GPUS]):
            if free[at, FREE + gpu] == total[at, FREE + gpu] or not gpu_admits(
                free, at, slots, gpu, asks, of
            ):
                continue
            if tightest < 0 or free[at, FREE + gpu] < tightest:
                tightest = free[at, FREE + gpu]
        if tightest >= 0:
            return max(50.0, 100.0 - np.floor(tightest / 10.0 / 10.0))
    return max(33.0, 50.0 - asks[of, ASK_GPUS])


@compiled
def _best_fit(free, total, at, asks, of):
    """Leave the least CPU and GPU behind (whole)."""
    cpu = (free[at, CPU] - asks[of, ASK_CPU]) / CPU_SCALE
    gpu = (free_milli(free, at) - asks[of, ASK_GPUS] * asks[of, ASK_MILLI]) / GPU_SCALE
    return np.floor(100.0 * (1.0 - 0.5 * cpu - 0.5 * gpu))


@compiled
def _dot_product(free, total, at, asks, of):
    """Prefer the smallest product of what is free and what is asked (whole)."""
    cpu = free[at, CPU] / CPU_SCALE * asks[of, ASK_CPU] / CPU_SCALE
    gpu = (
        free_milli(free, at) / GPU_SCALE * asks[of, ASK_GPUS] * asks[of, ASK_MILLI] / GPU_SCALE
    )
    return np.floor(100.0 * (1.0 - (cpu + gpu) / 2.0))


@compiled
def _pack(free, total, at, asks, of):
    """Prefer the fullest machine; see ``packing``."""
    return pack_score(free, total, at, asks, of)


@compiled
def score(rule, free, total, at, asks, of, typical, weights):
    """Return the score of one machine under one rule; the caller knows that it has room."""
    if rule == _PACK:
        return _pack(free, total, at, asks, of)
    if rule == _BALANCE:
        return -_utilisation(free, total, at, asks, of)
    if rule == _DOT_PRODUCT:
        return _dot_product(free, total, at, asks, of)
    if rule == _GPU_CLUSTERING:
        return _clustering(free, total, at, asks, of)
    if rule == _GPU_PACKING:
        return _packing(free, total, at, asks, of)
    if rule == _BEST_FIT:
        return _best_fit(free, total, at, asks, of)
    if rule == _FGD:
        return _sigmoid_100(fgd_gain(free, at, asks, of, typical, weights)[0])
    if rule == _PAI_BALANCE:
        return -_pai_utilisation(free, total, at)
    return 0.0
