"""The event log of a run as a file, and back: entries as a live server has them."""

from pathlib import Path

from interlane.metrics.log import EventLog
from interlane.model import InvalidField, InvalidFile
from interlane.traces.entry_file import read_entries, write_entries


def check_target(path: Path) -> None:
    """Refuse a file that could not be written, before a long run and not after it."""
    if path.suffix != ".parquet":
        raise InvalidField("log", str(path), "the event log is Parquet: end it in .parquet")
    if not path.parent.is_dir():
        raise InvalidFile(str(path), "its directory is not there; make it first.")
    if path.is_dir():
        raise InvalidFile(str(path), "this is a directory; name a file.")


def write_log(log: EventLog, path: Path) -> None:
    """Write the log."""
    check_target(path)
    write_entries(path, log.entries())


def read_log(path: Path) -> EventLog:
    """Read a log; the file says which jobs and machines it is about."""
    return EventLog.of(read_entries(path))
