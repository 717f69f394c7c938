"""What the daemon must still know after a crash: which jobs hold memory, and how much.

One line of JSON for each admission, change and departure.  A daemon that starts reads them and
waits for those whose processes still live.  Leases are not written: they change too often, and
their holders bring them along.  Nothing is synced to disk, because a journal is of no use after
the machine itself has died.  A disk that is full costs the journal, never a job: a journal that
cannot be kept complete is removed, and the next daemon then knows that it knows nothing.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final, TextIO

SPARE_LINES: Final = 256
"""Lines beyond one a job after which the journal is written anew."""


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A job that holds memory on a device."""

    key: int
    job_id: str
    name: str
    pid: int
    started: int
    """When its process started, in clock ticks since boot: a process id can be used again."""
    device: int
    lane: int
    lane_bytes: int
    persistent_bytes: int
    ephemeral_bytes: int
    priority: int
    is_declared: bool
    processes: int = 1
    share: int = 0


class MemoryJournal:
    """The file, and whether it can be trusted to be complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble: str | None = None
        """Why the journal is not complete, in words."""
        self._records: dict[int, MemoryRecord] = {}
        self._lines = 0
        self._file: TextIO | None = None

    def read(self) -> list[MemoryRecord] | None:
        """Return the jobs of the daemon before, or None if there is no telling.

        Lines that make no sense are passed over: a crash can cut the last one short.
        """
        found: dict[int, MemoryRecord] = {}
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return None
        for line in lines:
            entry = _entry(line)
            if isinstance(entry, MemoryRecord):
                found[entry.key] = entry
            elif entry is not None:
                found.pop(entry, None)
        return list(found.values())

    def keep(self, record: MemoryRecord) -> None:
        """Write that a job holds this."""
        if self._records.get(record.key) != record:
            self._records[record.key] = record
            self._append(json.dumps(asdict(record)))

    def drop(self, key: int) -> None:
        """Write that a job holds nothing any more."""
        if self._records.pop(key, None) is not None:
            self._append(json.dumps({"left": key}))

    def begin(self, records: Iterable[MemoryRecord]) -> None:
        """Start with these jobs."""
        self._records = {record.key: record for record in records}
        self._write_anew()

    def distrust(self, why: str) -> None:
        """Have no journal, until it is mended: what it would tell is not all there is."""
        self.trouble = f"{self.path}: {why}"
        with suppress(OSError):
            self.close()
        self._file = None
        with suppress(OSError):
            self.path.unlink()

    def mend(self) -> None:
        """Write everything anew, after a failure or when most lines are past."""
        if self.trouble is not None or self._lines > len(self._records) + SPARE_LINES:
            self._write_anew()

    def _write_anew(self) -> None:
        self.close()
        self._replace(json.dumps(asdict(record)) for record in self._records.values())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, line: str) -> None:
        if self.trouble is not None:
            return
        try:
            if self._file is None:
                self._file = self._opened()
            self._file.write(line + "\n")
            self._file.flush()
            self._lines += 1
        except OSError as error:
            self.distrust(error.strerror or str(error))

    def _replace(self, lines: Iterable[str]) -> None:
        fresh = self.path.with_suffix(".journal.new")
        text = "".join(line + "\n" for line in lines)
        try:
            fresh.write_text(text, encoding="utf-8")
            fresh.chmod(0o600)
            fresh.replace(self.path)
        except OSError as error:
            self.distrust(error.strerror or str(error))
        else:
            self.trouble = None
            self._lines = len(self._records)

    def _opened(self) -> TextIO:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8")


_MAY_BE_LESS: Final = frozenset({"priority", "job_id", "name"})


def _entry(line: str) -> MemoryRecord | int | None:
    """Return a record, the key of a job that left, or None."""
    try:
        entry = json.loads(line)
        if "left" in entry:
            return int(entry["left"])
        record = MemoryRecord(**entry)
    except (ValueError, TypeError, RecursionError):
        return None
    return record if _is_sound(record) else None


def _is_sound(record: MemoryRecord) -> bool:
    """Tell whether every field has its type, and no amount is below 0."""
    values = {one.name: getattr(record, one.name) for one in fields(record)}
    return all(type(values[one.name]) is one.type for one in fields(record)) and all(
        value >= 0 for name, value in values.items() if name not in _MAY_BE_LESS
    )


def started_ticks(pid: int) -> int | None:
    """Return when a process started; None if there is none of this number."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
