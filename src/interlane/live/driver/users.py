"""What users ask: to submit a job, to cancel one, to drain a machine, to know."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final

from interlane.live.driver.batch import Batch
from interlane.live.driver.errors import (
    AlreadyEnded,
    KeyReused,
    NoSuchJob,
    NoSuchMachine,
    NotUnknown,
    NotWaiting,
    VersionDiffers,
)
from interlane.live.driver.inbox import (
    Adjust,
    Ask,
    Cancel,
    Drain,
    FromUser,
    Item,
    Key,
    Observed,
    Resolution,
    Resolve,
    Submit,
)
from interlane.live.driver.reports import wait_again
from interlane.live.driver.state import DriverState, attempt_of
from interlane.live.files import job as spec
from interlane.live.files.job import JobSpec, Origin
from interlane.live.files.waiting import array_of
from interlane.live.port import Found, Wanted, Withdrawn
from interlane.live.questions.estimates import asked_of
from interlane.live.store.record import SPEC, JobRecord
from interlane.live.store.rows import DrainRow, UsedKey
from interlane.live.store.store import Store
from interlane.model import (
    Cancelled,
    CancelRequested,
    Finished,
    InterlaneError,
    InvalidField,
    InvalidInput,
    Job,
    JobChanged,
    JobHeld,
    JobId,
    Recovered,
    Submitted,
)
from interlane.model.lifecycle import JobState

KnownKeys = dict[tuple[str, str], UsedKey]
"""Keys that were used before, by user and text."""

ENGINE: Final = "@engine"
"""Under which user keys of jobs are kept that came in through the engine."""

APART: Final = "decides about it by itself; what is on record here ends with that."

log = logging.getLogger("interlane.live")


@dataclass(frozen=True, slots=True)
class Users:
    """Takes in what users ask."""

    store: Store

    def known_keys(self, items: Iterable[Item]) -> KnownKeys:
        """Return the used keys among those that came in."""
        wanted = {key for item in items for key in _keys_of(item)}
        return {(used.user, used.key): used for used in self.store.used_keys(wanted)}

    def take_in(self, item: FromUser, batch: Batch, known: KnownKeys) -> None:
        """Note what is asked; the answer comes once it is stored."""
        match item:
            case Submit():
                self._submit(item, batch, known)
            case Cancel():
                self._cancel(item, batch)
            case Drain():
                _drain(item, batch)
            case Resolve():
                self._resolve(item, batch)
            case Adjust():
                self._adjust(item, batch)
            case Ask():
                _answer(item, batch)

    def wanted(self, report: Wanted, batch: Batch, known: KnownKeys) -> None:
        """Take in a job that was submitted through the engine; it may be told again."""
        batch.state.newer.keys.add(report.key)
        used = known.get((ENGINE, report.key))
        if used is not None:
            if used.job_id not in batch.state.jobs:
                self._discard(report.key, used.job_id, batch)
            return
        if report.job_id is not None and self._is_taken(report.job_id, batch.state):
            log.warning("Job %s of the engine is left alone: its id was used.", report.job_id)
            return
        record = _new_job(
            report.job, report.user, batch, report.key, report.job_id, report.submitted_s
        )
        note_engine_key(record, batch, known)

    def _discard(self, key: str, job_id: JobId, batch: Batch) -> None:
        """Let the engine let go of a job that was cancelled here, or could not be run."""
        record = self.store.job(job_id)
        was_cancelled = record is not None and record.state is JobState.CANCELLED
        why = "" if record is None else record.reason or ""
        batch.discard(key, was_cancelled=was_cancelled, why=why)

    def _is_taken(self, job_id: JobId, state: DriverState) -> bool:
        return job_id in state.jobs or self.store.job(job_id) is not None

    def withdrawn(self, report: Withdrawn, batch: Batch, known: KnownKeys) -> None:
        """Cancel a job that was submitted through the engine, if it has not ended."""
        used = known.get((ENGINE, report.key))
        record = None if used is None else batch.state.jobs.get(used.job_id)
        if record is not None:
            self._withdraw(record, batch)

    def compare(self, wanted: Iterable[Wanted], batch: Batch) -> None:
        """Cancel the jobs that nobody wants any more by an observation."""
        keys = {one.key for one in wanted} | batch.state.newer.keys
        for record in list(batch.state.jobs.values()):
            if record.key is not None and record.key not in keys:
                self._withdraw(record, batch)

    def let_go(self, keys: Collection[str], batch: Batch) -> None:
        """End the records of jobs about which the engine decides by itself."""
        for record in list(batch.state.jobs.values()):
            if record.key in keys and record.key not in batch.state.newer.keys:
                batch.note(Cancelled(record.id), reason=f"{batch.engine.traits.name} {APART}")

    def _withdraw(self, record: JobRecord, batch: Batch) -> None:
        self._cancel(Cancel(record.id, record.user, None, Future()), batch)

    def _submit(self, item: Submit, batch: Batch, known: KnownKeys) -> None:
        key = item.key
        if key is not None and (used := known.get((item.user, key.text))) is not None:
            self._answer_again(item, key, used, batch)
            return
        try:
            self._check_after(item.job, batch.state)
        except InterlaneError as error:
            batch.afterwards.append(partial(item.answer.set_exception, error))
            return
        record = _new_array(item.job, item.user, batch)
        if key is not None:
            _note_key(item.user, key, record, batch, known)
        batch.afterwards.append(lambda: item.answer.set_result(batch.record(record.id)))

    def _answer_again(self, item: Submit, key: Key, used: UsedKey, batch: Batch) -> None:
        """Answer a submission that came before with the job that it made."""
        if used.digest != key.digest:
            item.answer.set_exception(
                KeyReused(
                    f"Idempotency-Key {key.text!r} was used for job {used.job_id} with other "
                    "contents; use a new key."
                )
            )
            return

        def answer() -> None:
            record = batch.state.jobs.get(used.job_id) or self.store.job(used.job_id)
            assert record is not None
            item.answer.set_result(record)

        batch.afterwards.append(answer)

    def _check_after(self, job: JobSpec, state: DriverState) -> None:
        """Refuse a job that is to run after one that there never was."""
        for at, after in enumerate(job.after):
            if JobId(after.job) not in state.jobs and self.store.job(after.job) is None:
                raise InvalidField(f"after.{at}", after.job, "there is no such job")

    def _adjust(self, item: Adjust, batch: Batch) -> None:
        """Hold, release or change a job that waits."""
        try:
            record = self._waiting(item.job_id, batch.state)
            if item.spec is not None:
                self._check_after(item.spec, batch.state)
                _change(record, item.spec, batch)
            elif item.held:
                why = f"{item.by} holds it; 'interlane release {record.id}' lets it run."
                batch.note(JobHeld(record.id, why), held_by=item.by)
            elif record.held_by is not None:
                batch.note(JobHeld(record.id, f"{item.by} released it."), held_by=None)
        except InterlaneError as error:
            batch.afterwards.append(partial(item.answer.set_exception, error))
            return
        batch.afterwards.append(lambda: item.answer.set_result(batch.record(record.id)))

    def _waiting(self, job_id: JobId, state: DriverState) -> JobRecord:
        """Return a job that waits, or raise that it does not."""
        record = state.jobs.get(job_id) or self.store.job(job_id)
        if record is None:
            raise NoSuchJob(f"There is no job {job_id!r}; 'interlane ps -A' lists all.")
        if record.state not in (JobState.QUEUED, JobState.HELD):
            raise NotWaiting(
                f"Job {job_id} is {record.state}; only jobs that wait can be held, released "
                "or changed."
            )
        return record

    def _resolve(self, item: Resolve, batch: Batch) -> None:
        record = batch.state.jobs.get(item.job_id)
        if record is None or record.state is not JobState.UNKNOWN:
            found = record or self.store.job(item.job_id)
            batch.afterwards.append(partial(item.answer.set_exception, _settled(item, found)))
            return
        said = f"{item.by} decided: {item.how}."
        if item.how is Resolution.REQUEUE or record.cancelled_by is not None:
            wait_again(record, batch, said)
        else:
            batch.state.endings.over(attempt_of(record))
            batch.note(Finished(record.id), exit_code=None, reason=said)
        batch.afterwards.append(lambda: item.answer.set_result(batch.record(record.id)))

    def _cancel(self, item: Cancel, batch: Batch) -> None:
        try:
            record = self._cancellable(item, batch.state)
        except InterlaneError as error:
            batch.afterwards.append(partial(item.answer.set_exception, error))
            return
        if record.state in (JobState.QUEUED, JobState.HELD):
            batch.note(Cancelled(record.id), cancelled_by=item.by)
        elif record.state is JobState.UNKNOWN:
            batch.note(CancelRequested(record.id), cancelled_by=item.by)
        elif record.cancelled_by is None:
            batch.note(CancelRequested(record.id), cancelled_by=item.by)
            batch.stop(batch.record(record.id))
        batch.afterwards.append(lambda: item.answer.set_result(batch.record(record.id)))

    def _cancellable(self, item: Cancel, state: DriverState) -> JobRecord:
        """Return the job that is to be cancelled, or raise why it cannot be."""
        record = state.jobs.get(item.job_id) or self.store.job(item.job_id)
        if record is None:
            raise NoSuchJob(f"There is no job {item.job_id!r}; 'interlane ps -A' lists all.")
        if not record.is_open:  # perhaps only since a moment ago, in the same batch
            raise AlreadyEnded(f"Job {item.job_id} has {record.state} already.")
        if item.version is not None and item.version != record.version:
            raise VersionDiffers(
                f"Job {item.job_id} is at version {record.version}, not {item.version}; "
                "look at it again."
            )
        return record


def _settled(item: Resolve, record: JobRecord | None) -> InterlaneError:
    """Return why there is nothing to decide about a job."""
    if record is None:
        return NoSuchJob(f"There is no job {item.job_id!r}; 'interlane ps -A' lists all.")
    said = f"Job {record.id} is {record.state}; only unknown ones can be resolved."
    return NotUnknown(said)


def digest_of(job: JobSpec) -> str:
    """Return what tells jobs apart that come under one key."""
    return sha256(job.model_dump_json().encode()).hexdigest()


def _keys_of(item: Item) -> Iterator[tuple[str, str]]:
    """Yield the keys that something came in with, and under whose name they are kept."""
    match item:
        case Submit(user=user, key=Key(text)):
            yield user, text
        case Wanted(key) | Withdrawn(key):
            yield ENGINE, key
        case Found(origin=Origin(key=str(key))):
            yield ENGINE, key
        case Observed(observation):
            for found in observation.found:
                if found.origin.key is not None:
                    yield ENGINE, found.origin.key
        case _:
            pass


def note_engine_key(record: JobRecord, batch: Batch, known: KnownKeys) -> None:
    """Note what the engine calls a job, so that it makes one job only."""
    if record.key is not None and (ENGINE, record.key) not in known:
        key = Key(record.key, digest_of(record.job))
        _note_key(ENGINE, key, record, batch, known)


def _note_key(user: str, key: Key, record: JobRecord, batch: Batch, known: KnownKeys) -> None:
    used = UsedKey(user, key.text, key.digest, record.id)
    known[user, key.text] = used
    batch.keys.append(used)


def _new_job(
    job: JobSpec,
    user: str,
    batch: Batch,
    key: str | None = None,
    called: JobId | None = None,
    since_s: float | None = None,
    **detail: object,
) -> JobRecord:
    """Put a job on record that waits, called as its engine calls it, if it does."""
    state = batch.state
    state.serial += 1
    job_id = called or JobId(f"{job.name}-{state.serial}")
    submitted_s = batch.now_s if since_s is None else min(since_s, batch.now_s)
    origin = Origin(state.serial, user, submitted_s, key)
    start_s = spec.not_before_s(job, batch.now_s)
    if start_s is not None:
        detail["not_before_s"] = start_s
    if job.hold:
        detail["held_by"] = user
    uid = state.new_uid() if called is None or key is None else key
    return put_on_record(job_id, job, origin, batch, Submitted, uid=uid, **detail)


def _new_array(job: JobSpec, user: str, batch: Batch) -> JobRecord:
    """Put all jobs of an array on record; return the first, or the job if it is none."""
    if job.array is None:
        return _new_job(job, user, batch)
    wanted = array_of(job.array)
    count = len(wanted.indices)
    array_id = f"{job.name}-{batch.state.serial + 1}"
    made = []
    for index in wanted.indices:
        env = {
            **job.env,
            "INTERLANE_ARRAY_ID": array_id,
            "INTERLANE_ARRAY_INDEX": str(index),
            "INTERLANE_ARRAY_COUNT": str(count),
        }
        said = {**job.document, "array": wanted.one(index), "env": env}
        one = JobSpec.model_validate(said)
        made.append(_new_job(one, user, batch, array_id=array_id, array_count=count))
    return made[0]


def _change(record: JobRecord, job: JobSpec, batch: Batch) -> None:
    """Let a job that waits say something else; its place in line is that of its submission."""
    if job.name != record.name or job.array != record.job.array:
        raise InvalidInput("The name and the array of a job stay as they are; submit another.")
    request = batch.state.request_of(job)
    asked = asked_of(record.id, job, record.user, record.submitted_s, request)
    estimate = batch.state.estimates.estimate(asked)
    origin = Origin(record.serial, record.user, record.submitted_s, record.key)
    made = spec.job_of(record.id, job, origin, request, estimate.seconds)
    start_s = spec.not_before_s(job, batch.now_s)
    batch.note(
        JobChanged(made), **{SPEC: job.document}, **estimate.document, not_before_s=start_s
    )


def put_on_record(
    job_id: JobId,
    job: JobSpec,
    origin: Origin,
    batch: Batch,
    first: Callable[[Job], Submitted | Recovered],
    **detail: object,
) -> JobRecord:
    """Write the first entry of a job, with an estimate of how long it will run."""
    request = batch.state.request_of(job)
    asked = asked_of(job_id, job, origin.user, origin.submitted_s, request)
    estimate = batch.state.estimates.estimate(asked)
    made = spec.job_of(job_id, job, origin, request, estimate.seconds)
    key = {} if origin.key is None else {"key": origin.key}
    batch.note(first(made), **{SPEC: job.document}, **estimate.document, **key, **detail)
    return batch.record(job_id)


def _drain(item: Drain, batch: Batch) -> None:
    """Note a drain; one of a machine that is away can be lifted, too."""
    state = batch.state
    if item.machine_id not in {*state.machines.known, *state.machines.drained_here}:
        known = ", ".join(state.machines.known)
        said = f"There is no machine {item.machine_id!r}; there are: {known or 'none'}."
        batch.afterwards.append(partial(item.answer.set_exception, NoSuchMachine(said)))
        return
    state.machines, events = state.machines.with_drain(item.machine_id, drained=item.drained)
    for event in events:
        batch.note(event, by=item.by)
    batch.drains.append(DrainRow(item.machine_id, item.drained, item.by, batch.now_s))
    batch.afterwards.append(lambda: item.answer.set_result(None))


def _answer(item: Ask, batch: Batch) -> None:
    try:
        item.answer.set_result(item.question(batch.state.scheduler, batch.now_s))
    except Exception as error:
        item.answer.set_exception(error)
