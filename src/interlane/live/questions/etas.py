"""When waiting jobs start: what is known, played forward; bands learn from true starts.

A play costs seconds where thousands wait, and tells of all of them.  So there is one at a time,
and what it found is kept for a while, the longer the more it cost, for all who ask.

A thread asks about some of the jobs as they come in, at most a small part of the time and not
while very many wait, and compares what was told with what came; so bands are right whether or
not anybody asks.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from interlane.kernel.scheduler import Scheduler
from interlane.live.driver.state import Snapshot, holders_first
from interlane.live.store.record import JobRecord
from interlane.live.store.store import Store
from interlane.model import JobId, Recovered
from interlane.model.lifecycle import JobState
from interlane.predict.starts import Calibrated, StartBand

PAUSE_S: Final = 5.0
"""Seconds between questions of the thread's own, at least."""

IDLE: Final = 50
"""Times as long as a question took for which the thread then rests."""

PLAYED_MOST: Final = 300
"""With more jobs than this the thread asks nothing: a play of them all would be felt by those
who hand jobs in."""

KEPT_S: Final = 1.0
"""Seconds for which what a play found is told, at least."""

KEPT_TIMES: Final = 5.0
"""Times as long as a play took for which it is told."""

YOUNG: Final = 20
"""True starts below which bands are those of simulated weeks, not of this cluster."""

log = logging.getLogger("interlane.live")


@dataclass(frozen=True, slots=True)
class Known:
    """A job that has not ended, and how long it is estimated to run, as a band."""

    event: Recovered
    seconds: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class _Played:
    """What a play found."""

    job_ids: frozenset[JobId]
    """Those that it was asked about."""
    starts_s: Mapping[JobId, Sequence[float]]
    at_s: float
    """The moment that it began with."""
    good_until_s: float = 0.0
    rest_until_s: float = 0.0
    """Before that nobody plays again, not even for jobs that came meanwhile."""


class PlayForward(Protocol):
    """Plays what is known forward."""

    def __call__(
        self,
        make: Callable[[], Scheduler],
        jobs: Sequence[Known],
        job_ids: Sequence[JobId],
        now_s: float,
    ) -> Mapping[JobId, Sequence[float]]:
        """Return when jobs start in each play, in order, but for those that may never."""
        ...


class Etas:
    """Says when jobs are likely to start."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        store: Store,
        play: PlayForward,
        *,
        pause_s: float = PAUSE_S,
        played_most: int = PLAYED_MOST,
        kept_s: float = KEPT_S,
    ) -> None:
        self._snapshot = snapshot
        self._store = store
        self._play = play
        self._pause_s = pause_s
        self._played_most = played_most
        self._kept_s = kept_s
        self._playing = threading.Lock()
        self._played = _Played(frozenset(), {}, 0.0)
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

    def document(self, record: JobRecord) -> dict[str, Any]:
        """Say when a job is likely to start, as the API shows it."""
        now = self._snapshot()
        waits = record.state is JobState.QUEUED
        band = self._told(record.id, now) if waits else None
        return {
            "id": record.id,
            "state": record.state.value,
            "started_s": None if waits else record.started_s,
            "now_s": now.now_s,
            "low_s": band and band.low_s,
            "p50_s": band and band.p50_s,
            "p90_s": band and band.p90_s,
            "high_s": band and band.high_s,
            "because": self._because(record) if waits else None,
        }

    def _told(self, job_id: JobId, now: Snapshot) -> StartBand | None:
        """Return a band, and remember it: what people were told is what must hold."""
        played = self._found([job_id], now)
        starts_s = played.starts_s.get(job_id)
        if starts_s is None:
            return None
        self._calibrated.note(job_id, starts_s, played.at_s)
        return self._calibrated.band(starts_s, played.at_s)

    def _because(self, record: JobRecord) -> str:
        """Say what a band rests on."""
        compared = self._calibrated.compared
        told = f"{compared} {'start was' if compared == 1 else 'starts were'} compared so far"
        young = ", so that bands are wide" if compared < YOUNG else ""
        return f"run time from {record.basis or 'an older version'}; {told}{young}"

    def bands(self, job_ids: Sequence[JobId]) -> dict[JobId, StartBand]:
        """Return when jobs are likely to start, but for those that nothing known lets start."""
        played = self._found(job_ids, self._snapshot())
        return {
            one: self._calibrated.band(starts_s, played.at_s)
            for one in job_ids
            if (starts_s := played.starts_s.get(one)) is not None
        }

    def _found(self, job_ids: Sequence[JobId], now: Snapshot) -> _Played:
        """Return a play that tells of these jobs: the last one, or another."""
        # One that was looked at a moment ago may have ended.
        here = {one.id for one in now.records}
        wanted = frozenset(one for one in job_ids if one in here)
        with self._playing:
            played = self._played
            if not wanted or self._is_good(played, wanted):
                return played
            self._closing.wait(played.rest_until_s - time.monotonic())
            self._played = self._played_now(wanted)
            return self._played

    def _is_good(self, played: _Played, wanted: frozenset[JobId]) -> bool:
        return wanted <= played.job_ids and time.monotonic() < played.good_until_s

    def _played_now(self, wanted: frozenset[JobId]) -> _Played:
        """Play with all who wait, whoever was asked about."""
        now = self._snapshot()
        begin_s = time.monotonic()
        # Whoever asks is told what all starts up to now have taught.
        self._learn(now)
        known = [
            Known(now.recovered(one), one.estimate_s, one.low_s, one.high_s)
            for one in holders_first(now.records)
        ]
        asked = [
            one.id for one in now.records if one.state is JobState.QUEUED or one.id in wanted
        ]
        starts_s = self._play(now.empty_scheduler, known, asked, now.now_s) if asked else {}
        end_s = time.monotonic()
        took_s = end_s - begin_s
        return _Played(
            frozenset(asked) | wanted,
            starts_s,
            now.now_s,
            end_s + max(self._kept_s, KEPT_TIMES * took_s),
            end_s + took_s,
        )

    # -- learning ---------------------------------------------------------------------

    def _watch(self) -> None:
        pause_s = self._pause_s
        while not self._closing.wait(pause_s):
            begin_s = time.monotonic()
            try:
                self._learn(self._snapshot())
                self._ask_about_the_newest()
            except Exception:
                log.exception("A start could not be forecast.")
            pause_s = max(self._pause_s, IDLE * (time.monotonic() - begin_s))

    def _learn(self, now: Snapshot) -> None:
        """Compare what was told with what came."""
        open_jobs = {one.id: one for one in now.records}
        for job_id in self.awaited:
            record = open_jobs.get(job_id) or self._store.job(job_id)
            if record is not None and record.started_s is not None:
                self._calibrated.started(job_id, record.started_s)
            elif record is None or not record.is_open:
                self._calibrated.forget(job_id)

    def _ask_about_the_newest(self) -> None:
        now = self._snapshot()
        if len(now.records) > self._played_most:
            return
        queued = [one for one in now.records if one.state is JobState.QUEUED]
        newest = max(queued, key=lambda one: one.serial, default=None)
        if newest is None or newest.serial <= self._asked_serial:
            return
        self._asked_serial = newest.serial
        played = self._found([newest.id], now)
        starts_s = played.starts_s.get(newest.id)
        if starts_s is not None:
            self._calibrated.note(newest.id, starts_s, played.at_s)
