"""What the log says of each job.

A record is the fold of its job's entries by ``ON_RECORD``, the table of a job's life that the
scheduler keeps, too.  What an event or an action does not say and a record needs (the job's
document, an exit code) is in the detail of its entry.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from interlane.live.files.job import JobSpec
from interlane.model import (
    Action,
    AttemptUnknown,
    Cancelled,
    Finished,
    Grow,
    GrowFailed,
    Grown,
    IllegalTransition,
    Job,
    JobChanged,
    JobHeld,
    JobId,
    JobLost,
    JobReleased,
    JobRetried,
    LogEntry,
    MachineId,
    Placement,
    Preempt,
    Preempted,
    Recovered,
    Refuse,
    Requeue,
    Spot,
    Start,
    StartFailed,
    Submitted,
)
from interlane.model.lifecycle import ON_RECORD, OPEN, JobState

SPEC: Final = "spec"
"""In the detail of a job's first entry: its document, as its user wrote it."""

IN_DETAIL: Final = (
    *("low_s", "high_s", "basis", "key", "attempt", "growth", "ran_s"),
    *("exit_code", "reason", "cancelled_by", "use", "losses", "uid", "holder"),
    *("failures", "not_before_s", "held_by", "array_id", "array_count"),
)
"""Fields of a record that the detail of an entry may set."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """All that is known of one job."""

    serial: int
    id: JobId
    name: str
    user: str
    queue: str
    job: JobSpec
    """As its user wrote it; the stored document calls it ``spec``."""
    submitted_s: float
    estimate_s: float
    """How long it is estimated to run; eight times in ten from ``low_s`` to ``high_s``."""
    low_s: float
    high_s: float
    basis: str = ""
    """What the estimate rests on."""
    state: JobState = JobState.QUEUED
    """A gang that grows is running."""
    version: int = 1
    """Rises with every change."""
    attempt: int = 0
    """Number of the present or last attempt to run it."""
    placement: Placement | None = None
    """Where it holds a place."""
    growing: int = 0
    """Spots at the end of its placement that are held for it and not yet its own."""
    growth: int = 0
    """Number of the present or last growth of its attempt."""
    started_s: float | None = None
    """When the present or last attempt began."""
    ended_s: float | None = None
    ran_s: float = 0.0
    """Seconds of progress kept from attempts that were stopped."""
    exit_code: int | None = None
    reason: str | None = None
    """Why it was refused, failed or went back to the queue."""
    cancelled_by: str | None = None
    use: Mapping[str, Any] | None = None
    """What it did on its device, once it has ended; see ``monitor.Use``."""
    key: str | None = None
    """What the engine calls it, if it came in through the engine."""
    losses: int = 0
    """How often what ran it was killed under it."""
    uid: str = ""
    """Drawn at random when it came in, so that no other job ever has it; empty if an older
    version took the job in."""
    holder: str = ""
    """Who holds its present or last attempt; see ``live.port.Traits``."""
    former: tuple[tuple[int, str], ...] = ()
    """Attempts up to a number were held by others, each by whom."""
    failures: int = 0
    """How often it failed and was tried again."""
    not_before_s: float | None = None
    """It does not start before this moment."""
    held_by: str | None = None
    """Who holds it back, until somebody releases it."""
    array_id: str | None = None
    """The first job of its array, whose id stands for all of it."""
    array_count: int = 0
    """Jobs of its array; their numbers follow each other."""

    def holder_of(self, attempt: int) -> str:
        """Return who holds or held an attempt."""
        return next((who for last, who in self.former if attempt <= last), self.holder)

    @property
    def is_open(self) -> bool:
        """Whether the job has not ended."""
        return self.state in OPEN

    @property
    def stands(self) -> JobState:
        """Where it stands in the table of a job's life."""
        grows = self.growing and self.state is JobState.RUNNING
        return JobState.GROWING if grows else self.state

    @property
    def added(self) -> Placement:
        """The part of its placement that it is growing into."""
        assert self.placement is not None
        return Placement(self.placement.spots[len(self.placement.spots) - self.growing :])

    def ran_for_s(self, now_s: float) -> float:
        """Return how long it has run by a moment, over all attempts whose work was kept."""
        return self.ran_s + self.attempted_s(now_s)

    def attempted_s(self, now_s: float) -> float:
        """Return for how long the present or last attempt has run by a moment."""
        return 0.0 if self.started_s is None else now_s - self.started_s


class UnreadableRecord(JobRecord):
    """What can be shown of a job whose record nobody here can read; it is left as it is."""

    __slots__ = ()


def unreadable(serial: int, job_id: str, user: str, state: JobState, why: str) -> JobRecord:
    """Return what is shown of a job whose record cannot be read: unknown, unless it ended."""
    spec = JobSpec(name="unreadable", run="false")
    name = job_id.rpartition("-")[0]
    shown = state if state.has_ended else JobState.UNKNOWN
    at = serial, JobId(job_id), name, user, spec.queue, spec, 0.0, 0.0, 0.0, 0.0
    return UnreadableRecord(*at, state=shown, reason=why)


# -- the fold -------------------------------------------------------------------------


def after(record: JobRecord | None, entry: LogEntry) -> JobRecord:
    """Return a job's record after an entry: the same one after an action that is void."""
    if record is None:
        return _first(entry)
    state = _next_state(record, entry)
    if state is None:
        return record
    change = {**_change(record, entry), **_detail(entry)}
    if change.get("holder", record.holder) != record.holder and record.attempt:
        change["former"] = (*record.former, (record.attempt, record.holder))
    return replace(record, state=state, version=record.version + 1, **change)


def fold(entries: Iterable[LogEntry]) -> dict[JobId, JobRecord]:
    """Return the records that a whole log tells."""
    records: dict[JobId, JobRecord] = {}
    for entry in entries:
        if entry.job_id is not None:
            records[entry.job_id] = after(records.get(entry.job_id), entry)
    return records


def _first(entry: LogEntry) -> JobRecord:
    match entry.what:
        case Submitted(job):
            return _made(job, entry)
        case Recovered(job, _, placement):
            made = _made(job, entry)
            runs = made.state if placement is None else JobState.RUNNING
            return replace(made, state=runs, **_change(made, entry))
        case _:
            raise IllegalTransition(f"Job {entry.job_id}", "unknown", entry.kind)


def _made(job: Job, entry: LogEntry) -> JobRecord:
    spec = JobSpec.model_validate(entry.detail[SPEC])
    seconds = job.duration_s_estimate or 0.0
    band = {"low_s": seconds, "high_s": seconds} | _detail(entry)
    at = job.serial, job.id, spec.name, job.user, job.queue, spec, job.submitted_s, seconds
    return JobRecord(*at, **band)


def _detail(entry: LogEntry) -> dict[str, Any]:
    return {name: value for name, value in entry.detail.items() if name in IN_DETAIL}


def _next_state(record: JobRecord, entry: LogEntry) -> JobState | None:
    """Return where a job stands after an entry; None if it is void."""
    what = entry.what
    if isinstance(what, Recovered) and what.placement is None:
        return JobState.QUEUED
    if isinstance(what, Recovered):
        return JobState.RUNNING if record.cancelled_by is None else JobState.STOPPING
    state = ON_RECORD.get((record.stands, type(what)))
    if state is None and not isinstance(what, Action):
        raise IllegalTransition(f"Job {record.id}", record.stands.value, entry.kind)
    if state is JobState.SUCCEEDED and entry.detail.get("exit_code") != 0:
        return JobState.FAILED
    return JobState.RUNNING if state is JobState.GROWING else state


def _change(record: JobRecord, entry: LogEntry) -> dict[str, Any]:
    """Return what an event or action itself changes in a record, beside the state."""
    at_s = entry.at_s
    match entry.what:
        case Start(_, placement):
            began = {"attempt": record.attempt + 1, "started_s": at_s, "reason": None}
            return {**_placed(placement), "growth": 0, **began}
        case Recovered(_, ran_s, None):
            return {**_placed(None), "ran_s": ran_s, "reason": None}
        case Recovered(_, ran_s, placement, started_s, growing):
            began = {"ran_s": ran_s, "started_s": started_s, "reason": None}
            return {**_placed(placement, growing), **began}
        case Grow(_, more):
            assert record.placement is not None
            held = _placed(record.placement + more, len(more.spots))
            return {**held, "growth": record.growth + 1}
        case Grown():
            return {"growing": 0}
        case GrowFailed():
            assert record.placement is not None
            kept = len(record.placement.spots) - record.growing
            return _placed(Placement(record.placement.spots[:kept]))
        case Preempt(_, in_favour_of):
            return {"reason": f"It makes way for job {in_favour_of}."}
        case Preempted(_, work_lost_s) | JobLost(_, work_lost_s):
            return {**_placed(None), **_kept(record, work_lost_s, at_s)}
        case Requeue(_, why, work_lost_s):
            return {**_placed(None), **_kept(record, work_lost_s, at_s), "reason": why}
        case AttemptUnknown(_, why) | JobHeld(_, why):
            return {"reason": why}
        case JobReleased():
            return {"reason": None}
        case JobRetried(_, why, work_lost_s):
            return {**_placed(None), **_kept(record, work_lost_s, at_s), "reason": why}
        case JobChanged(job):
            return _changed(record, job, entry)
        case StartFailed(_, why):
            return {**_placed(None), "reason": why or None}
        case Refuse(_, refusal):
            return {**_placed(None), "ended_s": at_s, "reason": str(refusal)}
        case Finished() | Cancelled():
            return {**_placed(None), "ended_s": at_s}
        case _:
            return {}


def _changed(record: JobRecord, job: Job, entry: LogEntry) -> dict[str, Any]:
    """Return what a change of a waiting job changes: the estimate, or all that was written."""
    said = entry.detail.get(SPEC)
    spec = record.job if said is None else JobSpec.model_validate(said)
    seconds = job.duration_s_estimate or 0.0
    return {"job": spec, "name": spec.name, "queue": job.queue, "estimate_s": seconds}


def _placed(placement: Placement | None, growing: int = 0) -> dict[str, Any]:
    return {"placement": placement, "growing": growing}


def _kept(record: JobRecord, work_lost_s: float, at_s: float) -> dict[str, Any]:
    """Return the progress of a job whose attempt is over and that has lost some work."""
    return {"ran_s": record.ran_s + max(0.0, record.attempted_s(at_s) - work_lost_s)}


# -- documents ------------------------------------------------------------------------

_NAMES: Final = tuple(field.name for field in fields(JobRecord))


def record_document(record: JobRecord) -> dict[str, Any]:
    """Return a record as what JSON knows."""
    document = {name: getattr(record, name) for name in _NAMES if name != "job"}
    placement = None if record.placement is None else placement_document(record.placement)
    return {**document, SPEC: record.job.document, "placement": placement}


def document_record(document: Mapping[str, Any]) -> JobRecord:
    """Return a record from its document; fields of later versions are passed over."""
    known = {name: value for name, value in document.items() if name in _NAMES}
    known["state"] = JobState(document["state"])
    if document.get("placement") is not None:
        known["placement"] = document_placement(document["placement"])
    known["former"] = tuple((last, who) for last, who in document.get("former", ()))
    return JobRecord(**known, job=JobSpec.model_validate(document[SPEC]))


def placement_document(placement: Placement) -> list[dict[str, Any]]:
    """Return a placement as what JSON knows."""
    return [
        {
            "machine": spot.machine,
            "gpus": list(spot.gpus),
            "instances": spot.instances,
            "task": spot.task,
        }
        for spot in placement.spots
    ]


def document_placement(document: Iterable[Mapping[str, Any]]) -> Placement:
    """Return a placement from its document."""
    return Placement(
        tuple(
            Spot(
                MachineId(spot["machine"]), tuple(spot["gpus"]), spot["instances"], spot["task"]
            )
            for spot in document
        )
    )


def dumped(document: Mapping[str, Any]) -> str:
    """Return a document as one line of text."""
    return json.dumps(document, separators=(",", ":"))
