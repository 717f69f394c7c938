"""What a kind of instance cannot use of a machine's idle GPU share (FGD, ATC'23, section 3).

One leaf for the placers, which look ahead with it, and for the figures, which look back.
"""

from interlane.compiling import compiled


@compiled
def unusable(free, at, first, gpus, pooled, idle, wanted, milli):
    """Return the share lost to a kind whose type and CPU the machine has.

    ``free[at]`` holds the machine's GPUs from column ``first`` on.  If ``wanted`` GPUs of
    ``milli`` each are not there, all of ``idle`` is lost; otherwise what lies on GPUs with
    less left.  GPUs of pooled machines are not told apart, so only the sum counts there.
    """
    if pooled:
        return idle if idle < wanted * milli else 0
    usable = 0
    slivers = 0
    for gpu in range(first, first + gpus):
        if free[at, gpu] >= milli:
            usable += 1
        elif free[at, gpu] > 0:  # others may have taken more than was free
            slivers += free[at, gpu]
    return slivers if usable >= wanted else idle
