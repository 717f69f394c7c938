"""One job's life, told from the log."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from interlane.metrics.log import NOBODY, OF_MACHINES, PLACED, EventLog, LogEvent, LogLine
from interlane.model import Placement

_SPOTS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to the job."""

    at_s: float
    event: str
    what: str
    """The event in a sentence, with what led to it."""


def timeline(log: EventLog, number: int) -> list[Moment]:
    """Return all that happened to one job, in order."""
    moments: list[Moment] = []
    before_s, instances = 0.0, 0
    for line in _lines(log, number):
        at_s, event, placement = line.at_s, line.kind, line.placement
        what = _told(log, line, at_s - before_s)
        if event is LogEvent.GROWN and placement is not None:
            instances += placement.instances
            what += f"; it now has {instances} of {log.jobs[number].request.instances}"
        else:
            before_s, instances = at_s, 0 if placement is None else placement.instances
        moments.append(Moment(at_s, event.name.lower(), what))
    return moments


def totals(log: EventLog, number: int) -> dict[str, float]:
    """Return how long the job waited, ran and took, in seconds, up to its last line."""
    waited_s = ran_s = before_s = 0.0
    submitted_s: float | None = None
    runs = False
    for line in _lines(log, number):
        if submitted_s is None:
            submitted_s = before_s = line.at_s
        if runs:
            ran_s += line.at_s - before_s
        else:
            waited_s += line.at_s - before_s
        runs = line.kind in PLACED
        before_s = line.at_s
    total_s = 0.0 if submitted_s is None else before_s - submitted_s
    return {"waited_s": waited_s, "ran_s": ran_s, "total_s": total_s}


def _lines(log: EventLog, number: int) -> Iterator[LogLine]:
    """Yield the lines of one job, without a walk through all others."""
    at_s, events, subjects = log.columns()
    places = np.cumsum(np.isin(events, PLACED)) - 1
    stops = np.cumsum(events == LogEvent.PREEMPTED) - 1
    losses = np.cumsum(events == LogEvent.JOB_LOST) - 1
    for line in np.nonzero((subjects == number) & ~np.isin(events, list(OF_MACHINES)))[0]:
        event = LogEvent(int(events[line]))
        yield LogLine(
            float(at_s[line]),
            event,
            number,
            log.placements[places[line]] if event in PLACED else None,
            log.favoured[stops[line]] if event is LogEvent.PREEMPTED else None,
            log.losses[losses[line]] if event is LogEvent.JOB_LOST else None,
        )


def _told(log: EventLog, line: LogLine, since_s: float) -> str:
    number, placement = line.subject, line.placement
    match line.kind:
        case LogEvent.SUBMITTED:
            return f"submitted{_by(log.jobs[number].user)}"
        case LogEvent.STARTED:
            assert placement is not None
            return f"started after waiting {since_s:,.0f} s on {_where(placement)}"
        case LogEvent.GROWN:
            assert placement is not None
            added = f"{placement.instances} instance{'s' * (placement.instances != 1)}"
            return f"grew after running {since_s:,.0f} s by {added} on {_where(placement)}"
        case LogEvent.PREEMPTED:
            assert line.in_favour_of is not None
            known = line.in_favour_of != NOBODY
            urgent = f", for job {log.jobs[line.in_favour_of].id}" if known else ""
            return f"stopped after running {since_s:,.0f} s{urgent}"
        case LogEvent.START_FAILED:
            return f"gave its place back after {since_s:,.0f} s: it could not be started"
        case LogEvent.JOB_LOST:
            return f"lost its place after running {since_s:,.0f} s: {line.why}"
        case LogEvent.FINISHED:
            return f"finished after running {since_s:,.0f} s"
        case LogEvent.CANCELLED:
            return f"cancelled after {since_s:,.0f} s"
        case LogEvent.REFUSED:
            refusal = log.refusals.get(number)
            return "refused" if refusal is None else f"refused, {refusal}"
        case _:
            raise AssertionError("events about machines are not part of a job's life")


def _by(user: str) -> str:
    return f" by {user}" if user else ""


def _where(placement: Placement) -> str:
    shown = placement.spots[:_SPOTS_SHOWN]
    parts = [_spot(spot.machine, spot.gpus, spot.instances) for spot in shown]
    more = len(placement.spots) - len(shown)
    return ", ".join(parts) + (f" and {more} more places" if more else "")


def _spot(machine: str, gpus: tuple[int, ...], instances: int) -> str:
    times = f"{instances} x " if instances > 1 else ""
    on = f" (GPU {', '.join(map(str, gpus))})" if gpus else ""
    return f"{times}{machine}{on}"
