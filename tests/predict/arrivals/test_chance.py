import numpy as np
import pytest

from interlane.predict.arrivals.chance import Chance
from interlane.predict.arrivals.evaluate import chances_of_trees, reference, scored
from interlane.predict.arrivals.judge import Trial
from interlane.predict.arrivals.live import Trees
from interlane.testing.arrivals import arrivals, habits, series

TRACE = habits(10, seed=3)


@pytest.fixture(scope="module")
def trees() -> Trees:
    model = Trees()
    model.chance.rounds = model.size.rounds = 20
    return model.fit(TRACE.known(0.7))


def test_ours_wastes_less_than_a_keep_alive_that_is_cold_as_often(trees: Trees) -> None:
    trial = Trial(TRACE)

    found = scored(trial, chances_of_trees(trees, trial))

    assert found.waste < 0.7 * reference(trial).waste
    assert found.cold_rate <= reference(trial).cold_rate


def test_a_habit_is_foreseen_to_the_slot(trees: Trees) -> None:
    hourly = TRACE.series[0]

    told = trees.chance.predict(hourly, TRACE)[-144:]

    due = hourly.active[-144:]
    assert told[due].min() > 0.9
    assert told[~due].max() < 0.1


def test_a_function_that_never_gets_a_request_is_told_to_get_none(trees: Trees) -> None:
    never = TRACE.series[4]

    assert trees.chance.predict(never, TRACE)[200:].max() < 0.05


def test_with_too_little_to_learn_from_a_function_goes_by_its_own_past() -> None:
    short = habits(2, seed=1)

    model = Chance().fit(short)
    told = model.predict(short.series[1], short)

    assert not model.has_forest
    assert np.isfinite(told).all()
    busy = short.series[1].active
    assert told[144:][busy[144:]].mean() > 2 * told[144:][~busy[144:]].mean()


@pytest.mark.parametrize(
    "counts", [[], [0.0] * 600, [3.0] * 600, [float("nan")] * 600, [1.0] + [0.0] * 599]
)
def test_empty_constant_and_unwatched_series_are_learned_and_told(counts: list[float]) -> None:
    dull = arrivals(counts)

    model = Trees().fit(dull)
    told = model.chance.predict(dull.series[0], dull)

    assert len(told) == len(counts)
    assert ((told >= 0) & (told <= 1)).all()


def test_a_clock_that_is_put_forward_costs_an_hour_of_errors_not_more(trees: Trees) -> None:
    hourly = TRACE.series[0]
    counts = hourly.counts.copy()
    counts[-288:] = np.roll(counts[-288:], 3)
    shifted = series(counts.tolist())

    told = trees.chance.predict(shifted, TRACE)[-144:]

    due = shifted.active[-144:]
    assert told[due].mean() > 3 * told[~due].mean()


def test_gaps_are_neither_learned_nor_judged() -> None:
    whole = TRACE.series[1].counts
    holed = whole.copy()
    holed[-100:-50] = np.nan

    judged = [len(Trial(arrivals(counts.tolist())).active) for counts in (whole, holed)]

    assert judged[0] - judged[1] == 50
