"""The life of a job, as a table.

    submitted -> QUEUED -> STARTING -> RUNNING -> SUCCEEDED or FAILED
                   ^          |           |
                   |          |           +--> STOPPING --(Preempted)--+
                   +----------+----------------------------------------+

A job whose machine is gone, or no longer has what the job holds there, is QUEUED again.
An elastic job that gets more instances is GROWING from the decision until it is RUNNING again.
A job that waits for a moment, for other jobs or for its user is HELD: no scheduler knows it
before it has all that but a place.
A job that can never run is REFUSED; a user may cancel any job (CANCELLED).
A job that another server began is UNKNOWN while nobody here can tell what has become of it: no
scheduler knows it, and it is started nowhere until its holder or an operator has spoken.

``NEXT`` is what a scheduler makes of events and ``DECIDED`` what it makes by its actions.
``ON_RECORD`` is both, and a few steps more: a record also follows what a scheduler is not told
(that somebody cancels a job which runs), and it may be behind a scheduler that took the job up
as running after a restart.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, cast

from interlane.model.actions import Action, Grow, Preempt, Refuse, Requeue, Start
from interlane.model.errors import IllegalTransition
from interlane.model.events import (
    AttemptUnknown,
    Cancelled,
    CancelRequested,
    Event,
    Finished,
    GrowFailed,
    Grown,
    JobChanged,
    JobHeld,
    JobLost,
    JobReleased,
    JobRetried,
    MachineChanged,
    MachineJoined,
    MachineLeft,
    MachineLost,
    Preempted,
    Started,
    StartFailed,
)
from interlane.model.ids import JobId
from interlane.model.log import Logged
from interlane.model.states import APART as APART
from interlane.model.states import ENDED as ENDED
from interlane.model.states import HOLDING as HOLDING
from interlane.model.states import OPEN as OPEN
from interlane.model.states import JobState as JobState

_Q, _S, _R, _P = JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.STOPPING
_G, _U, _H = JobState.GROWING, JobState.UNKNOWN, JobState.HELD

NEXT: Final[Mapping[tuple[JobState, type[Event]], JobState]] = MappingProxyType(
    {
        (_S, Started): _R,
        (_P, Started): _P,
        (_S, StartFailed): _Q,
        (_P, StartFailed): _Q,
        (_G, Grown): _R,
        (_G, GrowFailed): _R,
        **{(state, Finished): JobState.SUCCEEDED for state in (_R, _G, _S, _P)},
        (_R, Preempted): _Q,
        (_G, Preempted): _Q,
        (_P, Preempted): _Q,
        **{(state, Cancelled): JobState.CANCELLED for state in (_Q, _S, _R, _G, _P)},
        **{
            (state, event): _Q
            for state in (_S, _R, _G, _P)
            for event in (MachineLost, MachineLeft, MachineChanged, MachineJoined)
        },
    }
)
"""What a scheduler makes of events; whoever ``Finished`` may have failed."""

DECIDED: Final[Mapping[tuple[JobState, type[Action]], JobState]] = MappingProxyType(
    {
        (_Q, Start): _S,
        (_Q, Refuse): JobState.REFUSED,
        (_R, Grow): _G,
        (_R, Preempt): _P,
        **{(state, Requeue): _Q for state in (_S, _R, _G, _P)},
    }
)
"""What a scheduler makes by its actions; any other action for a job is void."""

_Steps = Mapping[tuple[JobState, type[Logged]], JobState]

ON_RECORD: Final[_Steps] = MappingProxyType(
    {
        **cast("_Steps", NEXT),
        **cast("_Steps", DECIDED),
        **{(state, CancelRequested): _P for state in HOLDING},
        **{(state, JobLost): _Q for state in HOLDING},
        **{(state, AttemptUnknown): _U for state in HOLDING},
        **{(state, JobHeld): _H for state in (_Q, _H)},
        **{(state, JobRetried): _H for state in HOLDING},
        (_H, JobReleased): _Q,
        (_H, Cancelled): JobState.CANCELLED,
        **{(state, JobChanged): state for state in (_Q, _H)},
        (_U, CancelRequested): _U,
        (_U, Finished): JobState.SUCCEEDED,
        (_U, Cancelled): JobState.CANCELLED,
        (_S, Preempted): _Q,
        **{(state, Preempt): _P for state in (_S, _G)},
        **{(state, what): state for state in (_S, _P) for what in (Grow, Grown, GrowFailed)},
    }
)
"""What a record makes of everything."""


def advance(job_id: JobId, state: JobState, event: type[Event]) -> JobState:
    """Return the state after an event, or say why there is none."""
    try:
        return NEXT[state, event]
    except KeyError:
        raise IllegalTransition(f"Job {job_id}", state.value, event.__name__) from None
