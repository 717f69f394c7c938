"""Who decides how many replicas functions have: portfolio, trees or SMore's LS-LSTM."""

import numpy as np
import pytest

from interlane.functions.advise import Hurdle
from interlane.functions.learned import learned_of, take_up
from interlane.functions.portfolio import Portfolio
from interlane.functions.watch import Forecast, FunctionWatch, forecasts_of, watches_of
from interlane.model.function import Function
from interlane.predict.arrivals.live import Trees
from interlane.predict.arrivals.lslstm import LsLstm
from interlane.predict.arrivals.lslstm_live import LiveLsLstm

SLOT_S = 3_600.0
SMALL = LsLstm(hidden=4, short=6, long=24, windows=256, batch=32, rate=0.05)
"""A network that learns in no time."""


def live(model: LsLstm = SMALL) -> LiveLsLstm:
    return LiveLsLstm(model, functions=1, slot_s=SLOT_S)


def asked_every_slot(forecast: LiveLsLstm, slots: int) -> None:
    for _ in range(slots):
        forecast.passed(np.array([5.0]))


@pytest.mark.parametrize(
    ("leads", "kind"),
    [(Forecast.PORTFOLIO, Portfolio), (Forecast.TREES, Hurdle), (Forecast.LS_LSTM, Hurdle)],
)
def test_a_forecast_decides_alone_or_leads_a_portfolio(leads: Forecast, kind: type) -> None:
    model = SMALL if leads is Forecast.LS_LSTM else Trees()
    make = watches_of(forecasts_of(model, SLOT_S), SLOT_S, leads)

    watch = make(Function("f", "f", 1), None, 0.0)

    assert type(watch.advisor) is kind
    assert 0.0 <= watch.chances[0] <= 1.0


def test_a_network_that_nobody_trained_begins_the_same_way_every_time() -> None:
    assert live().chances() == pytest.approx(live().chances())


def test_the_network_learns_on_from_the_requests_that_it_sees() -> None:
    learning, fixed = live(), live()
    fixed.updates = False

    asked_every_slot(learning, 96)
    asked_every_slot(fixed, 96)

    assert learning.chances()[0] > fixed.chances()[0]
    assert not np.array_equal(learning.weights, fixed.weights)


def test_what_the_network_has_learned_outlives_a_restart() -> None:
    before, after = live(), live()
    asked_every_slot(before, 96)

    take_up(after, learned_of(before))

    assert after.weights == pytest.approx(before.weights)
    assert after.chances() == pytest.approx(before.chances())


def test_slots_that_nobody_watched_teach_the_network_nothing() -> None:
    one = live()
    asked_every_slot(one, 30)
    weights, slot = one.weights, one.slot

    one.unwatched(1_000)

    assert one.slot == slot + 1_000
    assert one.weights == pytest.approx(weights)


def test_a_watch_by_the_network_goes_on_where_its_predecessor_was() -> None:
    make = watches_of(forecasts_of(SMALL, SLOT_S), SLOT_S, Forecast.LS_LSTM)
    function = Function("f", "f", 1)
    old: FunctionWatch = make(function, None, 0.0)
    for _ in range(48):
        old.passed(np.array([5.0]))

    new = make(function, None, 0.0)
    new.take_up(learned_of(old), 0)

    assert new.chances == pytest.approx(old.chances)
    assert new.wanted == pytest.approx(old.wanted)
