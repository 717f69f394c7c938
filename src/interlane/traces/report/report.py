"""Put a report together: all figures and the data quality of a trace."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from interlane.model import Cluster
from interlane.traces.read import detect, read_trace
from interlane.traces.read.source import Source, must_exist
from interlane.traces.report.adapt import tables_of
from interlane.traces.report.allocation import allocation
from interlane.traces.report.arrivals import submissions
from interlane.traces.report.bottleneck import cpu_bottleneck
from interlane.traces.report.contention import busy_gpus
from interlane.traces.report.cpu_per_gpu import cpu_per_gpu
from interlane.traces.report.figure import ReportFigure
from interlane.traces.report.gangs import gang_sizes, locality
from interlane.traces.report.machines import machine_use, network_io
from interlane.traces.report.quality import QualityFinding
from interlane.traces.report.queueing import queueing_delay
from interlane.traces.report.recurrence import recurrence
from interlane.traces.report.requests_use import over_use, requests, use
from interlane.traces.report.runtimes import run_times
from interlane.traces.report.sharing import gpus_needed
from interlane.traces.report.tables import Tell, TraceTables, read_tables, silent
from interlane.traces.report.users import user_skew
from interlane.traces.report.workloads import workloads

FIGURES: Final[tuple[Callable[[TraceTables], ReportFigure], ...]] = (
    user_skew,
    gang_sizes,
    locality,
    submissions,
    run_times,
    queueing_delay,
    requests,
    use,
    over_use,
    machine_use,
    network_io,
    gpus_needed,
    busy_gpus,
    recurrence,
    workloads,
    cpu_per_gpu,
    allocation,
    cpu_bottleneck,
)
"""The figures in the order of the page."""


@dataclass(frozen=True, eq=False)
class Report:
    """What is known of a trace."""

    trace: dict[str, object]
    figures: tuple[ReportFigure, ...]
    quality: tuple[QualityFinding, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the report as the JSON has it."""
        return {
            "trace": self.trace,
            "figures": [figure.as_dict() for figure in self.figures],
            "quality": [finding.as_dict() for finding in self.quality],
        }


def read(
    path: Path,
    *,
    fmt: str | None = None,
    cluster: Cluster | None = None,
    tell: Tell = silent,
) -> TraceTables:
    """Read a trace of any format as tables; bad rows are counted, never fatal by themselves.

    A cluster tells the machines of a trace that does not, and which GPU types are known.
    """
    must_exist(path)
    if (fmt or detect(Source(path))) == "pai2020" and path.is_dir():
        return read_tables(path, tell)
    tell("reading")
    known = frozenset() if cluster is None else cluster.gpu_types
    trace = read_trace(path, fmt=fmt, skip_bad=True, extra_gpu_types=known)
    return tables_of(trace, cluster)


def figures(tables: TraceTables, tell: Tell = silent) -> list[ReportFigure]:
    """Return every figure of the tables."""
    made = []
    for make in FIGURES:
        tell(make.__name__)
        made.append(make(tables))
    return made


def report_on(tables: TraceTables, tell: Tell = silent) -> Report:
    """Return the report of a trace."""
    sizes: dict[str, object] = {
        "name": tables.name,
        "jobs": tables.jobs.height,
        "tasks": tables.tasks.height,
        "instances": int(tables.instances["count"].sum()),
        "sensors": tables.sensors.height,
        "machines": tables.machines.height,
        "metrics": tables.metrics.height,
    }
    return Report(sizes, tuple(figures(tables, tell)), tables.findings)
