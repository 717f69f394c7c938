"""What a device daemon reports: written by ``device``, read by whoever runs an engine.

``document_of`` writes a report as the document that ``share status -o json`` shows, and
``report_of`` reads it back.  Fields that a newer daemon adds are passed over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from interlane.lanes.actions import MemoryDemand
from interlane.model import InterlaneError


class UnreadableReport(InterlaneError):
    """A daemon of another version reports something else."""

    def __init__(self, document: object) -> None:
        said = document if isinstance(document, Mapping) else {}
        version, pid = said.get("version", "unknown"), said.get("pid")
        process = f", process {pid}" if isinstance(pid, int) else ""
        super().__init__(
            f"the device daemon (version {version}{process}) reports something that this "
            "version cannot read; end it, and start one of this version."
        )
        self.pid: int | None = pid if isinstance(pid, int) else None


@dataclass(frozen=True, slots=True)
class RunReport:
    """What somebody did on a device so far, over all its processes."""

    iterations: int = 0
    busy_s: float = 0.0
    """Inside iterations."""
    waited_s: float = 0.0
    """With an iteration to run, while others had the device."""
    present_s: float = 0.0
    """Since it was admitted to the device."""

    def __add__(self, other: "RunReport") -> "RunReport":
        return RunReport(
            self.iterations + other.iterations,
            self.busy_s + other.busy_s,
            self.waited_s + other.waited_s,
            self.present_s + other.present_s,
        )

    def since(self, before: "RunReport") -> "RunReport | None":
        """Return what was done since then; None if a process has ended meanwhile."""
        done = RunReport(
            self.iterations - before.iterations,
            self.busy_s - before.busy_s,
            self.waited_s - before.waited_s,
            self.present_s - before.present_s,
        )
        least = min(done.iterations, done.busy_s, done.waited_s, done.present_s)
        return None if least < 0 else done

    @property
    def turns_slowdown(self) -> float:
        """By how much turns have slowed it down."""
        worked_s = self.present_s - self.waited_s
        return self.present_s / worked_s if worked_s > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotal(RunReport):
    """What one run of a program did, processes that have left included."""

    processes: int
    needed: MemoryDemand
    """The most that any of them was measured to need."""


class ProcessState(StrEnum):
    """What a process does, the most active first."""

    RUNNING = "running"
    """It is inside an iteration."""
    HOLDING = "holding"
    """It has its lane, and is between iterations."""
    WAITING = "waiting"
    """It wants its lane."""
    IDLE = "idle"
    QUEUED = "queued"
    """It is not admitted: its memory does not fit yet."""
    AWAY = "away"
    """It was known to the daemon before this one, and has not come back."""


_RANK = {state: rank for rank, state in enumerate(ProcessState)}


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """One process on a device."""

    id: str
    """By which the daemon knows it."""
    name: str
    """Of the job that it belongs to."""
    pid: int
    state: ProcessState
    why: str | None
    """Why it is queued."""
    lane: int | None
    priority: int
    share_milli: int
    """0 if it holds all of the device."""
    is_declared: bool
    """Whether it is held to what is booked."""
    booked: MemoryDemand | None
    """None until it is admitted."""
    measured: MemoryDemand | None
    """None until it is measured."""
    run: RunReport
    attained_s: float
    """Time that it had the device, as the order counts it."""
    seen: MemoryDemand | None = None
    """What it had in use when it last looked, and on top of that before; None if it has not."""

    @property
    def rank(self) -> int:
        """The lower, the more it does."""
        return _RANK[self.state]


@dataclass(frozen=True, slots=True)
class LaneReport:
    """Processes that take turns, by id."""

    number: int
    size_bytes: int
    members: tuple[str, ...]
    waiting: tuple[str, ...]
    holder: str | None


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One device."""

    index: int
    name: str
    """For torch; two devices can have one name: parts of one CPU."""
    cores: tuple[int, ...]
    capacity_bytes: int
    booked_bytes: int
    is_recovering: bool
    """Whether processes of the daemon before are waited for."""
    quantum_s: float
    iterations: int
    """Of all processes, those that left included."""
    busy_s: float
    """In which an iteration ran, since the daemon began."""
    switches: int
    switches_per_s: float
    lanes: tuple[LaneReport, ...]
    processes: tuple[ProcessReport, ...]


@dataclass(frozen=True, slots=True)
class DaemonReport:
    """All devices of a daemon."""

    socket: str
    pid: int
    version: str
    order: str
    sharing: str
    journal: str
    """``complete``, or what is wrong with it."""
    devices: tuple[DeviceReport, ...]
    run: RunTotal | None = None
    """What became of the run that was asked about; None if nobody knows."""


# -- as a document --------------------------------------------------------------------


def document_of(report: DaemonReport) -> dict[str, Any]:
    """Return a report as it is sent and shown."""
    return {
        "socket": report.socket,
        "pid": report.pid,
        "version": report.version,
        "order": report.order,
        "sharing": report.sharing,
        "journal": report.journal,
        "devices": [_device_document(one) for one in report.devices],
        "run": None if report.run is None else _run_document(report.run),
    }


def report_of(document: Mapping[str, Any]) -> DaemonReport:
    """Return the report that a document holds, or raise ``UnreadableReport``."""
    try:
        return DaemonReport(
            document["socket"],
            document["pid"],
            document["version"],
            document["order"],
            document["sharing"],
            document["journal"],
            tuple(map(_device_in, document["devices"])),
            None if document["run"] is None else _run_in(document["run"]),
        )
    except (KeyError, TypeError, ValueError):
        raise UnreadableReport(document) from None


def _counters(run: RunReport) -> dict[str, Any]:
    return {
        "iterations": run.iterations,
        "busy_s": run.busy_s,
        "waited_s": run.waited_s,
        "present_s": run.present_s,
    }


def _counted(told: Mapping[str, Any]) -> RunReport:
    return RunReport(told["iterations"], told["busy_s"], told["waited_s"], told["present_s"])


def _memory(demand: MemoryDemand | None, prefix: str = "") -> dict[str, Any]:
    return {
        f"{prefix}persistent_bytes": demand and demand.persistent_bytes,
        f"{prefix}ephemeral_bytes": demand and demand.ephemeral_bytes,
    }


def _memory_in(told: Mapping[str, Any], prefix: str = "") -> MemoryDemand | None:
    persistent_bytes = told[f"{prefix}persistent_bytes"]
    if persistent_bytes is None:
        return None
    return MemoryDemand(persistent_bytes, told[f"{prefix}ephemeral_bytes"])


def _run_document(run: RunTotal) -> dict[str, Any]:
    return {"jobs": run.processes, **_counters(run), **_memory(run.needed)}


def _run_in(told: Mapping[str, Any]) -> RunTotal:
    run = _counted(told)
    return RunTotal(
        run.iterations,
        run.busy_s,
        run.waited_s,
        run.present_s,
        processes=told["jobs"],
        needed=MemoryDemand(told["persistent_bytes"], told["ephemeral_bytes"]),
    )


def _device_document(device: DeviceReport) -> dict[str, Any]:
    return {
        "index": device.index,
        "device": device.name,
        "cores": list(device.cores),
        "capacity_bytes": device.capacity_bytes,
        "booked_bytes": device.booked_bytes,
        "recovering": device.is_recovering,
        "quantum_s": device.quantum_s,
        "iterations": device.iterations,
        "busy_seconds": device.busy_s,
        "switches": device.switches,
        "switches_per_s": device.switches_per_s,
        "lanes": [_lane_document(one) for one in device.lanes],
        "jobs": [_process_document(one) for one in device.processes],
    }


def _device_in(told: Mapping[str, Any]) -> DeviceReport:
    return DeviceReport(
        index=told["index"],
        name=told["device"],
        cores=tuple(told["cores"]),
        capacity_bytes=told["capacity_bytes"],
        booked_bytes=told["booked_bytes"],
        is_recovering=told["recovering"],
        quantum_s=told["quantum_s"],
        iterations=told["iterations"],
        busy_s=told["busy_seconds"],
        switches=told["switches"],
        switches_per_s=told["switches_per_s"],
        lanes=tuple(map(_lane_in, told["lanes"])),
        processes=tuple(map(_process_in, told["jobs"])),
    )


def _lane_document(lane: LaneReport) -> dict[str, Any]:
    return {
        "lane": lane.number,
        "size_bytes": lane.size_bytes,
        "jobs": list(lane.members),
        "waiting": list(lane.waiting),
        "holder": lane.holder,
    }


def _lane_in(told: Mapping[str, Any]) -> LaneReport:
    return LaneReport(
        told["lane"],
        told["size_bytes"],
        tuple(told["jobs"]),
        tuple(told["waiting"]),
        told["holder"],
    )


def _process_document(process: ProcessReport) -> dict[str, Any]:
    return {
        "job": process.id,
        "name": process.name,
        "pid": process.pid,
        "state": process.state.value,
        "why": process.why,
        "lane": process.lane,
        "priority": process.priority,
        "share": process.share_milli,
        "is_declared": process.is_declared,
        **_memory(process.booked),
        **_memory(process.measured, "measured_"),
        **_counters(process.run),
        "attained_s": process.attained_s,
        **_memory(process.seen, "seen_"),
    }


def _process_in(told: Mapping[str, Any]) -> ProcessReport:
    return ProcessReport(
        id=told["job"],
        name=told["name"],
        pid=told["pid"],
        state=ProcessState(told["state"]),
        why=told["why"],
        lane=told["lane"],
        priority=told["priority"],
        share_milli=told["share"],
        is_declared=told["is_declared"],
        booked=_memory_in(told),
        measured=_memory_in(told, "measured_"),
        run=_counted(told),
        attained_s=told["attained_s"],
        # A daemon of the version before outlives the server that began it, and has none.
        seen=_memory_in(told, "seen_") if "seen_persistent_bytes" in told else None,
    )
