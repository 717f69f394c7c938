"""How good estimates are, and how to find out without looking into the future.

Two ways to part runs into those learned from and those judged:

* *random*: the paper's, a random fifth is judged; groups with fewer than five runs are left
  out.  It flatters: a run is estimated from others that were submitted after it.
* *time*: the newest fifth is judged.  Learned from is only what had ended when the first of
  these was submitted.  A predictor that learns on is told of every run when it ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, Self, runtime_checkable

import numpy as np

from interlane.model import InvalidField, InvalidInput
from interlane.predict.estimates import HIGH, LOW, DurationEstimates, DurationPredictor
from interlane.predict.runs import Floats, Mask, Runs, in_time_order, runs_per_group

CLOSE: Final = (5, 10, 25, 50)
"""Percent of the truth within which an estimate counts as close."""

JUDGED: Final = 0.2
LEAST_RUNS: Final = 5
"""Runs that a group needs under the paper's protocol."""


@runtime_checkable
class Learner(Protocol):
    """A predictor that goes on learning as jobs end."""

    def follow(self, runs: Runs) -> DurationEstimates:
        """Estimate each run when it is submitted, and learn from it when it ends."""
        ...


# -- scores ---------------------------------------------------------------------------


def scores(estimates: DurationEstimates, runs: Runs) -> dict[str, float]:
    """Return how good estimates are; ``of_instances`` counts a job once for each instance."""
    true_s = runs.duration_s
    off_s = np.abs(estimates.seconds - true_s)
    ratio = off_s / np.maximum(true_s, 1.0)
    inside = (estimates.low_s <= true_s) & (true_s <= estimates.high_s)
    found = {"jobs": len(runs)} | {
        f"within_{percent}_percent": share(ratio <= percent / 100) for percent in CLOSE
    }
    found |= {
        f"within_{percent}_percent_of_instances": share(ratio <= percent / 100, runs.instances)
        for percent in CLOSE
    }
    return found | {
        "mae_s": float(off_s.mean()),
        "median_error_percent": 100 * float(np.median(ratio)),
        "pinball_s": _pinball_s(estimates, true_s),
        "band_holds": share(inside),
        "band_ratio": float(np.median(estimates.high_s / np.maximum(estimates.low_s, 1.0))),
        "fallback": share(estimates.basis >= 4),
    }


def share(mask: Mask, weights: object = None) -> float:
    """Return the share of a mask, weighted."""
    if not len(mask):
        raise InvalidInput("There is nothing to judge; give more jobs.")
    counts = np.ones(len(mask)) if weights is None else np.asarray(weights, float)
    return float((mask * counts).sum() / counts.sum())


def _pinball_s(estimates: DurationEstimates, true_s: Floats) -> float:
    """Return the mean pinball loss over the three quantiles."""
    quantiles = ((LOW, estimates.low_s), (0.5, estimates.seconds), (HIGH, estimates.high_s))
    losses = [
        np.maximum(part * (true_s - told_s), (part - 1) * (true_s - told_s)).mean()
        for part, told_s in quantiles
    ]
    return float(np.mean(losses))


# -- protocols ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RunSplit:
    """Runs to learn from, and runs that are judged."""

    known: Runs
    rest: Runs
    """Everything else, in the order of time; may hold runs that are not judged."""
    judged: Mask
    """Which of the rest are judged."""

    def __post_init__(self) -> None:
        if not len(self.known) or not self.judged.any():
            raise InvalidInput(
                "The trace has too few jobs to learn from some and judge others; "
                "give at least ten that do not all run at the same time."
            )

    @classmethod
    def by_time(cls, runs: Runs, judged: float = JUDGED) -> Self:
        """Judge the newest part; learn from what had ended before it began."""
        _must_be_part(judged)
        runs = in_time_order(runs)
        first = len(runs) - int(len(runs) * judged)
        if first >= len(runs):
            return cls(runs, runs.take(np.arange(0)), np.zeros(0, bool))
        cut_s = runs.submit_s[first]
        known = runs.finish_s <= cut_s
        known[first:] = False
        judges = np.arange(len(runs)) >= first
        return cls(runs.where(known), runs.where(~known), judges[~known])

    @classmethod
    def at_random(cls, runs: Runs, seed: int, judged: float = JUDGED) -> Self:
        """Judge a random part of the runs whose groups have five runs or more."""
        _must_be_part(judged)
        runs = in_time_order(runs)
        runs = runs.where(runs_per_group(runs.group) >= LEAST_RUNS)
        if not len(runs):
            raise InvalidInput(
                f"No group has {LEAST_RUNS} runs, as the paper's protocol wants; "
                "judge by time instead (--split time)."
            )
        rng = np.random.default_rng(seed)
        held = np.zeros(len(runs), bool)
        held[rng.permutation(len(runs))[: int(len(runs) * judged)]] = True
        return cls(runs.where(~held), runs.where(held), np.ones(int(held.sum()), bool))

    def judge(self, predictor: DurationPredictor) -> dict[str, float]:
        """Let a predictor that has learned from ``known`` estimate, and score it."""
        return self._scored(predictor.predict(self.rest))

    def judge_learning(self, learner: Learner) -> dict[str, float]:
        """Do the same with one that goes on learning; fit it anew afterwards."""
        return self._scored(learner.follow(self.rest))

    def _scored(self, estimates: DurationEstimates) -> dict[str, float]:
        return scores(estimates.where(self.judged), self.rest.where(self.judged))


def _must_be_part(judged: float) -> None:
    if not 0 < judged < 1:
        raise InvalidField("judged", judged, "it must be a part between 0 and 1")


def evaluate(
    split: RunSplit, predictors: Mapping[str, DurationPredictor], *, learning: bool
) -> dict[str, dict[str, float]]:
    """Fit and judge predictors; with ``learning`` also as they learn on, where they do."""
    found = {}
    for name, predictor in predictors.items():
        predictor.fit(split.known)
        found[name] = split.judge(predictor)
        if learning and isinstance(predictor, Learner):
            found[f"{name}, learning"] = split.judge_learning(predictor)
    return found


def hindsight(runs: Runs, percent: int = 25) -> tuple[float, float]:
    """Return the share of jobs and instances that one estimate per group could get close to.

    The estimate of each group is chosen afterwards, to be close to as many of its runs as it
    can: no predictor that gives a group one estimate can do better, so this is a bound.
    """
    close = percent / 100
    jobs = instances = 0.0
    for members in _members(runs.group).values():
        lengths_s = runs.duration_s[members]
        order = np.argsort(lengths_s)
        rising = lengths_s[order]
        # An estimate g is close to runs from g / (1 + c) to g / (1 - c): start one at each run.
        first = np.arange(len(rising))
        last = np.searchsorted(rising, rising * (1 + close) / (1 - close), "right")
        jobs += float((last - first).max())
        weights = np.concatenate([[0], np.cumsum(runs.instances[members][order])])
        instances += float((weights[last] - weights[first]).max())
    return jobs / len(runs), instances / float(runs.instances.sum())


def _members(groups: tuple[str, ...]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        found.setdefault(group, []).append(place)
    return found
