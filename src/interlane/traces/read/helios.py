"""Read Helios traces: the original columns, or the flattened Venus file with arrivals."""

from typing import Final

import polars as pl

from interlane.model import MILLI
from interlane.traces.checks import MOST_GPUS, Rows, first_of, waits
from interlane.traces.read.finish import finish
from interlane.traces.read.source import Options, Source
from interlane.traces.schema import Trace

NEEDED: Final = ("job_id", "gpu_num")


def recognises(header: frozenset[str]) -> bool:
    """Tell either form by its header."""
    return header.issuperset((*NEEDED, "submit_time"))


def read(source: Source, options: Options) -> Trace:
    """Read the trace; every job is one instance with all of its GPUs."""
    rows = Rows(source.table())
    length = "duration_s" if "duration_s" in rows.columns else "duration"
    rows.require((*NEEDED, length))
    submit_s, zero_s = _submissions_s(rows)
    columns = {
        "job_id": rows.text("job_id", missing=None),
        "submit_s": submit_s,
        "duration_s": rows.number(length, above=0),
        "gpus": rows.whole("gpu_num", most=MOST_GPUS),
        "cpu_milli": rows.whole("cpu_num", missing=0, most=MOST_GPUS) * MILLI,
        "user": rows.text("user"),
        "queue": rows.text("vc"),
    }
    if rows.columns.issuperset(("start_time", "end_time")):
        starts_s = _starts_s(rows)
        if zero_s is not None:
            columns["waited_s"] = waits(starts_s - zero_s - submit_s)
    rows.each_once("job_id")
    return finish(source, rows, columns, options, zero_s)


def _submissions_s(rows: Rows) -> tuple[pl.Series, float | None]:
    """Return the submissions, and what second 0 is on the trace's clock."""
    if "arrival_s" in rows.columns:
        return rows.number("arrival_s"), None
    rows.require(("submit_time",))
    moments_s = rows.moments("submit_time")
    zero_s = first_of(moments_s)
    return moments_s - zero_s, zero_s


def _starts_s(rows: Rows) -> pl.Series:
    """Return the starts; a job that ends before it starts is bad."""
    starts_s, ends_s = rows.moments("start_time"), rows.moments("end_time")
    backward = (ends_s < starts_s).fill_null(value=False)
    rows.flag_value(backward.to_numpy(), "end_time", "a job cannot end before it starts")
    return starts_s
