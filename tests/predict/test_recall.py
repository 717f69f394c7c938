import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.predict import compiled
from interlane.predict.estimates import EstimateBasis
from interlane.predict.evaluate import RunSplit, scores
from interlane.predict.history import RunHistory
from interlane.predict.live import OnlinePredictor
from interlane.predict.recall import Recall
from interlane.testing.runs import recurring, runs


def test_a_job_is_estimated_by_the_nearest_that_is_known_of_it() -> None:
    known = runs(
        [100, 100, 1000, 1000, 5000],
        group=["a", "a", "b", "b", ""],
        user=["ann", "ann", "ann", "ann", "bob"],
        gpus=[1, 1, 1, 1, 8],
    )
    model = Recall().fit(known)

    told = model.predict(
        runs(
            [1] * 6,
            group=["a", "b", "b", "new", "new", ""],
            user=["ann", "ann", "ann", "ann", "ann", "eve"],
            gpus=[1, 1, 2, 1, 2, 8],
        )
    )

    assert [EstimateBasis(one) for one in told.basis] == list(EstimateBasis)[:1] * 2 + [
        EstimateBasis.GROUP,
        EstimateBasis.USER_AND_SHAPE,
        EstimateBasis.USER,
        EstimateBasis.SHAPE,
    ]
    a, b = told.seconds[:2]
    assert a == pytest.approx(100, rel=0.1)
    assert b == pytest.approx(1000, rel=0.1)


def test_the_newest_runs_count_when_a_program_changes() -> None:
    # A ring remembers 32 runs: after 40 of the new length the old one is forgotten.
    model = Recall().fit(runs([100.0] * 40 + [900.0] * 40))

    assert model.predict(runs([1.0])).seconds[0] == pytest.approx(900, rel=0.01)


def test_a_ring_tells_count_middle_newest_and_spread() -> None:
    history = RunHistory()
    # Logarithms 1 to 5: the middle is 3, that of the newest four (2, 3, 4, 5) is 3.5, and
    # the quartiles are 2 and 4.
    history.replay(runs(np.exp([1, 2, 3, 4, 5]).tolist()))

    said = history.ask(runs([1.0]))[0, EstimateBasis.GROUP]

    assert said == pytest.approx([5, 3, 3.5, 2])


@given(lengths=st.lists(st.floats(1, 1e6), min_size=1, max_size=80))
def test_a_ring_remembers_the_last_runs_and_no_others(lengths: list[float]) -> None:
    history = RunHistory()
    history.replay(runs(lengths))

    said = history.ask(runs([1.0]))[0, EstimateBasis.GROUP]

    newest = np.log(lengths[-compiled.DEPTH :])
    assert said[compiled.SEEN] == len(lengths)
    assert said[compiled.MIDDLE] == pytest.approx(np.median(newest), rel=1e-5, abs=1e-5)
    few = newest[-compiled.NEWEST :]
    assert said[compiled.RECENT] == pytest.approx(np.median(few), rel=1e-5, abs=1e-5)


def test_learning_job_by_job_equals_following_the_trace() -> None:
    known, rest = recurring(700, seed=2), recurring(120, seed=3)
    model = Recall(rounds=8, least_runs=100).fit(known)
    live = OnlinePredictor(model)
    followed = model.follow(rest)
    told = {}
    moments = [(at_s, 1, number) for number, at_s in enumerate(rest.submit_s)]
    moments += [(at_s, 0, number) for number, at_s in enumerate(rest.finish_s)]
    for _, is_submission, number in sorted(moments):
        if is_submission:
            told[number] = live.submitted(str(number), rest.take(np.array([number])))
        else:
            live.finished(str(number), float(rest.duration_s[number]))

    for number in range(len(rest)):
        assert told[number].seconds == pytest.approx(followed.seconds[number], rel=1e-9)
        assert told[number].low_s == pytest.approx(followed.low_s[number], rel=1e-9)
        assert told[number].high_s == pytest.approx(followed.high_s[number], rel=1e-9)


def test_a_live_predictor_leaves_the_model_that_it_was_given_alone() -> None:
    model = Recall().fit(runs([100.0] * 5))
    live = OnlinePredictor(model)

    estimate = live.submitted("a", runs([1.0]))
    live.finished("a", 9_000)
    live.finished("never asked about", 5)

    assert "runs of its group with the same request" in str(estimate)
    assert live.submitted("b", runs([1.0])).seconds != estimate.seconds
    assert model.predict(runs([1.0])).seconds[0] == pytest.approx(estimate.seconds)


def test_the_band_holds_eight_jobs_in_ten() -> None:
    split = RunSplit.by_time(recurring(6_000, seed=4))

    model = Recall(rounds=25).fit(split.known)
    frozen, learning = split.judge(model), split.judge_learning(model)

    assert 0.75 <= frozen["band_holds"] <= 0.85
    assert 0.75 <= learning["band_holds"] <= 0.85


def test_a_band_that_has_become_too_narrow_widens_as_jobs_end() -> None:
    # The same groups, but runs now differ four times as much as when the model learned.
    quiet = recurring(4_000, seed=6, spread=0.1)
    wild = recurring(4_000, seed=6, spread=0.8)
    model = Recall(rounds=25).fit(quiet)

    frozen = scores(model.predict(wild), wild)["band_holds"]
    told = model.follow(wild)
    later = np.arange(len(wild)) > 2_000
    learned = scores(told.where(later), wild.where(later))["band_holds"]

    assert frozen < 0.5
    assert 0.75 <= learned <= 0.85


def test_trees_learn_what_history_alone_does_not_show() -> None:
    # Jobs of nobody: what they ask for is all there is, and twice the GPUs run twice as long.
    rng = np.random.default_rng(0)
    gpus = rng.integers(1, 200, 3_000).astype(float)
    lengths_s = 60 * gpus * np.exp(rng.normal(0, 0.05, 3_000))
    many = runs(lengths_s.tolist(), at=(np.arange(3_000) * 1e5).tolist(), group="", user="",
                gpus=gpus.tolist())  # fmt: skip
    split = RunSplit.by_time(many)

    trees, none = (Recall(rounds=rounds).fit(split.known) for rounds in (60, 1))

    assert split.judge(trees)["mae_s"] < 0.7 * split.judge(none)["mae_s"]
