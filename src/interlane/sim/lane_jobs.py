"""Read a table of jobs that share devices by lanes."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import polars as pl

from interlane.lanes.actions import MemoryDemand
from interlane.model import InvalidFile, JobId
from interlane.sim.lanes import LaneJob
from interlane.traces.checks import Rows
from interlane.traces.read.finish import refuse_empty
from interlane.traces.read.source import Source, must_exist

MIB: Final = 1 << 20
MOST_MIB: Final = 10**9

NEEDED: Final = (
    "job_id",
    "submit_s",
    "iterations",
    "iteration_ms",
    "persistent_mib",
    "ephemeral_mib",
)
OPTIONAL: Final = ("startup_s", "filled", "priority", "estimate_s", "model")
"""``estimate_s`` is what an order is told of the job's device time: the truth if the column
is missing, nothing where a field is empty.  ``model`` is for the reader."""


def read_lane_jobs(path: Path, *, skip_bad: bool = False) -> tuple[list[LaneJob], int]:
    """Return the jobs of a file, and how many bad rows were left out."""
    must_exist(path)
    source = Source(path)
    rows = Rows(source.table())
    _check_header(rows)
    columns = _columns(rows)
    rows.each_once("job_id")
    good, bad = rows.settle(skip_bad=skip_bad)
    kept = pl.DataFrame({name: column.filter(good) for name, column in columns.items()})
    refuse_empty(source.file, kept.height, bad)
    return [_job(row) for row in kept.iter_rows(named=True)], bad.count


def _check_header(rows: Rows) -> None:
    missing = [name for name in NEEDED if name not in rows.columns]
    if missing:
        raise InvalidFile(
            rows.table.file,
            f"the header has no column {missing[0]!r}; jobs need {', '.join(NEEDED)}.",
        )
    for name in rows.table.frame.columns:
        if name not in NEEDED + OPTIONAL:
            close = get_close_matches(name, NEEDED + OPTIONAL, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "leave it out."
            raise InvalidFile(rows.table.file, f"column {name!r} is not known; {hint}")


def _columns(rows: Rows) -> dict[str, pl.Series]:
    iterations = rows.whole("iterations", least=1)
    iteration_ms = rows.number("iteration_ms", above=0)
    told = "estimate_s" in rows.columns
    return {
        "job_id": rows.text("job_id", missing=None),
        "submit_s": rows.number("submit_s"),
        "iterations": iterations,
        "iteration_s": iteration_ms / 1000,
        "persistent_mib": rows.whole("persistent_mib", most=MOST_MIB),
        "ephemeral_mib": rows.whole("ephemeral_mib", most=MOST_MIB),
        "startup_s": rows.number("startup_s", missing=0),
        "filled": rows.number("filled", missing=1, above=0, most=1),
        "priority": rows.whole("priority", missing=0, least=-MOST_MIB),
        "total_s": rows.optional("estimate_s") if told else iterations * iteration_ms / 1000,
    }


def _job(row: dict[str, Any]) -> LaneJob:
    needs = MemoryDemand(row["persistent_mib"] * MIB, row["ephemeral_mib"] * MIB)
    return LaneJob(
        JobId(row["job_id"]),
        row["submit_s"],
        row["iterations"],
        row["iteration_s"],
        needs,
        startup_s=row["startup_s"],
        filled=row["filled"],
        priority=row["priority"],
        says=needs,
        total_s=row["total_s"],
    )
