"""Jobs that wait for something else than a place: a moment, other jobs, room in their array.

What a job waits for follows from its record, from other records and from the time, so that a
server that begins again holds the same jobs; whatever is decided here is on record as
``JobHeld``, ``JobReleased`` or ``Cancelled``.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from interlane.live.driver.batch import Batch
from interlane.live.driver.inbox import Recheck
from interlane.live.driver.state import job_of
from interlane.live.files.waiting import AfterFields, AfterWhen, array_of, moment_told
from interlane.live.store.record import JobRecord
from interlane.live.store.store import Store
from interlane.model import (
    Cancelled,
    Finished,
    JobChanged,
    JobHeld,
    JobId,
    JobReleased,
    JobRetried,
    Refuse,
    Started,
    Submitted,
)
from interlane.model.lifecycle import JobState

BY: Final = "interlane"
"""Who cancels a job that waits for what will never be."""

REMEMBERED_MAX: Final = 10_000
"""Ended jobs that are remembered because others wait for them."""

_NEW: Final = (Submitted, JobChanged)
_TELLING: Final = (*_NEW, Started, Finished, Cancelled, JobRetried, JobHeld)
"""Entries after which a job may have to be held, or need not be held any more."""

_WAITING: Final = (JobState.QUEUED, JobState.HELD)

Look = Callable[[JobId], JobRecord | None]


@dataclass(frozen=True, slots=True)
class Hold:
    """What a job waits for."""

    why: str
    until_s: float = inf
    """When to look again, if nothing happens before."""
    is_final: bool = False
    """Whether it will never have it."""


def hold_of(record: JobRecord, now_s: float, look: Look, active: Counter[str]) -> Hold | None:
    """Return what a job waits for beside a place; None if for nothing.

    Args:
        record: the job.
        now_s: when.
        look: returns other jobs, whether they have ended or not.
        active: how many jobs of each array wait for a place or run.
    """
    if record.held_by is not None:
        return Hold(f"{record.held_by} holds it; 'interlane release {record.id}' lets it run.")
    not_before_s = record.not_before_s
    if not_before_s is not None and now_s < not_before_s:
        again = record.reason if record.failures and record.reason else None
        return Hold(again or f"It starts after {moment_told(not_before_s)}.", not_before_s)
    for after in record.job.after:
        hold = _hold_behind(after, look)
        if hold is not None:
            return hold
    return _hold_in_array(record, active)


def _hold_behind(after: AfterFields, look: Look) -> Hold | None:
    first = look(JobId(after.job))
    if first is None:
        return Hold(f"There is no job {after.job!r} any more.", is_final=True)
    # The first of an array stands for all of it.
    for member in members(first) if first.array_id == first.id else [first.id]:
        other = first if member == first.id else look(member)
        if other is None:  # it went with what is kept no longer
            continue
        if other.is_open and not _is_met(after.when, other):
            return Hold(f"It runs after {member} has {after.when}.")
        if not _is_met(after.when, other):
            said = f"It was to run after {member} had {after.when}, which has {other.state}."
            return Hold(said, is_final=True)
    return None


def members(member: JobRecord) -> list[JobId]:
    """Return all jobs of a job's array, whose numbers follow each other."""
    name, _, first = (member.array_id or member.id).rpartition("-")
    count = range(int(first), int(first) + member.array_count)
    return [JobId(f"{name}-{serial}") for serial in count]


def _is_met(when: AfterWhen, other: JobRecord) -> bool:
    match when:
        case AfterWhen.SUCCEEDED:
            return other.state is JobState.SUCCEEDED
        case AfterWhen.FAILED:
            return other.state in (JobState.FAILED, JobState.CANCELLED, JobState.REFUSED)
        case AfterWhen.ENDED:
            return not other.is_open
        case AfterWhen.STARTED:
            runs = other.state in (JobState.RUNNING, JobState.STOPPING)
            return runs or (not other.is_open and other.started_s is not None)


def _hold_in_array(record: JobRecord, active: Counter[str]) -> Hold | None:
    if record.array_id is None or record.job.array is None:
        return None
    most = array_of(record.job.array).at_a_time
    if most is None or active[record.array_id] < most:
        return None
    return Hold(f"{most} jobs of its array run at a time.")


def _has_conditions(record: JobRecord) -> bool:
    """Tell whether a job may have to wait for something else than a place."""
    later = record.held_by is not None or record.not_before_s is not None
    return later or record.array_id is not None or bool(record.job.after)


def _active_in(
    member: JobRecord, jobs: Mapping[JobId, JobRecord], waiting: Container[JobId]
) -> int:
    """Return how many jobs of an array wait for a place or run, beside those in question."""
    found = (jobs.get(one) for one in members(member))
    return sum(one is not None and one.is_open and one.id not in waiting for one in found)


class Holding:
    """Holds jobs back, and releases them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ended: dict[JobId, JobRecord] = {}
        self._next_s = inf
        """When a look is due that was asked for."""

    def forget(self) -> None:
        """Begin again: what was asked for later is lost."""
        self._next_s = inf

    def settle(self, batch: Batch, *, is_due: bool) -> None:
        """Hold back who must wait, and release who need not any more.

        One who is released or cancelled may be what others wait for.
        """
        seen = 0
        while is_due or any(isinstance(one.what, _TELLING) for one in batch.entries[seen:]):
            new = {one.job_id for one in batch.entries[seen:] if isinstance(one.what, _NEW)}
            is_due, seen = False, len(batch.entries)
            self._look_through(batch, new)

    def follow(self, batch: Batch) -> None:
        """Look again soon if somebody was refused, for whom others may wait."""
        if any(isinstance(one.what, Refuse) for one in batch.entries):
            batch.postpone(batch.now_s, Recheck())

    def _look_through(self, batch: Batch, new: Iterable[JobId | None]) -> None:
        jobs, held = batch.state.jobs, batch.state.held
        here = [
            one
            for job_id in {*held, *new}
            if job_id is not None
            and (one := jobs[job_id]).state in _WAITING
            and (job_id in held or _has_conditions(one))
        ]
        if not here:
            return
        waiting = frozenset(one.id for one in here)
        arrays = {one.array_id: one for one in here if one.array_id is not None}
        active = Counter({name: _active_in(one, jobs, waiting) for name, one in arrays.items()})
        again_s = inf
        for record in sorted(here, key=lambda one: one.serial):
            again_s = min(again_s, self._decide(record, batch, active))
        if again_s < self._next_s or (self._next_s <= batch.now_s and again_s < inf):
            self._next_s = again_s
            batch.postpone(again_s, Recheck())

    def _decide(self, record: JobRecord, batch: Batch, active: Counter[str]) -> float:
        """Hold, release or cancel one job; return when to look again."""
        hold = hold_of(record, batch.now_s, lambda job_id: self._look(job_id, batch), active)
        is_held = record.state is JobState.HELD
        if hold is None:
            if record.array_id is not None:
                active[record.array_id] += 1
            if is_held:
                batch.note(JobReleased(job_of(record, batch.state.request_of(record.job))))
            return inf
        if hold.is_final:
            batch.note(Cancelled(record.id), reason=hold.why, cancelled_by=BY)
            return inf
        if not is_held or hold.why != record.reason:
            batch.note(JobHeld(record.id, hold.why))
        return hold.until_s

    def _look(self, job_id: JobId, batch: Batch) -> JobRecord | None:
        """Return a job; those that have ended are remembered, because they never change."""
        found = batch.state.jobs.get(job_id) or self._ended.get(job_id)
        if found is None:
            found = self._store.job(job_id)
            if found is not None and not found.is_open:
                if len(self._ended) >= REMEMBERED_MAX:
                    self._ended.clear()
                self._ended[job_id] = found
        return found
