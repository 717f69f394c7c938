"""What the API shows of jobs and devices: documents made from records."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict
from typing import Any, Final

from interlane.lanes.report import ProcessReport
from interlane.live.measure.monitor import Use
from interlane.live.store.record import SPEC, JobRecord, placement_document
from interlane.live.view import MachineStatus
from interlane.model import MILLI, LogEntry
from interlane.model.codec import plain
from interlane.model.lifecycle import JobState

HIDDEN: Final = "(hidden)"

OLD_KINDS: Final = {
    "Submitted": "submitted",
    "Start": "placed",
    "Started": "started",
    "StartFailed": "start failed",
    "CancelRequested": "cancel asked",
    "Preempt": "stop wished",
    "Grow": "grow placed",
    "Grown": "grew",
    "GrowFailed": "grow failed",
    "Preempted": "preempted",
    "JobLost": "requeued",
    "Requeue": "requeued",
    "Finished": "ended",
    "Cancelled": "cancelled",
    "Refuse": "refused",
}
"""What kinds of entries were called before; shown for one more version."""


def shown_spec(document: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """Return a job as it was written; values of variables are for its owner and admins."""
    if whole:
        return dict(document)
    shown: dict[str, Any] = deepcopy(dict(document))
    for part in (shown, *shown.get("tasks", ())):
        if "env" in part:
            part["env"] = dict.fromkeys(part["env"], HIDDEN)
    if "sweep" in shown:  # the job that all its trials are made of, variables and all
        shown["sweep"].pop("job", None)
    if "notify" in shown:  # whoever knows such an address can write to it
        shown["notify"]["url"] = HIDDEN
    return shown


def job_document(
    record: JobRecord,
    use: Use | None = None,
    process: ProcessReport | None = None,
    *,
    now_s: float,
    whole: bool,
) -> dict[str, Any]:
    """Return a job as the API shows it at a moment, whole to its owner and admins.

    ``use`` and ``process`` are of one that is on a device now.
    """
    return {
        "id": record.id,
        "name": record.name,
        "user": record.user,
        "queue": record.queue,
        "priority": record.job.priority,
        "request": record.job.request,
        "state": record.state.value,
        "reason": record.reason,
        "submitted_s": record.submitted_s,
        "started_s": record.started_s,
        "ended_s": record.ended_s,
        "attempt": record.attempt,
        "failures": record.failures,
        "not_before_s": record.not_before_s,
        "held_by": record.held_by,
        "array_id": record.array_id,
        "array_count": record.array_count,
        "exit_code": record.exit_code,
        "cancelled_by": record.cancelled_by,
        "ran_s": _ran_s(record, now_s),
        "estimate": (estimate := _estimate_document(record)),
        "guess": estimate,  # its name in the version before
        "use": record.use if use is None else asdict(use),
        "device_state": None if process is None else process.state.value,
        "device_why": None if process is None else process.why,
        "placement": record.placement and placement_document(record.placement),
        "spec": shown_spec(record.job.document, whole=whole),
        "version": record.version,
    }


def _ran_s(record: JobRecord, now_s: float) -> float:
    """Return how long a job has run by now, over all attempts whose work was kept."""
    if record.state.holds:
        return record.ran_for_s(now_s)
    # One that was cancelled while it waited has an attempt that was over before.
    is_last = record.state in (JobState.SUCCEEDED, JobState.FAILED)
    if record.ended_s is not None and (is_last or record.exit_code is not None):
        return record.ran_for_s(record.ended_s)
    return record.ran_s


def _estimate_document(record: JobRecord) -> dict[str, Any]:
    return {
        "seconds": record.estimate_s,
        "low_s": record.low_s,
        "high_s": record.high_s,
        "basis": record.basis,
    }


def entry_document(entry: LogEntry, *, whole: bool) -> dict[str, Any]:
    """Return an entry of the log as the API shows it, whole to the job's owner and admins."""
    detail = dict(entry.detail)
    if SPEC in detail:
        detail[SPEC] = shown_spec(detail[SPEC], whole=whole)
    return {
        "seq": entry.seq,
        "at_s": entry.at_s,
        "kind": entry.kind,
        "old_kind": OLD_KINDS.get(entry.kind),
        "job_id": entry.job_id,
        "machine_id": entry.machine_id,
        "what": plain(entry.what),
        "detail": detail,
    }


def machine_document(status: MachineStatus) -> dict[str, Any]:
    """Return a machine as the API shows it."""
    machine = status.machine
    return {
        "name": machine.id,
        "drained": status.drained,
        "jobs": list(status.jobs),
        "cpus": machine.cpu_milli / MILLI,
        "memory_mib": machine.memory_mib,
        "gpus": [
            {"gpu": number, **asdict(machine.device(number))} for number in range(machine.gpus)
        ],
        "labels": dict(machine.labels),
        "taints": [list(taint) for taint in machine.taints],
    }
