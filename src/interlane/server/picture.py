"""What the API shows of jobs and devices: documents made from records."""

from collections.abc import Iterable
from typing import Any

from interlane.model import MILLI, Cluster, Placement
from interlane.server import spec
from interlane.server.record import Entry, Record
from interlane.server.spec import JobSpec


def job_document(record: Record) -> dict[str, Any]:
    """Return a job as the API shows it."""
    return {
        "id": record.id,
        "name": record.name,
        "user": record.user,
        "queue": record.queue,
        "state": record.state.value,
        "reason": record.reason,
        "submitted_s": record.submitted_s,
        "started_s": record.started_s,
        "ended_s": record.ended_s,
        "attempt": record.attempt,
        "exit_code": record.exit_code,
        "cancelled_by": record.cancelled_by,
        "ran_s": record.ran_s,
        "guess": {"seconds": record.guess_s, "low_s": record.low_s, "high_s": record.high_s},
        "placement": None if record.placement is None else list(record.placement),
        "spec": dict(record.spec),
        "version": record.version,
    }


def entry_document(entry: Entry) -> dict[str, Any]:
    """Return an entry of the log as the API shows it."""
    return {
        "seq": entry.seq,
        "at_s": entry.at_s,
        "kind": entry.kind.value,
        "job_id": entry.job_id,
        "change": dict(entry.change),
    }


def gpu_documents(
    cluster: Cluster, holders: Iterable[Record], *, emulated: bool
) -> list[dict[str, Any]]:
    """Return every GPU with what is held of it, and by whom."""
    shown = {
        (machine.id, gpu): {
            "machine": machine.id,
            "gpu": gpu,
            "type": machine.gpu_type,
            "emulated": emulated,
            "memory_mib": machine.gpu_memory_mib,
            "held_milli": 0,
            "held_memory_mib": 0,
            "jobs": [],
        }
        for machine in cluster
        for gpu in range(machine.gpus)
    }
    for record in holders:
        if record.place is not None:
            _hold(shown, record, record.place, cluster)
    return list(shown.values())


def _hold(
    shown: dict[Any, dict[str, Any]], record: Record, place: Placement, cluster: Cluster
) -> None:
    request = spec.request_of(JobSpec.model_validate(record.spec), cluster)
    for spot in place.spots:
        demand = request.tasks[spot.task].demand
        for gpu in spot.gpus:
            device = shown[spot.machine, gpu]
            device["held_milli"] += demand.gpu_milli * spot.instances
            device["held_memory_mib"] += demand.gpu_memory_mib * spot.instances
            device["jobs"].append(
                {
                    "id": record.id,
                    "milli": min(MILLI, demand.gpu_milli * spot.instances),
                    "memory_mib": demand.gpu_memory_mib * spot.instances,
                }
            )
