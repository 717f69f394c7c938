"""Write a trace in interlane's own schema."""

import gzip
from pathlib import Path

import polars as pl

from interlane.model import InvalidFile
from interlane.traces.read.source import PARQUET, unreadable
from interlane.traces.schema import TRUE_DURATION, Trace, is_used


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace as CSV, gzipped CSV or Parquet, by the ending of the path."""
    # The true duration is in ``duration_s`` already.
    frame = trace.frame.drop(TRUE_DURATION, strict=False)
    if "waited_s" in frame.columns and frame["waited_s"].is_null().all():
        frame = frame.drop("waited_s")
    frame = frame.select(name for name in frame.columns if is_used(frame, name))
    try:
        _write(frame, path)
    except OSError as error:
        raise unreadable(path, error) from None


def _write(frame: pl.DataFrame, path: Path) -> None:
    if path.suffix in PARQUET:
        frame.write_parquet(path)
    elif path.name.endswith(".csv.gz"):
        # A fixed time in the header: the same trace gives the same bytes.
        with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            packed.write(frame.write_csv().encode())
    elif path.suffix == ".csv":
        frame.write_csv(path)
    else:
        raise InvalidFile(
            str(path), "the ending names no format; use .csv, .csv.gz or .parquet."
        )
