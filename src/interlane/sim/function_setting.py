"""Functions of an experiment: who they are, how things really are, and what is known before."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from interlane.functions.costs import Prices, costs_of
from interlane.functions.scheduler import FunctionScheduler
from interlane.functions.watch import (
    Forecast,
    FunctionWatch,
    forecaster_of,
    watched_together,
)
from interlane.model import Job, Machine
from interlane.policy.colocate.catalogue import make_colocator
from interlane.policy.colocate.gpus import gpus_of
from interlane.policy.colocate.interference import SlowdownTarget
from interlane.predict.arrivals.live import OnlineForecaster, Trees
from interlane.predict.arrivals.lslstm import LsLstm
from interlane.predict.arrivals.lslstm_live import LiveLsLstm
from interlane.predict.arrivals.series import Arrivals, Floats, Series
from interlane.predict.slowdown.table import SlowdownTable
from interlane.sim.function_load import FunctionLoad
from interlane.sim.simulated_functions import SimulatedFunctions
from interlane.sim.true_slowdown import TrueSlowdowns

LEARNED_FROM_S: Final = 86_400.0
"""Seconds of known requests from which a forecast is trained; with less it is not."""


@dataclass(frozen=True, eq=False)
class FunctionSetting:
    """See the module's text."""

    load: FunctionLoad
    truth: TrueSlowdowns
    trained: SlowdownTable | None = None
    """What is thought of pairs before anything is measured; cautious constants without."""
    forecasts: Mapping[Forecast, Trees | LsLstm] = field(default_factory=dict)
    """Models that were trained on the known requests, by who decides with them."""

    def world(
        self,
        colocate: str,
        forecast: Forecast,
        model: Trees | LsLstm | None,
        machines: Sequence[Machine],
        jobs: Sequence[Job],
        seed: int = 0,
    ) -> SimulatedFunctions:
        """Return the functions of a run at its beginning; nobody learns what another did.

        A forecast for which there is no model begins with nothing.
        """
        trained = self.trained
        tables = None if trained is None else dict.fromkeys(SlowdownTarget, deepcopy(trained))
        untrained = LsLstm() if forecast is Forecast.LS_LSTM else Trees()
        watch = self._watch(
            forecast, model or self.forecasts.get(forecast) or untrained, machines
        )
        scheduler = FunctionScheduler(
            make_colocator(colocate, tables),
            slot_s=self.load.slot_s,
            make_watch=lambda *_: watch,
            seed=seed,
        )
        return SimulatedFunctions(self.load, self.truth, scheduler, machines, jobs, seed=seed)

    def _watch(
        self, forecast: Forecast, model: Trees | LsLstm, machines: Sequence[Machine]
    ) -> FunctionWatch:
        """Return who watches all functions together, and has seen the known slots."""
        load, slot_s = self.load, self.load.slot_s
        device_mib = max(one.memory_mib for one in gpus_of(machines))
        at_stake = [
            costs_of(
                one.function,
                Prices(),
                slot_s=slot_s,
                device_mib=device_mib,
                least=one.function.use,
            )
            for one in load.functions
        ]
        weight = np.array([one.weight for one in at_stake])
        capacity = np.array([max(1.0, slot_s / one.service_s) for one in load.functions])
        names = [one.function.id for one in load.functions]
        told = forecaster_of(model, len(names), slot_s, load.slot)
        if forecast is not Forecast.PORTFOLIO:
            # Only the forecast learns from the past, and looks ahead when that is over.
            _follow(told, load.known)
            return watched_together(names, told, weight, capacity, slot_s, leads=forecast)
        watch = watched_together(names, told, weight, capacity, slot_s)
        for counts in load.known:
            watch.passed(counts)
        return watch


def _follow(told: OnlineForecaster | LiveLsLstm, known: Floats) -> None:
    """Let a forecast see slots that its model has learned from, or has not."""
    if isinstance(told, LiveLsLstm):
        told.updates = False
    for counts in known:
        told.passed(counts)
    if isinstance(told, LiveLsLstm):
        told.updates = True


def known_arrivals(load: FunctionLoad) -> Arrivals | None:
    """Return the known requests, to train forecasts on; None where they are too few."""
    if len(load.known) * load.slot_s < LEARNED_FROM_S:
        return None
    series = (
        Series(one.function.id, load.known[:, place], load.slot)
        for place, one in enumerate(load.functions)
    )
    return Arrivals(load.slot_s, tuple(series))
