"""The score of the default placer, written to be inlined into the kernel's loops.

Prefer the machine whose tightest fitting GPU has the least left over, then the one with the
least idle GPU share, then the least free CPU and memory.  Scores are whole numbers (in a
float that holds them exactly), so that the row of a machine and its brief give the same one.
"""

from typing import Final

import numpy as np

from interlane.compiling import inlined
from interlane.model.units import MILLI
from interlane.policy.rows import FULLNESS_TIE, admits, free_rate
from interlane.tables import ABSENT, ASK_GPUS, ASK_MILLI, FREE, GPUS, POOL, POOLED

_LEFT: Final = 100_000 * FULLNESS_TIE
"""A thousandth left over counts as much as 100 idle GPUs."""


@inlined
def pack_score(free, total, at, asks, of):
    """Return how full the machine is for this ask; the fullest wins."""
    slots = (free.shape[1] - FREE) // 3
    shares = asks[of, ASK_GPUS] == 1 and free[at, POOLED] == 0
    milli = asks[of, ASK_MILLI]
    left = MILLI if shares else 0
    idle = 0
    for gpu in range(free[at, GPUS]):
        here = free[at, FREE + gpu]
        idle += here
        if shares and admits(free, at, slots, gpu, asks, of) and here - milli < left:
            left = here - milli
    # Work without GPUs goes where it blocks the fewest of them, whatever is left over.
    return -np.float64(left * _LEFT + idle * FULLNESS_TIE + free_rate(free, total, at))


@inlined
def left_over(free, at, asks, of):
    """Return what the tightest GPU that fits would have left; 0 unless one GPU is shared."""
    slots = (free.shape[1] - FREE) // 3
    milli = asks[of, ASK_MILLI]
    if asks[of, ASK_GPUS] != 1 or free[at, POOLED] == 1:
        return 0
    left = MILLI
    for gpu in range(free[at, GPUS]):
        here = free[at, FREE + gpu]
        if admits(free, at, slots, gpu, asks, of) and here - milli < left:
            left = here - milli
    return left


@inlined
def left_in_brief(shares, at, milli):
    """Return what the tightest GPU that has the share would have left; too much if none has."""
    if shares[at, 0] == POOL:
        return 0
    left = MILLI
    for gpu in range(shares.shape[1]):
        rest = shares[at, gpu] - milli
        if 0 <= rest < left:
            left = rest
        elif shares[at, gpu] == ABSENT:
            break
    return left


@inlined
def looseness(brief, shares, at, milli, full):
    """Return the score's opposite from the brief; ``milli`` is 0 unless one GPU is shared.

    ``full`` is the machine's fullness.  The brief knows no GPU memory, so that the machine may
    be looser than this or not fit at all, but never tighter.
    """
    return full if milli == 0 else left_in_brief(shares, at, milli) * _LEFT + full
