"""From version 1 to 2: the log told kinds of its own, and tells events and actions now.

An old entry named what happened, and which fields of the record changed by it.  What a
scheduler asked for is made again without the machines of that time, so that a share that was
asked for as memory counts as a whole GPU; nothing but figures of those days reads it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, insert, text, update

from interlane.live.files import job as spec
from interlane.live.files.job import JobSpec, Origin
from interlane.live.store.record import (
    IN_DETAIL,
    SPEC,
    JobRecord,
    after,
    document_placement,
    dumped,
)
from interlane.live.store.tables import EPOCH, JOBS, LOG
from interlane.model import (
    Cancelled,
    CancelRequested,
    Cluster,
    Finished,
    Grow,
    GrowFailed,
    Grown,
    InvalidInput,
    JobId,
    JobLost,
    LogEntry,
    Logged,
    Placement,
    Preempt,
    Preempted,
    Refusal,
    Refuse,
    Requeue,
    Start,
    Started,
    StartFailed,
    Submitted,
    Tier,
)
from interlane.model.codec import entry_row
from interlane.model.lifecycle import JobState

PAGE: Final = 5_000
"""Rows read at a time."""

_FOR_WHOM: Final = re.compile(r"It makes way for job (.+)\.$")
_NOWHERE: Final = Cluster("unknown", ())


def to_version_2(connection: Connection) -> None:
    """Bring tables of version 1 to version 2."""
    run = connection.exec_driver_sql
    run("DROP INDEX ix_log_job_id")
    run("ALTER TABLE log RENAME TO log_1")
    LOG.create(connection)
    past = _Past()
    for page in _pages(connection, "SELECT seq, at_s, kind, job_id, change FROM log_1", "seq"):
        connection.execute(insert(LOG), [past.row(row) for row in page])
    run("DROP TABLE log_1")
    run("ALTER TABLE jobs ADD COLUMN ended_s DOUBLE PRECISION")
    run("CREATE INDEX ix_jobs_ended_s ON jobs (ended_s)")
    for page in _pages(connection, "SELECT serial, document FROM jobs", "serial"):
        for row in page:
            document = json.loads(row["document"])
            document["estimate_s"] = document.pop("guess_s")
            now = {"document": dumped(document), "ended_s": document.get("ended_s")}
            connection.execute(update(JOBS).where(JOBS.c.serial == row["serial"]).values(now))
    _note_ends(connection)


def _note_ends(connection: Connection) -> None:
    """Note where the log ends."""
    for column in ("seq BIGINT", "at_s DOUBLE PRECISION", "serial BIGINT"):
        connection.exec_driver_sql(f"ALTER TABLE life ADD COLUMN {column} DEFAULT 0 NOT NULL")
    last = connection.execute(text("SELECT seq, at_s FROM log ORDER BY seq DESC LIMIT 1"))
    serial = connection.execute(text("SELECT max(serial) FROM jobs")).scalar()
    row = last.mappings().one_or_none() or {"seq": 0, "at_s": 0.0}
    connection.execute(update(EPOCH).values(**row, serial=serial or 0))


def _pages(connection: Connection, asked: str, key: str) -> Iterator[list[Mapping[str, Any]]]:
    last = -1
    statement = text(f"{asked} WHERE {key} > :last ORDER BY {key} LIMIT {PAGE}")
    while page := list(connection.execute(statement, {"last": last}).mappings()):
        yield [dict(row) for row in page]
        last = page[-1][key]


@dataclass(slots=True)
class _Past:
    """Follows the old log."""

    records: dict[JobId, JobRecord] = field(default_factory=dict)
    """Jobs that have not ended."""

    def row(self, old: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row of the new log for one of the old."""
        try:
            entry = self._entry(old)
            record = after(self.records.get(JobId(old["job_id"])), entry)
        except Exception as error:
            raise InvalidInput(
                f"Entry {old['seq']} of the log of version 1 cannot be understood ({error!r}); "
                "restore a copy, or begin anew with another --state."
            ) from error
        if record.is_open:
            self.records[record.id] = record
        else:
            self.records.pop(record.id, None)
        return entry_row(entry)

    def _entry(self, old: Mapping[str, Any]) -> LogEntry:
        seq, at_s, job_id = old["seq"], old["at_s"], JobId(old["job_id"])
        change = json.loads(old["change"])
        if old["kind"] == "submitted":
            return LogEntry(seq, at_s, _submitted(job_id, change), _first(change), seq)
        record = self.records[job_id]
        what = _what(old["kind"], record, change, at_s)
        detail = {name: value for name, value in change.items() if name in IN_DETAIL}
        return LogEntry(seq, at_s, what, detail, seq)


def _submitted(job_id: JobId, change: Mapping[str, Any]) -> Submitted:
    job = JobSpec.model_validate(change["spec"])
    request = spec.request_of(job, _NOWHERE)
    origin = Origin(change["serial"], change["user"], change["submitted_s"])
    return Submitted(spec.job_of(job_id, job, origin, request, change["guess_s"]))


def _first(change: Mapping[str, Any]) -> dict[str, Any]:
    names = [name for name in IN_DETAIL if change.get(name) is not None]
    return {SPEC: change["spec"], **{name: change[name] for name in names}}


def _what(kind: str, record: JobRecord, change: Mapping[str, Any], at_s: float) -> Logged:
    """Return the event or action of an entry that is not a job's first."""
    job_id, reason = record.id, change.get("reason") or ""
    match kind:
        case "placed":
            return Start(job_id, document_placement(change["placement"]))
        case "started":
            return Started(job_id, record.placement or Placement(()))
        case "start failed" if record.state is JobState.RUNNING:
            return JobLost(job_id, record.attempted_s(at_s))
        case "start failed":
            return StartFailed(job_id, reason)
        case "cancel asked":
            return CancelRequested(job_id)
        case "stop wished":
            found = _FOR_WHOM.match(reason)
            return Preempt(job_id, JobId(found[1] if found else ""))
        case "grow placed":
            spots = document_placement(change["placement"]).spots
            return Grow(job_id, Placement(spots[len(spots) - change["growing"] :]))
        case "grew":
            return Grown(job_id, record.added)
        case "grow failed":
            return GrowFailed(job_id, reason)
        case "preempted":
            return Preempted(job_id, _lost_s(record, change, at_s))
        case "requeued":
            return Requeue(job_id, reason, _lost_s(record, change, at_s))
        case "ended":
            return Finished(job_id)
        case "cancelled":
            return Cancelled(job_id)
        case "refused":
            return Refuse(job_id, _refusal(reason))
        case _:
            raise ValueError(f"{kind!r} is no kind of entry")


def _lost_s(record: JobRecord, change: Mapping[str, Any], at_s: float) -> float:
    kept_s: float = change.get("ran_s", record.ran_s) - record.ran_s
    return max(0.0, record.attempted_s(at_s) - kept_s)


def _refusal(reason: str) -> Refusal:
    """Return a refusal of which only the sentence is left; the detail keeps that."""
    tier = next((one for one in Tier if reason.startswith(f"{one.label}: ")), Tier.INVALID)
    return Refusal(tier, reason.removeprefix(f"{tier.label}: "), "")
