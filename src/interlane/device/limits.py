"""What the system allows a daemon: descriptors, and priority."""

import os
import resource
from contextlib import suppress
from typing import Final

from interlane.device.peers import STRANGERS

NICE: Final = -10
SPARE_DESCRIPTORS: Final = 64
DESCRIPTORS_PER_JOB: Final = 5
"""Its connection, its process, its page, its bell and its pipe."""


def room_for_jobs() -> int:
    """Return how many jobs there are descriptors for."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (hard - STRANGERS - SPARE_DESCRIPTORS) // DESCRIPTORS_PER_JOB)


def raise_limits() -> None:
    """Take what the system allows of descriptors and priority.

    Every hand-over waits for this process, so it should not wait for others.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
