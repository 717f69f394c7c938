"""Jobs that ended long ago, in Parquet files by day: ``archive/2026-11-17/``.

A *part* is up to ``PART_JOBS`` jobs that ended on one day: ``jobs-LOW-HIGH.parquet`` has their
records (serials from LOW to HIGH) and ``log-LOW-HIGH.parquet`` all of their entries (numbers
from LOW to HIGH).  Entries about no job have a part of their own for each day.

A part is on disk before its rows leave the database, which they do in one transaction.  Whoever
is killed between the two leaves both; the same rows make the same part again, and readers count
what is in both once.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

from interlane.live.store.rows import JobsWanted, OldJob
from interlane.model import InvalidFile, LogEntry
from interlane.traces.entry_file import SCHEMA as ENTRIES
from interlane.traces.entry_file import entry_frame, rows_entries

DAY_S: Final = 86_400.0
ROOM_BYTES: Final = 1 << 20
"""What a disk must take to count as having room."""

PART_JOBS: Final = 2_000
"""Jobs of one part: so many are moved at a time."""

JOBS: Final = pl.Schema(
    {
        "serial": pl.Int64(),
        "id": pl.String(),
        "state": pl.String(),
        "user": pl.String(),
        "ended_s": pl.Float64(),
        "document": pl.String(),
    }
)
"""Columns of a file of jobs; ``document`` is the record as JSON."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A file, and the lowest and highest number in it, which are in its name."""

    path: Path
    low: int
    high: int


class Archive:
    """Reads and writes the files; other processes may read meanwhile."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs = _parts(folder, "jobs")
        self._log = _parts(folder, "log")
        self._counts: dict[Path, Counter[str]] = {}

    def must_have_room(self) -> None:
        """Raise ``OSError`` unless the disk takes more than the smallest of commits.

        SQLite writes over what its log has held before: a disk may be full, and yet take
        a few bytes.
        """
        file = self._folder.with_name("room")
        try:
            with file.open("wb") as room:
                room.write(os.urandom(ROOM_BYTES))
                room.flush()
                os.fsync(room.fileno())
        finally:
            file.unlink(missing_ok=True)

    # -- reading ----------------------------------------------------------------------

    @property
    def newest_serial(self) -> int:
        """The highest number of a job that is here; 0 if none is."""
        return max((part.high for part in self._jobs), default=0)

    @property
    def last_seq(self) -> int:
        """The highest number of an entry that is here; 0 if none is."""
        return max((part.high for part in self._log), default=0)

    @property
    def until_s(self) -> float:
        """The end of the last day of which something is here; 0 if nothing is."""
        days = {part.path.parent.name for part in self._jobs}
        if not days:
            return 0.0
        return datetime.fromisoformat(max(days)).replace(tzinfo=UTC).timestamp() + DAY_S

    def job(self, job_id: str) -> str | None:
        """Return the record of a job, as JSON."""
        for part in sorted(self._jobs, key=lambda one: -one.high):
            found = _read(part.path).filter(pl.col("id") == job_id)
            if len(found):
                return str(found["document"][0])
        return None

    def jobs(self, wanted: JobsWanted) -> list[OldJob]:
        """Return a page of jobs, the newest first."""
        found: list[OldJob] = []
        for part in sorted(self._jobs, key=lambda one: -one.high):
            if len(found) >= wanted.limit and found[wanted.limit - 1].serial > part.high:
                break
            if wanted.before is None or part.low < wanted.before:
                found += _chosen(part, wanted)
                found.sort(key=lambda one: -one.serial)
        return found[: wanted.limit]

    def counts(self, without: Collection[str]) -> Counter[str]:
        """Return how many jobs are in each state, but for some."""
        parts = self._jobs
        for part in parts:
            if part.path not in self._counts:
                self._counts[part.path] = Counter(_read(part.path)["state"].to_list())
        found = sum((self._counts[part.path] for part in parts), Counter[str]())
        for part in parts if without else ():
            left_out = _read(part.path).filter(pl.col("id").is_in(list(without)))
            found.subtract(left_out["state"].to_list())
        return found

    def log(self, after: int, limit: int) -> list[LogEntry]:
        """Return entries that follow one, the oldest first."""
        found: list[LogEntry] = []
        for part in sorted(self._log, key=lambda one: one.low):
            if len(found) >= limit and found[limit - 1].seq < part.low:
                break
            if part.high > after:
                rows = entry_frame(part.path).filter(pl.col("seq") > after)
                found += rows_entries(part.path, rows)
                found.sort(key=lambda one: one.seq)
        return found[:limit]

    def log_of(self, job_id: str) -> list[LogEntry]:
        """Return all entries of a job."""
        for part in self._log:
            rows = entry_frame(part.path).filter(pl.col("job_id") == job_id)
            if len(rows):
                return list(rows_entries(part.path, rows))
        return []

    def seqs(self) -> Iterator[Sequence[int]]:
        """Yield the numbers of all entries, a part at a time."""
        for part in self._log:
            yield entry_frame(part.path)["seq"].to_list()

    # -- writing ----------------------------------------------------------------------

    def write(self, day: str, jobs: Sequence[Mapping[str, Any]], log: pl.DataFrame) -> None:
        """Write a part; it is on disk when this returns."""
        folder = self._folder / day
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if jobs:
            frame = pl.DataFrame(jobs, schema=JOBS).sort("serial")
            _write(folder / _name("jobs", frame["serial"].to_list()), frame)
        if len(log):
            log = log.sort("seq")
            _write(folder / _name("log", log["seq"].to_list()), log)
        _sync(folder)
        self._jobs, self._log = _parts(self._folder, "jobs"), _parts(self._folder, "log")


def day_of(at_s: float) -> str:
    """Return the day of a moment, in UTC."""
    return datetime.fromtimestamp(at_s, UTC).date().isoformat()


def log_frame(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return rows of the log as a table; machines are not named apart."""
    return pl.DataFrame([{**row, "machine_id": None} for row in rows], schema=ENTRIES)


def _name(kind: str, numbers: Sequence[int]) -> str:
    return f"{kind}-{numbers[0]}-{numbers[-1]}.parquet"


def _parts(folder: Path, kind: str) -> list[_Part]:
    found = []
    for path in sorted(folder.glob(f"*/{kind}-*.parquet")):
        _, low, high = path.stem.split("-")
        found.append(_Part(path, int(low), int(high)))
    return found


def _read(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError):
        raise InvalidFile(str(path), "it cannot be read; restore or remove it.") from None


def _chosen(part: _Part, wanted: JobsWanted) -> list[OldJob]:
    frame = _read(part.path)
    if wanted.before is not None:
        frame = frame.filter(pl.col("serial") < wanted.before)
    if wanted.after is not None:
        frame = frame.filter(pl.col("serial") > wanted.after)
    if wanted.states is not None:
        frame = frame.filter(pl.col("state").is_in(sorted(wanted.states)))
    if wanted.sweep is not None:
        frame = frame.filter(pl.col("document").str.contains(wanted.mark, literal=True))
    if wanted.user is not None:
        frame = frame.filter(pl.col("user") == wanted.user)
    newest = frame.sort("serial", descending=True).head(wanted.limit)
    return [OldJob(*row) for row in newest.select("serial", "document").iter_rows()]


def _write(path: Path, frame: pl.DataFrame) -> None:
    """Write a file whole or not at all, for its owner alone."""
    beside = path.with_suffix(".new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        frame.write_parquet(file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _sync(folder: Path) -> None:
    """Let names of files in a folder, and its own, be on disk."""
    for one in (folder, folder.parent):
        fd = os.open(one, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
