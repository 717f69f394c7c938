"""Figures for Prometheus, read from the driver when they are asked for."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

from interlane import __version__
from interlane.model import MILLI
from interlane.server import spec
from interlane.server.driver import Driver
from interlane.server.record import HOLDING
from interlane.server.spec import JobSpec

MEDIA_TYPE: Final = CONTENT_TYPE_LATEST


def page(driver: Driver) -> bytes:
    """Return the page of figures."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(driver))
    return generate_latest(registry)


class _Figures:
    """What the driver knows, as figures."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def describe(self) -> list[Metric]:
        """Return nothing: names are checked when figures are collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every figure."""
        driver = self._driver
        yield InfoMetricFamily("interlane_build", "This program.", {"version": __version__})
        yield GaugeMetricFamily(
            "interlane_ready", "Whether jobs are taken in.", float(driver.is_ready)
        )
        jobs = GaugeMetricFamily("interlane_jobs", "Jobs by state.", labels=["state"])
        for state, count in driver.store.counts().items():
            jobs.add_metric([state.value], count)
        yield jobs
        written = driver.store.ends().seq
        yield CounterMetricFamily("interlane_log_entries", "Entries of the log.", written)
        yield GaugeMetricFamily(
            "interlane_gpu_allocated_ratio", "Share of the GPUs that is held.", _held(driver)
        )


def _held(driver: Driver) -> float:
    held = sum(
        spec.request_of(JobSpec.model_validate(one.spec), driver.cluster).gpu_milli
        for one in driver.open_records()
        if one.state in HOLDING
    )
    return held / (driver.cluster.gpus * MILLI) if driver.cluster.gpus else 0.0
