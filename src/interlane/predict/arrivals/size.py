"""How many requests come, if any do: a middle by trees, quantiles tracked as they come.

The trees tell the logarithm of the next count that is not 0, seen from the last such count.
How far above the middle a quantile lies is tracked for each function: after every slot with
requests the mark of each level moves up by its level or down by the rest, a step at a time.
"""

from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from interlane.model import InvalidInput
from interlane.predict.arrivals import compiled
from interlane.predict.arrivals.series import Arrivals, Floats, Series
from interlane.predict.arrivals.stream import LAST_COLUMN, rows_of
from interlane.predict.threads import one_thread
from interlane.predict.trees import Forest, no_trees, of_boosting

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingRegressor

LEVELS: Final = np.array([0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975])
"""Quantiles that are tracked; what lies between is read off a line."""

FIRST_SPREAD: Final = 0.3
"""How far counts are off, as a logarithm, before anything is known."""


@dataclass
class Size:
    """The next count that is not 0."""

    rounds: int = 300
    leaves: int = 63
    most_rows: int = 80_000
    least_rows: int = 500
    step: float = 0.1
    """How far one slot moves a quantile, of what requests are off on average."""

    forest_: Forest = field(default_factory=no_trees, repr=False)

    def fit(self, arrivals: Arrivals) -> Self:
        """Forget everything and learn from all slots with requests."""
        self.forest_ = no_trees()
        parts = [(rows_of(one, arrivals)[one.active], one) for one in arrivals]
        if not parts:
            return self
        rows = np.concatenate([rows for rows, _ in parts])
        logs = np.concatenate([np.log1p(one.seen[one.active]) for _, one in parts])
        if len(logs) < self.least_rows:
            return self
        thin = max(1, ceil(len(logs) / self.most_rows))
        self.forest_ = self._grown(rows[::thin], logs[::thin])
        return self

    def _grown(self, rows: Floats, logs: Floats) -> Forest:
        model = _boosting(self.rounds, self.leaves)
        rows = np.where(np.isnan(rows).all(axis=0), 0.0, rows)
        with one_thread():
            model.fit(rows, logs - rows[:, LAST_COLUMN])
        return of_boosting(model)

    def middles(self, rows: Floats) -> Floats:
        """Return the logarithm of the next count; without trees, that of the last."""
        last = rows[:, LAST_COLUMN]
        return last + self.forest_.predict(rows) if len(self.forest_.roots) else last

    def quantiles(self, series: Series, arrivals: Arrivals, wanted: Floats) -> Floats:
        """Return for each slot the wanted quantile of its count, if it is not 0."""
        out = np.empty(len(series))
        compiled.follow_quantiles(
            self.middles(rows_of(series, arrivals)),
            wanted,
            np.log1p(series.seen),
            series.active,
            first_marks(1)[0],
            LEVELS,
            self.step,
            out,
        )
        return np.asarray(np.expm1(np.clip(out, 0.0, 30.0)))


def first_marks(functions: int) -> Floats:
    """Return where tracking starts: all quantiles at the middle, then the spread."""
    marks = np.zeros((functions, len(LEVELS) + 1))
    marks[:, -1] = FIRST_SPREAD
    return marks


def _boosting(rounds: int, leaves: int) -> "HistGradientBoostingRegressor":
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        raise InvalidInput(
            "Training needs scikit-learn; install it with 'pip install interlane[ml]'."
        ) from None
    return HistGradientBoostingRegressor(
        max_iter=rounds,
        max_leaf_nodes=leaves,
        min_samples_leaf=50,
        learning_rate=0.05,
        max_features=0.3,
        early_stopping=False,
        random_state=0,
    )
