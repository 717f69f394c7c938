"""Jobs that outlive their daemon: what the journal keeps of them, and how they are found again.

After a crash the next daemon reads the journal and waits for the jobs whose processes live.
Until all of them are back, or a grace period is over, nobody comes in and no lane is granted.
"""

import os
from collections.abc import Iterable

from interlane.device.journal import MemoryRecord, started_ticks
from interlane.device.shared import SharedDevice
from interlane.device.shared_job import SharedJob
from interlane.lanes.actions import LaneId, MemoryDemand
from interlane.model import JobId


def record_of(job: SharedJob, device: SharedDevice) -> MemoryRecord:
    """Return what a job holds, for the journal."""
    lane = device.domain.book.lane_of(job.id)
    assert lane is not None
    demand = lane.tenants[job.id]
    return MemoryRecord(
        key=job.key,
        job_id=job.id,
        name=job.name,
        pid=job.pid,
        started=started_ticks(job.pid) or 0,
        device=device.index,
        lane=lane.id,
        lane_bytes=lane.size_bytes,
        persistent_bytes=demand.persistent_bytes,
        ephemeral_bytes=demand.ephemeral_bytes,
        priority=job.priority,
        is_declared=job.is_declared,
        processes=job.processes,
        share=job.share,
    )


def survivors(
    records: Iterable[MemoryRecord], devices: int
) -> list[tuple[MemoryRecord, SharedJob]]:
    """Return the jobs whose processes live, of those on so many devices."""
    found = [(record, _survivor(record)) for record in records if record.device < devices]
    return [(record, job) for record, job in found if job is not None]


def _survivor(record: MemoryRecord) -> SharedJob | None:
    """Return the job of a record, its process watched; None if that is gone."""
    try:
        pidfd = os.pidfd_open(record.pid)
    except OSError:
        return None
    if started_ticks(record.pid) != record.started:
        os.close(pidfd)
        return None
    return SharedJob(
        JobId(record.job_id),
        record.key,
        record.pid,
        record.name,
        MemoryDemand(record.persistent_bytes, record.ephemeral_bytes),
        record.is_declared,
        record.priority,
        processes=record.processes,
        share=record.share,
        pidfd=pidfd,
    )


def inherit(device: SharedDevice, job: SharedJob, record: MemoryRecord) -> None:
    """Book what a job of the daemon before holds, until it is back or dead."""
    demand = MemoryDemand(record.persistent_bytes, record.ephemeral_bytes)
    device.inherit(job, demand, LaneId(record.lane), record.lane_bytes)
