"""Metrics for Prometheus, made from the same document as ``share status``."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

LABELS: Final = ["index", "device"]
"""Two devices can have one name: parts of one CPU."""


def expose(status: Callable[[], Mapping[str, Any]], port: int) -> int:
    """Serve metrics on this machine only, from a status that any thread may ask for.

    Returns the port.
    """
    registry = CollectorRegistry()
    registry.register(_Collector(status))
    server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    return int(server.server_port)


class _Collector:
    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Return the numbers of every device."""
        devices = self._status()["devices"]
        yield from _gauges(devices)
        yield from _counters(devices)


def _gauges(devices: list[dict[str, Any]]) -> Iterator[Metric]:
    for name, about, value in (
        ("capacity_bytes", "Memory of the device.", lambda one: one["capacity_bytes"]),
        ("booked_bytes", "Memory booked for jobs.", lambda one: one["booked_bytes"]),
        ("quantum_seconds", "Length of a turn.", lambda one: one["quantum_s"]),
        ("lanes", "Lanes in use.", lambda one: len(one["lanes"])),
        ("recovering", "1 while jobs of an earlier daemon are waited for.", _recovering),
    ):
        family = GaugeMetricFamily(f"interlane_share_{name}", about, labels=LABELS)
        for device in devices:
            family.add_metric(_labels(device), value(device))
        yield family
    family = GaugeMetricFamily(
        "interlane_share_jobs", "Jobs by state.", labels=[*LABELS, "state"]
    )
    for device in devices:
        states = [job["state"] for job in device["jobs"]]
        for state in sorted(set(states)):
            family.add_metric([*_labels(device), state], states.count(state))
    yield family


def _labels(device: dict[str, Any]) -> list[str]:
    return [str(device["index"]), device["device"]]


def _recovering(device: dict[str, Any]) -> int:
    return int(device["recovering"])


def _counters(devices: list[dict[str, Any]]) -> Iterator[Metric]:
    for name, about in (
        ("switches", "Hand-overs from one job to another."),
        ("iterations", "Iterations of all jobs, those that left included."),
        ("busy_seconds", "Time inside iterations, of all jobs."),
    ):
        family = CounterMetricFamily(f"interlane_share_{name}", about, labels=LABELS)
        for device in devices:
            family.add_metric(_labels(device), device[name])
        yield family
