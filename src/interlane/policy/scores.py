"""How good a machine is for a demand: the scoring rules of the placers, compiled.

Each rule maps one machine's row (see ``rows``), its totals and one ask to a number; the
machine with the highest number wins, and the first in cluster order on ties.  Rules marked
*whole* drop fractions, because the published programs score in whole numbers and their
results hinge on the ties that this makes ("Beware of Fragmentation", ATC'23; the tie rule is
the smallest node name in the authors' scheduler).

A *blend* adds up prices that the policy sets (``base.Terms``), so that pieces of policies can
be put together without a rule of their own.

The fragmentation rules know the *typical demands* of the workload: one row of ``typical`` a
kind (GPUS, MILLI, CPU, TYPES) and its weight in ``weights``.  ``knowledge`` appends to the
weights whatever else a rule derives from them once.
"""

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.compiling import compiled, inlined
from interlane.metrics.fragments import fragments
from interlane.model.units import MILLI
from interlane.policy.contention import slowdown
from interlane.policy.packing import left_in_brief, left_over, looseness, pack_score
from interlane.policy.rows import (
    ALLOCATED,
    TIGHTEST,
    allocation,
    choose_gpus,
    fullness,
    gpu_admits,
)
from interlane.tables import (
    ASK_CPU,
    ASK_GPUS,
    ASK_MILLI,
    BRIEF_ALLOCATED,
    BRIEF_HAS,
    BRIEF_IDLE,
    BRIEF_TYPE,
    CPU,
    FREE,
    GPUS,
    KIND,
    KINDS,
    MIXED,
    POOLED,
    TYPE,
    TYPES,
    TYPICAL_CPU,
    TYPICAL_GPUS,
    TYPICAL_MILLI,
    TYPICAL_TYPES,
)
from interlane.tables.compiled import free_milli, is_of, kind_of, slots_of

Table = NDArray[np.int64]
Weights = NDArray[np.float64]


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
    LOOKAHEAD = 10
    BLEND = 11


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
_LOOKAHEAD: Final = int(Score.LOOKAHEAD)
_BLEND: Final = int(Score.BLEND)

# What a blend knows, in the place of the weights: prices, then two columns by type bit.
BLEND_TIGHT: Final = 0
BLEND_FILL: Final = 1
BLEND_BALANCE: Final = 2
BLEND_MATCH: Final = 3
BLEND_CONTENTION: Final = 4
BLEND_CORES: Final = 5
BLEND_DEAR: Final = 6
BLEND_LEVEL: Final = BLEND_DEAR + 64
BLEND_WIDTH: Final = BLEND_LEVEL + 64

_ROUNDING: Final = 1e-6
"""By how much a sum of prices may be off, and more."""

CPU_SCALE: Final = 128_000.0
"""The FGD authors normalise CPU by 128 cores ..."""

GPU_SCALE: Final = 8_000.0
"""... and GPU by 8 cards."""

ARRIVALS: Final = 30
"""Lookahead: how many arrivals may pass before a hole has to be filled."""

HOLE_WEIGHT: Final = 20.0
"""Lookahead: what a thousandth lost in a hole counts, one lost on a machine counting 1.

Holes are for ever while a shortage of CPU may yet be avoided, so they come first; results
hardly differ from 20 to 40."""

TILT_MILLI: Final = 2000.0
"""Lookahead: what the machine that fills last is behind the one that fills first."""

_GOLDEN: Final = 0.6180339887498949
"""Multiples of it, modulo 1, lie evenly however many consecutive ones are taken."""


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
def _seen_before(free, at, slots, gpu, asks, of):
    """Return whether an earlier GPU of the type that admits the ask has as much left."""
    for earlier in range(gpu):
        alike = (
            free[at, FREE + earlier] == free[at, FREE + gpu]
            and free[at, FREE + 2 * slots + earlier] == free[at, FREE + 2 * slots + gpu]
        )
        if alike and gpu_admits(free, at, slots, earlier, asks, of):
            return True
    return False


@compiled
def fgd_choice(free, at, asks, of, typical, weights):
    """Return (score, GPU) of the best way to place one instance here.

    The GPU is meaningful for an instance that uses a single one; first on ties, which are
    ties of whole scores here as well.
    """
    cpu_after = free[at, CPU] - asks[of, ASK_CPU]
    before = fragments(free, at, free[at, CPU], typical, weights)
    if asks[of, ASK_GPUS] == 0:
        return _sigmoid_100(before - fragments(free, at, cpu_after, typical, weights)), -1
    if asks[of, ASK_GPUS] > 1 or free[at, POOLED] == 1:
        after = _after_whole(free, at, asks, of, cpu_after, typical, weights)
        return _sigmoid_100(before - after), -1
    slots = slots_of(free)
    best = -np.inf
    best_gpu = -1
    for gpu in range(free[at, GPUS]):
        # GPUs with as much left give the same score, and the sums are dear: one will do.
        if not gpu_admits(free, at, slots, gpu, asks, of) or _seen_before(
            free, at, slots, gpu, asks, of
        ):
            continue
        # Tried in place and put back: a copy of the row would cost more than the sums.
        free[at, FREE + gpu] -= asks[of, ASK_MILLI]
        here = _sigmoid_100(before - fragments(free, at, cpu_after, typical, weights))
        free[at, FREE + gpu] += asks[of, ASK_MILLI]
        if here > best:
            best = here
            best_gpu = gpu
    return best, best_gpu


@compiled
def hole_losses(typical, weights, arrivals):
    """Return, for every free share of a GPU, how much of it will stay unused.

    A hole of f thousandths waits for the next ``arrivals`` instances, takes the one that
    lets the most of it be used in the end, and what remains is a smaller hole:

        used(f) = E[ max over the arrivals with m <= f of  m + used(f - m) ]

    where none that fits means that nothing is used.  With one arrival and no second step
    this is FGD's view of a single GPU; with endlessly many, it is the best filling there is.
    """
    kinds = typical.shape[0]
    wanting = 0.0
    for kind in range(kinds):
        if typical[kind, TYPICAL_GPUS] > 0:
            wanting += weights[kind]
    used = np.zeros(MILLI + 1)
    values = np.zeros(kinds)
    for hole in range(1, MILLI + 1):
        for kind in range(kinds):
            milli = typical[kind, TYPICAL_MILLI]
            fits = typical[kind, TYPICAL_GPUS] > 0 and milli <= hole
            values[kind] = milli + used[hole - milli] if fits else 0.0
        # The best of several draws is at least v unless all draws are below v.
        better = 0.0
        none_better = 1.0
        for kind in np.argsort(-values):
            if values[kind] == 0.0:
                break
            better += weights[kind] / wanting
            none_so_good = max(0.0, 1.0 - better) ** arrivals
            used[hole] += values[kind] * (none_better - none_so_good)
            none_better = none_so_good
    return np.arange(MILLI + 1) - used


@compiled
def out_of_reach(free, at, cpu, typical, weights):
    """Return the idle GPU share that typical demands cannot use here, CPU counted out.

    As ``fragments``, except that a kind can use no more GPU than the machine's CPU lasts
    for: ten cores beside eight idle GPUs serve one instance that asks for eight cores, not
    eight.  Kinds without GPUs would add the same everywhere and are left out.
    """
    slots = slots_of(free)
    idle = free_milli(free, at)
    if idle <= 0:
        return 0.0
    lost = 0.0
    for kind in range(typical.shape[0]):
        gpus = typical[kind, TYPICAL_GPUS]
        if gpus == 0:
            continue
        milli = typical[kind, TYPICAL_MILLI]
        cores = typical[kind, TYPICAL_CPU]
        types = typical[kind, TYPICAL_TYPES]
        if cpu < cores or types & free[at, TYPES] == 0:
            lost += weights[kind] * idle
            continue
        fitting = 0
        usable = 0
        for gpu in range(free[at, GPUS]):
            if free[at, FREE + gpu] >= milli and (
                free[at, MIXED] == 0 or is_of(free, at, slots, gpu, types)
            ):
                fitting += 1
                usable += free[at, FREE + gpu]
        if free[at, POOLED] == 1:
            fitting = idle // milli  # its one wide GPU stands for all
        if fitting < gpus:
            lost += weights[kind] * idle
        elif cores > 0:
            lost += weights[kind] * (idle - min(float(usable), cpu / cores * gpus * milli))
        else:
            lost += weights[kind] * (idle - usable)
    return lost


@compiled
def _hole_loss(free_milli, typical, weights):
    """Return what of a GPU's free share will stay unused, as ``knowledge`` has found."""
    return weights[typical.shape[0] + free_milli]


@compiled
def _after_several(free, at, asks, of, cpu, typical, weights):
    """Return (out of reach, lost in holes) after an ask took several GPUs."""
    rng = np.zeros(1, np.uint64)  # never drawn from: the tightest are chosen
    mask = choose_gpus(free, at, asks, of, TIGHTEST, rng)
    milli = asks[of, ASK_MILLI]
    in_holes = 0.0
    for gpu in range(free[at, GPUS]):
        if (mask >> gpu) & 1:
            in_holes -= _hole_loss(free[at, FREE + gpu], typical, weights)
            free[at, FREE + gpu] -= milli
            in_holes += _hole_loss(free[at, FREE + gpu], typical, weights)
    lost = out_of_reach(free, at, cpu, typical, weights)
    for gpu in range(free[at, GPUS]):
        if (mask >> gpu) & 1:
            free[at, FREE + gpu] += milli
    return lost, in_holes


@compiled
def lookahead_choice(free, at, asks, of, typical, weights):
    """Return (score, GPU) of the best way to place one instance here.

    The score is the fall of what is out of reach, less what is newly lost in holes, less
    the machine's place in the fixed order in which machines fill.
    """
    tilt = TILT_MILLI * ((at * _GOLDEN) % 1.0)
    cpu_after = free[at, CPU] - asks[of, ASK_CPU]
    before = out_of_reach(free, at, free[at, CPU], typical, weights) - tilt
    gpus = asks[of, ASK_GPUS]
    milli = asks[of, ASK_MILLI]
    if gpus == 0:
        return before - out_of_reach(free, at, cpu_after, typical, weights), -1
    if free[at, POOLED] == 1:
        free[at, FREE] -= gpus * milli
        after = out_of_reach(free, at, cpu_after, typical, weights)
        free[at, FREE] += gpus * milli
        return before - after, -1
    if gpus > 1:
        after, in_holes = _after_several(free, at, asks, of, cpu_after, typical, weights)
        return before - after - HOLE_WEIGHT * in_holes, -1
    slots = slots_of(free)
    best = -np.inf
    best_gpu = -1
    for gpu in range(free[at, GPUS]):
        if not gpu_admits(free, at, slots, gpu, asks, of) or _seen_before(
            free, at, slots, gpu, asks, of
        ):
            continue
        hole = free[at, FREE + gpu]
        free[at, FREE + gpu] = hole - milli
        after = out_of_reach(free, at, cpu_after, typical, weights)
        free[at, FREE + gpu] = hole
        in_holes = _hole_loss(hole - milli, typical, weights) - _hole_loss(
            hole, typical, weights
        )
        here = before - after - HOLE_WEIGHT * in_holes
        if here > best:
            best = here
            best_gpu = gpu
    return best, best_gpu


def knowledge(rule: Score, typical: Table, weights: Weights) -> Weights:
    """Return the weights of the typical demands with what the rule derives from them."""
    if rule is not Score.LOOKAHEAD:
        return weights
    losses: Weights = hole_losses(typical, weights, float(ARRIVALS))
    return np.concatenate([weights, losses])


@compiled
def chosen_gpu(rule, free, at, asks, of, typical, weights):
    """Return the GPU that the rule itself picks for an instance of one GPU, or -1."""
    if rule == _FGD:
        return fgd_choice(free, at, asks, of, typical, weights)[1]
    if rule == _LOOKAHEAD:
        return lookahead_choice(free, at, asks, of, typical, weights)[1]
    return -1


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
    """Score machines that already host this kind of task highest (whole).

    The steps of 25 keep the four cases apart, whatever the last term, at most 25, adds.
    """
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
def _without_cpu(gpu_milli, cpu, cores):
    """Return the idle GPU share for which the CPUs do not last."""
    return max(0.0, gpu_milli - cpu / cores)


@compiled
def _blend(free, total, at, asks, of, weights):
    """Add up the prices of ``base.Terms``; the lowest sum wins."""
    kind = free[at, TYPE]
    idle = free_milli(free, at)
    level = weights[BLEND_LEVEL + kind]
    price = weights[BLEND_DEAR + kind]
    if level != 0.0:
        # Machines that are kept level are compared by allocation alone, not by tightness.
        price += level * allocation(free, total, at)
    else:
        has = free_milli(total, at)
        price += weights[BLEND_BALANCE] * allocation(free, total, at)
        price += weights[BLEND_TIGHT] * left_over(free, at, asks, of) / MILLI
        price += weights[BLEND_FILL] * (idle / has if has > 0 else 0.0)
    cpu_after = free[at, CPU] - asks[of, ASK_CPU]
    if weights[BLEND_MATCH] > 0.0:
        idle_after = idle - asks[of, ASK_GPUS] * asks[of, ASK_MILLI]
        after = _without_cpu(idle_after, cpu_after, weights[BLEND_CORES])
        before = _without_cpu(idle, free[at, CPU], weights[BLEND_CORES])
        price += weights[BLEND_MATCH] * (after - before) / MILLI
    if weights[BLEND_CONTENTION] > 0.0:
        price += weights[BLEND_CONTENTION] * slowdown(cpu_after / max(total[at, CPU], 1))
    return -price


@inlined
def _blend_at_best(brief, shares, at, asks, of, weights):
    """Return the least that ``_blend`` may charge, by what the brief knows."""
    kind = brief[BRIEF_TYPE, at]
    level = weights[BLEND_LEVEL + kind]
    price = weights[BLEND_DEAR + kind] - _ROUNDING
    if level != 0.0:
        price += level * brief[BRIEF_ALLOCATED, at] / ALLOCATED
    else:
        price += weights[BLEND_BALANCE] * brief[BRIEF_ALLOCATED, at] / ALLOCATED
        if asks[of, ASK_GPUS] == 1:
            left = left_in_brief(shares, at, asks[of, ASK_MILLI])
            price += weights[BLEND_TIGHT] * left / MILLI
        price += weights[BLEND_FILL] * brief[BRIEF_IDLE, at] / max(brief[BRIEF_HAS, at], 1)
    # An instance may at best take all its GPUs from those that lack CPUs.
    return price - weights[BLEND_MATCH] * asks[of, ASK_GPUS] * asks[of, ASK_MILLI] / MILLI


@inlined
def is_brief(rule):
    """Return whether ``at_best`` says anything about machines under this rule."""
    return rule in (_PACK, _BALANCE, _BLEND)


@inlined
def at_best(rule, brief, shares, at, asks, of, weights):
    """Return a score that the machine's own cannot exceed, by what the brief knows."""
    if rule == _BALANCE:
        return -brief[BRIEF_ALLOCATED, at] / ALLOCATED
    if rule == _BLEND:
        return -_blend_at_best(brief, shares, at, asks, of, weights)
    milli = asks[of, ASK_MILLI] if asks[of, ASK_GPUS] == 1 else 0
    return -np.float64(looseness(brief, shares, at, milli, fullness(brief, at)))


@compiled
def score(rule, free, total, at, asks, of, typical, weights):
    """Return the score of one machine under one rule; the caller knows that it has room."""
    if rule == _PACK:
        return _pack(free, total, at, asks, of)
    if rule == _BALANCE:
        return -allocation(free, total, at)
    if rule == _DOT_PRODUCT:
        return _dot_product(free, total, at, asks, of)
    if rule == _GPU_CLUSTERING:
        return _clustering(free, total, at, asks, of)
    if rule == _GPU_PACKING:
        return _packing(free, total, at, asks, of)
    if rule == _BEST_FIT:
        return _best_fit(free, total, at, asks, of)
    if rule == _FGD:
        return fgd_choice(free, at, asks, of, typical, weights)[0]
    if rule == _LOOKAHEAD:
        return lookahead_choice(free, at, asks, of, typical, weights)[0]
    if rule == _PAI_BALANCE:
        return -_pai_utilisation(free, total, at)
    if rule == _BLEND:
        return _blend(free, total, at, asks, of, weights)
    return 0.0
