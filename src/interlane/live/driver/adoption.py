"""Takes up what runs without a record: the engine owns the truth, and the store was lost.

Whoever had the numbers of jobs before knew of more than those that began.  So once an engine
remembers a higher number than the store, new jobs leave the rest of a million out.
"""

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from interlane.live.driver.batch import Batch
from interlane.live.driver.state import DriverState, job_of
from interlane.live.driver.users import KnownKeys, note_engine_key, put_on_record
from interlane.live.files.job import Origin
from interlane.live.port import Ended, Found, Observation
from interlane.live.store.record import JobRecord
from interlane.live.store.rows import JobsWanted
from interlane.live.store.store import Store
from interlane.model import Recovered
from interlane.model.lifecycle import JobState

log = logging.getLogger("interlane.live")

SKIPPED: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Adoption:
    """See the module's text."""

    store: Store

    def take_in(self, observation: Observation, batch: Batch, known: KnownKeys) -> None:
        """Put on record what runs and is not; of what has ended, only what somebody awaits."""
        _leave_out_numbers(observation.serial, batch.state)
        over = {one.attempt for one in observation.attempts if isinstance(one, Ended)}
        unknown = [
            one
            for one in observation.found
            if one.attempt not in batch.state.newer.attempts and not _is_known(one, batch.state)
        ]
        # Where we look on, what has ended unseen is history, too.
        decides = batch.engine.traits.decides
        last = self.store.ends().serial if unknown else 0
        for found in unknown:
            self._adopt(found, batch, known, last, is_over=decides and found.attempt in over)

    def heard_of(self, found: Found, batch: Batch, known: KnownKeys) -> None:
        """Take up what the engine has begun by itself, or elsewhere than it was asked to."""
        record = batch.state.jobs.get(found.attempt.job_id)
        if record is None or not _is_elsewhere(found, record):
            self._adopt(found, batch, known, self.store.ends().serial, is_over=False)
            return
        job = job_of(record, batch.state.request_of(record.job))
        batch.note(
            Recovered(job, record.ran_s, found.placement, found.started_s),
            attempt=record.attempt,
        )

    def _adopt(
        self, found: Found, batch: Batch, known: KnownKeys, last: int, *, is_over: bool
    ) -> None:
        """Take up an attempt, unless it was given up; ``last`` is the last number stored."""
        job_id, number = found.attempt.job_id, found.attempt.number
        if job_id in batch.state.unread:
            return
        record = batch.state.jobs.get(job_id)
        if record is None and last:
            record = self.store.job(job_id)
        if is_over if record is None else not _is_later(found, record):
            return
        runs = partial(
            Recovered,
            ran_s=0.0 if record is None else record.ran_s,
            placement=found.placement,
            started_s=found.started_s,
        )
        detail: dict[str, Any] = {"attempt": number, "growth": found.growth}
        if found.attempt.holder:
            detail["holder"] = found.attempt.holder
        if record is None:
            origin = self._numbered(found.origin, batch.state, last)
            uid = found.attempt.uid
            record = put_on_record(job_id, found.job, origin, batch, runs, uid=uid, **detail)
            note_engine_key(record, batch, known)
        else:
            job = job_of(record, batch.state.request_of(record.job))
            batch.note(runs(job), **detail)

    def _numbered(self, origin: Origin, state: DriverState, last: int) -> Origin:
        """Return whose job it is, with a new number if it had none or another job has it."""
        if origin.serial > last:
            return origin
        newest = self.store.jobs(JobsWanted(limit=1, before=origin.serial + 1))
        if origin.serial and (not newest or newest[0].serial != origin.serial):
            return origin
        state.serial += 1
        return replace(origin, serial=state.serial)


def _is_known(found: Found, state: DriverState) -> bool:
    """Tell whether a job is on record as it was found: nearly all of them are."""
    record = state.jobs.get(found.attempt.job_id)
    return record is not None and not _is_later(found, record)


def _is_later(found: Found, record: JobRecord) -> bool:
    """Tell whether an attempt came after what is on record of its job: the store is a copy."""
    is_same = record.uid == found.attempt.uid
    return is_same and record.is_open and record.attempt < found.attempt.number


def _is_elsewhere(found: Found, record: JobRecord) -> bool:
    """Tell whether an attempt on record runs at another place than was decided."""
    is_same = (record.uid, record.attempt) == (found.attempt.uid, found.attempt.number)
    goes_on = record.state in (JobState.STARTING, JobState.RUNNING) and not record.growing
    return is_same and goes_on and record.placement != found.placement


def _leave_out_numbers(remembered: int, state: DriverState) -> None:
    if remembered > state.serial:
        log.warning(
            "Jobs up to number %d have begun, and records end with %d: the database is an "
            "older copy, or a new one; new jobs leave the rest of a million out.",
            *(remembered, state.serial),
        )
        state.serial = state.serial_least = (remembered // SKIPPED + 1) * SKIPPED
