"""How many replicas each function should have: asks ``interlane.functions``.

Each function is watched by itself, by a forecast and by a portfolio of advisors, so that
functions can come and go.  The state of a decision are made from what is there at that moment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from interlane.functions.advise import Advisor, Peak
from interlane.functions.catalogue import advisors
from interlane.functions.costs import Prices, costs_of
from interlane.functions.pool import Pool
from interlane.functions.portfolio import Portfolio
from interlane.functions.prewarm import Prewarmer
from interlane.model.function import Function
from interlane.predict.arrivals.live import Forecaster, OnlineForecaster, Trees
from interlane.predict.arrivals.series import DAY_S, HOUR_S, Floats

TREES: Final = "trees"
SERVICE_S_ESTIMATE: Final = 0.1


MakeForecast = Callable[[str, float], Forecaster]
"""From the name of a function and the time to a forecast of its requests alone."""


def forecasts_of(trees: Trees, slot_s: float) -> MakeForecast:
    """Return a maker of forecasts by trees; untrained ones learn from nothing."""

    def make(name: str, now_s: float) -> Forecaster:
        return OnlineForecaster(
            trees, functions=1, slot_s=slot_s, slot=int(now_s % DAY_S / slot_s)
        )

    return make


@dataclass(frozen=True, slots=True)
class WarmStatus:
    """One function as it stands."""

    name: str
    memory_mib: int
    load_s: float
    service_s: float | None
    """Seconds that one request takes of one place in a replica."""
    at_a_time: int
    """Requests that one replica has in hand."""
    idle: int
    busy: int
    loading: int


@dataclass(frozen=True, slots=True)
class Band:
    """What the next slot brings, if what was learned holds."""

    chance: float
    """The probability of a request."""
    p50: float
    p90: float
    """Requests, if there are any."""


@dataclass(frozen=True, eq=False)
class _Watched:
    """Who watches one function."""

    forecast: Forecaster
    advisor: Advisor
    tells_forecast: bool
    weight: Floats
    capacity: Floats
    """Both are numbers that the advisor sees, too, and change as things are measured."""

    def passed(self, counts: Floats, needs: Floats) -> None:
        self.advisor.passed(counts, needs)
        if not self.tells_forecast:
            self.forecast.passed(counts)


@dataclass(frozen=True, eq=False)
class _Together:
    """Watchers of single functions as one advisor and one forecast of all."""

    parts: Sequence[_Watched]

    def wanted(self) -> Floats:
        return self._joined(lambda part: part.advisor.wanted())

    def chances(self) -> Floats:
        return self._joined(lambda part: part.forecast.chances())

    def quantiles(self, levels: Floats) -> Floats:
        return np.array(
            [
                part.forecast.quantiles(levels[place : place + 1])[0]
                for place, part in enumerate(self.parts)
            ]
        )

    def passed(self, counts: Floats, needs: Floats | None = None) -> None:
        assert needs is not None
        for place, part in enumerate(self.parts):
            part.passed(counts[place : place + 1], needs[place : place + 1])

    def _joined(self, of: Callable[[_Watched], Floats]) -> Floats:
        return np.array([of(part)[0] for part in self.parts])


class Warmth:
    """Watches all functions of a machine."""

    def __init__(
        self,
        slot_s: float,
        forecast: MakeForecast | None = None,
        prices: Prices | None = None,
    ) -> None:
        self.slot_s = slot_s
        self._forecast = forecast or forecasts_of(Trees(), slot_s)
        self._prices = prices or Prices()
        self._watched: dict[str, _Watched] = {}

    def watch(self, name: str, keep_s: float | None, now_s: float) -> None:
        """Begin to watch a function; ``keep_s`` unless forecasts decide."""
        forecast = self._forecast(name, now_s)
        weight, capacity = np.ones(1), np.ones(1)
        if keep_s is None:
            opinions = advisors(
                {TREES: forecast}, weight=weight, capacity=capacity, slot_s=self.slot_s
            )
            advisor: Advisor = Portfolio(opinions, weight)
        else:
            advisor = Peak(1, max(1, ceil(keep_s / self.slot_s)))
        self._watched[name] = _Watched(forecast, advisor, keep_s is None, weight, capacity)

    def forget(self, name: str) -> None:
        """Watch a function no longer."""
        del self._watched[name]

    def band(self, name: str) -> Band:
        """Return what the slot that has begun brings."""
        forecast = self._watched[name].forecast
        middle, high = (forecast.quantiles(np.full(1, level))[0] for level in (0.5, 0.9))
        return Band(
            float(forecast.chances()[0]), max(1.0, float(middle)), max(1.0, float(high))
        )

    def prewarmer(self, statuses: Sequence[WarmStatus], device_mib: int) -> Prewarmer:
        """Return who decides, with the state of what is there now; all must fit the device."""
        for one in statuses:
            self._price(one, device_mib)
        together = _Together([self._watched[one.name] for one in statuses])
        capacity = {one.name: float(self._watched[one.name].capacity[0]) for one in statuses}
        return Prewarmer(
            _state(statuses, device_mib),
            together,
            together,
            slot_s=self.slot_s,
            capacity=capacity,
            prices=self._prices,
        )

    def _price(self, one: WarmStatus, device_mib: int) -> None:
        """Let a function's watchers know what was measured of it."""
        watched = self._watched[one.name]
        costs = costs_of(
            _function(one),
            self._prices,
            slot_s=self.slot_s,
            device_mib=device_mib,
        )
        service_s = max(1e-4, one.service_s or SERVICE_S_ESTIMATE)
        watched.weight[0] = costs.weight
        watched.capacity[0] = max(1.0, one.at_a_time * self.slot_s / service_s)


def warm_up() -> None:
    """Decide something that nobody sees, so that compiled code is loaded."""
    warmth = Warmth(HOUR_S)
    warmth.watch("warm-up", None, 0.0)
    nothing = WarmStatus("warm-up", 1, 1.0, None, 1, 0, 0, 0)
    warmth.prewarmer([nothing], 1).slot_passed({"warm-up": 1.0})
    warmth.band("warm-up")


def _function(one: WarmStatus) -> Function:
    return Function(one.name, one.name, one.memory_mib, disk_load_s=one.load_s)


def _state(statuses: Sequence[WarmStatus], device_mib: int) -> Pool:
    pool = Pool(map(_function, statuses), device_mib=device_mib)
    for one in statuses:
        for number in range(one.idle + one.busy + one.loading):
            pool.load(one.name, _worthless)
            if number < one.idle + one.busy:
                pool.loaded(one.name)
        for _ in range(one.busy):
            pool.asked(one.name)
    return pool


def _worthless(name: str) -> float:
    return 0.0
