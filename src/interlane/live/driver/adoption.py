"""Takes up what runs without a record: the engine owns the truth, and the store was lost.

Whoever had the numbers of jobs before knew of more than those that began.  So once an engine
remembers a higher number than the store, new jobs leave the rest of a million out.
"""

from dataclasses import dataclass
from typing import Final

from interlane.live.driver.batch import Batch
from interlane.live.driver.state import DriverState, job_of
from interlane.live.driver.users import KnownKeys, note_engine_key, put_on_record
from interlane.live.port import Found, Observation
from interlane.live.store.record import JobRecord, Kind, State, placement_document
from interlane.live.store.rows import JobsWanted
from interlane.live.store.store import Store
from interlane.model import Cancelled, Recovered

SKIPPED: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Adoption:
    """See the module's text."""

    store: Store

    def take_in(self, observation: Observation, batch: Batch, known: KnownKeys) -> None:
        """Put on record what runs and is not."""
        _leave_out_numbers(observation.serial, batch.state)
        for found in observation.found:
            if found.attempt not in batch.state.newer.attempts:
                self._adopt(found, batch, known)

    def _adopt(self, found: Found, batch: Batch, known: KnownKeys) -> None:
        """Take up an attempt, unless it is known or was given up."""
        job_id, number = found.attempt.job_id, found.attempt.number
        record = batch.state.jobs.get(job_id) or self.store.job(job_id)
        if record is not None and (not record.is_open or record.attempt >= number):
            return
        if record is None:
            record = self._on_record(found, batch, known)
        elif batch.stands(job_id) is not None:
            batch.learn(Cancelled(job_id))  # it is told again, with its place
        record = _note_running(record, found, batch)
        job = job_of(record, batch.state.request_of(record.job))
        batch.learn(Recovered(job, record.ran_s, found.placement, found.started_s))

    def _on_record(self, found: Found, batch: Batch, known: KnownKeys) -> JobRecord:
        origin, state = found.origin, batch.state
        serial = origin.serial
        newest = self.store.jobs(JobsWanted(limit=1, before=serial + 1))
        if newest and newest[0].serial == serial:
            state.serial += 1
            serial = state.serial
        record = put_on_record(found.attempt.job_id, serial, found.job, origin, batch)
        note_engine_key(record, batch, known)
        return record


def _leave_out_numbers(remembered: int, state: DriverState) -> None:
    if remembered > state.serial:
        state.serial = state.serial_least = (remembered // SKIPPED + 1) * SKIPPED


def _note_running(record: JobRecord, found: Found, batch: Batch) -> JobRecord:
    placed = {
        "state": State.STARTING,
        "attempt": found.attempt.number,
        "placement": placement_document(found.placement),
        "growing": 0,
        "growth": found.growth,
        "started_s": found.started_s,
        "reason": None,
    }
    batch.write(Kind.PLACED, record.id, placed)
    state = State.RUNNING if record.cancelled_by is None else State.STOPPING
    return batch.write(Kind.STARTED, record.id, {"state": state})
