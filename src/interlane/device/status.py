"""What the daemon reports of itself, for people, dashboards, servers and tests."""

import os
from collections.abc import Sequence

from interlane import __version__
from interlane.device import page
from interlane.device.settings import DeviceSettings
from interlane.device.shared import SharedDevice
from interlane.device.shared_job import SharedJob
from interlane.device.tally import JobTally
from interlane.lanes.actions import MemoryDemand
from interlane.lanes.report import (
    DaemonReport,
    DeviceReport,
    LaneReport,
    ProcessReport,
    ProcessState,
    RunReport,
    RunTotal,
)


def report_now(
    settings: DeviceSettings,
    devices: Sequence[SharedDevice],
    journal_trouble: str | None,
    run: int,
    tallied: JobTally | None,
) -> DaemonReport:
    """Return the state of all devices, and what became of one run."""
    jobs = [job for device in devices for job in device.jobs.values() if job.run == run]
    return DaemonReport(
        socket=str(settings.socket),
        pid=os.getpid(),
        version=__version__,
        order=settings.order,
        sharing=settings.sharing,
        journal=journal_trouble or "complete",
        devices=tuple(map(_device, devices)),
        run=None if tallied is None else _run(tallied.with_those(jobs)),
    )


def _run(tally: JobTally) -> RunTotal:
    return RunTotal(
        tally.iterations,
        tally.busy_ns / 1e9,
        tally.waited_ns / 1e9,
        tally.present_ns / 1e9,
        processes=tally.jobs,
        needed=tally.needed,
    )


def _device(device: SharedDevice) -> DeviceReport:
    view, total = device.domain.view(), device.total
    return DeviceReport(
        index=device.index,
        name=device.spec.name,
        cores=tuple(sorted(device.spec.cores)),
        capacity_bytes=view.budget.capacity_bytes,
        booked_bytes=view.booked_bytes,
        is_recovering=device.is_recovering,
        quantum_s=view.quantum_s,
        iterations=total.iterations,
        busy_s=total.busy_ns / 1e9,
        switches=device.domain.switches,
        switches_per_s=round(device.switches_per_s, 1),
        lanes=tuple(
            LaneReport(
                lane.lane,
                lane.size_bytes,
                tuple(lane.tenants),
                tuple(lane.waiting),
                None if lane.lease is None else lane.lease.job_id,
            )
            for lane in view.lanes
        ),
        processes=tuple(_process(device, job) for job in device.jobs.values()),
    )


def _process(device: SharedDevice, job: SharedJob) -> ProcessReport:
    book, tenant = device.domain.book, device.domain.tenants[job.id]
    lane = book.lane_of(job.id)
    return ProcessReport(
        id=job.id,
        name=job.name,
        pid=job.pid,
        state=_state(device, job),
        why=book.why_waits(job.id).reason if job.id in book.waiting else None,
        lane=None if lane is None else lane.id,
        priority=job.priority,
        share_milli=job.share,
        is_declared=job.is_declared,
        booked=None if lane is None else lane.tenants[job.id],
        measured=job.measured,
        run=RunReport(
            job.word(page.ITERATIONS),
            job.word(page.BUSY_NS) / 1e9,
            job.word(page.WAITED_NS) / 1e9,
            job.present_ns / 1e9,
        ),
        attained_s=tenant.attained_at(device.clock()),
        seen=_seen(job),
    )


def _seen(job: SharedJob) -> MemoryDemand | None:
    used, peak = job.word(page.USED_BYTES), job.word(page.PEAK_BYTES)
    return MemoryDemand(used, max(0, peak - used)) if peak else None


def _state(device: SharedDevice, job: SharedJob) -> ProcessState:
    tenant = device.domain.tenants[job.id]
    if job.id in device.domain.book.waiting:
        return ProcessState.QUEUED
    if job.line is None:
        return ProcessState.AWAY
    if tenant.held_since_s is not None:
        return ProcessState.RUNNING if job.word(page.BEGAN_NS) else ProcessState.HOLDING
    return ProcessState.WAITING if tenant.wanted_since_s is not None else ProcessState.IDLE
