"""The jobs of the last days as a trace, and this machine as a cluster: to try what if on.

A job that has ended ran for as long as it did; one that has not is taken to run for as long as
was estimated, or for as long as it has run if that is longer.  Jobs that never got a place and
never will (refused, or cancelled while they waited) are left out.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from io import StringIO
from typing import Any, Final

from interlane.live.driver.state import Snapshot
from interlane.live.files import job as spec
from interlane.live.store.record import JobRecord
from interlane.live.store.rows import JobsWanted
from interlane.live.store.store import Store
from interlane.model import Label, Task
from interlane.model.lifecycle import JobState

PAGE: Final = 1_000
SHORTEST_S: Final = 0.001
"""A trace has no jobs of no length."""

COLUMNS: Final = (
    "job_id", "serial", "submit_s", "duration_s", "waited_s", "live_estimate",
    "role", "instances", "instances_min", "gpus", "gpu_milli", "gpu_memory_mib", "cpu_milli",
    "memory_mib", "gpu_types", "same_machine", "user", "queue", "priority", "group", "family",
)  # fmt: skip
RARE: Final = ("selectors", "tolerations", "topology")
"""Columns that are there only if a job says something in one of them."""


def trace_text(store: Store, now: Snapshot, since_s: float) -> str:
    """Return the jobs submitted since a moment as a trace in CSV, the oldest first.

    A job has one row per task.
    """
    records = [one for one in _handed_in_since(store, since_s) if _has_run_or_will(one)]
    records.sort(key=lambda one: (one.submitted_s, one.serial))
    begin_s = records[0].submitted_s if records else 0.0
    rows = [row for record in records for row in _rows(record, now, begin_s)]
    used = [name for name in RARE if any(row[name] for row in rows)]
    text = StringIO()
    writer = csv.DictWriter(text, (*COLUMNS, *used), extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _handed_in_since(store: Store, since_s: float) -> Iterator[JobRecord]:
    before = None
    while page := store.jobs(JobsWanted(PAGE, before)):
        # What an engine brought may have come in before what has a lower number.
        recent = [record for record in page if record.submitted_s >= since_s]
        if not recent:
            return
        yield from recent
        before = page[-1].serial


_WAITING: Final = (JobState.QUEUED, JobState.HELD)


def _has_run_or_will(record: JobRecord) -> bool:
    return record.state in _WAITING or record.started_s is not None


def _rows(record: JobRecord, now: Snapshot, begin_s: float) -> Iterator[dict[str, Any]]:
    job = record.job
    request = now.request_of(job)
    whole = {
        "job_id": record.id,
        "serial": record.serial,
        "submit_s": record.submitted_s - begin_s,
        "duration_s": max(SHORTEST_S, _runs_s(record, now.now_s)),
        "waited_s": "" if record.started_s is None else record.started_s - record.submitted_s,
        "live_estimate": max(SHORTEST_S, record.estimate_s),
        "user": record.user,
        "queue": record.queue,
        "priority": job.priority,
        "group": spec.program_of(job),
        "family": job.family or "",
        "topology": _pairs(
            (word, level) for word, level in asdict(request.closeness).items() if level
        ),
    }
    for task in request.tasks:
        yield whole | _of_task(task)


def _of_task(task: Task) -> dict[str, Any]:
    demand = task.demand
    return {
        "role": task.role,
        "instances": task.instances,
        "instances_min": task.least,
        "gpus": demand.gpus,
        "gpu_milli": demand.gpu_milli,
        "gpu_memory_mib": demand.gpu_memory_mib,
        "cpu_milli": demand.cpu_milli,
        "memory_mib": demand.memory_mib,
        "gpu_types": "|".join(sorted(demand.gpu_types)),
        "same_machine": "true" if task.same_machine else "false",
        "selectors": _pairs(demand.selectors),
        "tolerations": _pairs(demand.tolerations),
    }


def _pairs(labels: Iterable[Label]) -> str:
    return "|".join(sorted(f"{key}={value}" for key, value in labels))


def _runs_s(record: JobRecord, now_s: float) -> float:
    """Return how long a job ran, or is thought to run."""
    if record.state in _WAITING:
        return record.estimate_s
    ran_s = record.ran_for_s(record.ended_s or now_s)
    return max(ran_s, record.estimate_s) if record.is_open else ran_s
