"""Traces: convert, describe, report on and make them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from interlane import wiring
from interlane.model import UnknownName
from interlane.traces import stats
from interlane.traces.read import read_trace
from interlane.traces.report.page import render
from interlane.traces.report.report import Report, read, report_on
from interlane.traces.report.tables import Tell
from interlane.traces.schema import Trace
from interlane.traces.synth import synthesize
from interlane.traces.synth_pai import Scope, Written, write_tables
from interlane.traces.write import write_trace
from interlane.usecases.reporter import SILENT, Reporter

REPORT_STEPS: Final = 25
"""Tables to read and figures to make."""
PAI: Final = "pai2020"
LOAD: Final = 0.9
DAYS: Final = 61.0
"""How long the published trace is."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace as people name it."""

    path: Path
    fmt: str | None = None
    """Told from the file unless given."""
    skip_bad: bool = False
    data: Path | None = None
    """Where published traces lie."""


def note_oddities(path: Path, trace: Trace, reporter: Reporter) -> None:
    """Note what the reader passed over or mended."""
    for what, rows in trace.notes:
        reporter.note(f"{path}: {what}: {rows}")


@dataclass(frozen=True, slots=True)
class Converted:
    """A trace that was written anew."""

    jobs: int
    bad_rows: int
    """Left out."""


def convert(
    source: Path,
    target: Path,
    *,
    fmt: str | None = None,
    skip_bad: bool = False,
    reporter: Reporter = SILENT,
) -> Converted:
    """Convert a trace of any known format to interlane's own schema."""
    trace = read_trace(source, fmt=fmt, skip_bad=skip_bad)
    note_oddities(source, trace, reporter)
    write_trace(trace, target)
    return Converted(trace.jobs, trace.bad_count)


@dataclass(frozen=True, slots=True)
class Described:
    """What a trace holds."""

    jobs: int
    figures: dict[str, object]
    bad_rows: int
    """Left out."""
    first_bad: str | None
    """Where the first of them is, and what is wrong with it."""


def describe(
    source: Path,
    *,
    fmt: str | None = None,
    skip_bad: bool = False,
    reporter: Reporter = SILENT,
) -> Described:
    """Return sizes, requests, durations, load and quality of estimates of a trace."""
    trace = read_trace(source, fmt=fmt, skip_bad=skip_bad)
    note_oddities(source, trace, reporter)
    first_bad = None
    if trace.bad_count:
        first = trace.bad[0]
        first_bad = f"{first.file}, line {first.line}: {first.what}"
    return Described(trace.jobs, stats.describe(trace), trace.bad_count, first_bad)


@dataclass(frozen=True, slots=True)
class TraceReport:
    """What is known of a trace, and what is odd in it."""

    report: Report

    @property
    def document(self) -> dict[str, object]:
        """All numbers, for JSON."""
        return self.report.as_dict()

    def page(self, name: str | None = None) -> str:
        """Return the report as one page, of a trace under another name if given."""
        if name is None:
            return render(self.report)
        return render(replace(self.report, trace={**self.report.trace, "name": name}))


def report(
    path: Path,
    *,
    fmt: str | None = None,
    cluster: str | None = None,
    data: Path | None = None,
    reporter: Reporter = SILENT,
) -> TraceReport:
    """Return all figures of a trace, and what is odd in it."""
    machines = None if cluster is None else wiring.cluster_of(cluster, data)
    with _counted(str(path), reporter) as tell:
        tables = read(wiring.path_of(path, data), fmt=fmt, cluster=machines, tell=tell)
        return TraceReport(report_on(tables, tell))


@contextmanager
def _counted(what: str, reporter: Reporter) -> Iterator[Tell]:
    """Count the steps of a report."""
    with reporter.steps(what, REPORT_STEPS, "steps") as tell:
        done = 0

        def step(_: str) -> None:
            nonlocal done
            tell(done)
            done += 1

        yield step


def synthesize_jobs(
    target: Path,
    jobs: int,
    *,
    cluster: str = PAI,
    load: float | None = None,
    days: float | None = None,
    seed: int = 0,
    data: Path | None = None,
    reporter: Reporter = SILENT,
) -> None:
    """Make jobs that fit a cluster."""
    machines = wiring.cluster_of(cluster, data)
    wanted = LOAD if load is None else load
    with reporter.busy(f"Making {jobs:,} jobs..."):
        trace = synthesize(jobs=jobs, cluster=machines, load=wanted, seed=seed, days=days)
    with reporter.busy(f"Writing {jobs:,} jobs to {target}..."):
        write_trace(trace, target)


def synthesize_tables(
    target: Path,
    *,
    like: str = PAI,
    days: float | None = None,
    scale: float | None = None,
    seed: int = 0,
    reporter: Reporter = SILENT,
) -> Written:
    """Make all tables of a published trace."""
    if like != PAI:
        raise UnknownName("published trace", like, [PAI])
    scope = Scope(DAYS if days is None else days, 1.0 if scale is None else scale, seed)
    with reporter.steps("trace synth", 1, "instances") as tell:
        return write_tables(scope, target, tell)
