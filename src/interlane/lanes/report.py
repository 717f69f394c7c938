"""What a device daemon reports: written by ``device``, read by whoever runs an engine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunReport:
    """What one run of a program did on a device so far, over all its processes."""

    iterations: int
    busy_s: float
    """Inside iterations."""
    waited_s: float
    """With an iteration to run, while others had the device."""
    present_s: float
    """Since it was admitted to the device."""


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """One process on a device."""

    number: int
    """By which the daemon knows it."""
    name: str
    """Of the job that it belongs to."""
    state: str
    """running, holding, waiting, idle, queued or away."""
    lane: int | None
    share_milli: int
    run: RunReport
    persistent_bytes: int | None
    """Booked from start to end."""
    ephemeral_bytes: int | None
    """Booked inside an iteration, on top."""
    measured_persistent_bytes: int | None
    """None until it is measured."""
    measured_ephemeral_bytes: int | None


@dataclass(frozen=True, slots=True)
class LaneReport:
    """Processes that take turns; all by number."""

    number: int
    size_bytes: int
    members: tuple[int, ...]
    waiting: tuple[int, ...]
    holder: int | None


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One device."""

    index: int
    capacity_bytes: int
    booked_bytes: int
    busy_s: float
    """In which an iteration ran, since the daemon began."""
    switches_per_s: float
    quantum_s: float
    processes: tuple[ProcessReport, ...]
    lanes: tuple[LaneReport, ...]


@dataclass(frozen=True, slots=True)
class DaemonReport:
    """All devices of a daemon."""

    pid: int
    devices: tuple[DeviceReport, ...]
