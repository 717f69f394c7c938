"""All predictors of the catalogue keep one contract."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interlane.model import InvalidInput
from interlane.predict.catalogue import PREDICTORS, make_predictor
from interlane.predict.estimates import DurationEstimates, DurationPredictor, EstimateBasis
from interlane.predict.evaluate import Learner
from interlane.predict.recall import Recall
from interlane.predict.runs import Runs
from interlane.predict.store import DurationModel, load, save
from interlane.testing.runs import recurring, runs

KNOWN = recurring(600, seed=1)
OTHERS = recurring(60, seed=1)
STRANGER = runs([1.0], group="nobody's", user="nobody", gpus=77)


def made(name: str) -> DurationPredictor:
    """Return a predictor of this name; few trees will do here."""
    return Recall(rounds=4, least_runs=100) if name == "recall" else make_predictor(name)


every_predictor = pytest.mark.parametrize("name", PREDICTORS)


def same(one: DurationEstimates, two: DurationEstimates) -> bool:
    columns = ("seconds", "low_s", "high_s", "basis")
    return all(np.array_equal(getattr(one, key), getattr(two, key)) for key in columns)


@every_predictor
def test_the_band_holds_the_estimate_and_all_is_positive(name: str) -> None:
    told = made(name).fit(KNOWN).predict(OTHERS)

    assert (told.low_s > 0).all()
    assert (told.low_s <= told.seconds * (1 + 1e-9)).all()
    assert (told.seconds <= told.high_s * (1 + 1e-9)).all()


@every_predictor
def test_estimating_changes_nothing_and_does_not_look_at_the_truth(name: str) -> None:
    predictor = made(name).fit(KNOWN)
    blind = replace(OTHERS, duration_s=np.full(len(OTHERS), np.nan))

    assert same(predictor.predict(OTHERS), predictor.predict(blind))


@every_predictor
def test_learning_anew_forgets_what_was_learned(name: str) -> None:
    twice = made(name).fit(recurring(500, seed=9)).fit(KNOWN)

    assert same(twice.predict(OTHERS), made(name).fit(KNOWN).predict(OTHERS))


@every_predictor
def test_a_job_never_seen_gets_the_fallback_and_says_so(name: str) -> None:
    predictor = made(name).fit(recurring(100, seed=1))

    told = predictor.predict(STRANGER)

    assert EstimateBasis(int(told.basis[0])) is EstimateBasis.EVERYTHING
    assert EstimateBasis(int(told.basis[0])).is_fallback
    assert told.seconds[0] == pytest.approx(predictor.fallback_s)


@every_predictor
def test_one_job_is_enough_to_learn_from(name: str) -> None:
    predictor = made(name).fit(runs([120.0]))

    assert predictor.predict(runs([1.0])).seconds[0] == pytest.approx(120)
    assert predictor.fallback_s == pytest.approx(120)


@every_predictor
@pytest.mark.parametrize("lengths_s", [[], [5.0, float("nan")]])
def test_nothing_and_jobs_that_have_not_ended_cannot_be_learned_from(
    name: str, lengths_s: list[float]
) -> None:
    with pytest.raises(InvalidInput, match=r"\.$"):
        made(name).fit(runs(lengths_s))


@every_predictor
def test_a_stored_model_estimates_the_same(name: str, tmp_path: Path) -> None:
    predictor = made(name).fit(KNOWN)
    digest = save(DurationModel(predictor, {"jobs": len(KNOWN)}), tmp_path / "m.ildur")

    found = load(tmp_path / "m.ildur")

    assert (found.name, found.sha256, found.trained_on) == (name, digest, {"jobs": 600})
    assert found.predictor.fallback_s == predictor.fallback_s
    assert same(found.predictor.predict(OTHERS), predictor.predict(OTHERS))


def futures_of(known: Runs, cut_s: float) -> Runs:
    """Return the same runs, but all that ends after a moment takes another time."""
    later = known.finish_s > cut_s
    longest_s = np.maximum(cut_s + 1.0, known.submit_s + 1.0) - known.submit_s
    return replace(known, duration_s=np.where(later, longest_s * 3.7 + 11, known.duration_s))


@every_predictor
def test_nobody_who_learns_on_knows_the_future(name: str) -> None:
    predictor = made(name)
    if not isinstance(predictor, Learner):
        pytest.skip("learns once")
    rest = recurring(300, seed=5)
    cut_s = float(rest.submit_s[150])
    before = rest.submit_s <= cut_s

    one = predictor.fit(KNOWN).follow(rest)
    two = predictor.fit(KNOWN).follow(futures_of(rest, cut_s))

    assert same(one.where(before), two.where(before))
    assert not same(one, two)
