"""Who watches functions: forecasts of their requests, and advice on how many replicas to have.

A watch lives as long as its functions do, and learns all the time.  One may watch a single
function, so that functions come and go, or several whose forecasts know of each other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from typing import Final

import numpy as np

from interlane.functions.advise import Advisor, Hurdle, Peak
from interlane.functions.catalogue import advisors
from interlane.functions.learned import Learned, take_up
from interlane.functions.portfolio import Portfolio
from interlane.model.function import Function
from interlane.predict.arrivals.live import Forecaster, OnlineForecaster, Trees
from interlane.predict.arrivals.lslstm import LsLstm
from interlane.predict.arrivals.lslstm_live import LiveLsLstm
from interlane.predict.arrivals.series import DAY_S, Floats

UNWATCHED_MAX: Final = 10_000
"""Slots that are made up for after a rest; of a longer one the oldest are left out."""

MakeForecast = Callable[[str, float], Forecaster]
"""From the name of a function and the time to a forecast of its requests alone."""


class Forecast(StrEnum):
    """What decides how many replicas functions have."""

    PORTFOLIO = "portfolio"
    """For each function, whoever cost least of late: forecasts and simple rules."""
    TREES = "trees"
    """The probability of a request and the count, by trees."""
    LS_LSTM = "ls-lstm"
    """SMore's network of two branches."""


@dataclass(frozen=True, slots=True)
class Band:
    """What the next slot brings, if what was learned holds."""

    chance: float
    """The probability of a request."""
    p50: float
    p90: float
    """Requests, if there are any."""


@dataclass(eq=False)
class FunctionWatch:
    """Some functions, and all that is learned of their requests."""

    names: tuple[str, ...]
    forecast: Forecaster
    """What is told of the next slot."""
    advisor: Advisor | None
    """How many replicas to have; None to keep what is there until room is needed."""
    weight: Floats
    capacity: Floats
    """Both are numbers that the advisor sees, too, and change as things are measured."""
    others: tuple[Forecaster, ...] = ()
    """Further forecasts that the advisor asks."""
    wanted: Floats = field(init=False)
    """What is advised, where somebody advises."""
    chances: Floats = field(init=False)

    def __post_init__(self) -> None:
        self._look()

    def _look(self) -> None:
        if self.advisor is not None:
            self.wanted = self.advisor.wanted()
        self.chances = self.forecast.chances()

    def passed(self, counts: Floats) -> None:
        """Learn the requests of the slot that ended, and look at the next."""
        for one in (self.forecast, *self.others):
            one.passed(counts)
        if self.advisor is not None:
            needs = np.ceil(np.nan_to_num(counts) / self.capacity)
            self.advisor.passed(counts, needs)
        self._look()

    @property
    def parts(self) -> Mapping[str, object]:
        """What learns inside it, and is kept."""
        return {"forecast": self.forecast, "advisor": self.advisor}

    def take_up(self, learned: Learned, unwatched: int) -> None:
        """Go on from what was learned, so many slots ago."""
        take_up(self, learned)
        if isinstance(self.forecast, OnlineForecaster | LiveLsLstm):
            self.forecast.unwatched(min(unwatched, UNWATCHED_MAX))
        self._look()

    def band(self, place: int) -> Band:
        """Return what the slot that has begun brings one of the functions."""
        middle, high = (
            float(self.forecast.quantiles(np.full(len(self.names), level))[place])
            for level in (0.5, 0.9)
        )
        return Band(float(self.chances[place]), max(1.0, middle), max(1.0, high))


MakeWatch = Callable[[Function, float | None, float], FunctionWatch]
"""From a function, its keep-alive if it has one, and the time, to who watches it."""


def watched_together(
    names: Sequence[str],
    forecast: Forecaster,
    weight: Floats,
    capacity: Floats,
    slot_s: float,
    *,
    leads: Forecast = Forecast.PORTFOLIO,
) -> FunctionWatch:
    """Return who watches some functions, whose forecast is one."""
    advisor: Advisor
    if leads is Forecast.PORTFOLIO:
        everybody = advisors(
            {"forecast": forecast}, weight=weight, capacity=capacity, slot_s=slot_s
        )
        advisor = Portfolio(everybody, weight)
    else:
        advisor = Hurdle(forecast, weight, capacity)
    return FunctionWatch(tuple(names), forecast, advisor, weight, capacity)


def watches_of(
    forecast: MakeForecast | None, slot_s: float, leads: Forecast = Forecast.PORTFOLIO
) -> MakeWatch:
    """Return a maker of watches for single functions.

    The forecast decides, or a portfolio that it leads, unless a function has a keep-alive.
    """
    make_forecast = forecast or forecasts_of(Trees(), slot_s)

    def made(function: Function, keep_s: float | None, now_s: float) -> FunctionWatch:
        told = make_forecast(function.id, now_s)
        weight, capacity = np.ones(1), np.ones(1)
        if keep_s is None:
            return watched_together((function.id,), told, weight, capacity, slot_s, leads=leads)
        kept = Peak(1, max(1, ceil(keep_s / slot_s)))
        return FunctionWatch((function.id,), told, kept, weight, capacity)

    return made


def forecasts_of(model: Trees | LsLstm, slot_s: float) -> MakeForecast:
    """Return a maker of forecasts by a model; untrained trees begin with nothing."""

    def make(name: str, now_s: float) -> Forecaster:
        return forecaster_of(model, 1, slot_s, int(now_s % DAY_S / slot_s))

    return make


def forecaster_of(
    model: Trees | LsLstm, functions: int, slot_s: float, slot: int
) -> OnlineForecaster | LiveLsLstm:
    """Return a forecast of so many functions by a model, from a slot on."""
    if isinstance(model, Trees):
        return OnlineForecaster(model, functions=functions, slot_s=slot_s, slot=slot)
    return LiveLsLstm(model, functions=functions, slot_s=slot_s, slot=slot)
