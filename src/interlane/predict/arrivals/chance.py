"""Ours: how probable a request in the next slot is.

1. *One forest for all.*  Boosted trees learn from every function, on what ``stream`` tells of
   its past: what they have in common is how the past speaks of the future.
2. *Calibrate.*  On the newest slots, by trees that had not seen them, scores are bent so
   that of the slots with 30 % three in ten are active (isotonic, with lines between steps).
3. *Correct.*  Each function has three weights of its own, over the forest's answer, its own
   hazard (how often it was asked after such a gap) and a constant.  They start at the
   forest's answer and move a little after every slot.

Without a forest (less than three days to learn from), the weights start at the hazard alone:
a rule of recency, which becomes a logistic regression of the function's own as it learns.
"""

from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from interlane.model import InterlaneError, InvalidInput
from interlane.predict.arrivals import compiled
from interlane.predict.arrivals.series import Arrivals, Floats, Mask, Series
from interlane.predict.arrivals.stream import HAZARD_COLUMN, rows_of
from interlane.predict.threads import one_thread
from interlane.predict.trees import Forest, no_trees, of_boosting

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

LEAST_DAYS: Final = 3
"""Days that some function must have before trees are grown."""
HELD: Final = 0.2
"""The newest part of what is learned from, on which scores are calibrated."""
BLOCK: Final = 50
"""Slots that a step of the calibration has at least."""
LOWEST: Final = 1e-4
"""Probabilities are kept so far from 0 and 1."""


@dataclass
class Chance:
    """The probability of a request in the next slot; one forest, corrected by function."""

    rounds: int = 120
    leaves: int = 15
    most_rows: int = 150_000
    """Trees learn from at most so many slots, spread evenly."""
    step: float = 0.01
    """How far one slot moves a function's weights."""

    forest_: Forest = field(default_factory=no_trees, repr=False)
    knots_: Floats = field(default_factory=lambda: np.zeros((2, 0)), repr=False)
    """Scores of the forest, and what they mean as logits; both rise."""

    # -- learning ---------------------------------------------------------------------

    def fit(self, arrivals: Arrivals) -> Self:
        """Forget everything and learn from all slots that were watched."""
        self.forest_, self.knots_ = no_trees(), np.zeros((2, 0))
        longest = max((len(one) for one in arrivals), default=0)
        if longest < LEAST_DAYS * arrivals.day:
            return self
        rows, active, newest = _learned(arrivals)
        if not active.any() or active.all():
            return self
        thin = max(1, ceil(len(active) / self.most_rows))
        judge = self._grown(rows[~newest][:: 3 * thin], active[~newest][:: 3 * thin])
        self.knots_ = _calibrated(judge.predict(rows[newest]), active[newest])
        self.forest_ = self._grown(rows[::thin], active[::thin])
        return self

    def _grown(self, rows: Floats, active: Mask) -> Forest:
        if not active.any() or active.all():
            return no_trees()
        model = _boosting(self.rounds, self.leaves)
        # A column in which nothing is known cannot be cut into bins; no tree will use it.
        rows = np.where(np.isnan(rows).all(axis=0), 0.0, rows)
        with one_thread():
            model.fit(rows, active)
        forest = of_boosting(model)
        few = rows[:: max(1, len(rows) // 1000)]
        if not np.allclose(forest.predict(few), model.decision_function(few)):
            raise InterlaneError(
                "This scikit-learn lays its trees out otherwise than interlane reads them; "
                "install the version that constraints.txt names."
            )
        return forest

    # -- telling ----------------------------------------------------------------------

    def predict(self, series: Series, arrivals: Arrivals) -> Floats:
        """Return the probability of a request for each slot, from the slots before."""
        rows = rows_of(series, arrivals)
        out = np.empty(len(series))
        compiled.follow_corrected(
            self.logits(rows),
            hazards(rows),
            self.first_weights(),
            self.step,
            series.active.astype(np.float64),
            series.watched,
            out,
        )
        return np.clip(out, LOWEST, 1 - LOWEST)

    @property
    def has_forest(self) -> bool:
        """Whether there was enough to grow trees from."""
        return len(self.forest_.roots) > 0

    def first_weights(self) -> Floats:
        """Return the weights with which a function starts: the forest, else the hazard."""
        return np.array([1.0, 0.0, 0.0] if self.has_forest else [0.0, 1.0, 0.0])

    def logits(self, rows: Floats) -> Floats:
        """Return what the forest says, calibrated; 0 where there is none."""
        if not self.has_forest:
            return np.zeros(len(rows))
        return bent(self.forest_.predict(rows), self.knots_)


def hazards(rows: Floats) -> Floats:
    """Return the logit of how often a function was asked after such a gap."""
    return logit(np.nan_to_num(rows[:, HAZARD_COLUMN], nan=LOWEST))


def logit(chance: Floats) -> Floats:
    """Return the logarithm of the odds, of a probability kept from 0 and 1."""
    inside = np.clip(chance, LOWEST, 1 - LOWEST)
    return np.asarray(np.log(inside / (1 - inside)))


def bent(scores: Floats, knots: Floats) -> Floats:
    """Return scores moved along the knots; beyond them, moved as the nearest one is."""
    if not knots.shape[1]:
        return scores
    inside = np.clip(scores, knots[0, 0], knots[0, -1])
    return np.asarray(np.interp(scores, knots[0], knots[1]) + scores - inside)


def _learned(arrivals: Arrivals) -> tuple[Floats, Mask, Mask]:
    """Return rows, whether a request came, and which slots are the newest of a function."""
    parts = [(rows_of(one, arrivals), one) for one in arrivals]
    rows = np.concatenate([rows[one.watched] for rows, one in parts])
    active = np.concatenate([one.active[one.watched] for _, one in parts])
    newest = np.concatenate([_newest(int(one.watched.sum())) for _, one in parts])
    return rows, active, newest


def _newest(slots: int) -> Mask:
    return np.arange(slots) >= slots - int(HELD * slots)


def _calibrated(scores: Floats, active: Mask) -> Floats:
    """Return knots that turn scores into logits: isotonic steps, joined at their middles."""
    from sklearn.isotonic import isotonic_regression

    if not len(scores) or not active.any() or active.all():
        return np.zeros((2, 0))
    order = np.argsort(scores, kind="stable")
    steps = isotonic_regression(active[order].astype(np.float64))
    edges = np.flatnonzero(np.diff(steps, prepend=-1.0))
    counts = np.diff(edges, append=len(steps))
    wide = edges[counts >= BLOCK]
    if not len(wide):
        return np.zeros((2, 0))
    middles = np.add.reduceat(scores[order], edges)[counts >= BLOCK] / counts[counts >= BLOCK]
    rising = np.append(True, np.diff(middles) > 0)
    return np.array([middles[rising], logit(steps[wide])[rising]])


def _boosting(rounds: int, leaves: int) -> "HistGradientBoostingClassifier":
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
    except ImportError:
        raise InvalidInput(
            "Training needs scikit-learn; install it with 'pip install interlane[ml]'."
        ) from None
    return HistGradientBoostingClassifier(
        max_iter=rounds,
        max_leaf_nodes=leaves,
        learning_rate=0.08,
        min_samples_leaf=100,
        l2_regularization=1.0,
        max_features=0.3,
        early_stopping=False,
        random_state=0,
    )
