"""The last step of every reader: leave out what is bad and make the canonical table."""

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from interlane.model import InvalidFile
from interlane.traces.checks import Bad, Rows
from interlane.traces.read.source import Options, Source
from interlane.traces.schema import TRUE_DURATION, Trace, canonical, is_estimate


def finish(
    source: Source,
    rows: Rows,
    columns: Mapping[str, pl.Series],
    options: Options,
    clock_s: float | None = None,
) -> Trace:
    """Return the trace of the good rows, or raise for the first bad one."""
    good, bad = rows.settle(skip_bad=options.skip_bad)
    kept = {name: column.filter(good) for name, column in columns.items()}
    return replace(make_trace(source, kept, bad), clock_s=clock_s)


def make_trace(source: Source, columns: Mapping[str, pl.Series], bad: Bad) -> Trace:
    """Return the trace of these columns; it needs at least one job."""
    refuse_empty(source.file, len(columns["job_id"]), bad)
    estimates = (TRUE_DURATION, *(name for name in columns if is_estimate(name)))
    return Trace(source.name, canonical(columns), estimates, bad.rows, bad.count)


def refuse_empty(file: str, rows: int, bad: Bad) -> None:
    """Refuse a file in which no job is left."""
    if rows:
        return
    if bad.count:
        raise InvalidFile(
            file,
            f"no jobs are left after {bad.count} bad rows, the first because "
            f"{bad.rows[0].what}; mend the file.",
            bad.rows[0].line,
        )
    raise InvalidFile(file, "the file has no jobs; it needs at least one row.")
