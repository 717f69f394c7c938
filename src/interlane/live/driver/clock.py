"""The time that events get."""

import time
from typing import Protocol


class Timed(Protocol):
    """What tells the time."""

    def now_s(self) -> float:
        """Return seconds that never go back."""
        ...


class Clock:
    """Real time that never goes back: not when somebody sets the clock, nor over a restart."""

    def __init__(self, at_least_s: float) -> None:
        self._begin_s = max(time.time(), at_least_s)
        self._since_s = time.monotonic()

    def now_s(self) -> float:
        """Return seconds since 1970, or what passes for them."""
        return self._begin_s + time.monotonic() - self._since_s
