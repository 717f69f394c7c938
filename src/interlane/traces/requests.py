"""Read when functions were asked: counts by slot, or one row per request.

=============  =====================================================================
format         what it is
=============  =====================================================================
``requests``   our own: a time, and if you have them a function and a count
``azure2019``  Azure Functions 2019: a row a function and day, a column a minute;
               one file, or a directory of the published daily files
``azure2021``  Azure Functions 2021: a row an invocation
``servegen``   ServeGen: a row a client and 10-minute window that is not empty
``genai``      Alibaba GenAI 2026: a row a request, functions are base models
=============  =====================================================================

A time is a number of seconds, or a date; a date with an offset from UTC is brought to UTC,
one without is taken as it stands.  Where local time was written, the hour that daylight
saving skips is empty therefore, and the hour that it repeats holds both.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import polars as pl

from interlane.model import InvalidFile, UnknownName
from interlane.traces.checks import Bad, Rows
from interlane.traces.read.source import Source, must_exist

DAY_S: Final = 86_400.0
MOMENT_S: Final = 0.001
"""What is watched ends so long after the last request."""
MINUTES: Final = 1440
ONE: Final = "all"
"""The function of requests that name none."""

TIMES: Final = ("timestamp", "time", "at_s", "arrived_s", "arrival_time", "timestamp_ms")
FUNCTIONS: Final = ("function", "func", "model", "name", "client", "app")
COUNTS: Final = ("count", "requests", "invocations")
SERVEGEN: Final = frozenset({"model", "client", "t", "count", "cv"})
GENAI: Final = frozenset({"gmt_create", "checkpoint_model_version_id"})
AZURE_2021: Final = frozenset({"app", "func", "end_timestamp", "duration"})

OFFSET: Final = r"(?:Z|[+-]\d\d:?\d\d)$"


@dataclass(frozen=True)
class RequestTrace:
    """Who was asked when."""

    name: str
    frame: pl.DataFrame
    """``function``, ``at_s`` (a day begins at multiples of 86,400) and ``count``."""
    watched: pl.DataFrame
    """``function``, ``from_s``, ``to_s``: when requests would have been seen."""
    slot_s: float | None = None
    """The width of the trace's own slots; None where every request has its time."""
    bad: Bad = field(default_factory=Bad)


def read_requests(
    path: Path, *, fmt: str | None = None, skip_bad: bool = False
) -> RequestTrace:
    """Read requests; the format is told from the file unless it is named."""
    if fmt is not None and fmt not in FORMATS:
        raise UnknownName("format of requests", fmt, FORMATS)
    must_exist(path)
    source = Source(path)
    found = FORMATS[fmt or _detect(source)](source, skip_bad)
    if not found.watched.height:
        raise InvalidFile(source.file, "there are no requests in it; give at least one.")
    return found


def _detect(source: Source) -> str:
    if source.path.is_dir():
        return "azure2019"
    header = frozenset(source.header)
    for name, needed in (("servegen", SERVEGEN), ("genai", GENAI), ("azure2021", AZURE_2021)):
        if header.issuperset(needed):
            return name
    return "azure2019" if _minutes(source.header) else "requests"


# -- our own --------------------------------------------------------------------------


def _own(source: Source, skip_bad: bool) -> RequestTrace:  # noqa: FBT001 - one of a table
    rows = Rows(source.table(_bare_columns(source)))
    time = _first(rows, TIMES)
    if time is None:
        raise InvalidFile(
            source.file,
            f"the header {','.join(source.header)[:80]!r} has no time; name a column one of "
            f"{', '.join(TIMES)}.",
        )
    count, function = _first(rows, COUNTS), _first(rows, FUNCTIONS)
    at_s = _moments(rows, time) / (1000 if time.lower() == "timestamp_ms" else 1)
    columns = {
        "function": rows.text(function or FUNCTIONS[0], missing=ONE),
        "at_s": at_s,
        "count": rows.whole(count or COUNTS[0], missing=1, most=10**9),
    }
    return _events(source, rows, columns, skip_bad=skip_bad)


def _bare_columns(source: Source) -> list[str] | None:
    """Return columns for a file that begins with a time instead of a header."""
    first = source.header
    is_bare = len(first) <= 2 and re.match(r"[-+]?\d", first[0]) is not None
    return [TIMES[0], COUNTS[0]][: len(first)] if is_bare else None


def _first(rows: Rows, names: tuple[str, ...]) -> str | None:
    """Return the first of some columns that is there, in small letters or large."""
    there = {column.lower(): column for column in rows.columns}
    return next((there[name] for name in names if name in there), None)


def _moments(rows: Rows, column: str) -> pl.Series:
    """Return numbers of seconds, or dates as seconds since 1970."""
    given = rows.text(column, missing=None)
    numbers = given.cast(pl.Float64, strict=False)
    if numbers.is_null().all() and given.len():
        tidy = given.str.replace("T", " ", literal=True)
        has_offset = tidy.str.contains(OFFSET)
        zoned = tidy.str.to_datetime("%Y-%m-%d %H:%M:%S%.f%#z", strict=False, time_unit="us")
        plain = tidy.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False, time_unit="us")
        micros = pl.select(
            pl.when(has_offset).then(zoned.cast(pl.Int64)).otherwise(plain.cast(pl.Int64))
        ).to_series()
        numbers = micros.cast(pl.Float64) / 1e6
    rule = "it must be seconds or a date like 2024-11-19 08:30:00"
    wrong = numbers.is_null() | ~numbers.is_finite()
    rows.flag_value(wrong.fill_null(value=True).to_numpy(), column, rule)
    return numbers.fill_null(0.0).alias("at_s")


def _events(
    source: Source, rows: Rows, columns: Mapping[str, pl.Series], *, skip_bad: bool
) -> RequestTrace:
    """Return requests of which each was written down: all were watched all the time."""
    good, bad = rows.settle(skip_bad=skip_bad)
    frame = pl.DataFrame({name: column.alias(name) for name, column in columns.items()})
    frame = frame.filter(good).sort("at_s", maintain_order=True)
    functions = frame["function"].unique(maintain_order=True)
    watched = pl.DataFrame({"function": functions}).with_columns(
        pl.lit(frame["at_s"].min(), pl.Float64).alias("from_s"),
        pl.lit(frame["at_s"].max(), pl.Float64).alias("to_s") + MOMENT_S,
    )
    return RequestTrace(source.name, frame, watched, bad=bad)


# -- published ------------------------------------------------------------------------


def _genai(source: Source, skip_bad: bool) -> RequestTrace:  # noqa: FBT001 - one of a table
    rows = Rows(source.table())
    rows.require(GENAI)
    columns = {
        "function": rows.text("checkpoint_model_version_id", missing="none"),
        "at_s": _moments(rows, "gmt_create"),
        "count": pl.Series([1], dtype=pl.Int64).new_from_index(0, rows.height),
    }
    return _events(source, rows, columns, skip_bad=skip_bad)


def _azure_2021(source: Source, skip_bad: bool) -> RequestTrace:  # noqa: FBT001 - one of a table
    rows = Rows(source.table())
    rows.require(AZURE_2021)
    began_s = rows.number("end_timestamp") - rows.number("duration")
    columns = {
        "function": rows.text("func", missing=None),
        "at_s": began_s.clip(lower_bound=0.0),
        "count": pl.Series([1], dtype=pl.Int64).new_from_index(0, rows.height),
    }
    return _events(source, rows, columns, skip_bad=skip_bad)


def _servegen(source: Source, skip_bad: bool) -> RequestTrace:  # noqa: FBT001 - one of a table
    """Read windows; those left out are empty, and each model was watched in whole days."""
    rows = Rows(source.table())
    rows.require(SERVEGEN)
    model, client = rows.text("model", missing=None), rows.text("client", missing=None)
    frame = pl.DataFrame(
        {
            "model": model,
            "function": model + "/" + client,
            "at_s": rows.number("t"),
            "count": rows.whole("count", most=10**9),
        }
    )
    good, bad = rows.settle(skip_bad=skip_bad)
    frame = frame.filter(good)
    days = frame.group_by("model").agg(
        ((pl.col("at_s").max() / DAY_S).floor() + 1).alias("days")
    )
    watched = (
        frame.select("function", "model")
        .unique(maintain_order=True)
        .join(days, on="model", maintain_order="left")
        .select("function", pl.lit(0.0).alias("from_s"), (pl.col("days") * DAY_S).alias("to_s"))
    )
    return RequestTrace(
        source.name, frame.drop("model").sort("at_s", maintain_order=True), watched, 600.0, bad
    )


def _azure_2019(source: Source, skip_bad: bool) -> RequestTrace:  # noqa: FBT001 - one of a table
    """Read minutes; a function without a row for a day was not watched on that day."""
    parts = [_azure_day(file, skip_bad) for file in _azure_files(source)]
    days = pl.concat([part for part, _ in parts])
    if not days.select("function", "day").is_unique().all():
        raise InvalidFile(source.file, "a function has a day twice; leave one row of it out.")
    days = days.sort("day", maintain_order=True)
    start_s = (days["day"] - 1) * DAY_S
    watched = days.select("function").with_columns(
        start_s.alias("from_s"), (start_s + DAY_S).alias("to_s")
    )
    counts = np.stack(days["counts"].to_list()) if days.height else np.zeros((0, MINUTES))
    row, minute = np.nonzero(counts)
    frame = pl.DataFrame(
        {
            "function": days["function"].gather(row),
            "at_s": start_s.gather(row) + minute * 60.0,
            "count": counts[row, minute].astype(np.int64),
        }
    )
    bad = sum((bad for _, bad in parts), Bad())
    return RequestTrace(
        source.name, frame.sort("at_s", maintain_order=True), watched, 60.0, bad
    )


def _azure_files(source: Source) -> list[Source]:
    if not source.path.is_dir():
        return [source]
    files = sorted(
        path for path in source.path.iterdir() if re.search(r"\.d\d+\.csv", path.name)
    )
    if not files:
        raise InvalidFile(
            source.file,
            "the directory has no files like invocations_per_function_md.anon.d01.csv; "
            "name another one, or a file.",
        )
    return [Source(path) for path in files]


def _azure_day(source: Source, skip_bad: bool) -> tuple[pl.DataFrame, Bad]:  # noqa: FBT001
    """Return ``function``, ``day`` and the ``counts`` of its minutes."""
    rows = Rows(source.table())
    minutes = _minutes(source.header)
    name = "hash_func" if "hash_func" in rows.columns else "HashFunction"
    rows.require([name])
    if "day" in rows.columns:
        day = rows.whole("day", least=1, most=10_000)
    else:
        told = re.search(r"\.d(\d+)\.", source.path.name)
        day = pl.Series([int(told[1]) if told else 1]).new_from_index(0, rows.height)
    function = rows.text(name, missing=None)
    counts = np.column_stack([rows.whole(minute, missing=0).to_numpy() for minute in minutes])
    good, bad = rows.settle(skip_bad=skip_bad)
    frame = pl.DataFrame({"function": function, "day": day, "counts": counts})
    return frame.filter(good), bad


def _minutes(header: list[str]) -> list[str]:
    """Return the columns of minutes, of the sample (m0 on) or of the published files (1 on)."""
    columns = set(header)
    for first, name in ((0, "m{}"), (1, "{}")):
        minutes = [name.format(minute) for minute in range(first, first + MINUTES)]
        if columns.issuperset(minutes):
            return minutes
    return []


FORMATS: Final[Mapping[str, Callable[[Source, bool], RequestTrace]]] = MappingProxyType(
    {
        "requests": _own,
        "azure2019": _azure_2019,
        "azure2021": _azure_2021,
        "servegen": _servegen,
        "genai": _genai,
    }
)
"""Format -> its reader; each is told whether to leave bad rows out."""
