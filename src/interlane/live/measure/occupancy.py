"""Every device as it is now: what the kernel has given away, and what the daemon sees used.

``View.devices`` returns these; the API, the command line and the pages show them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from interlane.lanes.actions import MemoryDemand
from interlane.lanes.report import DeviceReport, ProcessReport
from interlane.live.driver.state import Snapshot
from interlane.live.measure.monitor import LastReport, Use, most_active
from interlane.model import MILLI, GpuRef, JobId, MachineId

ABSENT: Final = "absent"
"""The state of a job that holds a device and has not come to the daemon: it loads, or it never
imports torch."""


@dataclass(frozen=True, slots=True)
class TenantUse:
    """A job on a device."""

    id: JobId
    milli: int
    """Thousandths of the device that it holds."""
    memory_mib: int
    """Memory of the device that it holds; 0 if it asked for none."""
    state: str = ABSENT
    """Of the process that does most: running, holding, waiting, idle, queued, away, absent."""
    why: str | None = None
    """Why the daemon has not admitted it, if it is queued."""
    lane: int | None = None
    booked_bytes: int = 0
    """Booked for it by the daemon, its part of the lane included."""
    used_bytes: int | None = None
    """As measured at the peak of an iteration; None until it is."""
    use: Use | None = None
    """None while the daemon does not know it."""
    seen: MemoryDemand | None = None
    """What it had in use between iterations when it last looked, and on top of that in them."""

    @property
    def is_present(self) -> bool:
        """Whether it has come to the daemon."""
        return self.state != ABSENT

    @property
    def now(self) -> str:
        """What it does on its device, as its daemon sees it."""
        if not self.is_present:
            return "not seen by the device daemon"
        return self.state if self.why is None else f"{self.state}: {self.why}"


@dataclass(frozen=True, slots=True)
class LaneUse:
    """Jobs that take turns."""

    lane: int
    size_bytes: int
    """Memory that its jobs use one after another."""
    jobs: tuple[JobId, ...]
    waiting: tuple[JobId, ...]
    holder: JobId | None


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """A device, what is held of it, and what goes on there."""

    machine: MachineId
    gpu: int
    type: str
    emulated: bool
    memory_mib: int
    held_milli: int = 0
    held_memory_mib: int = 0
    jobs: tuple[TenantUse, ...] = ()
    is_shared: bool = False
    """Whether the daemon answers; what follows means nothing if not."""
    booked_bytes: int = 0
    used_bytes: int = 0
    """The sum of what its jobs were measured to use."""
    busy: float | None = None
    """Share of the last seconds in which an iteration ran; None until it is known."""
    switches_per_s: float = 0.0
    quantum_s: float = 0.0
    lanes: tuple[LaneUse, ...] = ()


def devices(now: Snapshot, found: LastReport | None) -> tuple[DeviceUse, ...]:
    """Return every device: what is held of it, and what goes on there if that is known."""
    return seen(held(now), found)


def held(now: Snapshot) -> list[DeviceUse]:
    """Return every device with what is held of it."""
    cluster = now.cluster
    tenants: dict[tuple[MachineId, int], list[TenantUse]] = {
        (machine.id, gpu): [] for machine in cluster for gpu in range(machine.gpus)
    }
    for record in now.records:
        if record.placement is None:
            continue
        request = now.request_of(record.job)
        for spot in record.placement.spots:
            demand = request.tasks[spot.task].demand
            milli = min(MILLI, demand.gpu_milli * spot.instances)
            memory_mib = demand.gpu_memory_mib * spot.instances
            for gpu in spot.gpus:
                there = tenants.setdefault((spot.machine, gpu), [])
                there.append(TenantUse(record.id, milli, memory_mib))
    return [
        DeviceUse(
            machine.id,
            gpu,
            machine.device(gpu).type,
            now.traits.emulated,
            machine.device(gpu).memory_mib,
            sum(one.milli for one in tenants[machine.id, gpu]),
            sum(one.memory_mib for one in tenants[machine.id, gpu]),
            tuple(tenants[machine.id, gpu]),
        )
        for machine in cluster
        for gpu in range(machine.gpus)
    ]


def seen(devices: Sequence[DeviceUse], found: LastReport | None) -> tuple[DeviceUse, ...]:
    """Return devices with what goes on there, if the daemon has told."""
    if found is None:
        return tuple(devices)
    return tuple(_with_lanes(device, found) for device in devices)


def _with_lanes(device: DeviceUse, found: LastReport) -> DeviceUse:
    seen = found.devices.get(GpuRef(device.machine, device.gpu))
    if seen is None:
        return device
    report = seen.report
    return replace(
        device,
        jobs=tuple(
            _with_use(job, [one for one in report.processes if one.name == job.id], found)
            for job in device.jobs
        ),
        is_shared=True,
        booked_bytes=report.booked_bytes,
        used_bytes=sum(map(_used_bytes, report.processes)),
        busy=seen.busy,
        switches_per_s=report.switches_per_s,
        quantum_s=report.quantum_s,
        lanes=_lanes(report),
    )


def _lanes(report: DeviceReport) -> tuple[LaneUse, ...]:
    names = {one.id: JobId(one.name) for one in report.processes}
    return tuple(
        LaneUse(
            lane.number,
            lane.size_bytes,
            tuple(names[one] for one in lane.members),
            tuple(names[one] for one in lane.waiting),
            None if lane.holder is None else names[lane.holder],
        )
        for lane in report.lanes
    )


def _with_use(
    tenant: TenantUse, processes: Sequence[ProcessReport], found: LastReport
) -> TenantUse:
    if not processes:
        return tenant
    first = most_active(processes)
    measured = [one for one in processes if one.measured is not None]
    return replace(
        tenant,
        state=first.state,
        why=first.why,
        lane=first.lane,
        booked_bytes=sum(one.booked.peak_bytes for one in processes if one.booked is not None),
        used_bytes=sum(map(_used_bytes, measured)) if measured else None,
        use=found.uses.get(tenant.id),
        seen=_seen_in(processes),
    )


def _seen_in(processes: Sequence[ProcessReport]) -> MemoryDemand | None:
    """Return the sum over those that have looked; None if none has."""
    seen = [one.seen for one in processes if one.seen is not None]
    if not seen:
        return None
    return MemoryDemand(
        sum(one.persistent_bytes for one in seen), sum(one.ephemeral_bytes for one in seen)
    )


def _used_bytes(process: ProcessReport) -> int:
    return 0 if process.measured is None else process.measured.peak_bytes
