from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesRegressor

from interlane.model import InvalidField, UnknownName
from interlane.predict.slowdown.bounds import calibrated
from interlane.predict.slowdown.evaluate import (
    admission,
    anchors,
    by_family,
    by_pair,
    judge,
    scores,
    splits,
)
from interlane.predict.slowdown.models import PREDICTORS, Blend, Linear, make_predictor
from interlane.predict.slowdown.pairs import Profiles
from interlane.predict.trees import of_trees
from interlane.testing.coruns import crowded_pairs

PAIRS = crowded_pairs(10)


@pytest.mark.parametrize("name", PREDICTORS)
def test_every_predictor_beats_or_equals_a_constant_on_pairs_never_seen(name: str) -> None:
    split = by_pair(PAIRS, 0.5, seed=1)
    ours = judge(PREDICTORS[name], [split])
    assert ours["mae"] <= judge(PREDICTORS["constant"], [split])["mae"]


@pytest.mark.parametrize("name", PREDICTORS)
def test_every_predictor_refuses_to_learn_from_next_to_nothing(name: str) -> None:
    with pytest.raises(InvalidField, match="at least 8 are needed"):
        make_predictor(name).fit(PAIRS.take(np.arange(3)))


def test_the_blend_is_closer_than_smores_forest_when_sensitivities_are_hidden() -> None:
    split = by_pair(PAIRS, 0.5, seed=2)
    assert judge(Blend, [split])["mae"] < judge(PREDICTORS["random-forest"], [split])["mae"]


def test_probes_teach_what_counters_of_a_new_family_do_not_tell() -> None:
    without, probed = (judge(Blend, islice(by_family(PAIRS, probes), 2)) for probes in (0, 4))
    assert probed["mae"] < without["mae"]


def test_trees_as_arrays_answer_as_scikit_learn_does() -> None:
    rng = np.random.default_rng(0)
    table = rng.random((200, 5)).astype(np.float32)
    model = ExtraTreesRegressor(7, random_state=0).fit(table, table.sum(1))
    told = of_trees(model).predict(table.astype(np.float64)) / 7
    np.testing.assert_allclose(told, model.predict(table), rtol=1e-12)


def test_the_bound_holds_for_nine_in_ten_pairs_that_nobody_saw() -> None:
    pairs = crowded_pairs(24, noise=0.05)
    split = by_pair(pairs, 0.5, seed=0)
    model = Linear(hinged=True)
    bounds = calibrated(model, split.known)
    lower = bounds.lower(model.predict(split.judged), split.judged.gpu)
    assert 0.87 <= (split.judged.throughput >= lower).mean() <= 0.97


def test_a_stricter_bound_is_lower() -> None:
    model = Linear(hinged=True)
    bounds = calibrated(model, PAIRS)
    estimate = model.predict(PAIRS)
    assert (
        bounds.lower(estimate, PAIRS.gpu, 0.02) <= bounds.lower(estimate, PAIRS.gpu, 0.3)
    ).all()


@given(part=st.floats(0.05, 0.95), seed=st.integers(0, 99))
def test_both_directions_of_a_pair_stay_on_one_side(part: float, seed: int) -> None:
    split = by_pair(PAIRS, part, seed)
    assert not set(split.known.couples) & set(split.judged.couples)
    assert len(split.known) + len(split.judged) == len(PAIRS)


def test_an_unknown_family_is_learned_from_through_its_probes_only() -> None:
    for family, split in enumerate(by_family(PAIRS, 2)):
        strange = PAIRS.profiles.family_numbers == family
        probed = split.known.where(strange[split.known.victim] | strange[split.known.aggressor])
        partners = {int(one) for one in (*probed.victim, *probed.aggressor) if not strange[one]}
        assert len(partners) == 2


def test_anchors_are_all_different() -> None:
    assert len(set(anchors(PAIRS, 4).tolist())) == 4


def test_what_is_not_a_protocol_is_refused() -> None:
    with pytest.raises(UnknownName, match="split 'magic'"):
        splits(PAIRS, "magic", part=0.2, seed=0, probes=0)
    with pytest.raises(InvalidField, match="probes is 9"):
        anchors(PAIRS, 9)


def test_counters_that_were_not_taken_are_the_middle_of_the_family() -> None:
    values = np.array([[[0.2], [0.4], [np.nan], [0.9]]])
    profiles = Profiles(
        ("a", "b", "c", "d"), ("x", "x", "x", "y"), ("T4",), ("sm_active",), values
    )
    assert profiles.filled[0, 2, 0] == pytest.approx(0.3)
    assert profiles.missing.tolist() == [False, False, True, False]


def test_a_model_learns_with_counters_missing() -> None:
    values = PAIRS.profiles.values.copy()
    values[0, 3] = np.nan
    holed = replace(PAIRS, profiles=replace(PAIRS.profiles, values=values))
    assert np.isfinite(Blend().fit(holed).predict(holed).mean).all()


def test_scores_are_those_of_the_textbook() -> None:
    truth, told = np.array([1.0, 0.5]), np.array([0.9, 0.6])
    found = scores(truth, told)
    assert found["mae"] == pytest.approx(0.1)
    # 1 - (0.01 + 0.01) / (2 * 0.25^2)
    assert found["r2"] == pytest.approx(1 - 0.02 / 0.125)


def test_admission_counts_what_was_let_in_and_what_should_have_been() -> None:
    truth = np.array([0.95, 0.95, 0.85, 0.7])
    bound = np.array([0.92, 0.80, 0.91, 0.5])
    found = admission(truth, bound, 0.1)
    assert (found["precision"], found["recall"]) == (0.5, 0.5)
    assert found["twice_the_limit"] == 0.0
