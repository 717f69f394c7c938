"""The life of a job, as a table.

    submitted -> QUEUED -> STARTING -> RUNNING -> DONE
                   ^          |           |
                   |          |           +--> STOPPING --(Preempted)--+
                   +----------+-------------------------------------- -+

A job whose machine is gone, or no longer has what the job holds there, is QUEUED again.
An elastic job that gets more instances is GROWING from the decision until it is RUNNING again.
A job that can never run is REFUSED; a user may take any job back (CANCELLED).
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from interlane.model import (
    Cancelled,
    Event,
    Finished,
    GrowFailed,
    Grown,
    IllegalTransition,
    JobId,
    MachineChanged,
    MachineJoined,
    MachineLeft,
    MachineLost,
    Preempted,
    Started,
    StartFailed,
)


class JobState(Enum):
    """Where a job stands."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    GROWING = "growing"
    STOPPING = "stopping"
    DONE = "done"
    REFUSED = "refused"
    CANCELLED = "cancelled"


_Q, _S, _R, _P = JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.STOPPING
_G = JobState.GROWING

NEXT: Final[Mapping[tuple[JobState, type[Event]], JobState]] = MappingProxyType(
    {
        (_S, Started): _R,
        (_P, Started): _P,
        (_S, StartFailed): _Q,
        (_P, StartFailed): _Q,
        (_G, Grown): _R,
        (_G, GrowFailed): _R,
        (_R, Finished): JobState.DONE,
        (_G, Finished): JobState.DONE,
        (_S, Finished): JobState.DONE,
        (_P, Finished): JobState.DONE,
        (_R, Preempted): _Q,
        (_G, Preempted): _Q,
        (_P, Preempted): _Q,
        (_Q, Cancelled): JobState.CANCELLED,
        (_S, Cancelled): JobState.CANCELLED,
        (_R, Cancelled): JobState.CANCELLED,
        (_G, Cancelled): JobState.CANCELLED,
        (_P, Cancelled): JobState.CANCELLED,
        **{
            (state, event): _Q
            for state in (_S, _R, _G, _P)
            for event in (MachineLost, MachineLeft, MachineChanged, MachineJoined)
        },
    }
)

HOLDING: Final = frozenset({_S, _R, _G, _P})
"""States in which a job holds capacity."""


def advance(job_id: JobId, state: JobState, event: type[Event]) -> JobState:
    """Return the state after an event, or say why there is none."""
    try:
        return NEXT[state, event]
    except KeyError:
        raise IllegalTransition(f"Job {job_id}", state.value, event.__name__) from None
