"""The score of the default placer, written to be inlined into the kernel's scoring loop.

Prefer the machine whose tightest fitting GPU has the least left over, then the one with the
least free GPU share, then the least free CPU and memory.
"""

from interlane.model.units import MILLI
from interlane.policy.rows import (
    ASK_GPU_MEMORY,
    ASK_GPUS,
    ASK_MILLI,
    CPU,
    FREE,
    GPUS,
    MEMORY,
    POOLED,
    inlined,
)


@inlined
def pack_score(free, total, at, asks, of):
    """Return how full the machine is for this ask; the fullest wins."""
    slots = (free.shape[1] - FREE) // 2
    shares = asks[of, ASK_GPUS] == 1 and free[at, POOLED] == 0
    milli = asks[of, ASK_MILLI]
    left = MILLI if shares else 0
    idle = 0
    for gpu in range(free[at, GPUS]):
        here = free[at, FREE + gpu]
        idle += here
        fits = here >= milli and free[at, FREE + slots + gpu] >= asks[of, ASK_GPU_MEMORY]
        if shares and fits and here - milli < left:
            left = here - milli
    rate = free[at, CPU] / max(total[at, CPU], 1) + free[at, MEMORY] / max(total[at, MEMORY], 1)
    # Work without GPUs goes where it blocks the fewest of them, whatever is left over.
    return -100_000.0 * left - idle - 0.25 * rate
