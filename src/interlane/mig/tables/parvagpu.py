"""ParvaGPU's measurements (SC'24): 11 models on an A100 80GB, to 5 processes an instance.

Read from one file of all models, with columns ``model``, ``slices`` (1, 2, 3, 4, 7), ``batch``,
``processes``, ``throughput_total``, ``latency_s`` and ``ran`` (0 for what did not run).  The
authors publish one file per model, with the throughput of one process; its product with
``processes`` is the total.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from interlane.mig.demand import LatencyRule, Service
from interlane.mig.profiles import gpu_model
from interlane.mig.table import Measurement, PerformanceTable
from interlane.mig.tables.rows import rows_of
from interlane.model import InvalidFile

GPU: Final = "A100-80GB"
COLUMNS: Final = (
    "model",
    "slices",
    "batch",
    "processes",
    "throughput_total",
    "latency_s",
    "ran",
)

LATENCY: Final = LatencyRule(share=0.45, strict=True)
"""The authors' rule: a batch must take less than 0.45 of the target."""

MOST_PROCESSES: Final = 5
"""As many as they measured."""

ABSENT: Final = "N/A"


def read(lines: Iterable[str], name: str) -> PerformanceTable:
    """Read the measurements of all models."""
    return PerformanceTable(_measurements(lines, name), name)


def _measurements(lines: Iterable[str], name: str) -> Iterator[Measurement]:
    profiles = {
        profile.compute_slices: profile.name
        for profile in gpu_model(GPU).profiles
        if profile.kind == "base"
    }
    for row in rows_of(lines, name, COLUMNS):
        if row.whole("ran") == 0:
            continue
        slices = row.whole("slices")
        if slices not in profiles:
            known = ", ".join(map(str, profiles))
            raise row.wrong("slices", str(slices), f"it must be one of {known}")
        yield Measurement(
            row.text("model"),
            GPU,
            profiles[slices],
            row.whole("batch"),
            row.whole("processes"),
            row.number("throughput_total"),
            1e3 * row.number("latency_s"),
        )


def scenarios(
    latency_lines: Iterable[str], rate_lines: Iterable[str], models: Iterable[str], name: str
) -> list[tuple[Service, ...]]:
    """Return the published scenarios.

    Both files have a row a scenario and a column a model, in alphabetical order and without a
    header; a model that is absent from a scenario has ``N/A``.
    """
    names = sorted(models)
    latencies, rates = _cells(latency_lines), _cells(rate_lines)
    if len(latencies) != len(rates):
        raise InvalidFile(name, "latencies and rates have different numbers of scenarios.")
    return [
        tuple(_services(names, latency_ms, rate_per_s, name))
        for latency_ms, rate_per_s in zip(latencies, rates, strict=True)
    ]


def _cells(lines: Iterable[str]) -> list[list[str]]:
    return [line.strip().split(",") for line in lines if line.strip()]


def _services(
    names: list[str], latencies_ms: list[str], rates_per_s: list[str], file: str
) -> Iterator[Service]:
    if not len(names) == len(latencies_ms) == len(rates_per_s):
        raise InvalidFile(file, f"a scenario has a column for each of {len(names)} models.")
    for name, latency_ms, rate_per_s in zip(names, latencies_ms, rates_per_s, strict=True):
        if ABSENT not in (latency_ms, rate_per_s):
            yield Service(name, name, float(rate_per_s), float(latency_ms))
