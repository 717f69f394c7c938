"""What jobs were seen to do over time, in files of the server's folder.

A file for each job, a line for each look: a server that dies at any moment loses at most a part
of the last line.  A long job is thinned out, so that its file stays small.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

from interlane.model import JobId

POINTS_MAX: Final = 720
"""Looks that are kept of a job; beyond them every other one goes."""
FILES_MAX: Final = 5_000
"""Jobs of which files are kept, those that were seen last."""
SWEPT_EVERY: Final = 500
"""New files after which old ones are looked for."""
SUFFIX: Final = ".jsonl"

log = logging.getLogger("interlane.live")


@dataclass(frozen=True, slots=True)
class JobLook:
    """What a job had done on its devices by a moment."""

    at_s: float
    iterations: int
    busy_s: float
    """Inside iterations, of all that it was there."""
    present_s: float
    used_bytes: int | None
    """What it was measured to need."""
    between_bytes: int | None = None
    """What it had in use at the end of an iteration."""
    peak_bytes: int | None = None
    """The most that it had in use shortly before."""


@dataclass(slots=True)
class JobSeries:
    """A job over time."""

    looks: list[JobLook] = field(default_factory=list)
    _every: int = 1
    _skipped: int = 0

    def add(self, look: JobLook) -> bool:
        """Take in a look; return whether those before it are still as they were.

        An attempt that began anew begins the series anew.
        """
        is_same = True
        if self.looks and look.iterations < self.looks[-1].iterations:
            self.looks, self._every, is_same = [], 1, False
        self._skipped += 1
        if self._skipped < self._every:
            return is_same
        self._skipped = 0
        self.looks.append(look)
        if len(self.looks) > POINTS_MAX:
            del self.looks[1::2]
            self._every *= 2
            is_same = False
        return is_same

    def steps(self) -> Iterator[tuple[JobLook, JobLook]]:
        """Yield each look with the one before it."""
        yield from zip(self.looks, self.looks[1:], strict=False)


class SeriesFiles:
    """Series by job; a disk that is full costs the curve, and nothing else."""

    def __init__(
        self, folder: Path, most: int = FILES_MAX, swept_every: int = SWEPT_EVERY
    ) -> None:
        self._folder = folder
        self._most = most
        self._swept_every = swept_every
        self._made = 0
        self._is_silent = False

    def read(self, job_id: JobId) -> JobSeries | None:
        """Return what is kept of a job; None if nothing is."""
        try:
            text = self._path(job_id).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None
        series = JobSeries()
        for line in text.splitlines():
            with suppress(ValueError, TypeError):  # a server died while it wrote this
                series.add(JobLook(*json.loads(line)))
        return series if series.looks else None

    def append(self, job_id: JobId, look: JobLook) -> None:
        """Keep one more look at a job."""
        self._write(job_id, [look], "a")

    def replace(self, job_id: JobId, looks: Sequence[JobLook]) -> None:
        """Keep these instead of all before."""
        self._write(job_id, looks, "w")

    def _write(self, job_id: JobId, looks: Sequence[JobLook], mode: str) -> None:
        path = self._path(job_id)
        try:
            if not path.exists():
                self._make_room()
            with path.open(mode, encoding="utf-8") as file:
                file.write("".join(f"{json.dumps(astuple(look))}\n" for look in looks))
            self._is_silent = False
        except OSError as error:
            if not self._is_silent:
                log.warning("What jobs do over time cannot be kept: %s", error)
            self._is_silent = True

    def _make_room(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._made % self._swept_every == 0:
            found = sorted(self._folder.glob(f"*{SUFFIX}"), key=lambda one: one.stat().st_mtime)
            for path in found[: max(0, len(found) - self._most)]:
                path.unlink(missing_ok=True)
        self._made += 1

    def _path(self, job_id: JobId) -> Path:
        return self._folder / f"{quote(job_id, safe='')}{SUFFIX}"
