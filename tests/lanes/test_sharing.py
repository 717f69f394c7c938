"""Overlap or take turns: decided by how much jobs slow each other down."""

import pytest

from interlane.lanes.actions import MemoryDemand
from interlane.lanes.memory import Budget, LaneBook
from interlane.lanes.sharing import (
    FilledSlowDown,
    MeasuredSlowDown,
    OverlapIfItPays,
    Sharing,
)
from interlane.model import InvalidField, JobId

A, B, C = JobId("a"), JobId("b"), JobId("c")


def lanes_of(sharing: Sharing, *jobs: JobId) -> list[list[JobId]]:
    book = LaneBook(Budget(100), sharing)
    for job in jobs:
        book.request(job, MemoryDemand(1, 10))
    return [list(lane.tenants) for lane in book.lanes.values()]


def test_two_jobs_that_each_fill_the_device_take_turns() -> None:
    assert lanes_of(OverlapIfItPays(FilledSlowDown({A: 1.0, B: 1.0})), A, B) == [[A, B]]


def test_two_jobs_that_half_fill_the_device_overlap() -> None:
    assert lanes_of(OverlapIfItPays(FilledSlowDown({A: 0.5, B: 0.5})), A, B) == [[A], [B]]


def test_jobs_of_which_nothing_is_known_take_turns() -> None:
    assert lanes_of(OverlapIfItPays(MeasuredSlowDown()), A, B) == [[A, B]]


def test_a_measurement_overrules_a_prediction() -> None:
    measured = MeasuredSlowDown(otherwise=FilledSlowDown({A: 0.5, B: 0.5}))
    measured.learn(A, B, 2.3)
    measured.learn(B, A, 2.1)

    assert lanes_of(OverlapIfItPays(measured), A, B) == [[A, B]]


def test_a_job_that_must_take_turns_does_so_with_the_one_it_would_hurt_most() -> None:
    # a and b overlap; c would hurt b (1.6 beside it) more than a (1.2).
    slow_down = FilledSlowDown({A: 0.3, B: 0.7, C: 0.9}, contention=1.0)

    assert lanes_of(OverlapIfItPays(slow_down), A, B, C) == [[A], [B, C]]


@pytest.mark.parametrize(("slow_down", "overlaps"), [(1.9, True), (1.95, False)])
def test_overlap_must_pay_by_the_gain_asked_for(slow_down: float, overlaps: bool) -> None:  # noqa: FBT001
    # Together two jobs do 2 / 1.9 = 1.053 and 2 / 1.95 = 1.026 of what they do in turns.
    measured = MeasuredSlowDown()
    measured.learn(A, B, slow_down)
    measured.learn(B, A, slow_down)

    assert (len(lanes_of(OverlapIfItPays(measured), A, B)) == 2) is overlaps


def test_the_gain_must_be_one_that_two_jobs_can_reach() -> None:
    with pytest.raises(InvalidField, match="gain"):
        OverlapIfItPays(MeasuredSlowDown(), gain=2.0)
