"""Who had how much: held, used and wasted, from the log."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.metrics.usage import GpuUsage, UsageBy, UsageSums, in_all
from interlane.model import (
    Cancelled,
    Finished,
    JobId,
    LogEntry,
    Logged,
    MachineId,
    Placement,
    Preempted,
    Spot,
    Start,
    Submitted,
)
from interlane.testing.build import job

PLACE = Placement((Spot(MachineId("m"), (0,)),))


def log(*told: tuple[float, Logged, dict[str, object]]) -> list[LogEntry]:
    return [LogEntry(at, at_s, what, more) for at, (at_s, what, more) in enumerate(told, 1)]


def submitted(name: str, user: str, gpus: int = 1, milli: int = 1000) -> Submitted:
    return Submitted(job(name, gpus=gpus, gpu_milli=milli, user=user, queue=f"q-{user}"))


def summed(
    entries: list[LogEntry],
    since_s: float = 0.0,
    until_s: float = 1e6,
    by: UsageBy = UsageBy.USER,
) -> dict[str, GpuUsage]:
    sums = UsageSums(since_s, until_s, by)
    sums.take_in(entries)
    return {one.account: one for one in sums.found()}


TWO_USERS = log(
    (0.0, submitted("a", "ann", gpus=2), {}),
    (0.0, submitted("b", "bob", milli=500), {}),
    (3_600.0, Start(JobId("a"), PLACE), {}),
    (3_600.0, Start(JobId("b"), PLACE), {}),
    (7_200.0, Finished(JobId("a")), {"exit_code": 0, "use": {"busy_s": 900.0}}),
    (10_800.0, Finished(JobId("b")), {"exit_code": 1}),
)


def test_use_is_held_used_and_wasted_by_user() -> None:
    found = summed(TWO_USERS)

    # ann: 2 GPUs for an hour, a quarter of it busy; bob: half a GPU for two hours, for nothing.
    assert found["ann"] == GpuUsage("ann", 1, 2.0, 0.5, 2.0, 0.0, 1.0)
    assert found["bob"] == GpuUsage("bob", 1, 1.0, 0.0, 0.0, 1.0, 1.0)
    assert summed(TWO_USERS, by=UsageBy.QUEUE).keys() == {"q-ann", "q-bob"}
    whole = in_all(found.values())
    assert (whole.jobs, whole.held_h, whole.wasted_h) == (2, 3.0, 1.0)


def test_only_what_lies_in_the_span_counts() -> None:
    found = summed(TWO_USERS, since_s=5_400.0, until_s=9_000.0)

    assert found["ann"].held_h == pytest.approx(1.0)  # the second half of its hour, twice
    assert found["bob"].held_h == pytest.approx(0.5)
    assert found["bob"].waited_h == 0.0


def test_work_that_was_lost_is_wasted_and_what_runs_is_held() -> None:
    entries = log(
        (0.0, submitted("a", "ann"), {}),
        (0.0, Start(JobId("a"), PLACE), {}),
        (3_600.0, Preempted(JobId("a"), 900.0), {}),
        (7_200.0, Start(JobId("a"), PLACE), {}),
    )

    found = summed(entries, until_s=10_800.0)

    assert found["ann"] == GpuUsage("ann", 1, 2.0, 0.0, 0.0, 0.25, 1.0)


def test_a_job_cancelled_in_the_queue_held_nothing() -> None:
    entries = log((0.0, submitted("a", "ann"), {}), (1_800.0, Cancelled(JobId("a")), {}))

    assert summed(entries)["ann"] == GpuUsage("ann", waited_h=0.5)


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(1, 100), st.booleans()), max_size=8),
    st.lists(st.floats(0.0, 2_000.0), min_size=1, max_size=4),
)
def test_spans_that_follow_each_other_sum_up_to_the_whole(
    runs: list[tuple[int, int, bool]], cuts: list[float]
) -> None:
    told: list[tuple[float, Logged, dict[str, object]]] = []
    now_s = 0.0
    for number, (wait_s, run_s, is_good) in enumerate(runs):
        name = JobId(f"j{number}")
        told.append((now_s, submitted(name, "ann"), {}))
        told.append((now_s + wait_s, Start(name, PLACE), {}))
        now_s += wait_s + run_s
        told.append((now_s, Finished(name), {"exit_code": 0 if is_good else 1}))
    entries = log(*told)
    edges = [0.0, *sorted(cuts), 10_000.0]

    parts = [
        summed(entries, begin, end).get("ann", GpuUsage("ann"))
        for begin, end in pairwise(edges)
    ]

    whole = summed(entries, 0.0, 10_000.0).get("ann", GpuUsage("ann"))
    assert sum(one.held_h for one in parts) == pytest.approx(whole.held_h)
    assert sum(one.wasted_h for one in parts) == pytest.approx(whole.wasted_h)
    assert sum(one.waited_h for one in parts) == pytest.approx(whole.waited_h)
    assert whole.wasted_h <= whole.held_h + 1e-9
