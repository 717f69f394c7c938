"""Which sweeps there are, and how each stands, for pages."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from interlane.live.store.record import JobRecord
from interlane.live.view import View
from interlane.model import InterlaneError, JobId
from interlane.sweep.board import SweepBoard, SweepStatus, TrialJob
from interlane.sweep.definition import NoSuchSweep, sweep_of

PAGE: Final = 500
SWEEPS_KEPT: Final = 200


@dataclass(slots=True)
class _Known:
    """A sweep, and the jobs that were found of it."""

    user: str
    board: SweepBoard
    jobs: dict[JobId, JobRecord] = field(default_factory=dict)
    """The newest last."""
    last: SweepStatus | None = None
    """How it ended, until another job of it comes; None while it has not."""


class Sweeps:
    """Finds sweeps among the jobs, and keeps what was read of them."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._last = 0
        self._known: dict[str, _Known] = {}
        self._lock = Lock()

    def names(self) -> list[tuple[str, str]]:
        """Return every sweep and whose it is, the newest first."""
        with self._lock:
            self._find()
            return [(name, one.user) for name, one in reversed(self._known.items())]

    def status(self, name: str) -> SweepStatus:
        """Return how a sweep stands now."""
        with self._lock:
            self._find()
            known = self._known.get(name)
            if known is None:
                raise NoSuchSweep(f"There is no sweep {name!r}; the page /sweeps lists all.")
            if known.last is not None:
                return known.last
            known.board.look()
            status = known.board.status()
            known.last = status if status.is_over else None
            return status

    # -- where its boards look --------------------------------------------------------

    def jobs(self, sweep: str) -> Iterator[TrialJob]:
        """Yield the jobs of a sweep, the newest first."""
        known = self._known[sweep].jobs
        for job_id, record in reversed(list(known.items())):
            if record.is_open:
                record = known[job_id] = self._view.job(job_id)
            yield TrialJob(record.id, record.name, record.state, record.attempt, record.reason)

    def printed(self, job: TrialJob, begin: int, size: int) -> tuple[bytes, int]:
        """Return a part of what an attempt printed, and where to go on."""
        found = self._view.output(JobId(job.id), job.attempt, begin, size)
        return found.data, found.begin + len(found.data)

    def _find(self) -> None:
        """Take in jobs of sweeps that have come since the last look."""
        found: list[JobRecord] = []
        before = None
        while True:
            part = self._view.trials(PAGE, after=self._last, before=before)
            found += part
            if len(part) < PAGE:
                break
            before = part[-1].serial
        for record in reversed(found):
            self._take_in(record)
        while len(self._known) > SWEEPS_KEPT:
            del self._known[next(iter(self._known))]

    def _take_in(self, record: JobRecord) -> None:
        self._last = max(self._last, record.serial)
        said = record.job.sweep
        if said is None:
            return
        known = self._known.get(said.name)
        if known is None:
            document = {**said.definition, "name": said.name, "job": said.job}
            try:
                sweep = sweep_of(document)
            except InterlaneError:  # somebody wrote it by hand
                return
            known = self._known[said.name] = _Known(record.user, SweepBoard(self, sweep))
        known.jobs[record.id] = record
        known.last = None
