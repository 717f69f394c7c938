"""Changing the future never changes a forecast."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.predict.arrivals.live import OnlineForecaster, Trees
from interlane.predict.arrivals.lslstm import LsLstm
from interlane.predict.arrivals.rules import RULES
from interlane.predict.arrivals.series import Arrivals, Floats, Mask, Series
from interlane.predict.arrivals.stream import rows_of
from interlane.testing.arrivals import habits, series

TRACE = habits(5, seed=1)
COUNTS = st.lists(
    st.one_of(st.just(0.0), st.integers(0, 40).map(float), st.just(float("nan"))),
    min_size=2,
    max_size=400,
)


@pytest.fixture(scope="module")
def trees() -> Trees:
    model = Trees()
    model.chance.rounds = model.size.rounds = 10
    return model.fit(TRACE)


def told_before(
    tell: Callable[[Series], Floats | Mask], counts: list[float], cut: int, first: int
) -> tuple[Floats | Mask, Floats | Mask]:
    """Return what is told up to and with a slot, for two futures from that slot on."""
    one = series(counts, first=first)
    other = np.array(counts)
    other[cut:] = np.where(np.nan_to_num(other[cut:]) > 0, 0.0, 7.0)
    return tell(one)[: cut + 1], tell(series(other.tolist(), first=first))[: cut + 1]


@given(COUNTS, st.data(), st.integers(0, 10_000))
def test_features_do_not_see_their_own_slot_or_later(
    counts: list[float], data: st.DataObject, first: int
) -> None:
    cut = data.draw(st.integers(0, len(counts) - 1))

    one, other = told_before(lambda s: rows_of(s, TRACE), counts, cut, first)

    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rule", RULES)
@given(COUNTS, st.data())
def test_rules_do_not(rule: str, counts: list[float], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(counts) - 1))

    one, other = told_before(lambda s: RULES[rule](600.0, 1).follow(s), counts, cut, 0)

    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("cut", [0, 1, 70, 300, 431])
def test_forecasters_do_not(trees: Trees, cut: int) -> None:
    counts = TRACE.series[1].counts[:432].tolist()
    halves = np.full(432, 0.7)
    tells: list[Callable[[Series], Floats]] = [
        lambda s: trees.chance.predict(s, TRACE),
        lambda s: trees.size.quantiles(s, TRACE, halves),
    ]
    for tell in tells:
        np.testing.assert_array_equal(*told_before(tell, counts, cut, 0))


def test_a_network_does_not() -> None:
    model = LsLstm(hidden=4, epochs=1, windows=64, short=12, long=12).fit(TRACE)
    counts = TRACE.series[1].counts[:200].tolist()

    one, other = told_before(lambda s: model.predict(s, TRACE)[0], counts, 90, 0)

    np.testing.assert_allclose(one, other, atol=1e-6)


def test_what_is_told_live_is_what_is_told_of_a_trace(trees: Trees) -> None:
    some = Arrivals(TRACE.slot_s, tuple(one.cut(0, 300) for one in TRACE))
    live = OnlineForecaster(trees, functions=len(some), slot_s=some.slot_s)
    level = np.full(len(some), 0.8)
    chances, sizes = [], []

    for slot in range(300):
        chances.append(live.chances())
        sizes.append(live.quantiles(level))
        live.passed(np.array([one.counts[slot] for one in some]))

    for place, one in enumerate(some):
        whole = trees.chance.predict(one, some)
        np.testing.assert_allclose(np.array(chances)[:, place], whole, rtol=1e-9)
        many = trees.size.quantiles(one, some, np.full(300, 0.8))
        np.testing.assert_allclose(np.array(sizes)[:, place], many, rtol=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_says_live_what_it_says_of_a_trace(rule: str) -> None:
    bank = RULES[rule](TRACE.slot_s, len(TRACE))
    warm = []

    for slot in range(400):
        warm.append(bank.warm())
        bank.passed(np.array([one.active[slot] for one in TRACE]))

    for place, one in enumerate(TRACE):
        alone = RULES[rule](TRACE.slot_s, 1).follow(one.cut(0, 400))
        np.testing.assert_array_equal(np.array(warm)[:, place], alone)
