import numpy as np
import pytest

from interlane.predict.arrivals.lslstm import LsLstm
from interlane.predict.arrivals.lslstm_live import LiveLsLstm
from interlane.predict.arrivals.series import Arrivals
from interlane.testing.arrivals import habits

pytest.importorskip("torch")

TRACE = habits(3, seed=1)


def small(*, rate: float = 3e-3) -> LsLstm:
    return LsLstm(hidden=4, short=6, long=12, epochs=1, windows=256, batch=64, rate=rate)


def live(model: LsLstm, *, updates: bool) -> LiveLsLstm:
    return LiveLsLstm(model, functions=len(TRACE), slot_s=TRACE.slot_s, updates=updates)


def told(one: LiveLsLstm, trace: Arrivals) -> np.ndarray:
    """Return the probabilities of every slot, one row each."""
    rows = []
    for counts in np.column_stack([series.counts for series in trace]):
        rows.append(one.chances())
        one.passed(counts)
    return np.array(rows)


def test_slot_by_slot_it_tells_what_it_tells_of_a_whole_trace() -> None:
    model = small().fit(TRACE)

    found = told(live(model, updates=False), TRACE)

    whole = np.column_stack([model.predict(one, TRACE)[0] for one in TRACE])
    np.testing.assert_allclose(found, whole, atol=1e-5)


def test_it_learns_on_and_leaves_the_trained_model_as_it_was() -> None:
    model = small(rate=0.05).fit(TRACE)
    before = {name: value.copy() for name, value in model.weights_.items()}

    learning = told(live(model, updates=True), TRACE)

    assert not np.allclose(learning, told(live(model, updates=False), TRACE))
    for name, value in model.weights_.items():
        np.testing.assert_array_equal(value, before[name])


def test_an_unwatched_slot_counts_as_an_empty_one() -> None:
    model = small().fit(TRACE)
    blind, seeing = live(model, updates=False), live(model, updates=False)

    blind.passed(np.full(len(TRACE), np.nan))
    seeing.passed(np.zeros(len(TRACE)))

    np.testing.assert_array_equal(blind.chances(), seeing.chances())
