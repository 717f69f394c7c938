"""When waiting jobs are likely to start, as often as it can be afforded to ask.

Playing the machine forward costs a second where a thousand jobs wait; so what was found is
kept for a while, the longer the more it cost, and nobody plays while nobody looks.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from interlane.live.view import View
from interlane.model import JobId
from interlane.predict.starts import StartBand

OPEN_MAX: Final = 2_000
"""With more open jobs than this, only a job's own page says when it may start."""

KEPT_S: Final = 5.0
REST: Final = 20.0
"""Seconds of rest for each second of playing."""

ASKED_MAX: Final = 16
"""Questions whose answers are kept."""


@dataclass(frozen=True, slots=True)
class _Answer:
    bands: Mapping[JobId, StartBand]
    good_until_s: float


@dataclass
class Starts:
    """Plays forward, now and then."""

    view: View
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _answers: dict[tuple[JobId, ...], _Answer] = field(default_factory=dict)

    def bands(self, job_ids: Sequence[JobId]) -> Mapping[JobId, StartBand]:
        """Return when jobs are likely to start, as found lately; takes its time."""
        if len(self.view.open_jobs()) > OPEN_MAX and len(job_ids) > 1:
            return {}
        asked = tuple(job_ids)
        with self._lock:
            known = self._answers.get(asked)
            if known is None or time.monotonic() > known.good_until_s:
                self._answers.pop(asked, None)
                while len(self._answers) >= ASKED_MAX:
                    del self._answers[next(iter(self._answers))]
                known = self._answers[asked] = self._found(asked)
            return known.bands

    def _found(self, asked: Sequence[JobId]) -> _Answer:
        begin_s = time.thread_time()
        bands = self.view.starts(asked)
        spent_s = time.thread_time() - begin_s
        return _Answer(bands, time.monotonic() + max(KEPT_S, REST * spent_s))
