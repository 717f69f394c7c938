"""How much of the devices was used, as seen every few seconds while the server runs."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from interlane.live.view import View

EVERY_S: Final = 5.0
KEPT: Final = int(86_400 / EVERY_S)


class Usage:
    """Looks at the devices, and remembers a day of it."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._seen: deque[tuple[float, float]] = deque(maxlen=KEPT)

    async def follow(self) -> None:
        """Look again and again."""
        while True:
            busy = await asyncio.to_thread(self._busy)
            if busy is not None:
                self._seen.append((self._view.now_s(), busy))
            await asyncio.sleep(EVERY_S)

    @property
    def now(self) -> float | None:
        """The share of all devices' time that was used of late; None while nobody knows."""
        if not self._seen or self._view.now_s() - self._seen[-1][0] > 3 * EVERY_S:
            return None
        return self._seen[-1][1]

    def since(self, since_s: float) -> tuple[Sequence[float], Sequence[float]]:
        """Return moments, and the share that was used then."""
        found = [one for one in self._seen if one[0] >= since_s]
        return [at_s for at_s, _ in found], [busy for _, busy in found]

    def _busy(self) -> float | None:
        known = [one.busy for one in self._view.devices() if one.busy is not None]
        return sum(known) / len(known) if known else None
