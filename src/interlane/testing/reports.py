"""Reports of device daemons, as short as a test can say them."""

from interlane import __version__
from interlane.lanes.actions import MemoryDemand
from interlane.lanes.report import (
    DaemonReport,
    DeviceReport,
    ProcessReport,
    ProcessState,
    RunReport,
)


def process(
    name: str,
    lane: int | None = 0,
    run: RunReport | None = None,
    *,
    share_milli: int = 0,
    state: ProcessState = ProcessState.IDLE,
    why: str | None = None,
) -> ProcessReport:
    """Return a process that was measured to need 120 bytes."""
    return ProcessReport(
        id=f"{name}.1",
        name=name,
        pid=1,
        state=state,
        why=why,
        lane=lane,
        priority=0,
        share_milli=share_milli,
        is_declared=False,
        booked=None if lane is None else MemoryDemand(100, 20),
        measured=None if lane is None else MemoryDemand(100, 20),
        run=run or RunReport(),
        attained_s=0.0,
    )


def device(*processes: ProcessReport, index: int = 0) -> DeviceReport:
    """Return a device of 480 bytes that was busy whenever one of its processes was."""
    return DeviceReport(
        index=index,
        name="cpu",
        cores=(),
        capacity_bytes=480,
        booked_bytes=sum(one.booked.peak_bytes for one in processes if one.booked),
        is_recovering=False,
        quantum_s=0.02,
        iterations=sum(one.run.iterations for one in processes),
        busy_s=sum(one.run.busy_s for one in processes),
        switches=0,
        switches_per_s=0.0,
        lanes=(),
        processes=processes,
    )


def daemon(*devices: DeviceReport, pid: int = 1) -> DaemonReport:
    """Return what a daemon reports that shares these devices."""
    return DaemonReport("/s", pid, __version__, "fair", "turns", "complete", devices)
