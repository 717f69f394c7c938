"""What jobs waited and what users held since the server began, counted as the log grows."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from interlane.live.store.record import JobRecord
from interlane.model import MILLI, LogEntry

WAIT_BUCKETS_S: Final = (
    1.0, 10.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0, 43_200.0, 86_400.0, 604_800.0,
)  # fmt: skip
PAGE: Final = 500
STARTED: Final = "Started"
ENDS: Final = frozenset({"Finished", "Cancelled"})


@dataclass(slots=True)
class Totals:
    """Figures that only rise."""

    wait_buckets: list[int] = field(default_factory=lambda: [0] * (len(WAIT_BUCKETS_S) + 1))
    """First starts by how long jobs had waited; the last is for those beyond all bounds."""
    wait_sum_s: float = 0.0
    gpu_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """User -> seconds of GPUs that their jobs held, counted when these end."""
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    """User and state -> jobs that ended."""
    restarts: int = 0
    """Starts that were not the first of their job."""


class JobTotals:
    """Reads what is new in the log whenever it is asked."""

    def __init__(
        self,
        log: Callable[[int, int], list[LogEntry]],
        job: Callable[[str], JobRecord | None],
        milli: Callable[[JobRecord], int],
        since: int,
    ) -> None:
        self._log, self._job, self._milli = log, job, milli
        self._seq = since
        self._lock = Lock()
        self._totals = Totals()

    def read(self) -> Totals:
        """Return the figures by now."""
        with self._lock:
            while entries := self._log(self._seq, PAGE):
                for entry in entries:
                    self._count(entry)
                assert entries[-1].seq is not None
                self._seq = entries[-1].seq
            return self._totals

    def _count(self, entry: LogEntry) -> None:
        if entry.job_id is None or (entry.kind != STARTED and entry.kind not in ENDS):
            return
        record = self._job(entry.job_id)
        if record is None:
            return
        if entry.kind == STARTED:
            self._started(record, entry.at_s)
            return
        self._totals.ended[record.user, record.state.value] += 1
        gpus = self._milli(record) / MILLI
        self._totals.gpu_s[record.user] += gpus * record.ran_for_s(entry.at_s)

    def _started(self, record: JobRecord, at_s: float) -> None:
        if record.attempt > 1:
            self._totals.restarts += 1
            return
        waited_s = max(0.0, at_s - record.submitted_s)
        self._totals.wait_buckets[bisect_left(WAIT_BUCKETS_S, waited_s)] += 1
        self._totals.wait_sum_s += waited_s
