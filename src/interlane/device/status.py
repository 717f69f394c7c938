"""What the daemon tells about itself: one document for people, dashboards and tests."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from interlane import __version__
from interlane.device import page
from interlane.device.settings import Settings
from interlane.device.shared import SharedDevice
from interlane.device.shared_job import SharedJob
from interlane.device.tally import Tally


def status_of(
    settings: Settings,
    devices: Sequence[SharedDevice],
    journal_trouble: str | None,
    run: int,
    tallied: Tally | None,
) -> dict[str, Any]:
    """Return the state of all devices, and what became of one run."""
    jobs = [job for device in devices for job in device.jobs.values() if job.run == run]
    return {
        "socket": str(settings.socket),
        "pid": os.getpid(),
        "version": __version__,
        "order": settings.order,
        "sharing": settings.sharing,
        "journal": journal_trouble or "complete",
        "devices": [_device(one) for one in devices],
        "run": None if tallied is None else _run(tallied.with_those(jobs)),
    }


def _run(tally: Tally) -> Mapping[str, object]:
    return {
        "jobs": tally.jobs,
        "iterations": tally.iterations,
        "busy_s": tally.busy_ns / 1e9,
        "waited_s": tally.waited_ns / 1e9,
        "present_s": tally.present_ns / 1e9,
        "persistent_bytes": tally.needed.persistent_bytes,
        "ephemeral_bytes": tally.needed.ephemeral_bytes,
    }


def _device(device: SharedDevice) -> Mapping[str, object]:
    view, total = device.domain.view(), device.total
    return {
        "index": device.index,
        "device": device.spec.name,
        "cores": sorted(device.spec.cores),
        "capacity_bytes": view.budget.capacity_bytes,
        "booked_bytes": view.booked_bytes,
        "recovering": device.is_recovering,
        "quantum_s": view.quantum_s,
        "iterations": total.iterations,
        "busy_seconds": total.busy_ns / 1e9,
        "switches": device.domain.switches,
        "switches_per_s": round(device.switches_per_s, 1),
        "lanes": [
            {
                "lane": lane.lane,
                "size_bytes": lane.size_bytes,
                "jobs": list(lane.tenants),
                "waiting": list(lane.waiting),
                "holder": None if lane.lease is None else lane.lease.job_id,
            }
            for lane in view.lanes
        ],
        "jobs": [_job(device, job) for job in device.jobs.values()],
    }


def _job(device: SharedDevice, job: SharedJob) -> Mapping[str, object]:
    tenant = device.domain.tenants[job.id]
    lane = device.domain.book.lane_of(job.id)
    booked = None if lane is None else lane.tenants[job.id]
    waits = device.domain.book.waiting
    return {
        "job": job.id,
        "name": job.name,
        "pid": job.pid,
        "state": _state(device, job),
        "why": str(device.domain.book.why_waits(job.id).reason) if job.id in waits else None,
        "lane": None if lane is None else lane.id,
        "priority": job.priority,
        "share": job.share,
        "is_declared": job.is_declared,
        "persistent_bytes": None if booked is None else booked.persistent_bytes,
        "ephemeral_bytes": None if booked is None else booked.ephemeral_bytes,
        "measured_persistent_bytes": job.measured and job.measured.persistent_bytes,
        "measured_ephemeral_bytes": job.measured and job.measured.ephemeral_bytes,
        "iterations": job.word(page.ITERATIONS),
        "busy_s": job.word(page.BUSY_NS) / 1e9,
        "waited_s": job.word(page.WAITED_NS) / 1e9,
        "present_s": job.present_ns / 1e9,
        "attained_s": tenant.attained_at(device.clock()),
    }


def _state(device: SharedDevice, job: SharedJob) -> str:
    tenant = device.domain.tenants[job.id]
    if job.id in device.domain.book.waiting:
        return "queued"
    if job.line is None:
        return "away"
    if tenant.held_since_s is not None:
        return "running" if job.word(page.BEGAN_NS) else "holding"
    return "waiting" if tenant.wanted_since_s is not None else "idle"
