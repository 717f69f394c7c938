"""The log of this machine, and what it says of each job.

An entry names what happened, to which job, and which fields of the job's record changed by
it.  A record is the sum of its entries: ``fold`` makes all records from the log alone.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final

from interlane.live.files.job import JobSpec
from interlane.model import JobId, MachineId, Placement, Spot


class State(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"

    @property
    def holds(self) -> bool:
        """Whether a job holds a place."""
        return self in HOLDING

    @property
    def has_ended(self) -> bool:
        """Whether a job is over."""
        return self not in OPEN


HOLDING: Final = frozenset({State.STARTING, State.RUNNING, State.STOPPING})
"""States in which a job holds a place."""

OPEN: Final = HOLDING | {State.QUEUED}
"""States of jobs that have not ended."""

ENDED: Final = frozenset(State) - OPEN


_PHASES: Final = {
    "submitted": "waiting",
    "placed": "starting",
    "started": "running",
    "cancel asked": "stopping",
    "stop wanted": "stopping",
    "preempted": "waiting",
    "start failed": "waiting",
    "requeued": "waiting",
}


class Kind(StrEnum):
    """What an entry of the log tells."""

    SUBMITTED = "submitted"
    PLACED = "placed"
    """A place is held and an attempt named: written before anything is started there."""
    STARTED = "started"
    START_FAILED = "start failed"
    CANCEL_ASKED = "cancel asked"
    STOP_WANTED = "stop wanted"
    GROW_PLACED = "grow placed"
    """More is held for a gang that runs: written before anything is started there."""
    GREW = "grew"
    GROW_FAILED = "grow failed"
    PREEMPTED = "preempted"
    REQUEUED = "requeued"
    """Its machine or device is gone, and it waits again."""
    ENDED = "ended"
    CANCELLED = "cancelled"
    REFUSED = "refused"

    @property
    def phase(self) -> str | None:
        """What a job does after such an entry; None if it goes on as before, or has ended."""
        return _PHASES.get(self.value)


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
    state: State = State.QUEUED
    version: int = 1
    """Rises with every change."""
    attempt: int = 0
    """Number of the present or last attempt to run it."""
    placement: tuple[Mapping[str, Any], ...] | None = None
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

    @property
    def is_open(self) -> bool:
        """Whether the job has not ended."""
        return self.state in OPEN

    def ran_for_s(self, now_s: float) -> float:
        """Return how long it has run by a moment, over all attempts whose work was kept."""
        return self.ran_s + now_s - (self.started_s or now_s)

    @property
    def place(self) -> Placement | None:
        """Where it holds a place."""
        if self.placement is None or self.state not in HOLDING:
            return None
        return Placement(
            tuple(
                Spot(
                    MachineId(spot["machine"]),
                    tuple(spot["gpus"]),
                    spot["instances"],
                    spot["task"],
                )
                for spot in self.placement
            )
        )

    @property
    def added(self) -> Placement:
        """The part of its placement that it is growing into."""
        assert self.place is not None
        return Placement(self.place.spots[len(self.place.spots) - self.growing :])


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of the log."""

    seq: int
    at_s: float
    kind: Kind
    job_id: JobId
    change: Mapping[str, Any]
    """Fields of the record with their new values."""


_NAMES: Final = tuple(field.name for field in fields(JobRecord))


def after(record: JobRecord | None, entry: LogEntry) -> JobRecord:
    """Return a job's record after an entry; the first one makes it."""
    if record is None:
        return document_record({**entry.change, "id": entry.job_id})
    change = _typed(entry.change)
    return replace(record, **change, version=record.version + 1)


def fold(entries: Iterable[LogEntry]) -> dict[JobId, JobRecord]:
    """Return the records that a whole log tells."""
    records: dict[JobId, JobRecord] = {}
    for entry in entries:
        records[entry.job_id] = after(records.get(entry.job_id), entry)
    return records


def record_document(record: JobRecord) -> dict[str, Any]:
    """Return a record as what JSON knows."""
    document = {name: getattr(record, name) for name in _NAMES if name != "job"}
    return {**document, "spec": record.job.document}


def document_record(document: Mapping[str, Any]) -> JobRecord:
    """Return a record from its document; fields of later versions are passed over."""
    known = {name: value for name, value in document.items() if name in _NAMES}
    return JobRecord(**_typed(known), job=JobSpec.model_validate(document["spec"]))


def placement_document(placement: Placement) -> list[dict[str, Any]]:
    """Return a placement as what JSON knows."""
    return [{**asdict(spot), "gpus": list(spot.gpus)} for spot in placement.spots]


def dumped(document: Mapping[str, Any]) -> str:
    """Return a document as one line of text."""
    return json.dumps(document, separators=(",", ":"))


def _typed(change: Mapping[str, Any]) -> dict[str, Any]:
    typed = dict(change)
    if "state" in typed:
        typed["state"] = State(typed["state"])
    if typed.get("placement") is not None:
        typed["placement"] = tuple(typed["placement"])
    return typed
