"""The published characterisations, on a fiftieth of the synthetic trace."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis.strategies import dictionaries, integers, sampled_from

from interlane.reproduce.base import Row, Setting
from interlane.reproduce.pai_figures import (
    CANNOT,
    FIGURES,
    LEAST_NUMBERS,
    SMALL,
    _unexplained,
    agrees,
)
from interlane.reproduce.pai_sharing import SHARING, packed, whole
from interlane.traces.report.figure import Number

SETTING = Setting(data=None, seed=42, choice=SMALL)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return FIGURES.run(SETTING)


def test_a_small_trace_has_most_of_the_published_numbers(rows: list[Row]) -> None:
    *numbers, verdict = rows

    assert len(numbers) > 2 * LEAST_NUMBERS
    assert verdict.ours == sum(row.holds for row in numbers)
    assert verdict.holds


def test_single_numbers_do_not_decide_but_their_count_does(rows: list[Row]) -> None:
    assert [row.decides for row in rows] == [False] * (len(rows) - 1) + [True]


def test_a_number_that_differs_for_no_known_reason_fails_the_run() -> None:
    explained = Row("a", 1, 2, holds=False, why_not="contradicts b")

    assert _unexplained([explained, Row("b", 1, 1, holds=True)]).holds
    assert not _unexplained([explained, Row("c", 1, 2, holds=False)]).holds


def test_a_row_that_does_not_hold_is_excused_only_if_the_reason_is_known(
    rows: list[Row],
) -> None:
    excused = [row for row in rows if row.why_not]

    assert {row.why_not for row in excused} <= set(CANNOT.values())
    assert not any(row.holds for row in excused)


@pytest.mark.parametrize(
    ("number", "near"),
    [
        (Number(76.9, "% of instances", 79), False),
        (Number(77.1, "% of instances", 79), True),
        (Number(1541, "s", 1400, "read off"), False),
        (Number(1539, "s", 1400, "read off"), True),
        (Number(19.9, "% of instances", 20, "over"), False),
        (Number(31.0, "% of instances", 20, "over"), True),
        (Number(181, "instances", 180, "below"), False),
        (Number(12, "instances", 180, "below"), True),
        (Number(94.0, "% of the time", 100, "nearly always"), False),
        (Number(0.99, "times", 1.0, "a little above"), False),
        (Number(None, "s", 1400), False),
    ],
    ids=str,
)
def test_a_number_agrees_as_the_paper_words_it(number: Number, near: bool) -> None:  # noqa: FBT001
    assert agrees(number) is near


def test_sharing_halves_the_gpus_on_a_small_trace_too() -> None:
    saved, peak = SHARING.run(SETTING)

    assert isinstance(saved.ours, float)
    # A fiftieth of the trace is few programs; half is what they save in the mean.
    assert 35 < saved.ours < 65
    assert 0 <= int(peak.ours) < 24


ASKS = dictionaries(sampled_from([5, 10, 15, 20, 25, 50, 100, 200, 800]), integers(0, 40))


@given(asks=ASKS)
def test_packing_needs_at_least_the_sum_and_never_more_than_no_sharing(
    asks: Mapping[int, int],
) -> None:
    total = sum(ask * count for ask, count in asks.items())

    assert -(-total // 100) <= packed(asks) <= whole(asks)


def test_packing_fills_gpus_up() -> None:
    # Four quarters, two halves, and 60 + 25 + 15 percent in twenties, quarters and fifteens.
    assert packed({25: 4}) == 1
    assert packed({50: 3}) == 2
    assert packed({20: 3, 25: 1, 15: 1}) == 1
    assert packed({800: 1, 100: 2, 10: 11}) == 8 + 2 + 2
    assert whole({800: 1, 100: 2, 10: 11}) == 8 + 2 + 11
    assert packed({}) == whole({}) == 0
