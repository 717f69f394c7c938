import numpy as np
import pytest

from interlane.model import InvalidField, InvalidInput
from interlane.predict.arrivals.judge import ThresholdCurve, Trial, tally
from interlane.predict.arrivals.rules import Histogram, KeepAlive
from interlane.predict.arrivals.series import Arrivals, counted
from interlane.testing.arrivals import arrivals, series


def test_a_keep_alive_is_warm_for_its_slots_after_a_request() -> None:
    warm = KeepAlive(2).follow(series([0, 1, 0, 0, 0, 1]))

    assert warm.tolist() == [False, False, True, True, False, False]


def test_a_histogram_waits_for_the_gap_that_it_knows() -> None:
    every_four = series(([1.0] + [0.0] * 3) * 10)

    warm = Histogram(600.0, longest_s=6000.0).follow(every_four)

    # Five gaps of four slots are known from slot 20 on: warm in slot 24, 28, ... only.
    assert np.flatnonzero(warm[21:]).tolist() == [3, 7, 11, 15]


def test_recent_gaps_pull_the_quantiles_towards_them() -> None:
    slow_then_fast = series(([1.0] + [0.0] * 9) * 8 + [1.0, 0.0] * 12 + [0.0] * 10)

    plain = Histogram(600.0).follow(slow_then_fast)
    mixed = Histogram(600.0, recent_weight=0.5).follow(slow_then_fast)

    assert mixed.sum() < plain.sum()


def test_cold_starts_and_waste_are_counted_in_slots() -> None:
    warm = np.array([True, True, False, False])
    active = np.array([True, False, True, False])

    found = tally(warm, active)

    assert (found.cold_rate, found.waste) == (0.5, 0.25)
    assert found.cost(10) == (10 * 1 + 1) / 4


def test_equal_scores_are_warm_together() -> None:
    curve = ThresholdCurve.of(
        np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False])
    )

    assert curve.waste_at(0.0) == 0.25
    assert curve.cold_at(0.0) == 0.5
    assert curve.waste_at(1.0) == 0.0


def test_a_function_that_is_always_busy_is_not_judged() -> None:
    trial = Trial(arrivals([1.0] * 100, [1.0, 0.0] * 50))

    assert [one.name for one in trial.judged] == ["f1"]


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (Arrivals(60.0, ()), "nothing to judge"),
        (arrivals([1.0] * 50), "almost always busy"),
        (arrivals([1.0] + [0.0] * 50), "no function has a request"),
    ],
)
def test_what_cannot_be_judged_is_refused(trace: Arrivals, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        Trial(trace)


def test_requests_are_counted_by_slot_and_unwatched_time_is_unknown() -> None:
    found = counted(
        ["a", "b"],
        np.array([0, 0, 1]),
        np.array([0.0, 59.9, 130.0]),
        np.array([1.0, 2.0, 5.0]),
        [[(0.0, 60.0), (120.0, 180.0)], [(120.0, 180.0)]],
        60.0,
    )

    a, b = found
    np.testing.assert_array_equal(a.counts, [3.0, np.nan, 0.0])
    assert (b.counts.tolist(), b.first) == ([5.0], 2)


@pytest.mark.parametrize("slot_s", [0.0, -1.0, float("nan"), 1e6])
def test_a_width_that_no_slot_can_have_is_refused(slot_s: float) -> None:
    with pytest.raises(InvalidField, match="slot_s"):
        Arrivals(slot_s, ())


def test_more_slots_than_memory_holds_are_refused() -> None:
    with pytest.raises(InvalidInput, match="choose wider slots"):
        counted(["a"], np.zeros(1, np.intp), np.zeros(1), np.ones(1), [[(0.0, 1e9)]], 0.001)
