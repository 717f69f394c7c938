"""When waiting jobs start: what is known, played forward; bands learn from true starts.

A thread asks about some of the jobs as they come in, at most a small part of the time and not
while very many wait, and compares what was told with what came; so bands are right whether or
not anybody asks.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from interlane.live.driver import Driver
from interlane.live.driver.state import MakeScheduler, holders_first, job_of
from interlane.live.store.record import Record, State
from interlane.model import JobId, Recovered
from interlane.predict.starts import Calibrated, StartBand

PAUSE_S: Final = 5.0
"""Seconds between questions of the thread's own, at least."""

IDLE: Final = 50
"""Times as long as a question took for which the thread then rests."""

PLAYED_MOST: Final = 300
"""With more jobs than this the thread asks nothing: a play of them all would be felt by those
who hand jobs in."""

log = logging.getLogger("interlane.live")


@dataclass(frozen=True, slots=True)
class Known:
    """A job that has not ended, and how long it is guessed to run, as a band."""

    fact: Recovered
    seconds: float
    low_s: float
    high_s: float


class PlayForward(Protocol):
    """Plays what is known forward."""

    def __call__(
        self,
        make: MakeScheduler,
        jobs: Sequence[Known],
        job_ids: Sequence[JobId],
        now_s: float,
    ) -> Mapping[JobId, Sequence[float]]:
        """Return when jobs start in each play, in order, but for those that may never."""
        ...


class Etas:
    """Says when jobs are likely to start."""

    def __init__(self, driver: Driver, play: PlayForward) -> None:
        self._driver = driver
        self._play = play
        self._calibrated = Calibrated()
        self._asked_serial = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="etas", daemon=True)

    def start(self) -> None:
        """Begin to learn."""
        self._thread.start()

    def close(self) -> None:
        """Stop learning."""
        self._closing.set()
        self._thread.join()

    @property
    def awaited(self) -> tuple[JobId, ...]:
        """Jobs whose start will be compared with what was told."""
        return self._calibrated.awaited

    def document(self, record: Record) -> dict[str, Any]:
        """Say when a job is likely to start, as the API shows it."""
        waits, now_s = record.state is State.QUEUED, self._driver.now_s()
        band = self.band(record, now_s) if waits else None
        return {
            "id": record.id,
            "state": record.state.value,
            "started_s": None if waits else record.started_s,
            "now_s": now_s,
            "low_s": band and band.low_s,
            "p50_s": band and band.p50_s,
            "p90_s": band and band.p90_s,
            "high_s": band and band.high_s,
        }

    def band(self, record: Record, now_s: float) -> StartBand | None:
        """Return when a waiting job is likely to start; None if nothing known lets it."""
        return self.bands([record.id], now_s).get(record.id)

    def bands(self, job_ids: Sequence[JobId], now_s: float) -> dict[JobId, StartBand]:
        """Return the same of several jobs, but for those that nothing known lets start."""
        starts_s = self._starts(job_ids, now_s)
        return {one: self._calibrated.band(told, now_s) for one, told in starts_s.items()}

    def _starts(
        self, job_ids: Sequence[JobId], now_s: float
    ) -> Mapping[JobId, Sequence[float]]:
        driver = self._driver
        known = [_known(one, driver) for one in holders_first(driver.open_records())]
        here = {one.fact.job.id for one in known}
        # One that was looked at a moment ago may have ended.
        asked = [one for one in job_ids if one in here]
        return self._play(driver.make_scheduler, known, asked, now_s) if asked else {}

    # -- learning ---------------------------------------------------------------------

    def _watch(self) -> None:
        pause_s = PAUSE_S
        while not self._closing.wait(pause_s):
            begin_s = time.monotonic()
            try:
                self._learn()
                self._ask_about_the_newest()
            except Exception:
                log.exception("A start could not be forecast.")
            pause_s = max(PAUSE_S, IDLE * (time.monotonic() - begin_s))

    def _learn(self) -> None:
        """Compare what was told with what came."""
        for job_id in self.awaited:
            record = self._driver.open_record(job_id) or self._driver.store.job(job_id)
            if record is not None and record.started_s is not None:
                self._calibrated.started(job_id, record.started_s)
            elif record is None or not record.is_open:
                self._calibrated.forget(job_id)

    def _ask_about_the_newest(self) -> None:
        records = self._driver.open_records()
        if len(records) > PLAYED_MOST:
            return
        queued = [one for one in records if one.state is State.QUEUED]
        newest = max(queued, key=lambda one: one.serial, default=None)
        if newest is None or newest.serial <= self._asked_serial:
            return
        self._asked_serial = newest.serial
        now_s = self._driver.now_s()
        starts_s = self._starts([newest.id], now_s).get(newest.id)
        if starts_s is not None:
            self._calibrated.note(newest.id, starts_s, now_s)


def _known(record: Record, driver: Driver) -> Known:
    job = job_of(record, driver.cluster)
    fact = Recovered(job, record.ran_s, record.place, record.started_s or 0.0)
    return Known(fact, record.guess_s, record.low_s, record.high_s)
