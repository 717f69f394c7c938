"""Entries of the log as a Parquet file, and back: one row per entry.

==============  ============  ==========================================================
column          type          meaning
==============  ============  ==========================================================
``seq``         whole number  counts entries
``at_s``        float         when, in seconds of the trace, or since 1970
``kind``        text          the name of the event or action
``job_id``      text          the job that it is about; null if it is about none
``machine_id``  text          the machine that it is about; null if it is about none
``what``        text          the event or action as JSON, without what has its default
``detail``      text          what a record needs beside that, as JSON
``cycle``       whole number  ``seq`` of the first entry that was stored with this one
==============  ============  ==========================================================
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import polars as pl

from interlane.model import InvalidFile, LogEntry
from interlane.model.codec import entry_row, row_entry

SCHEMA: Final = pl.Schema(
    {
        "seq": pl.Int64(),
        "at_s": pl.Float64(),
        "kind": pl.String(),
        "job_id": pl.String(),
        "machine_id": pl.String(),
        "what": pl.String(),
        "detail": pl.String(),
        "cycle": pl.Int64(),
    }
)
"""Columns of the file."""


def write_entries(path: Path, entries: Iterable[LogEntry]) -> None:
    """Write entries in their order."""
    columns: dict[str, list[object]] = {name: [] for name in SCHEMA}
    for entry in entries:
        row = {**entry_row(entry), "machine_id": entry.machine_id}
        for name, value in row.items():
            columns[name].append(value)
    try:
        pl.DataFrame(columns, schema=SCHEMA).write_parquet(path)
    except OSError as error:
        raise InvalidFile(str(path), f"the log cannot be written ({error.strerror}).") from None


def read_entries(path: Path) -> Iterator[LogEntry]:
    """Yield the entries of a file."""
    return rows_entries(path, entry_frame(path))


def rows_entries(path: Path, frame: pl.DataFrame) -> Iterator[LogEntry]:
    """Yield the entries of rows that were read from a file."""
    for row in frame.iter_rows(named=True):
        try:
            yield row_entry(row)
        except ValueError as error:
            raise InvalidFile(
                str(path), f"{error}; it must be as interlane wrote it."
            ) from None


def entry_frame(path: Path) -> pl.DataFrame:
    """Return the rows of a file of entries."""
    try:
        frame = pl.read_parquet(path)
    except FileNotFoundError:
        raise InvalidFile(str(path), "there is no such file; check the path.") from None
    except (pl.exceptions.PolarsError, OSError):
        raise InvalidFile(str(path), "this is not a Parquet file; record it again.") from None
    missing = [name for name in SCHEMA if name not in frame.columns]
    if missing:
        raise InvalidFile(str(path), f"this is not an event log: it has no {missing[0]!r}.")
    return frame.select(SCHEMA.names())
