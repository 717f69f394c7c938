"""Looks at everything through the engine, again and again, in a thread of its own.

What the engine reported and the driver lost, or the engine never reported, is made good by
the next observation.
"""

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final

from interlane.live.driver.inbox import Observed
from interlane.live.port import Attempt, Engine, Observation, Pending

EVERY_S: Final = 30.0
AGAIN_S: Final = 1.0
"""Seconds until the next try when a look has failed."""
SOON_S: Final = 2.0
"""Seconds until the next look while another server is about to let go of an attempt."""

log = logging.getLogger("interlane.live")


class Observer:
    """See the module's text."""

    def __init__(
        self,
        engine: Engine,
        known: Callable[[], Collection[Attempt]],
        put: Callable[[Observed], None],
        every_s: float = EVERY_S,
    ) -> None:
        self._engine = engine
        self._known = known
        self._put = put
        self._every_s = self._pause_s = every_s
        self._asked = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        """Begin; the first look comes after a while unless it is asked for."""
        self._thread.start()

    def saw(self, seen: Observation) -> None:
        """Look again soon if somebody else is about to let go of an attempt."""
        ours = ("", self._engine.traits.holder)
        is_awaited = any(
            isinstance(one, Pending) and one.attempt.holder not in ours for one in seen.attempts
        )
        self._pause_s = SOON_S if is_awaited else self._every_s

    def ask(self) -> None:
        """Ask for a look as soon as can be."""
        self._asked.set()

    def close(self) -> None:
        """Stop looking."""
        self._closing = True
        self._asked.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._asked.wait(self._pause_s)
            self._asked.clear()
            if self._closing:
                return
            try:
                seen = self._engine.observe(self._known())
                self.saw(seen)
                self._put(Observed(seen))
            except Exception as error:  # whatever it is, jobs count on the next look
                log.warning("The engine could not be looked at: %s", error)
                self._pause_s = AGAIN_S
