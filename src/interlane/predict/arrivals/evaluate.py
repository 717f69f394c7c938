"""Rules and forecasters beside each other, on one trace, by one protocol (see ``judge``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.predict.arrivals.judge import ThresholdCurve, Trial, WarmTally, tally
from interlane.predict.arrivals.live import Trees
from interlane.predict.arrivals.lslstm import LsLstm
from interlane.predict.arrivals.rules import REFERENCE_SLOTS, RULES, KeepAlive
from interlane.predict.arrivals.series import Floats, Mask

WEIGHTS: Final = (2.0, 5.0, 10.0, 30.0)
"""Idle slots that a cold start may be worth."""

Told = Mapping[str, Floats]
"""Function -> what was told of each of its slots."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """What comes of a rule."""

    outcome: WarmTally

    def figures(self) -> dict[str, float]:
        """Return what reports show."""
        found = {"cold_rate": self.outcome.cold_rate, "waste": self.outcome.waste}
        return found | {f"cost_at_{weight:g}": self.outcome.cost(weight) for weight in WEIGHTS}


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """What comes of a score, held against the reference keep-alive."""

    waste: float
    """The least waste at the reference's cold rate."""
    cold_rate: float
    """The least cold rate at the reference's waste."""
    costs: Mapping[float, float]
    """Weight of a cold start -> cost of a slot, warm where the probability pays."""

    def figures(self) -> dict[str, float]:
        """Return what reports show."""
        found = {"waste_at_its_cold_rate": self.waste, "cold_rate_at_its_waste": self.cold_rate}
        return found | {f"cost_at_{weight:g}": cost for weight, cost in self.costs.items()}


def reference(trial: Trial) -> WarmTally:
    """Return what comes of the keep-alive that all are held against."""
    return trial.under(KeepAlive(REFERENCE_SLOTS))


def rules(trial: Trial) -> dict[str, Fixed]:
    """Return what comes of each rule that everybody knows."""
    slot_s = trial.arrivals.slot_s
    return {name: Fixed(trial.under(make(slot_s, 1))) for name, make in RULES.items()}


def best_keep_alive(trial: Trial, weight: float, most: int = 60) -> float:
    """Return the cost of the keep-alive that would have been best, known only afterwards."""
    return min(trial.under(KeepAlive(slots)).cost(weight) for slots in range(most + 1))


def scored(trial: Trial, told: Told) -> Scored:
    """Hold what a forecaster told against the reference."""
    active, beside = trial.active, reference(trial)
    chance = trial.scores(lambda one: told[one.name])
    curve = ThresholdCurve.of(chance, active)
    costs = {weight: _paid(chance, active, weight) for weight in WEIGHTS}
    return Scored(curve.waste_at(beside.cold_rate), curve.cold_at(beside.waste), costs)


def _paid(chance: Floats, active: Mask, weight: float) -> float:
    return tally(chance * (1 + weight) > 1, active).cost(weight)


def chances_of_trees(trees: Trees, trial: Trial) -> Told:
    """Return what ours tells of every function."""
    return {one.name: trees.chance.predict(one, trial.arrivals) for one in trial.arrivals}


def told_by_ls_lstm(model: LsLstm, trial: Trial) -> tuple[Told, Told]:
    """Return the probabilities and the counts that SMore's tells, learning on as it goes."""
    told = model.follow(trial.arrivals, trial.part)
    names = [one.name for one in trial.arrivals]
    both = zip(names, told, strict=True)
    chances, sizes = {}, {}
    for name, (chance, size) in both:
        chances[name], sizes[name] = chance, size
    return chances, sizes


def calibration(trial: Trial, told: Told, bins: int = 10) -> float:
    """Return how far told probabilities are from what came, on average over equal bins."""
    chance, active = trial.scores(lambda one: told[one.name]), trial.active
    order = np.argsort(chance, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    off = [abs(chance[part].mean() - active[part].mean()) * len(part) for part in parts]
    return float(sum(off) / len(active))
