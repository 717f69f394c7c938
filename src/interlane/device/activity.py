"""What a process does with the processor, seen from outside of it.

A process that waits, for people, for data or for another, uses next to no processor time.  On
a machine that others load, so does one that computes; but that one is taken off its core before
it is done, and waits for the next one.  A process that wakes up now and then also waits for a
core each time, but leaves it by itself.  So what was waited for a core counts as far as the
process was made to leave it.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STILL: Final = 0.1
"""Part of a core below which a process does nothing to speak of."""
MOST_ANCESTORS: Final = 64
_PROC: Final = Path("/proc")
_RUNNABLE: Final = frozenset("RD")
_STOPPED: Final = frozenset("Tt")
_PROCESS_CLOCK: Final = 2
"""In the number of a clock: the time that a whole process has had on cores."""


@dataclass(frozen=True, slots=True)
class Activity:
    """A process at a moment."""

    at_s: float
    ran_s: float
    """Time on cores so far."""
    queued_s: float = 0.0
    """Time in which its threads waited for one."""
    left: int = 0
    """How often they left a core by themselves."""
    taken_off: int = 0
    """How often they were made to."""
    is_runnable: bool = False
    """Whether a thread runs or waits for a core, or for a disk."""
    is_stopped: bool = False

    def wanted_since(self, before: "Activity") -> float:
        """Return the time on cores that the process wanted since then."""
        taken_off = max(0, self.taken_off - before.taken_off)
        switches = taken_off + max(0, self.left - before.left)
        queued_s = max(0.0, self.queued_s - before.queued_s)
        return self.ran_s - before.ran_s + queued_s * taken_off / max(1, switches)

    def is_still_since(self, before: "Activity") -> bool:
        """Tell whether nothing to speak of has run since then, though it could have."""
        starves = before.is_runnable and self.is_runnable and self.ran_s == before.ran_s
        wanted = self.wanted_since(before) / max(self.at_s - before.at_s, 1e-9)
        return not (self.is_stopped or starves) and wanted < STILL


def activity_of(pid: int) -> Activity | None:
    """Return what a process does; None where that cannot be seen."""
    queued_ns, left, taken_off, states = 0, 0, 0, set()
    try:
        ran_s = time.clock_gettime(~pid << 3 | _PROCESS_CLOCK)
        with os.scandir(_PROC / str(pid) / "task") as threads:
            for thread in threads:
                queued_ns += int(_text(thread, "schedstat").split()[1])
                words = dict(
                    line.split(":", 1) for line in _text(thread, "status").splitlines()
                )
                left += int(words["voluntary_ctxt_switches"])
                taken_off += int(words["nonvoluntary_ctxt_switches"])
                states.add(words["State"].split()[0])
    except (OSError, ValueError, LookupError):
        return None
    return Activity(
        time.monotonic(),
        ran_s,
        queued_ns / 1e9,
        left,
        taken_off,
        is_runnable=not states.isdisjoint(_RUNNABLE),
        is_stopped=states.issubset(_STOPPED),
    )


def ancestors_of(pid: int) -> frozenset[int]:
    """Return the processes that a process descends from, as far as they live."""
    found: list[int] = []
    while len(found) < MOST_ANCESTORS:
        try:
            text = (_PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            break
        pid = int(text.rpartition(")")[2].split()[1])
        if not pid:
            break
        found.append(pid)
    return frozenset(found)


def _text(thread: os.DirEntry[str], file: str) -> str:
    return Path(thread.path, file).read_text(encoding="ascii", errors="replace")
