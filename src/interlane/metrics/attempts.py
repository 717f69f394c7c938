"""When jobs held capacity: every start and growth, with the end that belongs to it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interlane.metrics.log import PLACED, EventLog, LogEvent
from interlane.model import held_gpu_milli

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ENDS = (
    LogEvent.FINISHED,
    LogEvent.PREEMPTED,
    LogEvent.JOB_LOST,
    LogEvent.CANCELLED,
    LogEvent.START_FAILED,
)
_WAITS = (LogEvent.SUBMITTED, LogEvent.PREEMPTED, LogEvent.JOB_LOST, LogEvent.START_FAILED)
_WAITED = (LogEvent.STARTED, LogEvent.REFUSED, LogEvent.CANCELLED, LogEvent.FINISHED)


@dataclass(frozen=True)
class Attempts:
    """One value per start or growth, ordered by job, then by time."""

    job: Ints
    start_s: Floats
    end_s: Floats
    """Infinite for jobs that still run at the end of the log."""
    number: Ints
    """Which of the log's placements was held."""


def attempts(log: EventLog) -> Attempts:
    """Return every start and every growth with its end."""
    starts, end_s = _paired(log, PLACED, _ENDS)
    at_s, events, subjects = log.columns()
    numbers = np.cumsum(np.isin(events, PLACED)) - 1
    return Attempts(subjects[starts], at_s[starts], end_s, numbers[starts])


def waits(log: EventLog) -> tuple[Floats, Floats]:
    """Return when jobs began to wait and stopped, every time that one did."""
    begins, end_s = _paired(log, _WAITS, _WAITED)
    return log.columns()[0][begins], end_s


def _paired(
    log: EventLog, begin: tuple[LogEvent, ...], end: tuple[LogEvent, ...]
) -> tuple[Ints, Floats]:
    """Return the lines with which something begins for a job, and when it ends."""
    at_s, events, subjects = log.columns()
    is_start, is_end = np.isin(events, begin), np.isin(events, end)
    lines = np.nonzero(is_start | is_end)[0]
    # Stable, so that the lines of one job stay in their order: the next end after a start
    # belongs to it, unless the job still runs.
    lines = lines[np.argsort(subjects[lines], kind="stable")]
    begins, stops = np.nonzero(is_start[lines])[0], np.nonzero(is_end[lines])[0]
    after = np.searchsorted(stops, begins)
    starts = lines[begins]
    ends = np.append(lines[stops], -1)[after]
    ended = (ends >= 0) & (subjects[starts] == subjects[ends])
    return starts, np.where(ended, at_s[ends], np.inf)


def held_milli(log: EventLog, tries: Attempts) -> Ints:
    """Return the GPU share that each attempt held, in thousandths of a GPU."""
    asked = np.fromiter((job.request.gpu_milli for job in log.jobs), np.int64, len(log.jobs))
    held = asked[tries.job]
    elastic = np.fromiter((job.request.is_elastic for job in log.jobs), np.bool_, len(log.jobs))
    for row in np.nonzero(elastic[tries.job])[0]:
        request = log.jobs[tries.job[row]].request
        held[row] = held_gpu_milli(request, log.placements[tries.number[row]])
    return held
