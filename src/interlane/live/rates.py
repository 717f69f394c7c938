"""How often somebody may do something."""

import time
from collections.abc import Callable, Hashable
from typing import Final

KNOWN_MAX: Final = 10_000
"""Of whom it is remembered how often they came; who came longest ago is forgotten."""


class RateLimit:
    """Lets everybody pass so often in the long run, and a few times more in a row."""

    def __init__(
        self, per_s: float, in_a_row: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._in_a_row = in_a_row
        self._clock = clock
        self._left: dict[Hashable, tuple[float, float]] = {}
        """Who -> how often they may still pass, and when that was so."""

    def wait_s(self, who: Hashable) -> float:
        """Let somebody pass, and return 0; or return after how many seconds they may."""
        now_s = self._clock()
        left = self._now(who, now_s)
        passes = left >= 1.0
        self._left.pop(who, None)
        if len(self._left) >= KNOWN_MAX:
            del self._left[next(iter(self._left))]
        self._left[who] = (left - 1.0 if passes else left, now_s)
        return 0.0 if passes else (1.0 - left) / self._per_s

    def _now(self, who: Hashable, now_s: float) -> float:
        left, at_s = self._left.get(who, (self._in_a_row, now_s))
        return min(self._in_a_row, left + (now_s - at_s) * self._per_s)
