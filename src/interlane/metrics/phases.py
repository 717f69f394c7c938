"""How a job stood, and from when to when: its entries by the table of a job's life."""

from collections.abc import Iterable
from dataclasses import dataclass

from interlane.model import LogEntry, Recovered, Submitted
from interlane.model.lifecycle import ON_RECORD, JobState


@dataclass(frozen=True, slots=True)
class JobPhase:
    """A time in which a job was in one state."""

    state: JobState
    begin_s: float
    end_s: float


def phases(entries: Iterable[LogEntry], until_s: float) -> list[JobPhase]:
    """Return the states of a job that has these entries, up to a moment or to its end."""
    found: list[JobPhase] = []
    state: JobState | None = None
    begin_s = until_s
    for entry in entries:
        follows = _after(state, entry)
        if follows is None or follows is state:
            continue
        if state is not None:
            found.append(JobPhase(state, begin_s, entry.at_s))
        state, begin_s = follows, entry.at_s
    if state is not None and not state.has_ended:
        found.append(JobPhase(state, begin_s, until_s))
    return [phase for phase in found if phase.end_s > phase.begin_s]


def _after(state: JobState | None, entry: LogEntry) -> JobState | None:
    """Return the state after an entry; None if it changes none."""
    if isinstance(entry.what, Submitted):
        return JobState.QUEUED
    if isinstance(entry.what, Recovered):
        return JobState.QUEUED if entry.what.placement is None else JobState.RUNNING
    return None if state is None else ON_RECORD.get((state, type(entry.what)))
