"""Features of the past against a twin that looks at the whole past anew for every slot."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isnan, log, log2, nan, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlane.predict.arrivals import compiled
from interlane.predict.arrivals.series import Arrivals, Series
from interlane.predict.arrivals.stream import HAZARD_COLUMN, LAST_COLUMN, Stream, rows_of

LAGS, WINDOWS, DAYS = (1, 2, 3, 4, 5, 10, 15, 30, 60), (2, 5, 10, 20, 60, 240), (1, 2, 3, 7)
DAY, HOUR = 24, 6
"""Slots in a day and in an hour of these tests: an hour's slots, four of them in a day."""


def running(values: Iterable[float], most: float) -> tuple[float, float]:
    """The mean in which at most so many cases weigh, and how many do."""
    mean, seen = 0.0, 0.0
    for value in values:
        seen = min(seen + 1.0, most)
        mean += (value - mean) / seen
    return mean, seen


def gap_bin(gap: int) -> int:
    """1 to 16 slots by themselves, then four classes an octave, the last without an end."""
    return gap - 1 if gap <= 16 else min(16 + int(4 * log2(gap / 16)), 47)


def gaps_of(past: Sequence[float]) -> list[int]:
    at = [slot for slot, count in enumerate(past) if count > 0]
    return [late - early for early, late in pairwise(at)]


def deviation(values: Sequence[float], most: float) -> float:
    """The standard deviation, as far as it is remembered; all of it while cases are few."""
    if len(values) <= most:
        mean = sum(values) / len(values)
        return sqrt(sum((one - mean) ** 2 for one in values) / len(values))
    variance = deviation(values[:-1], most) ** 2
    before, now = running(values[:-1], most)[0], running(values, most)[0]
    moved = (values[-1] - before) * (values[-1] - now)
    return sqrt(variance + (moved - variance) / most)


def hazard(past: Sequence[float], now: int, rate: float) -> float:
    """How often gaps of the class of the present one ended when they had lasted so long."""
    ended, last = [], None
    for slot, count in enumerate(past):
        if last is not None and gap_bin(slot - last) == gap_bin(now):
            ended.append(float(count > 0))
        if count > 0:
            last = slot
    mean, cases = running(ended, 200)
    return (mean * cases + 2 * rate) / (cases + 2)


def of_clock(
    past: Sequence[float], first: int, day: int, hour: int, rate: float
) -> list[float]:
    active = [(first + slot, float(count > 0)) for slot, count in enumerate(past)]
    phase = (first + len(past)) % day
    minute, cases = running((on for at, on in active if at % day % hour == phase % hour), 48)
    near, weights = 2 * rate, 2.0
    for off in range(-2, 3):
        mean, days = running((on for at, on in active if at % day == (phase + off) % day), 7)
        near += (3 - abs(off)) * days * mean
        weights += (3 - abs(off)) * days
    mean, days = running((on for at, on in active if at % day == phase), 7)
    return [(minute * cases + rate) / (cases + 1), near / weights, mean if days else nan]


def echoes(past: Sequence[float]) -> list[float]:
    """The two distances at which the function repeats itself most surely, of those due now."""
    slots, found = len(past), [0.0, 0.0]
    for lag in range(1, min(64, slots) + 1):
        if past[slots - lag] > 0:
            after = (float(past[at] > 0) for at in range(lag, slots) if past[at - lag] > 0)
            mean, cases = running(after, 200)
            if cases > 3:
                found.append(mean)
    return sorted(found, reverse=True)[:2]


def row(past: Sequence[float], first: int, day: int, hour: int) -> list[float]:
    """What is known before the slot that follows a past, column by column."""
    slots = len(past)
    value = [float(np.float32(np.log1p(count))) for count in past]
    on = [float(count > 0) for count in past]
    rate = running(on, 3 * day)[0]
    gaps, ever = gaps_of(past), any(on)
    out = [value[slots - lag] if slots >= lag else nan for lag in LAGS]
    for window in WINDOWS:
        out += [sum(value[-window:]) / window, sum(on[-window:]) / window]
    out += [sum(on[-span:]) / min(max(slots, 1), span) for span in (day, 7 * day)]
    for days in DAYS:
        then = slots - days * day
        about = on[max(0, then - 2) : min(slots, then + 3)]
        out += [value[then], sum(about) / len(about)] if then >= 0 else [nan, nan]
    out += [*gaps[::-1][:4], *[nan] * 4][:4]
    now = slots - max((at for at in range(slots) if on[at]), default=0)
    logs = [log(gap) for gap in gaps]
    out += [
        log(now) if ever else nan,
        running(logs, 50)[0] if gaps else nan,
        deviation(logs, 50) if len(gaps) > 1 else nan,
        now - gaps[-1] if gaps else nan,
        hazard(past, now, rate) if ever else nan,
    ]
    out += of_clock(past, first, day, hour, rate) + echoes(past)
    asked = [one for one in value if one > 0]
    phase = (first + slots) % day
    out += [rate, running(asked, 200)[0], phase % hour / hour, phase / day]
    return [*out, min(slots / day, 7.0), asked[-1] if asked else 0.0]


COUNTS = st.lists(st.sampled_from([0, 0, 0, 1, 2, 50]), max_size=120)


@settings(max_examples=25)
@given(counts=COUNTS, first=st.integers(0, 60))
def test_every_column_is_what_the_whole_past_says(counts: list[int], first: int) -> None:
    series = Series("f", np.array(counts, float), first)
    arrivals = Arrivals(86_400 / DAY, (series,))
    assert arrivals.day == DAY
    stream = Stream.of(1, day=DAY, hour=HOUR)
    for slot in range(len(counts) + 1):
        found = stream.rows(first + slot)[0]
        expected = row(counts[:slot], first, DAY, HOUR)
        assert found == pytest.approx(expected, nan_ok=True, abs=1e-5), f"slot {slot}"
        if slot < len(counts):
            stream.passed(first + slot, np.array([counts[slot]], float))
    assert stream.slots.tolist() == [len(counts)]


def test_a_long_past_weighs_no_more_than_it_may() -> None:
    # Three weeks, busy in the first half and then asked every fifth slot: all means forget.
    counts = [1.0 + slot % 3 for slot in range(11 * DAY)]
    counts += [float(slot % 5 == 0) for slot in range(10 * DAY)]
    series = Series("f", np.array(counts), 3)
    found = rows_of(series, Arrivals(86_400 / DAY, (series,)))
    # Rows of a whole trace use an hour of the trace: one slot, where a day has 24.
    for slot in (0, 1, 17, 100, 230, 264, 300, len(counts) - 1):
        assert found[slot] == pytest.approx(
            row(counts[:slot], 3, DAY, 1), nan_ok=True, abs=1e-4
        )


def test_named_columns_are_where_they_are_said_to_be() -> None:
    past = [3.0, 0.0, 0.0, 3.0, 0.0]
    expected = row(past, 0, DAY, HOUR)
    assert len(expected) == compiled.FEATURES
    # One gap of 3 slots is known; the present one has lasted 2, and the one that was known
    # did not end then: of one case none, drawn to a rate of 2 in 5 by two cases.
    assert expected[HAZARD_COLUMN] == pytest.approx((0 + 2 * 0.4) / 3)
    assert expected[LAST_COLUMN] == pytest.approx(np.log1p(3.0))


@pytest.mark.parametrize(
    ("gap", "bin_"),
    [(1, 0), (16, 15), (17, 16), (19, 16), (20, 17), (31, 19), (32, 20), (64, 24), (10**6, 47)],
)
def test_gaps_fall_into_classes(gap: int, bin_: int) -> None:
    # 4 * log2(19/16) = 0.99 and 4 * log2(20/16) = 1.29: the second class begins with 20.
    assert gap_bin(gap) == bin_
    past = [1.0] + [0.0] * (gap - 1 if gap < 100 else 99)
    stream = Stream.of(1, day=DAY, hour=HOUR)
    for slot, count in enumerate(past):
        stream.passed(slot, np.array([count]))
    seen = stream.states[0, compiled.HAZARD_SEEN : compiled.HAZARD_SEEN + compiled.BINS]
    classes = [gap_bin(one) for one in range(1, len(past))]
    assert seen.tolist() == [classes.count(one) for one in range(compiled.BINS)]


def test_copies_have_the_same_past_and_futures_of_their_own() -> None:
    stream = Stream.of(2, day=DAY, hour=HOUR)
    for slot in range(30):
        stream.passed(slot, np.array([slot % 3, slot % 4], float))
    copies = stream.copies(1, 3)
    assert copies.rows(30) == pytest.approx(np.tile(stream.rows(30)[1], (3, 1)), nan_ok=True)
    before = stream.rows(30).copy()
    copies.passed(30, np.array([0.0, 1.0, 9.0]))
    assert stream.rows(30) == pytest.approx(before, nan_ok=True)
    lags = copies.rows(31)[:, 0]
    assert lags == pytest.approx(np.log1p([0.0, 1.0, 9.0]), rel=1e-5)
    assert not isnan(lags[0])
