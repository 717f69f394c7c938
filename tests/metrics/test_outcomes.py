"""What became of every job, from the log alone."""

import numpy as np
from hypothesis import given

from interlane.metrics.attempts import attempts
from interlane.metrics.log import EventLog, LogEvent, LogLine
from interlane.metrics.outcomes import outcomes
from interlane.model import Cluster, Job, MachineId, Placement, Spot
from interlane.policy.order import ShortestRemainingFirst
from interlane.testing.build import cluster, job, make, play
from interlane.testing.strategies import clusters, traces

PLACE = Placement((Spot(MachineId("m0"), (0,)),))


def log_of(*lines: tuple[float, LogEvent, int], jobs: int = 1) -> EventLog:
    log = EventLog(cluster(gpus=[1]), [job(f"j{n}", gpus=1) for n in range(jobs)])
    for at_s, event, subject in lines:
        if event is LogEvent.STARTED:
            log.add_start(at_s, subject, PLACE)
        elif event is LogEvent.GROWN:
            log.add_growth(at_s, subject, PLACE)
        else:
            log.add(at_s, event, subject)
    return log


def test_a_job_that_waited_and_ran() -> None:
    log = log_of(
        (1, LogEvent.SUBMITTED, 0), (4, LogEvent.STARTED, 0), (10, LogEvent.FINISHED, 0)
    )

    found = outcomes(log)

    assert found.jct_s.tolist() == [9]
    assert found.ran_s.tolist() == [6]
    assert found.wait_s.tolist() == [3]
    assert found.first_start_s.tolist() == [4]
    assert found.done.tolist() == [True]


def test_time_between_attempts_is_waiting_time() -> None:
    log = log_of(
        (0, LogEvent.SUBMITTED, 0), (0, LogEvent.STARTED, 0), (5, LogEvent.PREEMPTED, 0),
        (8, LogEvent.STARTED, 0), (9, LogEvent.JOB_LOST, 0), (20, LogEvent.STARTED, 0),
        (30, LogEvent.FINISHED, 0),
    )  # fmt: skip

    found = outcomes(log)

    # It ran 5 + 1 + 10 of 30 s; being thrown out by a machine is no preemption.
    assert found.ran_s.tolist() == [16]
    assert found.wait_s.tolist() == [14]
    assert found.preemptions.tolist() == [1]
    assert found.first_start_s.tolist() == [0]


def test_a_job_that_grows_runs_on() -> None:
    log = log_of(
        (0, LogEvent.SUBMITTED, 0), (1, LogEvent.STARTED, 0), (4, LogEvent.GROWN, 0),
        (6, LogEvent.GROWN, 0), (9, LogEvent.FINISHED, 0),
    )  # fmt: skip

    found, tries = outcomes(log), attempts(log)

    assert found.ran_s.tolist() == [8]
    assert found.growths.tolist() == [2]
    assert tries.start_s.tolist() == [1, 4, 6]
    assert tries.end_s.tolist() == [9, 9, 9]


def test_what_was_held_ends_with_the_next_end_of_its_own_job() -> None:
    log = log_of(
        (0, LogEvent.STARTED, 0), (1, LogEvent.STARTED, 1), (2, LogEvent.GROWN, 0), (3,
        LogEvent.PREEMPTED, 0), (4, LogEvent.STARTED, 0), (5, LogEvent.FINISHED, 1), (6,
        LogEvent.GROWN, 0), jobs=2,
    )  # fmt: skip

    tries = attempts(log)

    assert tries.job.tolist() == [0, 0, 0, 0, 1]
    assert tries.end_s.tolist() == [3, 3, np.inf, np.inf, 5]
    assert tries.number.tolist() == [0, 2, 3, 4, 1]


def test_a_job_that_was_refused_or_never_came_has_no_times() -> None:
    log = log_of((0, LogEvent.SUBMITTED, 0), (0, LogEvent.REFUSED, 0), jobs=2)

    found = outcomes(log)

    assert np.isnan(found.finished_s).all()
    assert np.isnan(found.first_start_s).all()
    assert np.isnan(found.submitted_s).tolist() == [False, True]
    assert not found.done.any()


def test_a_job_that_was_taken_back_while_it_waited_did_not_run() -> None:
    log = log_of((0, LogEvent.SUBMITTED, 0), (3, LogEvent.CANCELLED, 0))

    assert outcomes(log).ran_s.tolist() == [0]


def test_a_job_that_was_taken_back_after_a_preemption_ran_before_it() -> None:
    log = log_of(
        (0, LogEvent.SUBMITTED, 0), (1, LogEvent.STARTED, 0), (4, LogEvent.PREEMPTED, 0),
        (9, LogEvent.CANCELLED, 0),
    )  # fmt: skip

    assert outcomes(log).ran_s.tolist() == [3]


def test_a_job_that_still_runs_when_the_log_ends_has_not_run_backwards() -> None:
    log = log_of((0, LogEvent.SUBMITTED, 0), (5, LogEvent.STARTED, 0))

    # How long it will have run is not known; 0 s are certain.
    assert outcomes(log).ran_s.tolist() == [0]


def test_an_empty_log_has_no_outcomes() -> None:
    assert len(outcomes(log_of(jobs=0)).jct_s) == 0


def test_lines_are_spelled_out_with_their_placements() -> None:
    log = log_of((1, LogEvent.SUBMITTED, 0), (4, LogEvent.STARTED, 0))

    assert list(log.lines()) == [
        LogLine(1.0, LogEvent.SUBMITTED, 0),
        LogLine(4.0, LogEvent.STARTED, 0, PLACE),
    ]


@given(on=clusters(most=2), trace=traces(most=10))
def test_times_of_a_run_add_up(on: Cluster, trace: tuple[list[Job], list[float]]) -> None:
    jobs, true_s = trace

    found = outcomes(play(jobs, true_s, make(on, order=ShortestRemainingFirst())))

    done = found.done
    assert (found.ran_s[done] >= np.array(true_s)[done] - 1e-6).all()
    assert (found.wait_s[done] >= -1e-6).all()
    assert (found.first_start_s[done] >= found.submitted_s[done]).all()
    assert found.gpu_milli.tolist() == [each.request.gpu_milli for each in jobs]
    assert found.instances.tolist() == [each.request.instances for each in jobs]
