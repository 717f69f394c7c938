"""Read the Microsoft Philly trace: the flattened CSV, or the original job log in JSON."""

import json
from collections.abc import Mapping
from typing import Final

import polars as pl

from interlane.model import InvalidFile
from interlane.traces.checks import MOST_GPUS, RawTable, Rows, first_of, waits
from interlane.traces.read.finish import finish
from interlane.traces.read.source import Options, Source
from interlane.traces.schema import Trace

NEEDED: Final = ("timestamp", "duration", "num_gpus")


def recognises(header: frozenset[str]) -> bool:
    """Tell the flattened trace by its header."""
    return header.issuperset(NEEDED)


def is_log(source: Source) -> bool:
    """Tell the original job log by its first character."""
    return source.text.lstrip()[:1] == "["


def read(source: Source, options: Options) -> Trace:
    """Read the trace; every job is one instance with all of its GPUs."""
    rows = Rows(_log_table(source) if is_log(source) else source.table())
    rows.require(NEEDED)
    moments_s = rows.moments("timestamp")
    zero_s = first_of(moments_s)
    columns = {
        "job_id": _ids(rows),
        "submit_s": moments_s - zero_s,
        "duration_s": rows.number("duration", above=0),
        "gpus": rows.whole("num_gpus", most=MOST_GPUS),
        "user": rows.text("user"),
        "queue": rows.text("cluster"),
    }
    if "started" in rows.columns:
        columns["waited_s"] = waits(_moments_s(rows.text("started")) - moments_s)
    return finish(source, rows, columns, options, zero_s)


def _moments_s(given: pl.Series) -> pl.Series:
    """Return the seconds of dates and times; what is none stays empty."""
    dates = given.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ms", strict=False)
    return dates.cast(pl.Int64).cast(pl.Float64) / 1000


def _ids(rows: Rows) -> pl.Series:
    """Return the names of jobs, or the numbers of rows where the flattening has lost them."""
    if "jobid" not in rows.columns:
        return pl.int_range(rows.height, eager=True).cast(pl.String)
    rows.each_once("jobid")
    return rows.text("jobid", missing=None)


def _log_table(source: Source) -> RawTable:
    try:
        entries = json.loads(source.text)
    except json.JSONDecodeError as error:
        raise InvalidFile(
            source.file, f"this is not JSON ({error.msg}); fetch the file again.", error.lineno
        ) from None
    flat = [_flatten(entry) for entry in entries]
    kinds = dict.fromkeys(
        ("jobid", "timestamp", "duration", "num_gpus", "cluster", "user", "started"),
        pl.String,
    )
    frame = pl.DataFrame(flat, schema=kinds, orient="row")
    numbers = pl.int_range(1, frame.height + 1, eager=True)
    return RawTable(source.file, frame, numbers, unit="entry")


def _flatten(entry: object) -> dict[str, str]:
    """Return a job of the log as a row; what it lacks stays empty, for the checks to find."""
    if not isinstance(entry, Mapping):
        return {}
    attempts = [one for one in _list(entry.get("attempts")) if isinstance(one, Mapping)]
    ran_s = sum(_ran_s(attempt) for attempt in attempts)
    gpus = max((_gpus(attempt) for attempt in attempts), default=0)
    return {
        "jobid": _text(entry.get("jobid")),
        "timestamp": _text(entry.get("submitted_time")),
        "duration": str(ran_s),
        "num_gpus": str(gpus),
        "cluster": _text(entry.get("vc")),
        "user": _text(entry.get("user")),
        "started": _text(attempts[0].get("start_time")) if attempts else "",
    }


def _ran_s(attempt: Mapping[str, object]) -> float:
    """Seconds that an attempt ran; 0 when the log does not say."""
    ends = pl.Series([_text(attempt.get(key)) for key in ("start_time", "end_time")])
    moments = ends.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False).to_list()
    if None in moments:
        return 0.0
    return float((moments[1] - moments[0]).total_seconds())


def _gpus(attempt: Mapping[str, object]) -> int:
    details = [one for one in _list(attempt.get("detail")) if isinstance(one, Mapping)]
    return sum(len(_list(detail.get("gpus"))) for detail in details)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return "" if value is None else str(value)
