"""History, bands, blends and scores of run times, each against its definition."""

from dataclasses import fields, replace
from math import ceil, exp, floor, log
from statistics import mean, median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlane.model import InvalidField, InvalidInput, JobId, UnknownName
from interlane.predict import bands, compiled, starts
from interlane.predict.cart import Cart
from interlane.predict.catalogue import PREDICTORS, make_predictor, name_of
from interlane.predict.estimates import DurationEstimates, DurationPredictor, EstimateBasis
from interlane.predict.evaluate import RunSplit, evaluate, hindsight, scores, share
from interlane.predict.history import RunHistory, events_of
from interlane.predict.live import DurationEstimate, OnlinePredictor
from interlane.predict.naive import LastRun, MeanPerUser
from interlane.predict.recall import PULL, Recall, _newest, _table
from interlane.predict.runs import Runs, in_time_order, informative, runs_per_group
from interlane.predict.starts import Calibrated, StartBand
from interlane.predict.trees import Forest, no_trees
from interlane.testing.runs import recurring, runs


@st.composite
def some_runs(draw: st.DrawFn, *, most: int = 14, ended: bool = True) -> Runs:
    """Draw runs of a few groups and users that overlap in time; some never end."""
    count = draw(st.integers(1, most))
    lengths = st.sampled_from([0.5, 1, 3, 10, 10, 200] + ([] if ended else [float("nan")]))
    return runs(
        draw(st.lists(lengths, min_size=count, max_size=count)),
        at=sorted(draw(st.lists(st.integers(0, 40), min_size=count, max_size=count))),
        group=draw(st.lists(st.sampled_from(["", "a", "b"]), min_size=count, max_size=count)),
        user=draw(st.lists(st.sampled_from(["", "x", "y"]), min_size=count, max_size=count)),
        gpus=draw(st.lists(st.sampled_from([1, 2]), min_size=count, max_size=count)),
    )


# -- runs as columns ----------------------------------------------------------------------


def test_runs_are_taken_joined_and_sorted_column_by_column() -> None:
    some = runs([5, 6, 7], at=[3, 1, 1], group=["a", "b", "c"], gpus=[1, 2, 3])
    order = in_time_order(some)
    assert order.group == ("b", "c", "a")
    assert order.duration_s.tolist() == [6, 7, 5]
    assert some.where(np.array([True, False, True])).gpus.tolist() == [1, 3]
    both = some.joined(order)
    assert both.group == ("a", "b", "c", "b", "c", "a")
    assert both.finish_s.tolist() == [8, 7, 8, 7, 8, 8]
    assert runs([0.2, 1, exp(2)]).log_s.tolist() == pytest.approx([0, 0, 2])
    assert some.shape[1] == "1x2g4c16m"


@pytest.mark.parametrize("column", ["duration_s", "group", "gpus", "gpu_type"])
def test_columns_of_different_lengths_are_refused(column: str) -> None:
    short = {column: getattr(runs([1, 2]), column)[:1]}
    with pytest.raises(InvalidField, match=f"{column} is .1 values., but .* 2 values"):
        replace(runs([1, 2]), **short)


def test_a_run_of_any_length_up_to_the_longest_and_a_real_submission_will_do() -> None:
    assert len(runs([0.0, 1e12])) == 2
    for wrong in (-1e-9, 1.1e12):
        with pytest.raises(InvalidField, match="duration_s"):
            runs([5.0, wrong])
    with pytest.raises(InvalidField, match="submit_s"):
        runs([1.0], at=[float("inf")])


def test_a_column_that_tells_nothing_is_emptied_and_reported() -> None:
    told, notes = informative(runs([1, 2], group="same", user=["x", "y"]))
    assert (told.group, told.user) == (("", ""), ("x", "y"))
    assert notes == (
        "All jobs have the group 'same', which tells nothing; "
        "they are known by user and request.",
    )
    told, notes = informative(runs([1, 2], group=["a", "b"], user=""))
    assert notes == ("The trace names no user; jobs are known by request.",)
    assert informative(runs([1], group="one", user="one"))[1] == ()


@given(st.lists(st.sampled_from(["", "a", "b"])))
def test_runs_are_counted_by_group_and_those_without_one_alone(groups: list[str]) -> None:
    expected = [groups.count(group) if group else 1 for group in groups]
    assert runs_per_group(groups).tolist() == expected


# -- history ------------------------------------------------------------------------------


@given(some=some_runs(ended=False))
def test_ends_come_before_submissions_of_the_same_moment(some: Runs) -> None:
    jobs = len(some)
    ended = [at for at in range(jobs) if not np.isnan(some.duration_s[at])]
    events = [(float(some.submit_s[at]), 1, at) for at in range(jobs)]
    events += [(float(some.finish_s[at]), 0, at + jobs) for at in ended]
    assert events_of(some).tolist() == [event for _, _, event in sorted(events)]


def said_of(past: list[float]) -> list[float]:
    """Runs seen, middle, middle of the newest four, and spread between quartiles."""
    if not past:
        return [0.0, np.nan, np.nan, np.nan]
    kept = past[-32:]
    low, high = np.quantile(kept, [0.25, 0.75])
    return [len(past), median(kept), median(past[-4:]), float(high - low)]


def known_keys(some: Runs, at: int) -> list[tuple[object, ...] | None]:
    """The six layers of a job: group and request, group, user and request, and so on."""
    group, user, shape = some.group[at], some.user[at], some.shape[at]
    return [
        ("g", group, shape) if group else None,
        ("g", group) if group else None,
        ("u", user, shape) if user else None,
        ("u", user) if user else None,
        ("s", shape),
        (),
    ]


@settings(max_examples=15)
@given(some=some_runs(most=45))
def test_history_says_of_each_submission_what_had_ended_by_then(some: Runs) -> None:
    said = RunHistory().replay(some)
    keys = [known_keys(some, at) for at in range(len(some))]
    ended = np.lexsort((np.arange(len(some)), some.finish_s)).tolist()
    for at in range(len(some)):
        before = [other for other in ended if some.finish_s[other] <= some.submit_s[at]]
        for layer, key in enumerate(keys[at]):
            past = [
                float(some.log_s[other])
                for other in before
                if key is not None and keys[other][layer] == key
            ]
            assert said[at, layer] == pytest.approx(said_of(past), nan_ok=True, abs=1e-5)


def test_the_tables_grow_with_the_keys_and_keep_what_they_hold() -> None:
    names = [f"g{number}" for number in range(50)]
    many = runs([float(2 + number) for number in range(50)], group=names, user="")
    history = RunHistory()
    for at in range(50):
        history.note_one(many.take(np.array([at])), float(many.log_s[at]))
    said = history.ask(many)[:, EstimateBasis.GROUP]
    assert said[:, compiled.SEEN].tolist() == [1.0] * 50
    assert said[:, compiled.MIDDLE] == pytest.approx(many.log_s, abs=1e-5)
    assert history.ask(runs([1], group="new"))[0, EstimateBasis.GROUP, compiled.SEEN] == 0
    assert len(history.seen) == len(history.rings) >= len(history.places) == 102


# -- bands --------------------------------------------------------------------------------


@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=80),
    st.sampled_from([EstimateBasis.GROUP, EstimateBasis.USER]),
)
def test_calibrated_edges_hold_the_promised_part_of_these_jobs(
    log_s: list[float], basis: EstimateBasis
) -> None:
    values, none = np.array(log_s), np.zeros(len(log_s))
    found = bands.offsets(values, none, none, np.full(len(log_s), basis, np.int8))
    count, rising = len(log_s), sorted(log_s)
    low = max(0, floor((count + 1) * 0.1) - 1)
    high = min(count - 1, ceil((count + 1) * 0.9) - 1)
    assert found[basis] == pytest.approx([rising[low], rising[high]], abs=1e-9)


def test_a_basis_with_few_jobs_has_the_edges_of_all() -> None:
    values = np.concatenate([np.zeros(50), np.full(49, 5.0)])
    basis = np.array([EstimateBasis.GROUP] * 50 + [EstimateBasis.USER] * 49, np.int8)
    found = bands.offsets(values, np.zeros(99), np.zeros(99), basis)
    assert found[EstimateBasis.GROUP].tolist() == [0.0, 0.0]
    assert (
        found[EstimateBasis.USER].tolist() == found[EstimateBasis.SHAPE].tolist() == [0.0, 5.0]
    )
    assert bands.offsets(values[:0], values[:0], values[:0], basis[:0]).tolist() == (
        bands.no_offsets().tolist()
    )


def test_an_end_moves_edges_out_by_nine_tenths_or_in_by_one() -> None:
    # A step of 0.01: a job below the lower edge moves it by 0.01 * 0.9, else 0.01 * 0.1.
    moving = np.zeros((6, 2))
    compiled.adjust(moving, 1, -1.0, 0.0, 1.0, 0.01, 0.1)
    assert moving[1] == pytest.approx([-0.009, -0.001])
    compiled.adjust(moving, 1, 2.0, 0.0, 1.0, 0.01, 0.1)
    assert moving[1] == pytest.approx([-0.008, 0.008])
    assert moving[0].tolist() == moving[2].tolist() == [0.0, 0.0]


def test_a_submission_is_told_the_edges_of_its_moment() -> None:
    # Two jobs, each submitted when the one before has ended: the second sees one adjustment.
    some = runs([exp(5), exp(5)])
    moving = np.zeros((6, 2))
    low, high = np.array([1.0, 1.0]), np.array([2.0, 2.0])
    basis = np.full(2, EstimateBasis.GROUP, np.int8)
    told = bands.followed(events_of(some), some.log_s, low, high, basis, moving)
    # 5 is above 2 and not below 1: up by 0.009, and the lower edge in by 0.001.
    assert told[0] == pytest.approx([1.0, 1.001])
    assert told[1] == pytest.approx([2.0, 2.009])
    assert moving[EstimateBasis.GROUP] == pytest.approx([0.002, 0.018])


def test_a_band_holds_its_estimate_even_where_edges_have_crossed() -> None:
    found = bands.estimates(np.zeros(1), np.ones(1), -np.ones(1), np.zeros(1, np.int8))
    assert (found.low_s[0], found.seconds[0], found.high_s[0]) == (1.0, 1.0, 1.0)


# -- recall -------------------------------------------------------------------------------


@given(
    seen=st.lists(st.integers(0, 40), min_size=6, max_size=6),
    middles=st.lists(st.floats(0, 9), min_size=6, max_size=6),
)
def test_layers_are_drawn_towards_the_next_wider_one_the_fewer_runs_they_have(
    seen: list[int], middles: list[float]
) -> None:
    said = np.zeros((1, 6, compiled.WIDTH))
    said[0, :, compiled.SEEN], said[0, :, compiled.MIDDLE] = seen, middles
    model = Recall(typical_=4.0)
    blend, basis = model._blend(said)
    expected, nearest = 4.0, EstimateBasis.EVERYTHING
    for layer in (4, 3, 2, 1, 0):
        if seen[layer]:
            runs_ = min(seen[layer], 32)
            pull = PULL[layer]
            expected = (runs_ * middles[layer] + pull * expected) / (runs_ + pull)
            nearest = EstimateBasis(layer)
    assert blend[0] == pytest.approx(expected)
    assert basis[0] == nearest


def test_trees_see_the_request_the_time_and_the_day_of_the_week() -> None:
    # 8 days and 6.5 hours after the first midnight: half past six, the second day of a week.
    some = replace(runs([1.0], at=[8 * 86_400 + 6.5 * 3_600], instances=3), gpus=np.ones(1))
    said = np.arange(24.0).reshape(1, 6, 4)
    table = _table(some, said, np.array([2.0]))[0]
    assert table[:6].tolist() == [0, 4, 8, 12, 16, 20]
    assert table[6:12].tolist() == [one - 2 for one in (1, 5, 9, 13, 17, 21)]
    assert table[12:18].tolist() == [one - 2 for one in (2, 6, 10, 14, 18, 22)]
    assert table[18:24].tolist() == [3, 7, 11, 15, 19, 23]
    expected = [2.0, log(2), log(5), log(17), log(4), 6.5, 1.0]
    assert table[24:].tolist() == pytest.approx(expected)


def test_bands_are_calibrated_on_the_newest_fifth() -> None:
    assert [_newest(count) for count in (0, 4, 5, 11)] == [
        slice(0, 0), slice(4, 4), slice(4, 5), slice(9, 11),
    ]  # fmt: skip


def test_before_anything_is_known_ten_minutes_are_expected() -> None:
    told = Recall().predict(runs([1.0]))
    assert told.seconds[0] == pytest.approx(600.0)
    assert Recall().fallback_s == pytest.approx(600.0)


# -- naive twins, trees, cart -------------------------------------------------------------


@given(some=some_runs())
def test_naive_estimates_follow_the_trace_by_their_definitions(some: Runs) -> None:
    for model in (MeanPerUser().fit(some), LastRun().fit(some)):
        fresh = replace(model, by_group_={}, by_user_={})
        told = fresh.follow(some)
        for at in range(len(some)):
            done = [
                other
                for other in np.lexsort((np.arange(len(some)), some.finish_s)).tolist()
                if some.finish_s[other] <= some.submit_s[at]
            ]
            mine = [n for n in done if some.user[n] == some.user[at] and some.user[at]]
            alike = [n for n in done if some.group[n] == some.group[at] and some.group[at]]
            if isinstance(model, MeanPerUser):
                expected = mean(some.duration_s[mine]) if mine else some.duration_s.mean()
            else:
                last = alike or mine
                expected = some.duration_s[last[-1]] if last else np.median(some.duration_s)
            assert told.seconds[at] == pytest.approx(max(expected, 1.0))


def walked(forest: Forest, row: list[float]) -> float:
    """The sum of the leaves that a row reaches, node by node."""
    total = forest.start
    for root in forest.roots.tolist():
        node = root
        while forest.feature[node] >= 0:
            value = row[forest.feature[node]]
            lower = (
                forest.missing_left[node]
                if np.isnan(value)
                else value <= forest.threshold[node]
            )
            node = int(forest.left[node] if lower else forest.right[node])
        total += float(forest.value[node])
    return total


@given(st.lists(st.lists(st.sampled_from([-1.0, 0.5, 2.0, np.nan]), min_size=2, max_size=2)))
def test_a_forest_adds_up_the_leaves_that_a_row_reaches(rows: list[list[float]]) -> None:
    # Two trees: x0 <= 0.5 ? 1 : (x1 <= 2 ? 10 : 20), unknown goes right; and x1 <= 0 ? 100 :
    # 200, unknown goes left.
    forest = Forest(
        0.25,
        np.array([0, 5], np.int32),
        np.array([0, -1, 1, -1, -1, 1, -1, -1], np.int32),
        np.array([0.5, 0, 2.0, 0, 0, 0.0, 0, 0]),
        np.array([1, 0, 3, 0, 0, 6, 0, 0], np.int32),
        np.array([2, 0, 4, 0, 0, 7, 0, 0], np.int32),
        np.array([False] * 5 + [True] + [False] * 2),
        np.array([0, 1.0, 0, 10.0, 20.0, 0, 100.0, 200.0]),
    )
    table = np.array(rows).reshape(-1, 2)
    assert forest.predict(table).tolist() == [walked(forest, row) for row in rows]
    assert no_trees().predict(table).tolist() == [0.0] * len(rows)


def test_a_tree_knows_names_by_the_middle_of_their_runs() -> None:
    some = runs([10, 20, 90, 500], group=["a", "a", "a", ""], user=["x", "x", "x", "y"])
    model = Cart().fit(some)
    assert model.codes_["group"]["a"] == 20
    assert model.codes_["user"] == {"x": 20, "y": 500}
    assert model.fallback_s == 55
    # A group never seen is taken for its user's usual, and a user never seen for the middle.
    asked = runs([1] * 4, group=["a", "new", "new", ""], user=["x", "y", "new", "x"])
    assert model._column(asked, "group").tolist() == [20, 500, 55, 20]
    assert model._basis(asked).tolist() == [
        EstimateBasis.GROUP,
        EstimateBasis.USER,
        EstimateBasis.EVERYTHING,
        EstimateBasis.USER,
    ]
    assert model.predict(asked).seconds[2] == pytest.approx(55)


# -- scores -------------------------------------------------------------------------------


def test_every_score_by_hand() -> None:
    # Truths 100, 200, 0.5: told 105 (5 % off), 300 (50 %), 1 (0.5 s off a second: 50 %).
    told = DurationEstimates(
        np.array([105.0, 300.0, 1.0]),
        np.array([100.0, 250.0, 0.2]),
        np.array([120.0, 400.0, 0.4]),
        np.array([EstimateBasis.USER, EstimateBasis.SHAPE, EstimateBasis.EVERYTHING], np.int8),
    )
    found = scores(told, runs([100.0, 200.0, 0.5], instances=[1, 1, 8]))
    assert found["jobs"] == 3
    assert found["within_5_percent"] == pytest.approx(1 / 3)
    assert found["within_50_percent"] == 1.0
    assert found["within_25_percent_of_instances"] == pytest.approx(1 / 10)
    assert found["mae_s"] == pytest.approx((5 + 100 + 0.5) / 3)
    assert found["median_error_percent"] == pytest.approx(50.0)
    assert found["band_holds"] == pytest.approx(1 / 3)
    # Bands: 120/100, 400/250, and 0.4/1 since no edge counts below a second.
    assert found["band_ratio"] == pytest.approx(1.2)
    assert found["fallback"] == pytest.approx(2 / 3)
    # Pinball at 0.1, 0.5 and 0.9: below a quantile the part counts, above it the rest.
    low = (0.1 * 0 + 0.9 * 50 + 0.1 * 0.3) / 3
    middle = (0.5 * 5 + 0.5 * 100 + 0.5 * 0.5) / 3
    high = (0.1 * 20 + 0.1 * 200 + 0.9 * 0.1) / 3
    assert found["pinball_s"] == pytest.approx((low + middle + high) / 3)
    with pytest.raises(InvalidInput, match="nothing to judge"):
        share(np.zeros(0, bool))


@given(some=some_runs(), percent=st.sampled_from([10, 25]))
def test_no_single_estimate_for_a_group_does_better_than_hindsight(
    some: Runs, percent: int
) -> None:
    jobs, instances = hindsight(some, percent)
    best = 0.0
    for group in set(some.group):
        lengths = some.duration_s[[at for at in range(len(some)) if some.group[at] == group]]
        # Every run's upper reach is worth trying as an estimate: length * (1 + c), just within.
        tries = [length * (1 + percent / 100) for length in lengths]
        close = [
            np.abs(lengths - one) <= percent / 100 * lengths * (1 + 1e-12) for one in tries
        ]
        best += max(mask.sum() for mask in close)
    assert jobs == pytest.approx(best / len(some))
    assert instances == pytest.approx(jobs)


def test_splits_by_time_learn_from_what_had_ended_and_judge_the_newest() -> None:
    some = runs([5] * 9 + [1], at=[0, 1, 2, 3, 4, 10, 11, 12, 13, 14])
    split = RunSplit.by_time(some)
    # The last two of ten are judged, from 13 s on: known is what ended by then (0 to 4).
    assert split.known.submit_s.tolist() == [0, 1, 2, 3, 4]
    assert split.rest.submit_s.tolist() == [10, 11, 12, 13, 14]
    assert split.judged.tolist() == [False, False, False, True, True]
    for part in (0.0, 1.0):
        with pytest.raises(InvalidField, match="judged"):
            RunSplit.by_time(some, part)


def test_splits_at_random_judge_a_fifth_and_learn_from_the_rest() -> None:
    split = RunSplit.at_random(runs([1.0] * 25), seed=1)
    assert (len(split.known), len(split.rest), split.judged.sum()) == (20, 5, 5)
    ten = RunSplit.at_random(runs([1.0] * 25), seed=1, judged=0.4)
    assert len(ten.rest) == 10


def test_who_learns_on_is_judged_a_second_time_if_wanted() -> None:
    split = RunSplit.by_time(recurring(60, seed=0))
    makes: dict[str, DurationPredictor] = {"last": LastRun(), "cart": Cart()}
    assert list(evaluate(split, makes, learning=True)) == ["last", "last, learning", "cart"]
    assert list(evaluate(split, makes, learning=False)) == ["last", "cart"]


def test_predictors_go_by_name() -> None:
    for name in PREDICTORS:
        assert name_of(make_predictor(name)) == name
    made = make_predictor("cart", "user")
    assert isinstance(made, Cart)
    assert made.keys == "user"
    with pytest.raises(UnknownName, match="model"):
        make_predictor("oracle")


def test_only_groups_and_users_are_no_fallback() -> None:
    assert [basis.is_fallback for basis in EstimateBasis] == [False] * 4 + [True] * 2
    assert len({basis.words for basis in EstimateBasis}) == len(EstimateBasis)


# -- while jobs come and go ---------------------------------------------------------------


def test_a_live_predictor_learns_from_ends_and_forgets_the_refused() -> None:
    model = Recall().fit(runs([100.0] * 5))
    live, one = OnlinePredictor(model), runs([np.nan])
    first = live.submitted("a", one)
    assert first.seconds == pytest.approx(100.0, rel=0.01)
    live.submitted("b", one)
    live.forget("b")
    live.finished("b", 9e9)
    live.finished("never", 9e9)
    assert live.submitted("c", one).seconds == pytest.approx(100.0, rel=0.01)
    live.finished("a", 10_000.0)
    said = live.predictor.history_.ask(one)[0, EstimateBasis.GROUP]
    assert said[compiled.SEEN] == 6
    # It was longer than the upper edge: that moves out by 0.009, the lower one in by 0.001.
    moved = live.predictor.offsets_ - model.offsets_
    assert moved[first.basis] == pytest.approx([0.001, 0.009])
    live.finished("a", 10_000.0)
    assert live.predictor.history_.ask(one)[0, EstimateBasis.GROUP, compiled.SEEN] == 6


def test_a_estimate_reads_as_a_sentence() -> None:
    told = DurationEstimate(1_234.5, 600.0, 9_000.4, EstimateBasis.USER)
    assert str(told) == "about 1,234 s, eight times in ten 600 to 9,000 s, from its user's runs"


# -- starts -------------------------------------------------------------------------------


def test_a_band_of_starts_stretches_played_waits_on_a_logarithmic_scale() -> None:
    # Waits of 70 s and 970 s: middles log(100) and log(1000), a width of log(10).  The edges
    # stand at -2.2, 0, 2 and 2.8 widths: 100 * 10^edge - 30, never before now.
    starts = [170.0] * 6 + [1_070.0] * 5
    found = Calibrated().band(starts, 100.0)
    expected = [0.0, 70.0, 100 * 10**2.0 - 30, 100 * 10**2.8 - 30]
    assert [getattr(found, one.name) - 100.0 for one in fields(StartBand)] == (
        pytest.approx(expected)
    )


def test_edges_stand_where_starts_have_passed_them_as_often_as_they_say() -> None:
    calibrated = Calibrated()
    calibrated.note(JobId("0"), [100.0], 0.0)
    calibrated.note(JobId("0"), [9e9], 0.0)  # the first time counts
    assert list(calibrated.awaited) == ["0"]
    # Told a wait of 100 s: a middle of log(130) and a width of 0.25.  Starts 1 to 39 widths
    # above it: of 40 places for the next one, 2, 20, 36 and 38 lie below the edges.
    for number in range(39):
        calibrated.note(JobId(str(number)), [100.0], 0.0)
        calibrated.started(JobId(str(number)), 130.0 * exp(0.25 * (number + 1)) - 30.0)
    assert calibrated._edges(0.0) == pytest.approx((2.0, 20.0, 36.0, 38.0))
    assert calibrated.compared == 39
    assert list(calibrated.awaited) == []
    calibrated.started(JobId("0"), 5.0)
    assert calibrated.compared == 39


def test_who_still_waits_stands_beyond_where_they_are_now() -> None:
    # Three started at 1, 2 and 3 widths, two still wait at 1.5 and 5: at risk, with the next
    # job, are 6, 4 and 3 of them.  So 1/6, 3/8 and 7/12 lie below the three, and the rest
    # somewhere beyond 5.
    edges = starts._quantiles(np.array([1.0, 2.0, 3.0]), np.array([1.5, 5.0]))
    half = 2.0 + (1 / 2 - 3 / 8) / (7 / 12 - 3 / 8)
    assert edges == pytest.approx((1.0, half, 5.0, 5.0))


def test_waits_that_hardly_differ_have_a_least_width() -> None:
    calibrated = Calibrated()
    told = calibrated._of([60.0, 60.0, 61.0], 0.0)
    assert told.middle == pytest.approx(log(90.0))
    assert told.width == 0.25
    assert calibrated._of([5.0], 10.0).middle == pytest.approx(log(30.0))


def test_no_more_jobs_are_awaited_than_can_be_remembered() -> None:
    calibrated = Calibrated()
    for number in range(10_001):
        calibrated.note(JobId(str(number)), [1.0], 0.0)
    assert len(calibrated.awaited) == 10_000
    calibrated.forget(JobId("5"))
    calibrated.note(JobId("new"), [1.0], 0.0)
    assert len(calibrated.awaited) == 10_000
