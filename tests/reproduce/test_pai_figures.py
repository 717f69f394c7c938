"""The published characterisations, on a fiftieth of the synthetic trace."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis.strategies import dictionaries, integers, sampled_from

from interlane.reproduce.base import Kind, Row, Setting, calibrated
from interlane.reproduce.pai_figures import CANNOT, FIGURES, LEAST_NUMBERS, SMALL, agrees
from interlane.reproduce.pai_sharing import SHARING, packed, whole
from interlane.traces.report.figure import Number

SETTING = Setting(data=None, seed=42, choice=SMALL)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return FIGURES.run(SETTING)


def test_a_small_trace_has_most_of_the_published_numbers(rows: list[Row]) -> None:
    *numbers, verdict = [row for row in rows if row.kind is Kind.CALIBRATED]

    assert len(numbers) > 2 * LEAST_NUMBERS
    assert verdict.ours == sum(bool(row.holds) for row in numbers)
    assert verdict.holds


def test_single_numbers_of_a_small_trace_do_not_decide_but_their_count_does(
    rows: list[Row],
) -> None:
    *numbers, verdict = [row for row in rows if row.kind is Kind.CALIBRATED]

    assert not any(row.decides for row in numbers)
    assert verdict.decides


def test_the_report_counts_as_a_second_count_does(rows: list[Row]) -> None:
    counted = [row for row in rows if row.kind is Kind.CHECKED]

    assert len(counted) == 6
    assert [row.what for row in counted if not row.holds] == []


def test_every_calibrated_number_names_what_was_set_from_it(rows: list[Row]) -> None:
    assert all(row.constant for row in rows if row.kind is Kind.CALIBRATED)


def test_a_miss_is_excused_within_its_range_and_not_beyond() -> None:
    excuse = CANNOT["contention.busy_hosting_several"]
    near = calibrated("a", 6.8, 4.5, near=False, constant="c", excuse=excuse)
    far = replace(near, ours=9.5)

    assert near.is_excused
    assert not near.fails
    assert far.fails


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
    saved, peak, possible = SHARING.run(SETTING)

    assert possible.holds
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
