"""Rules, judging, counting and tracking, each against a few lines that need no cleverness."""

from itertools import pairwise
from math import exp, inf, log
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlane.model import InvalidField, InvalidInput
from interlane.predict.arrivals import compiled
from interlane.predict.arrivals.chance import (
    LOWEST,
    Chance,
    _calibrated,
    bent,
    hazards,
    logit,
)
from interlane.predict.arrivals.evaluate import (
    Fixed,
    best_keep_alive,
    calibration,
    reference,
    rules,
    scored,
)
from interlane.predict.arrivals.forecast import next_slots
from interlane.predict.arrivals.judge import ThresholdCurve, Trial, WarmTally, tally
from interlane.predict.arrivals.live import OnlineForecaster, RecordedForecasts, Trees
from interlane.predict.arrivals.rules import RULES, Histogram, KeepAlive
from interlane.predict.arrivals.series import Arrivals, Series, counted, split_at
from interlane.predict.arrivals.size import LEVELS, Size, first_marks

ACTIVE = st.lists(st.booleans(), max_size=60)


def series(*counts: float, first: int = 0, name: str = "f") -> Series:
    return Series(name, np.array(counts, float), first)


# -- series -------------------------------------------------------------------------------


def test_what_nobody_watched_is_neither_seen_nor_counted_as_empty() -> None:
    one = series(2, 0, np.nan, 0, 1)
    assert one.seen.tolist() == [2, 0, 0, 0, 1]
    assert one.active.tolist() == [True, False, False, False, True]
    assert one.watched.tolist() == [True, True, False, True, True]
    assert one.empty_share == 0.5
    assert series(np.nan).empty_share == 1.0
    cut = one.cut(1, 4)
    assert (cut.first, len(cut), cut.name) == (1, 3, "f")


def test_a_trace_can_be_cut_by_time_by_part_and_by_use() -> None:
    trace = Arrivals(60.0, (series(1, 2, 3, 4, first=10), series(0, 0, 1, name="g")))
    assert (trace.day, trace.hour, len(trace)) == (1_440, 60, 2)
    assert (Arrivals(86_400.0, ()).hour, Arrivals(50_000.0, ()).day) == (1, 2)
    cut = trace.between(11 * 60.0, 13 * 60.0)
    assert [one.counts.tolist() for one in cut] == [[2, 3], []]
    assert cut.series[0].first == 11
    assert [len(one) for one in trace.known(0.5)] == [2, 1]
    assert split_at(series(1, 2, 3), 0.99) == 2
    assert [one.name for one in trace.busy(2)] == ["f"]
    assert [one.name for one in trace.busy(1)] == ["f", "g"]
    assert [one.name for one in trace.only([False, True])] == ["g"]


@given(
    at=st.lists(st.tuples(st.integers(0, 2), st.floats(0, 99)), max_size=30),
    slot_s=st.sampled_from([1.0, 7.0, 10.0]),
)
def test_requests_are_counted_one_by_one(at: list[tuple[int, float]], slot_s: float) -> None:
    found = counted(
        "abc",
        np.array([one for one, _ in at], np.intp),
        np.array([at_s for _, at_s in at]),
        np.ones(len(at)),
        [[(0.0, 100.0)]] * 3,
        slot_s,
    )
    for place, one in enumerate(found):
        for slot, count in enumerate(one.counts.tolist()):
            inside = [
                at_s
                for who, at_s in at
                if who == place and slot * slot_s <= at_s < (slot + 1) * slot_s
            ]
            assert count == len(inside)
    assert {len(one) for one in found} == {int(np.ceil(100 / slot_s))}


def test_spans_that_meet_are_joined_and_what_lies_between_is_unknown() -> None:
    # Slots of 10 s: 5 to 20 s is slots 0 and 1, 20 to 25 s slot 2, 47 to 47 s slot 4.
    watched = [[(47.0, 47.0), (5.0, 20.0), (20.0, 25.0)]]
    (one,) = counted("f", np.zeros(1, np.intp), np.array([47.0]), np.ones(1), watched, 10.0)
    assert one.counts.tolist() == pytest.approx([0, 0, 0, np.nan, 1], nan_ok=True)


# -- rules --------------------------------------------------------------------------------


@given(active=ACTIVE, slots=st.integers(0, 5))
def test_a_keep_alive_is_warm_for_so_many_slots_after_each_request(
    active: list[bool], slots: int
) -> None:
    expected = [any(active[max(0, at - slots) : at]) for at in range(len(active))]
    assert KeepAlive(slots).follow(series(*map(float, active))).tolist() == expected
    rule, live = KeepAlive(slots, 2), []
    for on in active:
        live.append(rule.warm().tolist())
        rule.passed(np.array([on, False]))
    assert live == [[warm, False] for warm in expected]


def shortest_gap(gaps: list[int], part: float) -> int:
    """The shortest gap that so large a part of all does not exceed."""
    return next(gap for gap in sorted(gaps) if sum(g <= gap for g in gaps) >= part * len(gaps))


def histogram(active: list[bool], longest: int, recent: int, weight: float) -> list[bool]:
    """Warm between the 5th and 99th percentile of gaps, from the definition."""
    warm = []
    for at in range(len(active)):
        asked = [slot for slot in range(at) if active[slot]]
        if not asked:
            warm.append(False)
            continue
        gaps = [(late, min(late - early, longest)) for early, late in pairwise(asked)]
        head, tail = 0.0, float(longest)
        if len(gaps) >= 5:
            every = [gap for _, gap in gaps]
            # Recent are those that ended in the last slots before the newest request, and it.
            newest = [gap for late, gap in gaps if late > asked[-1] - recent]
            head, tail = shortest_gap(every, 0.05), shortest_gap(every, 0.99)
            if weight and newest:
                head += weight * (shortest_gap(newest, 0.05) - head)
                tail += weight * (shortest_gap(newest, 0.99) - tail)
        warm.append(head <= at - asked[-1] <= tail)
    return warm


@given(active=ACTIVE, weight=st.sampled_from([0.0, 0.5]))
def test_a_histogram_is_warm_between_the_quantiles_of_its_gaps(
    active: list[bool], weight: float
) -> None:
    rule = Histogram(60.0, recent_weight=weight, recent_s=6 * 60.0, longest_s=8 * 60.0)
    expected = histogram(active, 8, 6, weight)
    assert rule.follow(series(*map(float, active))).tolist() == expected
    live = []
    for on in active:
        live.append(bool(rule.warm()[0]))
        rule.passed(np.array([on]))
    assert live == expected


@pytest.mark.parametrize("weight", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(8))
def test_recent_gaps_are_those_that_ended_within_the_last_slots(
    seed: int, weight: float
) -> None:
    # Busy, then rare, then busy again: gaps of both kinds enter and leave the last slots.
    rng = Random(seed)
    active = [rng.random() < share for share in (0.7, 0.2, 0.8) for _ in range(30)]
    rule = Histogram(60.0, recent_weight=weight, recent_s=7 * 60.0, longest_s=9 * 60.0)
    assert rule.follow(series(*map(float, active))).tolist() == histogram(active, 9, 7, weight)


def test_the_rules_that_everybody_knows_have_the_lengths_in_their_names() -> None:
    busy_once = series(1, *[0] * 30)
    warm = {name: make(3_600.0, 1).follow(busy_once).sum() for name, make in RULES.items()}
    assert warm == {
        "keep-alive 1": 1, "keep-alive 3": 3, "keep-alive 10": 10, "keep-alive 20": 20,
        "hybrid-histogram": 4, "lsth": 4,
    }  # fmt: skip


# -- judging ------------------------------------------------------------------------------


@given(pairs=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=20))
def test_a_tally_counts_cold_and_wasted_slots(pairs: list[tuple[bool, bool]]) -> None:
    warm, active = (np.array([one[side] for one in pairs], bool) for side in (0, 1))
    found = tally(warm, active)
    cold = sum(on and not up for up, on in pairs)
    wasted = sum(up and not on for up, on in pairs)
    asked = sum(on for _, on in pairs)
    assert found == WarmTally(cold, asked, wasted, len(pairs))
    assert found.cold_rate == (cold / asked if asked else 0.0)
    assert found.waste == (wasted / len(pairs) if pairs else 0.0)
    assert found.cost(5.0) == ((5 * cold + wasted) / len(pairs) if pairs else 0.0)


@given(
    slots=st.lists(
        st.tuples(st.sampled_from([0.1, 0.2, 0.5, 0.9]), st.booleans()), min_size=1, max_size=15
    ),
    most=st.floats(0, 1),
)
def test_a_curve_is_what_every_threshold_gives(
    slots: list[tuple[float, bool]], most: float
) -> None:
    score, active = (np.array([one[side] for one in slots]) for side in (0, 1))
    active = active.astype(bool)
    curve = ThresholdCurve.of(score, active)
    tallies = [tally(score >= least, active) for least in (inf, 0.9, 0.5, 0.2, 0.1)]
    # Without a request nothing can be cold; the curve begins at all cold by definition.
    if active.any():
        wasted = [one.waste for one in tallies if one.cold_rate <= most]
        assert curve.waste_at(most) == pytest.approx(min(wasted))
        cold = [one.cold_rate for one in tallies if one.waste <= most]
        assert curve.cold_at(most) == pytest.approx(min(cold))
    assert (np.diff(curve.waste) >= 0).all()
    assert (np.diff(curve.cold_rate) <= 0).all()


def test_only_the_newest_watched_slots_of_functions_that_rest_are_judged() -> None:
    busy = series(*[1] * 10, name="busy")
    rests = series(0, 0, 0, 0, 0, 1, np.nan, 0, 1, 0, name="rests")
    trial = Trial(Arrivals(60.0, (busy, rests)), part=0.5)
    assert [one.name for one in trial.judged] == ["rests"]
    assert trial.active.tolist() == [True, False, True, False]
    # A keep-alive of two: slot 5 is cold, 7 wasted, 8 cold (three slots after), 9 wasted.
    assert trial.under(KeepAlive(2)) == WarmTally(2, 2, 2, 4)
    with pytest.raises(InvalidField, match="part is 1"):
        Trial(trial.arrivals, part=1)
    with pytest.raises(InvalidInput, match="no function has a request"):
        Trial(Arrivals(60.0, (series(1, 0, 0, 0),)))


def a_trial() -> Trial:
    pattern = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0] * 6
    return Trial(Arrivals(60.0, (series(*pattern),)), part=0.5)


def test_an_oracle_wastes_nothing_and_a_constant_pays_like_always_warm() -> None:
    trial = a_trial()
    truth = {"f": trial.arrivals.series[0].active.astype(float)}
    told = scored(trial, truth)
    assert (told.waste, told.cold_rate) == (0.0, 0.0)
    assert set(told.costs.values()) == {0.0}
    # One slot in five is asked: told 0.2 everywhere it pays to be warm from weight 5 on
    # (0.2 * 6 > 1), which wastes 4 of 5 slots; at weight 2 all are cold: 2 * 1/5.
    flat = scored(trial, {"f": np.full(60, 0.2)})
    assert dict(flat.costs) == {2.0: 0.4, 5.0: 0.8, 10.0: 0.8, 30.0: 0.8}
    assert flat.figures()["cost_at_2"] == 0.4
    assert reference(trial) == trial.under(KeepAlive(10)) == WarmTally(0, 6, 24, 30)


def test_the_best_keep_alive_is_the_cheapest_of_all_known_only_afterwards() -> None:
    trial = a_trial()
    costs = [trial.under(KeepAlive(slots)).cost(2.0) for slots in range(61)]
    assert best_keep_alive(trial, 2.0) == min(costs) == 0.4
    assert best_keep_alive(trial, 30.0) == 0.8
    assert best_keep_alive(trial, 30.0, most=0) == 6.0
    fixed = rules(trial)["keep-alive 3"]
    assert fixed == Fixed(WarmTally(6, 6, 18, 30))
    assert fixed.figures() == {
        "cold_rate": 1.0, "waste": 0.6, "cost_at_2": 1.0, "cost_at_5": 1.6,
        "cost_at_10": 2.6, "cost_at_30": 6.6,
    }  # fmt: skip


def test_calibration_is_how_far_bins_are_off() -> None:
    trial = a_trial()
    # 0.2 where one in five is asked is right; 0.5 is off by 0.3 everywhere.
    assert calibration(trial, {"f": np.full(60, 0.2)}, bins=1) == pytest.approx(0.0)
    assert calibration(trial, {"f": np.full(60, 0.5)}, bins=1) == pytest.approx(0.3)
    truth = trial.arrivals.series[0].active
    # Told 0.9 when asked and 0.1 when not: off by 0.1 in every bin that is pure.
    assert calibration(trial, {"f": np.where(truth, 0.9, 0.1)}, bins=5) == pytest.approx(0.1)


# -- probabilities ------------------------------------------------------------------------


@given(st.floats(0, 1))
def test_a_logit_is_undone_by_the_logistic_function(chance: float) -> None:
    inside = min(max(chance, LOWEST), 1 - LOWEST)
    assert 1 / (1 + exp(-logit(np.array([chance]))[0])) == pytest.approx(inside)


def test_scores_are_bent_along_knots_and_moved_beyond_them() -> None:
    knots = np.array([[0.0, 2.0], [10.0, 20.0]])
    told = bent(np.array([-3.0, 0.0, 1.0, 2.0, 5.0]), knots)
    assert told.tolist() == [7.0, 10.0, 15.0, 20.0, 23.0]
    plain = np.array([1.0, -1.0])
    assert bent(plain, np.zeros((2, 0))) is plain


def test_calibration_joins_the_middles_of_wide_steps() -> None:
    # 100 slots of score 0 with one in four active, 100 of score 1 with three in four.
    score = np.repeat([0.0, 1.0], 100)
    active = np.concatenate([np.tile([1, 0, 0, 0], 25), np.tile([0, 1, 1, 1], 25)]).astype(bool)
    knots = _calibrated(score, active)
    assert knots[0].min() >= 0
    assert knots[0].max() <= 1
    told = 1 / (1 + np.exp(-bent(score, knots)))
    assert told[:100].mean() < 0.4
    assert told[100:].mean() > 0.6
    for nothing in (active[:0], active[:1], np.zeros(200, bool), np.ones(200, bool)):
        assert _calibrated(score[: len(nothing)], nothing).shape == (2, 0)


@given(
    told=st.lists(
        st.tuples(st.floats(-5, 5), st.floats(-5, 5), st.sampled_from([0.0, 1.0])), max_size=10
    ),
    step=st.floats(0, 0.5),
)
def test_weights_move_down_the_slope_of_the_loss(
    told: list[tuple[float, float, float]], step: float
) -> None:
    weights, twin = np.array([1.0, 0.0, 0.0]), [1.0, 0.0, 0.0]
    for one, hazard, active in told:
        chance = 1 / (1 + exp(-(twin[0] * one + twin[1] * hazard + twin[2])))
        assert compiled.corrected(one, hazard, weights) == pytest.approx(chance)
        compiled.correct(one, hazard, weights, step, active)
        off = step * (chance - active)
        twin[0] -= off * one / (1 + abs(one))
        twin[1] -= off * hazard / (1 + abs(hazard))
        twin[2] -= off
    assert weights == pytest.approx(twin)


def test_probabilities_stay_finite_whatever_is_told() -> None:
    weights = np.array([1.0, 1.0, 0.0])
    assert compiled.corrected(1e9, 0.0, weights) == pytest.approx(1 / (1 + exp(-12)))
    assert compiled.corrected(-1e9, 0.0, weights) == pytest.approx(1 / (1 + exp(12)))


# -- how many -----------------------------------------------------------------------------


@settings(max_examples=5)
@given(st.integers(0, 99))
def test_tracked_quantiles_are_exceeded_as_often_as_they_say(seed: int) -> None:
    off = np.random.default_rng(seed).normal(0.0, 1.0, 3_000)
    marks, exceeded = first_marks(1)[0], np.zeros(len(LEVELS))
    for one in off:
        exceeded += one > marks[:-1]
        compiled.track(marks, LEVELS, 0.1, one)
    assert exceeded / len(off) == pytest.approx(1 - LEVELS, abs=0.03)
    assert marks[-1] == pytest.approx(np.abs(off).mean(), abs=0.3)


def test_one_request_moves_each_mark_by_its_level_or_the_rest() -> None:
    # The spread goes from 0.3 a fiftieth of the way to 1: 0.314; all marks are below 1, so
    # each rises by step * 0.314 * its level.
    marks = first_marks(1)[0]
    compiled.track(marks, LEVELS, 0.1, 1.0)
    assert marks[-1] == pytest.approx(0.314)
    assert marks[:-1] == pytest.approx(0.1 * 0.314 * LEVELS)
    compiled.track(marks, LEVELS, 0.1, -1.0)
    spread = 0.314 + 0.02 * (1 - 0.314)
    assert marks[:-1] == pytest.approx(0.1 * 0.314 * LEVELS + 0.1 * spread * (LEVELS - 1))


def test_without_trees_a_count_is_the_last_one_and_a_chance_the_hazard() -> None:
    trace = Arrivals(3_600.0, (series(0, 7, 0, 0, 3, 0),))
    size = Size().fit(trace)
    assert len(size.forest_.roots) == 0
    told = size.quantiles(trace.series[0], trace, np.full(6, 0.5))
    assert told[:2].tolist() == pytest.approx([0.0, 0.0])
    assert told[2:4] == pytest.approx([7, 7], rel=0.2)
    chance = Chance().fit(trace)
    assert not chance.has_forest
    assert chance.first_weights().tolist() == [0.0, 1.0, 0.0]
    rows = np.zeros((2, compiled.FEATURES))
    assert chance.logits(rows).tolist() == [0.0, 0.0]
    assert hazards(np.full((1, compiled.FEATURES), np.nan)) == pytest.approx(
        [log(LOWEST)], 1e-3
    )


def test_what_is_told_live_follows_weights_marks_and_the_stream() -> None:
    trace = Arrivals(3_600.0, (series(0, 7, 0, 0, 3, 0, 0, 3),))
    trees = Trees()
    live = OnlineForecaster(trees, functions=1, slot_s=3_600.0)
    told, sizes = [], []
    for count in trace.series[0].counts:
        told.append(live.chances()[0])
        sizes.append(live.quantiles(np.array([0.8]))[0])
        live.passed(np.array([count]))
    assert told == pytest.approx(trees.chance.predict(trace.series[0], trace).tolist())
    assert sizes == pytest.approx(
        trees.size.quantiles(trace.series[0], trace, np.full(8, 0.8)).tolist()
    )
    assert live.slot == 8


def test_what_was_recorded_is_played_back_and_the_last_slot_stays() -> None:
    played = RecordedForecasts(np.array([[0.1], [0.2]]), np.array([[1.0], [2.0]]))
    seen = []
    for _ in range(3):
        seen.append((played.chances()[0], played.quantiles(np.array([0.5]))[0]))
        played.passed(np.array([0.0]))
    assert seen == [(0.1, 1.0), (0.2, 2.0), (0.2, 2.0)]


def test_the_next_slots_are_told_of_every_function_in_the_order_of_the_trace() -> None:
    often, never = series(*[1] * 20, name="often"), series(*[0] * 12, name="never")
    told = next_slots(Trees(), Arrivals(3_600.0, (never, often)), slots=3, seed=1)
    assert [[one.function for one in each] for each in told] == [["never"] * 3, ["often"] * 3]
    assert all(one.chance > 0.8 and one.count == pytest.approx(1, abs=0.3) for one in told[1])
    assert all(one.chance < 0.1 and one.count >= 1.0 for one in told[0])
    again = next_slots(Trees(), Arrivals(3_600.0, (never, often)), slots=3, seed=1)
    assert told == again
