"""When waiting jobs are likely to start, for all of them at once.

Playing the machine forward costs a second where a thousand jobs wait; so what was found is
kept for a while, the longer the more it cost, and nobody plays while nobody looks.
"""

import threading
import time
from collections.abc import Mapping
from typing import Final

from interlane.model import JobId
from interlane.server.driver import Driver
from interlane.server.whatif import known_jobs
from interlane.sim.forward import Expected, StartBand, start_bands

OPEN_MAX: Final = 2_000
"""With more open jobs than this, only a job's own page says when it may start."""

KEPT_S: Final = 5.0
REST: Final = 20.0
"""Seconds of rest for each second of playing."""

STALE_S: Final = 60.0
"""Seconds after which time alone has changed what is likely."""


class Starts:
    """Plays forward, now and then."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._bands: Mapping[JobId, StartBand] = {}
        self._good_until_s = 0.0
        self._seq = -1

    def bands(self) -> Mapping[JobId, StartBand]:
        """Return when each job is likely to start, as found lately; takes its time."""
        with self._lock:
            seq = self._driver.store.ends().seq
            over_s = time.monotonic() - self._good_until_s
            if over_s > STALE_S or (over_s > 0 and seq != self._seq):
                begin_s = time.thread_time()
                self._bands, self._seq = self._played(), seq
                spent_s = time.thread_time() - begin_s
                self._good_until_s = time.monotonic() + max(KEPT_S, REST * spent_s)
            return self._bands

    def _played(self) -> Mapping[JobId, StartBand]:
        if len(self._driver.open_records()) > OPEN_MAX:
            return {}
        known = known_jobs(self._driver)
        expected = [Expected(one.fact, one.seconds, one.low_s, one.high_s) for one in known]
        return start_bands(self._driver.make_scheduler, expected, self._driver.now_s())
