"""What changes a machine's row, and the questions about it that figures ask too; compiled."""

from interlane.compiling import compiled, inlined
from interlane.model.units import MILLI
from interlane.tables import (
    ASK_CPU,
    ASK_GPU_MEMORY,
    ASK_GPUS,
    ASK_MEMORY,
    ASK_MILLI,
    AT_ASK,
    AT_INSTANCES,
    AT_MACHINE,
    AT_MASK,
    CPU,
    FREE,
    GPUS,
    KIND,
    MEMORY,
    POOLED,
)


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


@compiled
def free_milli(free, at):
    """Return the free GPU share of the machine."""
    total = 0
    for gpu in range(free[at, GPUS]):
        total += free[at, FREE + gpu]
    return total


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
def change_rows(free, asks, out, begin, end, sign):
    """Take (``sign`` 1) or give back (-1) what placement rows ``begin`` to ``end`` hold."""
    for index in range(begin, end):
        machine, of, mask = out[index, AT_MACHINE], out[index, AT_ASK], out[index, AT_MASK]
        change(free, machine, asks, of, mask, sign * out[index, AT_INSTANCES])
