"""What the daemon tells about itself: one document for people, dashboards and tests."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from interlane import __version__
from interlane.device import page
from interlane.device.shared import SharedDevice, SharedJob

if TYPE_CHECKING:
    from interlane.device.daemon import Daemon


def status_of(daemon: "Daemon", run: int = 0) -> dict[str, Any]:
    """Return the state of all devices, and what became of one run."""
    return {
        "socket": str(daemon.settings.socket),
        "pid": os.getpid(),
        "version": __version__,
        "order": daemon.settings.order,
        "sharing": daemon.settings.sharing,
        "journal": daemon.journal_trouble or "complete",
        "devices": [_device(one) for one in daemon.devices],
        "run": _run(daemon, run) if run in daemon.runs else None,
    }


def _run(daemon: "Daemon", run: int) -> Mapping[str, object]:
    """Return what became of a run: its jobs that left, and those that are here."""
    tally = replace(daemon.runs[run])
    for device in daemon.devices:
        for job in device.jobs.values():
            if job.run == run:
                tally.add(job)
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
    view = device.domain.view()
    return {
        "index": device.index,
        "device": device.spec.name,
        "cores": sorted(device.spec.cores),
        "capacity_bytes": view.budget.capacity_bytes,
        "booked_bytes": view.booked_bytes,
        "recovering": device.is_recovering,
        "quantum_s": view.quantum_s,
        "iterations": device.iterations,
        "busy_seconds": device.busy_s,
        "switches": device.switches,
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
