"""Metrics for Prometheus, made from the same report as ``share status``."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from interlane.lanes.report import DaemonReport, DeviceReport

LABELS: Final = ["index", "device"]
"""Two devices can have one name: parts of one CPU."""

Figure = tuple[str, str, Callable[[DeviceReport], float]]
"""A name, what it means, and how to read it off a device."""

GAUGES: Final[Sequence[Figure]] = (
    ("capacity_bytes", "Memory of the device.", lambda one: one.capacity_bytes),
    ("booked_bytes", "Memory booked for jobs.", lambda one: one.booked_bytes),
    ("quantum_seconds", "Length of a turn.", lambda one: one.quantum_s),
    ("lanes", "Lanes in use.", lambda one: len(one.lanes)),
    (
        "recovering",
        "1 while jobs of an earlier daemon are waited for.",
        lambda one: float(one.is_recovering),
    ),
)
COUNTERS: Final[Sequence[Figure]] = (
    ("switches", "Hand-overs from one job to another.", lambda one: one.switches),
    (
        "iterations",
        "Iterations of all jobs, those that left included.",
        lambda one: one.iterations,
    ),
    ("busy_seconds", "Time inside iterations, of all jobs.", lambda one: one.busy_s),
)


def expose(report: Callable[[], DaemonReport], port: int) -> int:
    """Serve metrics on this machine only, from a report that any thread may ask for.

    Returns the port.
    """
    registry = CollectorRegistry()
    registry.register(_Collector(report))
    server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    return int(server.server_port)


def exposed(report: DaemonReport) -> bytes:
    """Return a report as Prometheus reads it."""
    registry = CollectorRegistry()
    registry.register(_Collector(lambda: report))
    return generate_latest(registry)


class _Collector:
    def __init__(self, report: Callable[[], DaemonReport]) -> None:
        self._report = report

    def collect(self) -> Iterator[Metric]:
        """Return the numbers of every device."""
        devices = self._report().devices
        yield from _gauges(devices)
        yield from _counters(devices)
        yield _slowdowns(devices)


def _gauges(devices: Sequence[DeviceReport]) -> Iterator[Metric]:
    for name, about, value in GAUGES:
        family = GaugeMetricFamily(f"interlane_share_{name}", about, labels=LABELS)
        for device in devices:
            family.add_metric(_labels(device), value(device))
        yield family
    family = GaugeMetricFamily(
        "interlane_share_jobs", "Jobs by state.", labels=[*LABELS, "state"]
    )
    for device in devices:
        states = [process.state for process in device.processes]
        for state in sorted(set(states)):
            family.add_metric([*_labels(device), state], states.count(state))
    yield family


def _slowdowns(devices: Sequence[DeviceReport]) -> Metric:
    """Return by how much turns slow each job down; the worst of its processes counts."""
    family = GaugeMetricFamily(
        "interlane_share_slowdown",
        "By how much taking turns slows a job down, since it came.",
        labels=[*LABELS, "job"],
    )
    for device in devices:
        worst: dict[str, float] = {}
        for process in device.processes:
            slowdown = process.run.turns_slowdown
            worst[process.name] = max(worst.get(process.name, 1.0), slowdown)
        for name, slowdown in sorted(worst.items()):
            family.add_metric([*_labels(device), name], slowdown)
    return family


def _labels(device: DeviceReport) -> list[str]:
    return [str(device.index), device.name]


def _counters(devices: Sequence[DeviceReport]) -> Iterator[Metric]:
    for name, about, value in COUNTERS:
        family = CounterMetricFamily(f"interlane_share_{name}", about, labels=LABELS)
        for device in devices:
            family.add_metric(_labels(device), value(device))
        yield family
