"""What became of every job, from the log."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interlane.metrics.log import EventLog, LogEvent

Column = NDArray[np.float64]


@dataclass(frozen=True)
class Outcomes:
    """One value per job, in the log's numbering; NaN for what has not happened."""

    submitted_s: Column
    first_start_s: Column
    finished_s: Column
    ran_s: Column
    """Time spent running, over all attempts."""
    preemptions: NDArray[np.int64]
    growths: NDArray[np.int64]
    instances: NDArray[np.int64]
    gpu_milli: NDArray[np.int64]

    @property
    def done(self) -> NDArray[np.bool_]:
        """Which jobs finished."""
        return ~np.isnan(self.finished_s)

    @property
    def jct_s(self) -> Column:
        """Completion times: from submission to the end."""
        return self.finished_s - self.submitted_s

    @property
    def wait_s(self) -> Column:
        """Time from submission to the end during which the job did not run."""
        return self.jct_s - self.ran_s


def outcomes(log: EventLog) -> Outcomes:
    """Return what became of every job."""
    at_s, events, subjects = log.columns()
    count = len(log.jobs)
    submitted, first, finished = (np.full(count, np.nan) for _ in range(3))
    ran_s = np.zeros(count)

    starts = events == LogEvent.STARTED
    finished[subjects[events == LogEvent.FINISHED]] = at_s[events == LogEvent.FINISHED]
    submitted[subjects[events == LogEvent.SUBMITTED]] = at_s[events == LogEvent.SUBMITTED]
    # Written backwards, so that the first start is the one that stays.
    first[subjects[starts][::-1]] = at_s[starts][::-1]
    ends = (
        (events == LogEvent.FINISHED)
        | (events == LogEvent.PREEMPTED)
        | (events == LogEvent.JOB_LOST)
        | (events == LogEvent.CANCELLED)
    )
    # An attempt is a start and the end that follows it; a job may be cancelled while it
    # waits, and the log may stop while it runs.
    turns = np.nonzero(starts | ends)[0]
    turns = turns[np.argsort(subjects[turns], kind="stable")]
    begin, end = turns[:-1], turns[1:]
    paired = starts[begin] & ends[end] & (subjects[begin] == subjects[end])
    np.add.at(ran_s, subjects[begin[paired]], at_s[end[paired]] - at_s[begin[paired]])
    return Outcomes(
        submitted,
        first,
        finished,
        ran_s,
        np.bincount(subjects[events == LogEvent.PREEMPTED], minlength=count),
        np.bincount(subjects[events == LogEvent.GROWN], minlength=count),
        np.fromiter((job.request.instances for job in log.jobs), np.int64, count),
        np.fromiter((job.request.gpu_milli for job in log.jobs), np.int64, count),
    )
