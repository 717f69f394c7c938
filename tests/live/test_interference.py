"""What jobs and functions suffer from each other, from looks made by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.live.functions.interference import AtWork, Interference
from interlane.live.functions.replicas import FunctionDevice
from interlane.live.functions.services import (
    LEAST_CALLS,
    LIMIT,
    NEWEST,
    Place,
    Services,
    compared,
)
from interlane.live.measure.coruns import function_workload
from interlane.live.measure.monitor import Use
from interlane.live.measure.occupancy import TenantUse
from interlane.model import GpuRef, JobId, MachineId

GPU, OTHER_GPU = (GpuRef(MachineId("here"), number) for number in range(2))
TRAIN = JobId("train-1")
JOB = frozenset({TRAIN})
NOBODY: frozenset[JobId] = frozenset()
F = Place(function_workload("f"), GPU)


# -- what jobs suffer ---------------------------------------------------------------------


class Jobs:
    """One job on one device, looked at as often as a test says."""

    def __init__(self) -> None:
        self.seen = Interference()
        self.device = FunctionDevice(GPU)
        self.at_s = 0.0

    def look(
        self, iterations: int, busy_s: float, state: str = "idle"
    ) -> frozenset[JobId] | None:
        self.at_s += 1.0
        use = Use(iterations, busy_s, present_s=self.at_s)
        found = self.look_at(TenantUse(TRAIN, 500, 100, state, use=use))
        assert found is not None
        return found[GPU]

    def look_at(self, *tenants: TenantUse) -> AtWork | None:
        return self.seen.look({GPU: tenants}, {GPU: self.device})


def test_iterations_beside_functions_are_set_against_those_beside_none() -> None:
    jobs = Jobs()
    for at in range(5):
        jobs.look(10 * at, 1.0 * at)
    assert jobs.seen.end_slot() == {}

    for at in range(1, 6):
        jobs.device.calls += 1
        jobs.look(40 + 10 * at, 4.0 + 1.5 * at)

    assert jobs.seen.end_slot()[TRAIN] == pytest.approx(1.5)
    assert jobs.seen.end_slot() == {}


def test_a_job_that_was_never_alone_is_compared_with_nothing() -> None:
    jobs = Jobs()
    jobs.device.in_hand = 1
    for at in range(20):
        jobs.look(10 * at, 1.0 * at)

    assert jobs.seen.end_slot() == {}


def test_a_job_that_began_anew_is_known_anew() -> None:
    jobs = Jobs()
    for at in range(5):
        jobs.look(10 * at, 1.0 * at)
    jobs.device.calls += 1
    jobs.look(41, 5.0)
    jobs.look(1, 0.5)

    assert jobs.seen.end_slot() == {}


def test_a_job_works_while_its_iterations_pass_or_one_goes_on() -> None:
    jobs = Jobs()

    assert jobs.look(0, 0.0) is None, "it has only come"
    assert jobs.look(10, 1.0) == JOB
    assert jobs.look(10, 1.0, "running") == JOB
    assert jobs.look(10, 1.0) == NOBODY
    assert jobs.look(1, 0.1) is None, "it began anew"
    assert jobs.look_at() == {GPU: None}, "it has left"
    assert jobs.look_at() == {GPU: NOBODY}


def test_nobody_knows_when_a_job_works_that_the_daemon_does_not_see() -> None:
    jobs, unseen = Jobs(), TenantUse(JobId("plain-2"), 500, 100)

    for _ in range(3):
        assert jobs.look_at(unseen) == {GPU: None}


def test_calls_count_with_the_next_news_of_a_job() -> None:
    jobs = Jobs()
    told = TenantUse(TRAIN, 500, 100, use=Use(10, 1.0, present_s=1.0))
    jobs.look_at(told)
    jobs.device.calls += 1
    assert jobs.look_at(told) is None, "it is no news"

    jobs.at_s = 1.0
    jobs.look(20, 3.0)
    for at in range(1, 9):
        jobs.look(20 + 10 * at, 3.0 + at)

    # 10 iterations of 0.2 s beside functions, and 80 of 0.1 s beside none.
    assert jobs.seen.end_slot()[TRAIN] == pytest.approx(10 / 90 / 0.1)


# -- what functions suffer ----------------------------------------------------------------


def services(most_s: float = 0.0) -> Services:
    made = Services({GPU: "T4", OTHER_GPU: "T4"})
    made.watch(F.function, most_s)
    return made


def looks(
    made: Services,
    took_s: float,
    jobs: frozenset[JobId] | None,
    *,
    at: Place = F,
    times: int = 5,
) -> None:
    for _ in range(times):
        made.look({at: [took_s] * 10}, {at.gpu: jobs})


def test_calls_beside_jobs_are_set_against_those_beside_none() -> None:
    made = services()
    looks(made, 0.010, NOBODY)
    assert made.end_slot() == {}
    looks(made, 0.015, JOB)

    found = made.end_slot()[F]

    assert [found.mean, found.p99] == pytest.approx([1.5, 1.5])
    assert (found.jobs, found.calls) == (JOB, 40)
    assert found.alone_s == pytest.approx(0.010)
    assert made.end_slot() == {}, "it is told once"


def test_what_is_learned_alone_on_one_device_holds_on_its_like() -> None:
    made = services()
    looks(made, 0.010, NOBODY, at=Place(F.function, OTHER_GPU))
    looks(made, 0.030, JOB)

    assert made.end_slot()[F].p99 == pytest.approx(3)


def test_calls_around_a_change_tell_nothing() -> None:
    made = services()
    looks(made, 0.010, NOBODY, times=6)
    for _ in range(20):  # a job that works every other second
        looks(made, 9.0, JOB, times=1)
        looks(made, 9.0, NOBODY, times=1)
    looks(made, 9.0, None, times=20)

    assert made.end_slot() == {}
    looks(made, 0.010, JOB, times=6)
    assert made.end_slot()[F].p99 == pytest.approx(1)


def test_few_calls_are_gathered_over_slots() -> None:
    made = services()
    looks(made, 0.010, NOBODY)
    looks(made, 0.020, JOB, times=2)
    assert made.end_slot() == {}

    looks(made, 0.020, JOB, times=4)

    assert made.end_slot()[F].calls >= LEAST_CALLS


def test_calls_beside_others_begin_anew() -> None:
    made = services()
    looks(made, 0.010, NOBODY)
    looks(made, 0.090, frozenset({JobId("old-1")}), times=4)
    looks(made, 0.020, JOB)

    assert made.end_slot()[F].p99 == pytest.approx(2)


def test_no_single_call_decides() -> None:
    alone, beside = [0.010] * 100, [0.012] * 98 + [5.0] * 2

    assert compared(alone, beside, JOB, 0.0).p99 == pytest.approx(1.2)
    assert compared(alone, [*beside, 5.0], JOB, 0.0).p99 == pytest.approx(500)


def test_a_burst_is_not_all_that_is_known() -> None:
    made = services()
    looks(made, 0.010, NOBODY, times=6)
    made.look({F: [0.010] * 4_000}, {GPU: NOBODY})
    made.look({F: [0.010] * 4_000}, {GPU: NOBODY})
    looks(made, 0.010, JOB, times=6)

    assert made.end_slot()[F].calls == 50
    assert NEWEST > 4 * 64


def test_a_function_may_be_slower_as_far_as_its_deadline_allows() -> None:
    made = services(most_s=0.5)
    assert made.limit(F.function) == LIMIT, "nothing is known yet"

    looks(made, 0.010, NOBODY)

    assert made.limit(F.function) == pytest.approx(50)
    made.watch(F.function, 0.001)
    assert made.limit(F.function) == LIMIT


def test_a_new_version_is_known_anew() -> None:
    made = services()
    looks(made, 0.010, NOBODY)
    made.watch(F.function, 0.0)
    looks(made, 0.030, JOB, times=9)

    assert made.end_slot() == {}


TIMES = st.lists(st.floats(1e-4, 10.0), min_size=LEAST_CALLS, max_size=300)


@given(alone=TIMES, factor=st.floats(0.5, 50.0))
def test_a_slow_down_of_all_calls_is_what_is_measured(
    alone: list[float], factor: float
) -> None:
    found = compared(alone, [factor * one for one in alone], JOB, 0.0)

    assert found.mean == pytest.approx(factor)
    assert found.p99 == pytest.approx(factor)


@given(alone=TIMES, beside=TIMES)
def test_two_calls_of_either_side_never_decide(alone: list[float], beside: list[float]) -> None:
    spoilt = [*sorted(beside)[:-2], 1e6, 1e6]

    assert compared(alone, spoilt, JOB, 0.0).p99 <= max(beside) / min(alone)
