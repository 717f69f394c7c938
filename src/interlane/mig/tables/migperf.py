"""MIGPerf's measurements: sentence encoders on an A100 40GB, from the labels of its figures.

Throughput and latency are in figures of their own and are brought together by model and batch.
There is no series for 4g, so services of this table are never placed there.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from interlane.mig.table import Measurement, PerformanceTable
from interlane.mig.tables.rows import TableRow, rows_of

GPU: Final = "A100-40GB"
COLUMNS: Final = ("task", "folder", "metric", "x_axis", "x", "gi_memory_label", "value")

_PROFILES: Final = {"5g": "1g.5gb", "10g": "2g.10gb", "20g": "3g.20gb", "40g": "7g.40gb"}
"""The figures name instances by their memory."""

_METRICS: Final = ("throughput(/s)", "latency(ms)")


def read(lines: Iterable[str], name: str) -> PerformanceTable:
    """Read throughput and latency by batch size of the inference figures."""
    return PerformanceTable(_measurements(lines, name), name)


def _measurements(lines: Iterable[str], name: str) -> Iterator[Measurement]:
    found: dict[tuple[str, str, int], dict[str, float]] = {}
    for row in rows_of(lines, name, COLUMNS):
        if _is_wanted(row):
            place = row.text("folder"), _profile(row), row.whole("x")
            found.setdefault(place, {})[row.text("metric")] = row.number("value")
    for (model, profile, batch), values in found.items():
        throughput, latency_ms = (values.get(metric, 0.0) for metric in _METRICS)
        if throughput > 0 and latency_ms > 0:
            yield Measurement(model, GPU, profile, batch, 1, throughput, latency_ms)


def _is_wanted(row: TableRow) -> bool:
    return (
        row.text("task") == "infer"
        and row.text("x_axis") == "batch size"
        and row.text("metric") in _METRICS
    )


def _profile(row: TableRow) -> str:
    label = row.text("gi_memory_label")
    if label not in _PROFILES:
        raise row.wrong("gi_memory_label", label, f"it must be one of {', '.join(_PROFILES)}")
    return _PROFILES[label]
