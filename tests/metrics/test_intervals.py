"""What a few seeds say, and what they do not."""

from collections.abc import Sequence
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists

from interlane.metrics.intervals import clearly_best, difference, interval

NUMBERS = lists(floats(-1e6, 1e6), min_size=3, max_size=12)


def test_an_interval_is_students() -> None:
    found = interval([1.0, 2.0, 3.0, 4.0])

    # Mean 2.5, standard error 0.6455, t of 3 degrees 3.1824.
    assert found.mean == 2.5
    assert found.half_width == pytest.approx(2.0543, abs=1e-4)


def test_one_seed_says_nothing() -> None:
    assert (interval([7.0]).low, interval([7.0]).high) == (-inf, inf)
    assert difference([7.0], [1.0]).p_value == 1.0


def test_nineteen_intervals_in_twenty_hold_the_truth() -> None:
    rng = np.random.default_rng(1)
    draws = (interval(rng.normal(5.0, 2.0, 6).tolist()) for _ in range(2_000))

    held = sum(found.low <= 5.0 <= found.high for found in draws)

    assert 0.93 < held / 2_000 < 0.97


def test_a_difference_is_told_in_pairs_where_means_alone_tell_none() -> None:
    hard = [100.0, 200.0, 300.0, 400.0, 500.0]
    easier = [one - 5.0 - 0.1 * place for place, one in enumerate(hard)]

    assert interval(hard).low < interval(easier).mean < interval(hard).high
    assert difference(easier, hard).p_value < 0.001
    assert clearly_best([hard, easier]) == 1
    assert clearly_best([hard, easier], largest=True) == 0


@pytest.mark.parametrize(
    "columns",
    [
        [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]],
        [[1.0, 9.0, 2.0], [2.0, 3.0, 4.0]],
        [[1.0, 2.0, 3.0], [float("nan")] * 3],
        [[1.0, 2.0, 3.0]],
    ],
)
def test_nobody_is_best_where_the_interval_does_not_say_so(
    columns: Sequence[Sequence[float]],
) -> None:
    assert clearly_best(columns) is None


@given(first=NUMBERS)
def test_a_column_is_never_better_than_itself(first: list[float]) -> None:
    assert difference(first, first).p_value == 1.0
    assert clearly_best([first, list(first)]) is None
