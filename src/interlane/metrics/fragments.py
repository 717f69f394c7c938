"""What a kind of instance cannot use of a machine's idle GPU share (FGD, ATC'23, section 3).

One formula for the placers, which look ahead with it, and for the figures, which look back.
"""

from interlane.compiling import compiled
from interlane.tables import (
    FREE,
    GPUS,
    MIXED,
    POOLED,
    TYPES,
    TYPICAL_CPU,
    TYPICAL_GPUS,
    TYPICAL_MILLI,
    TYPICAL_TYPES,
)
from interlane.tables.compiled import free_milli, is_of, slots_of


@compiled
def unusable(free, at, idle, gpus, milli, types):
    """Return the share lost to a kind whose CPU the machine has.

    If ``gpus`` of one of these types with ``milli`` left each are not there, all of ``idle``
    is lost; otherwise what lies on the other GPUs.  GPUs of pooled machines are not told
    apart, so only the sum counts there.
    """
    if types & free[at, TYPES] == 0:
        return idle
    if free[at, POOLED] == 1:
        return idle if idle < gpus * milli else 0
    slots = slots_of(free)
    mixed = free[at, MIXED] == 1
    usable = 0
    slivers = 0
    for gpu in range(free[at, GPUS]):
        share = free[at, FREE + gpu]
        if share >= milli and (not mixed or is_of(free, at, slots, gpu, types)):
            usable += 1
        elif share > 0:  # others may have taken more than was free
            slivers += share
    return slivers if usable >= gpus else idle


@compiled
def lost_to(free, at, idle, cpu, typical, kind):
    """Return the idle share that one kind of instance cannot use, with so much CPU free."""
    gpus = typical[kind, TYPICAL_GPUS]
    if gpus == 0 or cpu < typical[kind, TYPICAL_CPU]:
        return idle
    milli, types = typical[kind, TYPICAL_MILLI], typical[kind, TYPICAL_TYPES]
    return unusable(free, at, idle, gpus, milli, types)


@compiled
def fragments(free, at, cpu, typical, weights):
    """Return the idle GPU share that typical demands cannot use here.

    For a kind whose type or CPU is not here that is all of it.
    """
    idle = free_milli(free, at)
    if idle <= 0:
        return 0.0
    lost = 0.0
    for kind in range(typical.shape[0]):
        lost += weights[kind] * lost_to(free, at, idle, cpu, typical, kind)
    return lost
