"""Sums over jobs: of a device, and of one ``share run``."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from interlane.device import page
from interlane.device.memory import most
from interlane.device.shared_job import SharedJob
from interlane.lanes.actions import MemoryDemand

KEPT_RUNS: Final = 4096
NOTHING: Final = MemoryDemand(0, 0)


@dataclass(slots=True)
class JobTally:
    """What some jobs have done."""

    jobs: int = 0
    iterations: int = 0
    busy_ns: int = 0
    waited_ns: int = 0
    present_ns: int = 0
    needed: MemoryDemand = NOTHING
    """The most that any of them was measured to need."""

    def add(self, job: SharedJob) -> None:
        """Add what a job has done."""
        self.iterations += job.word(page.ITERATIONS)
        self.busy_ns += job.word(page.BUSY_NS)
        self.waited_ns += job.word(page.WAITED_NS)
        self.present_ns += job.present_ns
        self.needed = most((self.needed, job.measured or NOTHING))

    def with_those(self, jobs: Iterable[SharedJob]) -> "JobTally":
        """Return the sum with jobs that are still here."""
        together = replace(self)
        for job in jobs:
            together.add(job)
        return together


class RunTallies:
    """What became of each run, the last few thousand of them."""

    def __init__(self) -> None:
        self._runs: OrderedDict[int, JobTally] = OrderedDict()

    def of(self, run: int) -> JobTally | None:
        """Return the sum over jobs that have left; None for a run that is not known."""
        return self._runs.get(run)

    def came(self, job: SharedJob) -> None:
        """Count a job."""
        if job.run:
            self._tally(job.run).jobs += 1

    def left(self, job: SharedJob) -> None:
        """Add what a job did that leaves."""
        if job.run:
            self._tally(job.run).add(job)

    def _tally(self, run: int) -> JobTally:
        tally = self._runs.setdefault(run, JobTally())
        if len(self._runs) > KEPT_RUNS:
            self._runs.popitem(last=False)
        return tally
