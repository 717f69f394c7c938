"""Slowdown of pairs: the arithmetic of processes, tables, bounds and residuals, by textbook."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlane.model import InvalidField, UnknownName
from interlane.predict.slowdown import evaluate, process
from interlane.predict.slowdown.bounds import Bounds, _folds, _quantile, calibrated
from interlane.predict.slowdown.features import concatenated, crossed, overflow
from interlane.predict.slowdown.models import (
    Blend,
    Constant,
    Linear,
    SlowdownEstimate,
    SmoreForest,
    make_predictor,
)
from interlane.predict.slowdown.multiway import Crowd, SuperAdditive, WeightedSum
from interlane.predict.slowdown.online import Alarm, Online, Residuals
from interlane.predict.slowdown.pairs import Floats, Pairs, Profiles, every_pair, pairs_of
from interlane.predict.slowdown.table import CellBasis, SlowdownTable
from interlane.testing.coruns import crowded_pairs

NAN = float("nan")


def profiles(values: list[list[list[float]]], families: str = "") -> Profiles:
    """Profiles of GPU type x workload x counter, the first counter a share, the second not."""
    gpus, workloads, counters = np.array(values).shape
    names = tuple(f"w{number}" for number in range(workloads))
    return Profiles(
        names,
        tuple(families) if families else names,
        tuple(f"gpu{number}" for number in range(gpus)),
        ("sm_active", "power_w")[:counters],
        np.array(values),
    )


def two_gpus() -> Profiles:
    return profiles([[[0.2], [0.9], [0.5]], [[0.3], [0.8], [0.4]]], "aab")


def some_pairs(seed: int = 0, count: int = 12) -> Pairs:
    known, rng = two_gpus(), np.random.default_rng(seed)
    cells = [cell for cell in product(range(2), range(3), range(3)) if cell[1] != cell[2]]
    chosen = [cells[at] for at in rng.permutation(len(cells))[:count]]
    gpu, victim, aggressor = np.array(chosen, np.int64).T
    return Pairs(known, gpu, victim, aggressor, rng.uniform(0.4, 1.0, len(chosen)))


# -- pairs and profiles -------------------------------------------------------------------


def test_holes_are_filled_from_near_to_far() -> None:
    # Families a, a, b.  w1's counter on gpu0 is the middle of its family there, 2; b was
    # measured on gpu1 only, so w2 on gpu0 has the family's figure from there, 8.
    known = profiles([[[2.0], [NAN], [NAN]], [[4.0], [6.0], [8.0]]], "aab")
    assert known.filled[:, :, 0].tolist() == [[2.0, 2.0, 8.0], [4.0, 6.0, 8.0]]
    assert known.missing.tolist() == [False, True, True]
    # Nobody of b was ever measured: everybody's middle on the GPU type.
    strange = profiles([[[2.0], [4.0], [NAN]]], "aab")
    assert strange.filled[0, :, 0].tolist() == [2.0, 4.0, 3.0]
    assert profiles([[[NAN]]]).filled.tolist() == [[[0.0]]]


def test_profiles_that_cannot_be_are_refused() -> None:
    known = two_gpus()
    for wrong in (
        {"values": known.values[:1]},
        {"families": ("a",)},
        {"names": ("w0", "w0", "w1")},
        {"values": np.full_like(known.values, np.inf)},
    ):
        with pytest.raises(InvalidField, match=next(iter(wrong))):
            replace(known, **wrong)
    assert known.number("w2") == 2
    with pytest.raises(UnknownName, match="w9"):
        known.number("w9")


def test_both_directions_of_a_pair_have_one_number_and_no_other_pair_has_it() -> None:
    every = every_pair(two_gpus())
    assert len(every) == 2 * 3 * 3
    numbers: dict[int, set[tuple[int, frozenset[int]]]] = {}
    for number, *cell in zip(
        every.couples, every.gpu, every.victim, every.aggressor, strict=True
    ):
        gpu, victim, aggressor = map(int, cell)
        numbers.setdefault(int(number), set()).add((gpu, frozenset({victim, aggressor})))
    assert all(len(cells) == 1 for cells in numbers.values())
    assert len(numbers) == 2 * 6


def test_the_first_row_about_a_pair_counts() -> None:
    rows = [("gpu1", "w0", "w2", 0.5), ("gpu1", "w0", "w2", 0.9), ("gpu0", "w2", "w0", 0.7)]
    found = pairs_of(two_gpus(), rows)
    assert found.throughput.tolist() == [0.5, 0.7]
    assert (found.gpu.tolist(), found.victim.tolist()) == ([1, 0], [0, 2])
    assert found.aggressor.tolist() == [2, 0]


@pytest.mark.parametrize(("throughput", "fine"), [(0.01, True), (0.0099, False), (3.0, True),
                                                (3.01, False), (NAN, True)])  # fmt: skip
def test_a_ratio_is_from_a_hundredth_to_three(throughput: float, *, fine: bool) -> None:
    def one() -> Pairs:
        return pairs_of(two_gpus(), [("gpu0", "w0", "w1", throughput)])

    if fine:
        assert len(one()) == 1
    else:
        with pytest.raises(InvalidField, match="retained"):
            one()


def test_features_are_both_sides_then_how_they_act_together() -> None:
    known = profiles([[[0.75, 100.0], [0.5, 40.0]]], "ab")
    pair = pairs_of(known, [("gpu0", "w0", "w1", 0.9)])
    # Counters of victim and aggressor, their families (one column each), the GPU type.
    plain = [0.75, 100, 0.5, 40, 1, 0, 0, 1, 1]
    assert concatenated(pair)[0].tolist() == plain
    # The differences, products and larger ones; only shares can exceed the whole.
    together = [0.25, 60, 0.375, 4_000, 0.75, 100, 0.25]
    assert crossed(pair)[0].tolist() == plain + together
    assert overflow(pair).tolist() == [[0.25]]


# -- a Gaussian process -------------------------------------------------------------------


def matern(distance: float) -> float:
    return float((1 + np.sqrt(3) * distance) * np.exp(-np.sqrt(3) * distance))


def covariance(
    known: Profiles, settings: Floats, one: tuple[int, ...], two: tuple[int, ...]
) -> float:
    """How alike two pairs (GPU, victim, aggressor) are, written out."""
    plain = settings[-10:]
    weight, odds = np.exp(plain), 1 / (1 + np.exp(-plain))
    rates = np.exp(settings[:-10]).reshape(2, -1)
    flat = known.filled
    standard = (flat - flat.mean(axis=(0, 1))) / flat.std(axis=(0, 1))

    def alike(side: int, family: float, own: float) -> float:
        a, b = one[1 + side], two[1 + side]
        apart = np.linalg.norm((standard[one[0], a] - standard[two[0], b]) * rates[side])
        same = 1.0 if known.families[a] == known.families[b] else family
        return (1 - own) * matern(float(apart)) * same + own * (a == b)

    victims = alike(0, odds[process.VICTIM_FAMILY], odds[process.VICTIM_OWN])
    aggressors = alike(1, odds[process.AGGRESSOR_FAMILY], odds[process.AGGRESSOR_OWN])
    same_gpu = one[0] == two[0]
    alone = 1.0 if same_gpu else odds[process.OTHER_GPU_ALONE]
    together = 1.0 if same_gpu else odds[process.OTHER_GPU]
    return float(
        weight[process.SENSITIVITY] * victims * alone
        + weight[process.PRESSURE] * aggressors * alone
        + weight[process.BOTH] * together * victims * aggressors
    )


def textbook(seen: Pairs, settings: Floats, asked: Pairs) -> tuple[list[float], list[float]]:
    """Mean and standard deviation by the formulas of any textbook."""
    known = seen.profiles
    rows = list(
        zip(seen.gpu.tolist(), seen.victim.tolist(), seen.aggressor.tolist(), strict=True)
    )
    noise = float(np.exp(settings[-10:][process.NOISE]))
    matrix = np.array([[covariance(known, settings, a, b) for b in rows] for a in rows])
    matrix += (noise + 1e-6) * np.eye(len(rows))
    logs = np.log(seen.throughput)
    means, spreads = [], []
    for cell in zip(
        asked.gpu.tolist(), asked.victim.tolist(), asked.aggressor.tolist(), strict=True
    ):
        across = np.array([covariance(known, settings, cell, one) for one in rows])
        means.append(logs.mean() + across @ np.linalg.solve(matrix, logs - logs.mean()))
        left = covariance(known, settings, cell, cell) + noise
        left -= float(across @ np.linalg.solve(matrix, across))
        spreads.append(logs.std() * np.sqrt(left))
    return means, spreads


def moved(pairs: Pairs, seed: int) -> Floats:
    """Settings a little away from where they begin, each in its own way."""
    first = process.start(pairs)
    return first + np.random.default_rng(seed).normal(0.0, 0.5, len(first))


@settings(max_examples=8)
@given(st.integers(0, 99))
def test_a_process_predicts_by_the_textbook(seed: int) -> None:
    seen = some_pairs(seed, 7)
    settings_ = moved(seen, seed)
    asked = every_pair(seen.profiles).take(np.arange(0, 18, 3))
    mean, spread = process.condition(seen, settings_).predict(asked)
    expected = textbook(seen, settings_, asked)
    assert mean == pytest.approx(expected[0], abs=1e-5)
    assert spread == pytest.approx(expected[1], abs=1e-4)


def test_what_is_left_out_is_what_the_others_say() -> None:
    seen = some_pairs(3, 8)
    settings_ = moved(seen, 1)
    model = process.condition(seen, settings_)
    mean, spread = model.left_out()
    for at in range(len(seen)):
        rest = process.condition(seen.where(np.arange(len(seen)) != at), settings_)
        # The others alone have another mean and scale of their own; those of all are kept.
        vars(rest).update(_middle=model._middle, _scale=model._scale)
        told = rest.predict(seen.take(np.array([at])))
        assert mean[at] == pytest.approx(told[0][0], abs=1e-4)
        assert spread[at] == pytest.approx(told[1][0], rel=1e-3)


def test_surprise_is_the_negative_log_likelihood() -> None:
    seen = some_pairs(5, 6)
    settings_ = moved(seen, 2)
    rows = list(
        zip(seen.gpu.tolist(), seen.victim.tolist(), seen.aggressor.tolist(), strict=True)
    )
    matrix = np.array(
        [[covariance(seen.profiles, settings_, a, b) for b in rows] for a in rows]
    )
    matrix += (np.exp(settings_[-10:][process.NOISE]) + 1e-6) * np.eye(len(rows))
    logs = np.log(seen.throughput)
    standard = (logs - logs.mean()) / logs.std()
    expected = 0.5 * standard @ np.linalg.solve(matrix, standard)
    expected += 0.5 * np.linalg.slogdet(matrix)[1]
    assert process.GaussianProcess(seen, settings_).surprise() == pytest.approx(expected)


def test_few_observations_leave_the_settings_where_they_begin_and_many_explain_more() -> None:
    many = crowded_pairs(9)
    few = many.take(np.arange(59))
    assert process.learn_settings(few, 0).tolist() == process.start(few).tolist()
    found = process.learn_settings(many, 0)
    assert found.tolist() != process.start(many).tolist()
    before = process.GaussianProcess(many, process.start(many)).surprise()
    assert process.GaussianProcess(many, found).surprise() < before


# -- naive models -------------------------------------------------------------------------


def test_naive_models_are_the_mean_and_a_line_by_least_squares() -> None:
    seen = crowded_pairs(5)
    constant = Constant().fit(seen).predict(seen)
    assert constant.throughput == pytest.approx(np.full(len(seen), seen.throughput.mean()))
    assert constant.spread == pytest.approx(np.full(len(seen), seen.log_throughput.std()))
    one, other = seen.sides(seen.profiles.filled)
    table = np.column_stack([np.ones(len(seen)), one + other])
    # Ridge: the same as least squares with a row more for each weight but the constant.
    decay = np.sqrt(1e-3 * len(seen)) * np.eye(table.shape[1])[1:]
    line = np.linalg.lstsq(
        np.vstack([table, decay]),
        np.append(seen.log_throughput, np.zeros(len(decay))),
        rcond=None,
    )[0]
    told = Linear().fit(seen).predict(seen)
    assert told.mean == pytest.approx(table @ line)
    assert told.spread[0] == pytest.approx((seen.log_throughput - table @ line).std())
    hinged = Linear(hinged=True).fit(seen)
    assert len(hinged.line_) == 1 + overflow(seen).shape[1]


def test_forests_answer_the_mean_of_their_trees_and_blends_of_both() -> None:
    seen = crowded_pairs(6)
    forest = SmoreForest(trees=5).fit(seen)
    told = forest.predict(seen)
    assert np.abs(told.throughput - seen.throughput).mean() < 0.1
    assert 0.2 < told.throughput.min() <= told.throughput.max() < 1.1
    blend = Blend(trees=5).fit(seen)
    mean, spread = blend._fitted.predict(seen)
    both = blend.predict(seen)
    trees = 2 * both.mean - mean
    assert both.spread == pytest.approx(np.sqrt(spread**2 + (mean - trees) ** 2))
    assert np.abs(np.exp(trees) - seen.throughput).mean() < 0.1
    with pytest.raises(UnknownName, match="model"):
        make_predictor("oracle")


# -- bounds -------------------------------------------------------------------------------


@given(
    scores=st.lists(st.floats(-3, 3), min_size=1, max_size=60),
    alpha=st.sampled_from([0.05, 0.1, 0.3]),
)
def test_a_bound_lies_where_all_but_alpha_of_the_scores_are_met(
    scores: list[float], alpha: float
) -> None:
    couples = max(1, len(scores) // 2)
    found = _quantile(np.array(scores), alpha, couples)
    part = 1 - alpha + (alpha * (1 - alpha) / couples) ** 0.5
    least = min(len(scores), int(np.ceil((len(scores) + 1) * part)))
    assert found == sorted(scores)[least - 1]
    assert sum(score <= found for score in scores) >= min(least, (1 - alpha) * len(scores))


def test_gpu_types_are_calibrated_apart_where_enough_was_measured() -> None:
    gpu = np.repeat([0, 1], [200, 199])
    scores = np.where(gpu == 0, 1.0, 3.0)
    bounds = Bounds(scores, gpu, np.arange(399))
    assert bounds.spreads(0) == 1.0
    # The second type has one pair too few: all pairs count, nine in ten of which need 3.
    assert bounds.spreads(1) == 3.0
    estimate = SlowdownEstimate(np.zeros(2), np.array([0.5, 0.1]))
    lower = bounds.lower(estimate, np.array([0, 1]))
    assert lower == pytest.approx(np.exp([-0.5, -0.3]))
    for alpha in (0.0, 1.0):
        with pytest.raises(InvalidField, match="alpha"):
            bounds.lower(estimate, np.array([0, 1]), alpha)


def test_folds_part_all_pairs_and_keep_directions_together() -> None:
    every = every_pair(two_gpus())
    folds = _folds(every, 0)
    assert len(folds) == 5
    assert np.sum(folds, axis=0).tolist() == [1] * len(every)
    for fold in folds:
        assert not set(every.couples[fold]) & set(every.couples[~fold])


def test_scores_are_how_many_spreads_a_pair_was_below_its_estimate_unseen() -> None:
    seen = crowded_pairs(5)
    bounds = calibrated(Constant(), seen, seed=0)
    for held in _folds(seen, 0):
        estimate = Constant().fit(seen.where(~held)).predict(seen.where(held))
        expected = (estimate.mean - seen.log_throughput[held]) / estimate.spread
        assert bounds.scores[held] == pytest.approx(expected)


# -- tables -------------------------------------------------------------------------------


def small_table(prior: float = -0.2, spread: float = 0.1) -> SlowdownTable:
    known = two_gpus()
    estimate = SlowdownEstimate(np.full(18, prior), np.full(18, spread))
    return SlowdownTable(
        known, estimate, np.array([1.0, 2.0]), np.full(18, CellBasis.PREDICTED, np.int8)
    )


def test_a_cell_is_the_mean_of_estimate_and_measurements_by_precision() -> None:
    table = small_table()
    assert table.lower[:, 0, 1] == pytest.approx([np.exp(-0.2 - 0.1), np.exp(-0.2 - 0.2)])
    table.measured(0, 0, 1, 0.5, now_s=0.0)
    table.measured(0, 0, 1, 0.6, now_s=0.0)
    table.refresh(0)
    # An estimate of spread 0.1 has a precision of 100, two co-runs of noise 0.05 one of 800.
    mean = (-0.2 * 100 + (np.log(0.5) + np.log(0.6)) / 2 * 800) / 900
    found = table.read(0, 0, 1)
    assert found.throughput == pytest.approx(np.exp(mean))
    assert found.lower == pytest.approx(np.exp(mean - 1.0 / 30.0))
    assert found.basis is CellBasis.MEASURED
    assert table.read(0, 1, 0).throughput == pytest.approx(np.exp(-0.2))


def test_measurements_fade_by_half_in_a_half_life() -> None:
    table = small_table()
    table.measured(0, 0, 1, 0.5, now_s=0.0)
    table.measured(0, 0, 1, 1.0, now_s=table.half_life_s)
    assert table.seen_weight[0, 0, 1] == pytest.approx(1.5)
    assert table.seen_mean[0, 0, 1] == pytest.approx(0.5 * np.log(0.5) / 1.5)
    table.refresh(0, now_s=2 * table.half_life_s)
    precision = 100 + 0.75 / 0.05**2
    expected = (-20 + table.seen_mean[0, 0, 1] * 300) / precision
    assert table.mean[0, 0, 1] == pytest.approx(expected)


def test_ratios_beyond_belief_are_cut_before_they_count() -> None:
    table = small_table()
    for throughput, logged in ((99.0, np.log(3.0)), (1e-9, np.log(0.01))):
        table.seen_weight[:] = 0.0
        table.measured(0, 1, 1, throughput, now_s=0.0)
        assert table.seen_mean[0, 1, 1] == pytest.approx(logged)


def test_what_is_not_known_has_the_worst_that_is() -> None:
    table = small_table()
    table.prior[1, 0, 1] = -2.0
    table.refresh(1)
    assert table.read(-1, 0, 1).lower == table.lower[1, 0, 1]
    assert table.read(-1, 0, 1).basis is CellBasis.OTHER_GPU
    worst = float(np.quantile(table.lower, 0.1))
    for victim, aggressor in ((-1, 0), (0, -1)):
        found = table.read(0, victim, aggressor)
        assert (found.throughput, found.lower, found.basis) == (worst, worst, CellBasis.UNKNOWN)
    padded = table.padded(-1, cautious=False)
    assert padded[0, 1] == pytest.approx(np.exp(-2.0))
    assert padded[-1].tolist() == padded[:, -1].tolist() == [worst] * 4
    assert table.padded(0)[0, 1] == table.lower[0, 0, 1]


# -- learning as co-runs are measured -----------------------------------------------------


def test_residuals_are_ridge_regression_while_nothing_is_forgotten() -> None:
    off = [(0, 1, -0.3), (0, 2, -0.2), (1, 2, 0.1), (0, 1, -0.25)]
    learned = Residuals(3, remembered=1.0)
    for victim, aggressor, value in off:
        learned.learn(victim, aggressor, value)
    rows = np.zeros((len(off), 6))
    for row, (victim, aggressor, _) in zip(rows, off, strict=True):
        row[victim] = row[3 + aggressor] = 1.0
    values = np.array([value for _, _, value in off])
    effects = np.linalg.solve(
        rows.T @ rows / 0.1**2 + np.eye(6) / 0.05**2, rows.T @ values / 0.1**2
    )
    assert learned.effects == pytest.approx(effects)
    assert learned.shift[0, 1] == pytest.approx(effects[0] + effects[4])
    assert learned.shift.shape == (3, 3)


def test_what_is_not_measured_any_more_goes_back_to_where_it_began() -> None:
    learned = Residuals(3, remembered=0.9)
    learned.learn(0, 1, -0.5)
    high = abs(learned.effects[0])
    for _ in range(100):
        learned.learn(2, 2, 0.0)
    assert abs(learned.effects[0]) == pytest.approx(high * 0.9**100, rel=0.5)
    assert learned.covariance[0, 0] == pytest.approx(0.05**2, rel=0.01)


def test_the_alarm_counts_misses_above_what_is_promised() -> None:
    alarm = Alarm()
    alarm.learn(missed=False)
    assert alarm.level == 0.0
    for _ in range(5):
        alarm.learn(missed=True)
    # Each miss adds 1 - 0.1 - 0.1; five make 4.0, which is not above 4 yet.
    assert alarm.level == pytest.approx(4.0)
    assert not Alarm(level=4.0).rings
    alarm.learn(missed=True)
    assert alarm.rings
    alarm.learn(missed=False)
    assert alarm.level == pytest.approx(4.6)


def test_a_measurement_moves_its_cell_its_row_and_its_column() -> None:
    table = small_table()
    online = Online(table)
    kept = online.learn(0, 0, 1, 0.3, 0.0)
    assert kept is False
    assert online.learn(0, 2, 0, 0.99, 0.0) is True
    expected = Residuals(3)
    expected.learn(0, 1, float(np.log(0.3) + 0.2))
    expected.learn(2, 0, float(np.log(0.99) + 0.2))
    assert table.shift[0] == pytest.approx(expected.shift)
    assert table.shift[1].tolist() == np.zeros((3, 3)).tolist()
    assert table.mean[0, 0, 2] < -0.2
    assert (online.since_fit, online.is_due) == (2, False)
    for nonsense in ((-1, 0, 1, 0.5), (0, 0, 1, NAN), (0, 0, 1, 0.0), (0, -1, 1, 0.5)):
        assert online.learn(*nonsense, 0.0) is True
    assert online.since_fit == 2
    online.since_fit = 200
    assert online.is_due


def test_a_crowd_by_hand() -> None:
    # Excess 0.2 + 0.5; two neighbours are one pair; use of 1.5 overflows by 0.5, squared.
    crowd = Crowd((1.2, 1.5), {"sm_active": 1.5, "pcie": 0.9})
    ours = SuperAdditive()
    ours.weights = np.array([1.0, 0.1, 2.0, 9.0, 9.0, 9.0])
    assert ours.slow_down(crowd) == pytest.approx(1 + 0.7 + 0.1 + 2 * 0.25)
    assert ours.slow_down(Crowd((1.2,), {"sm_active": 9.0})) == pytest.approx(1.2)
    ours.weights[:] = 0.0
    assert ours.slow_down(crowd) == 1.5
    plain = WeightedSum(weight=2.0)
    assert plain.slow_down(crowd) == pytest.approx(2.4)
    # One step: the error times the excess over what was seen of it (0.01 and 0.49).
    plain.learn(crowd, 1.7)
    assert plain.weight == pytest.approx(2.0 - 0.7 * 0.7 / 0.5)


def test_learned_weights_are_those_of_ridge_regression() -> None:
    crowds = [(Crowd((1.2, 1.3)), 1.9), (Crowd((1.1, 1.1, 1.4)), 2.4), (Crowd((1.5,)), 1.5)]
    ours = SuperAdditive()
    for crowd, measured in crowds:
        ours.learn(crowd, measured)
    rows = np.array([[0.5, 1.0], [0.6, 3.0], [0.5, 0.0]])
    off = np.array([0.9, 1.4, 0.5]) - rows @ [1.0, 0.0]
    prior = np.diag([1 / 0.05**2, 1 / 0.2**2])
    step = np.linalg.solve(rows.T @ rows / 0.05**2 + prior, rows.T @ off / 0.05**2)
    assert ours.weights[:2] == pytest.approx(np.array([1.0, 0.0]) + step)
    # The quick way, of sums, is the same where use of resources is not known.
    assert ours.total(0.5, 0.3, 2) == pytest.approx(ours.slow_down(crowds[0][0]))


# -- protocols ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", evaluate.SPLITS)
def test_no_protocol_judges_what_it_has_learned_from(name: str) -> None:
    seen = crowded_pairs(8)
    for split in evaluate.splits(seen, name, part=0.6, seed=1, probes=2):
        known, judged = (set(zip(one.victim, one.aggressor, strict=True))
                         for one in (split.known, split.judged))  # fmt: skip
        assert not known & judged
        if name == "pair":
            assert known | judged == set(zip(seen.victim, seen.aggressor, strict=True))
            assert not {(b, a) for a, b in known} & judged
            assert len(set(split.known.couples)) == int(0.6 * 36)


def test_unknown_workloads_are_known_by_their_probes_only() -> None:
    seen = crowded_pairs(8)
    unknown = np.arange(8) == 3
    split = evaluate.without(seen, unknown, 2)
    anchors = evaluate.anchors(seen.where((seen.victim != 3) & (seen.aggressor != 3)), 2)
    with_it = split.known.where((split.known.victim == 3) | (split.known.aggressor == 3))
    beside = {frozenset(pair) for pair in zip(with_it.victim, with_it.aggressor, strict=True)}
    assert beside == {frozenset({3, int(anchor)}) for anchor in anchors}
    # 3 beside itself, and both directions beside the five that are no anchors.
    assert len(split.judged) == 1 + 2 * 5
    assert len(evaluate.anchors(seen, 0)) == 0
    with pytest.raises(InvalidField, match="probes"):
        evaluate.anchors(seen, 5)


def test_every_workload_is_unknown_once_by_model_and_every_family_by_family() -> None:
    seen = crowded_pairs(8)
    by_model = [
        set(split.judged.victim) - set(split.known.victim)
        for split in evaluate.by_model(seen, 0)
    ]
    assert sorted(one for fold in by_model for one in fold) == list(range(8))
    assert [len(fold) for fold in by_model] == [2, 2, 1, 1, 1, 1]
    by_family = [
        set(split.judged.victim) - set(split.known.victim) for split in evaluate.by_family(seen)
    ]
    assert by_family == [{0, 4}, {1, 5}, {2, 6}, {3, 7}]


def test_scores_and_admission_by_hand() -> None:
    truth, told = np.array([1.0, 0.5]), np.array([0.8, 0.5])
    found = evaluate.scores(truth, told)
    # Off by 0.2 and 0; the truth's own squares are 2 * 0.25^2 = 0.125.
    assert found["mae"] == pytest.approx(0.1)
    assert found["r2"] == pytest.approx(1 - 0.04 / 0.125)
    assert found["rmsle"] == pytest.approx(np.sqrt(np.log(2.0 / 2.25) ** 2 / 2))
    assert evaluate.scores(np.ones(2), told)["r2"] == 0.0
    # A limit of a tenth: 0.95 and 0.9 are admitted, of which 0.9 is good and 0.7 is not; of
    # the good ones 0.99 was refused, and 0.7 lost more than twice the limit.
    bound = np.array([0.95, 0.9, 0.85])
    found = evaluate.admission(np.array([0.7, 0.9, 0.99]), bound, 0.1)
    assert found == {
        "admitted": pytest.approx(2 / 3), "precision": 0.5, "recall": 0.5,
        "twice_the_limit": 0.5,
    }  # fmt: skip
    nobody = evaluate.admission(np.array([0.5]), np.array([0.1]), 0.1)
    assert nobody == {"admitted": 0, "precision": 1, "recall": 1, "twice_the_limit": 0}
