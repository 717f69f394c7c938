"""Wait for what other processes and threads do."""

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 180.0
"""Generous, because machines that run tests are busy; nothing is asserted about speed."""

PAUSE_S = 0.02
PAUSE_S_MAX = 0.25


def until(
    condition: Callable[[], object], what: str = "it", patience_s: float = PATIENCE_S
) -> None:
    """Wait until something is so; who waits for long looks less often, and lets others work."""
    end_s, pause_s = time.monotonic() + patience_s, PAUSE_S
    while not condition():
        if time.monotonic() > end_s:
            raise AssertionError(f"{what} did not come about in {patience_s:g} s.")
        time.sleep(pause_s)
        pause_s = min(PAUSE_S_MAX, pause_s * 1.1)


def is_alive(pid: int) -> bool:
    """Tell whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2]
    except OSError:
        return False
    return state.split()[0] != "Z"


def parent_of(pid: int) -> int:
    """Return the process that a process belongs to."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class AheadClock:
    """Real time, and what a script has let pass besides."""

    def __init__(self, ahead_s: Callable[[], float], at_least_s: float) -> None:
        self._ahead_s = ahead_s
        self._last_s = at_least_s

    def now_s(self) -> float:
        """Return the time, which never goes back."""
        self._last_s = max(self._last_s, time.time() + self._ahead_s())
        return self._last_s
