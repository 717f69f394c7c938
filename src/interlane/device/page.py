"""A page of memory that the daemon and one job share, so that an iteration costs no message.

The daemon writes some words, which the job reads at boundaries; the job writes the others.
Each word has one writer and is written whole, so neither side waits for the other.  A job has
a page of its own: what it scribbles there misleads nobody but itself.
"""

import fcntl
import mmap
import os
from typing import Final

# Where a number lies in the page; each is a word of 64 bits.  The daemon writes:
REVOKE: Final = 0
"""The newest epoch that must be given back at its next boundary."""
WANTED: Final = 1
"""How many others wait for this lane."""
LIMIT_BYTES: Final = 2
"""How much memory the job may have; 0: it is not limited."""
TRIMS: Final = 3
"""Whether cached memory is to be given back with the lease; others need the room."""
SUCCESSOR: Final = 4
"""Epoch of the lease that the holder may pass on; 0: of none."""
TOLD: Final = 5
"""How many HEIR frames were sent; the latest has the pipe of the successor."""
STILL_NS: Final = 6
"""When the iteration began in which nothing has run for long; 0: in none."""
ASKED: Final = 7
"""How often it was asked what the job holds, iterations or not."""

# The job writes:
BEGAN_NS: Final = 8
"""When the current iteration began, on the machine's monotonic clock; 0: outside of one."""
BOUNDARY_NS: Final = 9
"""When the last iteration ended."""
ITERATIONS: Final = 10
"""Iterations so far: the heartbeat."""
BUSY_NS: Final = 11
"""Time inside iterations so far."""
TAKEN_NS: Final = 12
"""When the first iteration of the present lease began."""
EPOCH: Final = 13
"""Of the last lease that the job took up."""
GAVE_NS: Final = 14
"""When the job began to give its last lease up."""
PASSED: Final = 15
"""Epoch of the latest successor to which the job passed its lane."""
FIRST_NS: Final = 16
"""How long that iteration took; 0: it is not over, or nobody waited."""
WAITED_NS: Final = 17
"""Time in which the job had an iteration to run and no lease so far."""
ADMITTED_NS: Final = 18
"""When the job was first admitted, whichever daemon did it."""
USED_BYTES: Final = 19
"""What it had in use when it last looked, at the end of an iteration."""
PEAK_BYTES: Final = 20
"""The most that it had in use before that, since it was last measured; 0: it has not looked."""

PAGE_BYTES: Final = mmap.PAGESIZE


class SharedPage:
    """One side's view of a shared page."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self.words: memoryview = memoryview(memory).cast("Q")

    def close(self) -> None:
        """Unmap the page."""
        self.words.release()
        self._memory.close()


def make_page() -> tuple[SharedPage, int]:
    """Return a page, and a descriptor of it to pass on and close.

    The file is sealed at its size: a job that cut it short could otherwise kill the daemon,
    which would touch memory that is no longer there.
    """
    descriptor = os.memfd_create("interlane-page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, PAGE_BYTES)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        return map_page(descriptor), descriptor
    except BaseException:
        os.close(descriptor)
        raise


def map_page(descriptor: int) -> SharedPage:
    """Return the page behind a descriptor."""
    return SharedPage(mmap.mmap(descriptor, PAGE_BYTES))
