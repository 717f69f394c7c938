"""What was held and who waited, and how one job stood: the same for live and simulated runs."""

from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.metrics.levels import first_waits_s, levels
from interlane.metrics.log import EventLog, LogEvent
from interlane.metrics.outcomes import outcomes
from interlane.metrics.phases import JobPhase, phases
from interlane.model import (
    MILLI,
    Cancelled,
    CancelRequested,
    Cluster,
    Finished,
    Job,
    JobLost,
    LogEntry,
    Logged,
    MachineId,
    Placement,
    Preempt,
    Preempted,
    Recovered,
    SchedulerBuilt,
    Spot,
    Start,
    Started,
    StartFailed,
    Submitted,
    Ticked,
)
from interlane.model.lifecycle import JobState
from interlane.policy.order import PriorityWithAgeing
from interlane.sim.engine import Simulator
from interlane.testing.build import cluster, job, make
from interlane.testing.strategies import clusters, traces

HERE = Placement((Spot(MachineId("m0"), (0,)),))
A, B = job("a", gpus=1), job("b", gpus=1, at=2)


def told(*whats: tuple[float, Logged], **detail: object) -> list[LogEntry]:
    return [LogEntry(seq, at_s, what) for seq, (at_s, what) in enumerate(whats, start=1)]


LIVE = told(
    (0.0, SchedulerBuilt(cluster(gpus=[1]))),
    (1.0, Submitted(A)),
    (1.0, Start(A.id, HERE)),
    (2.0, Submitted(B)),
    (3.0, Started(A.id, HERE)),
    (4.0, Preempt(A.id, B.id)),
    (5.0, Preempted(A.id, 1.0)),
    (5.0, Start(B.id, HERE)),
    (6.0, StartFailed(B.id, "no image")),
    (6.0, Start(B.id, HERE)),
    (6.5, Ticked()),
    (7.0, CancelRequested(B.id)),
    (8.0, Cancelled(B.id)),
    (8.0, Start(A.id, HERE)),
    (9.0, JobLost(A.id, 1.0)),
)


def test_levels_count_holders_and_who_waits() -> None:
    found = levels(EventLog.of(LIVE), [0.5, 1.0, 2.5, 5.5, 7.5, 8.5, 9.5])

    assert found.held_milli.tolist() == [0, MILLI, MILLI, MILLI, MILLI, MILLI, 0]
    assert found.waiting.tolist() == [0, 0, 1, 1, 1, 0, 1]


def test_waits_are_those_of_first_starts() -> None:
    log = EventLog.of(LIVE)

    assert sorted(first_waits_s(log, 0.0).tolist()) == [1.0, 3.0]  # a was submitted at 0
    assert first_waits_s(log, 2.0).tolist() == [3.0]


def test_a_job_that_was_there_before_counts_from_the_first_moment() -> None:
    log = EventLog(cluster(gpus=[1]))
    log.recover(Recovered(A, 0.0, HERE, 0.5))
    log.recover(Recovered(B))
    log.append(LogEntry(9, 7.0, Finished(A.id)))

    found = levels(log, [1.0, 3.0, 8.0])

    assert found.held_milli.tolist() == [MILLI, MILLI, 0]
    assert found.waiting.tolist() == [0, 1, 1]


@given(
    on=clusters(most=3), trace=traces(most=10), moments=st.lists(st.floats(0, 400), min_size=1)
)
def test_levels_are_what_a_walk_through_the_log_counts(
    on: Cluster, trace: tuple[list[Job], list[float]], moments: list[float]
) -> None:
    scheduler = make(on, order=PriorityWithAgeing(preemptive=True))
    log = Simulator(scheduler, *trace).run()

    found = levels(log, moments)

    lines = list(log.lines())
    for at, moment_s in enumerate(moments):
        past = lines[: bisect_right([line.at_s for line in lines], moment_s)]
        last = {line.subject: line.kind for line in past if line.event is None}
        waits = (LogEvent.SUBMITTED, LogEvent.PREEMPTED, LogEvent.JOB_LOST)
        assert found.waiting[at] == sum(event in waits for event in last.values())
        if not any(event in (LogEvent.STARTED, LogEvent.GROWN) for event in last.values()):
            assert found.held_milli[at] == 0


@given(on=clusters(most=3), trace=traces(most=10))
def test_figures_of_entries_are_those_of_the_run_that_made_them(
    on: Cluster, trace: tuple[list[Job], list[float]]
) -> None:
    log = Simulator(make(on), *trace).run()

    back = EventLog.of(log.entries())

    assert list(back.lines()) == list(log.lines())
    np.testing.assert_array_equal(outcomes(back).wait_s, outcomes(log).wait_s)


def test_a_timeline_follows_the_table_of_a_jobs_life() -> None:
    mine = [entry for entry in LIVE if entry.job_id == B.id]

    assert phases(mine, 20.0) == [
        JobPhase(JobState.QUEUED, 2.0, 5.0),
        JobPhase(JobState.STARTING, 5.0, 6.0),
        JobPhase(JobState.STARTING, 6.0, 7.0),
        JobPhase(JobState.STOPPING, 7.0, 8.0),
    ]


@pytest.mark.parametrize(("upto", "state"), [(4.0, JobState.STOPPING), (5.0, JobState.QUEUED)])
def test_a_timeline_of_an_open_job_goes_on(upto: float, state: JobState) -> None:
    mine = [entry for entry in LIVE if entry.job_id == A.id and entry.at_s <= upto]

    assert phases(mine, 6.0)[-1] == JobPhase(state, upto, 6.0)
