"""Our predictor: what a job's like ran for, nearest first and newest first, then corrected.

1. *Recall.*  Six layers of history (``history``), from the job's group with the same request
   to everything.  The middles of the layers are blended, each layer drawn towards the next
   wider one the more, the fewer runs it has.
2. *Correct.*  Boosted trees learn, in logarithms, what is left over: from what every layer
   says (how many, middle, newest, spread), from the request and the time of day.  They learn
   from what was known when each job was submitted, never from what came later.
3. *Band.*  Two more sets of trees give the edges, calibrated on jobs they had not seen
   (``bands``).

When a job ends, it is added to the rings of its layers and nudges the band (``follow`` for a
trace, ``live`` for jobs as they come): the cost is the same however much is known.  The trees
stay as they are until the next ``fit``.
"""

from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from interlane.model import InterlaneError, InvalidInput
from interlane.predict import bands, compiled
from interlane.predict.bands import Bases
from interlane.predict.compiled import MIDDLE, RECENT, SEEN, SPREAD
from interlane.predict.estimates import HIGH, LOW, DurationEstimates, EstimateBasis
from interlane.predict.history import LAYERS, RunHistory, events_of
from interlane.predict.runs import Floats, Runs, in_time_order, must_have_ended
from interlane.predict.threads import one_thread
from interlane.predict.trees import Forest, no_trees, of_boosting

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingRegressor

PULL: Final = (0.1, 0.1, 0.5, 2.0, 2.0)
"""Runs that the next wider layer counts for, by layer: how far few runs are trusted."""

FEATURES: Final = 4 * LAYERS + 7
"""Columns of the table that trees look at."""

CALIBRATED: Final = 0.2
"""The newest part of the runs, on which bands are calibrated."""

COLD: Final = log(600.0)
"""Logarithm of the estimate for a job of which nothing is known, before anything is."""

DAY_S: Final = 86_400.0


@dataclass
class Recall:
    """Blended history, corrected by boosted trees; learns as jobs end."""

    rounds: int = 120
    leaves: int = 31
    least_runs: int = 2_000
    """With fewer, trees would learn noise; history alone must do."""
    most_runs: int = 400_000
    """Trees learn from at most so many runs, the newest."""

    history_: RunHistory = field(default_factory=RunHistory, repr=False)
    middle_: Forest = field(default_factory=lambda: no_trees(), repr=False)
    low_: Forest = field(default_factory=lambda: no_trees(), repr=False)
    high_: Forest = field(default_factory=lambda: no_trees(), repr=False)
    offsets_: Floats = field(default_factory=bands.no_offsets, repr=False)
    typical_: float = COLD
    """Logarithm of the middle run time of all."""

    @property
    def fallback_s(self) -> float:
        """The middle of all runs that were learned from."""
        return float(np.exp(self.typical_))

    # -- learning ---------------------------------------------------------------------

    def fit(self, runs: Runs) -> Self:
        """Forget everything and learn from runs that ended, in the order of time."""
        must_have_ended(runs)
        runs = in_time_order(runs)
        self.history_ = RunHistory()
        self.typical_ = float(np.median(runs.log_s))
        said = self.history_.replay(runs)
        blend, basis = self._blend(said)
        table, left = _table(runs, said, blend), runs.log_s - blend
        # Where nothing had ended, as at the beginning, there is nothing to correct.
        corrected = np.flatnonzero(said[:, EstimateBasis.EVERYTHING, SEEN] > 0)[
            -self.most_runs :
        ]
        self._learn_trees(table[corrected], left[corrected])
        held = _newest(len(runs))
        low, high = (blend[held] + f.predict(table[held]) for f in (self.low_, self.high_))
        self.offsets_ = bands.offsets(runs.log_s[held], low, high, basis[held])
        return self

    def _learn_trees(self, table: Floats, left: Floats) -> None:
        """Learn the three forests; edges do not see the runs they are calibrated on."""
        if len(left) < self.least_runs:
            self.middle_ = self.low_ = self.high_ = no_trees()
            return
        # A column in which nothing is known cannot be cut into bins; no tree will use it.
        table = np.where(np.isnan(table).all(axis=0), 0.0, table)
        seen = slice(0, _newest(len(left)).start)
        self.middle_ = self._boosted(table, left, 0.5)
        self.low_ = self._boosted(table[seen], left[seen], LOW)
        self.high_ = self._boosted(table[seen], left[seen], HIGH)

    def _boosted(self, table: Floats, left: Floats, part: float) -> Forest:
        model = _boosting(part, self.rounds, self.leaves)
        with one_thread():
            model.fit(table, left)
        forest = of_boosting(model)
        few = table[:: max(1, len(table) // 1000)]
        if not np.allclose(forest.predict(few), model.predict(few)):
            raise InterlaneError(
                "This scikit-learn lays its trees out otherwise than interlane reads them; "
                "install the version that constraints.txt names."
            )
        return forest

    # -- estimating ---------------------------------------------------------------------

    def predict(self, runs: Runs) -> DurationEstimates:
        """Estimate from what is known now."""
        return self.asked(runs)[0]

    def asked(self, runs: Runs) -> tuple[DurationEstimates, Floats, Floats]:
        """Estimate from what is known now; return the trees' own edges too."""
        middle, low, high, basis = self._told(runs, self.history_.ask(runs))
        edges = low + self.offsets_[basis, 0], high + self.offsets_[basis, 1]
        return bands.estimates(middle, *edges, basis), low, high

    def follow(self, runs: Runs) -> DurationEstimates:
        """Estimate each run when it is submitted, and learn from it when it ends."""
        middle, low, high, basis = self._told(runs, self.history_.replay(runs))
        events = events_of(runs)
        low, high = bands.followed(events, runs.log_s, low, high, basis, self.offsets_)
        return bands.estimates(middle, low, high, basis)

    def _told(self, runs: Runs, said: Floats) -> tuple[Floats, Floats, Floats, Bases]:
        """Return middle and edges by the trees, in logarithms, and what they rest on."""
        blend, basis = self._blend(said)
        table = _table(runs, said, blend)
        middle, low, high = (
            blend + forest.predict(table) for forest in (self.middle_, self.low_, self.high_)
        )
        return middle, low, high, basis

    def _blend(self, said: Floats) -> tuple[Floats, Bases]:
        """Return the blended middles, and the nearest layer that has any runs."""
        blend = np.full(len(said), self.typical_)
        basis = np.full(len(said), EstimateBasis.EVERYTHING, np.int8)
        for layer in reversed(range(LAYERS - 1)):
            seen = said[:, layer, SEEN]
            known = seen > 0
            runs = np.minimum(seen, compiled.DEPTH)
            middle = np.where(known, said[:, layer, MIDDLE], blend)
            blend = (runs * middle + PULL[layer] * blend) / (runs + PULL[layer])
            basis[known] = layer
        return blend, basis


def _newest(count: int) -> slice:
    """Return the newest part, on which bands are calibrated."""
    return slice(count - int(count * CALIBRATED), count)


def _table(runs: Runs, said: Floats, blend: Floats) -> Floats:
    """Return what trees look at, one row per run; middles are seen from the blend."""
    time_of_day = runs.submit_s % DAY_S / 3600.0
    weekday = runs.submit_s // DAY_S % 7
    return np.column_stack(
        [
            said[:, :, SEEN],
            said[:, :, MIDDLE] - blend[:, None],
            said[:, :, RECENT] - blend[:, None],
            said[:, :, SPREAD],
            blend,
            np.log1p(runs.gpus),
            np.log1p(runs.cpus),
            np.log1p(runs.memory_gib),
            np.log1p(runs.instances),
            time_of_day,
            weekday,
        ]
    )


def _boosting(part: float, rounds: int, leaves: int) -> "HistGradientBoostingRegressor":
    """Return boosted trees for a quantile; the middle has a faster loss of its own."""
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        raise InvalidInput(
            "Training needs scikit-learn; install it with 'pip install interlane[ml]'."
        ) from None
    loss: dict[str, Any] = (
        {"loss": "absolute_error"} if part == 0.5 else {"loss": "quantile", "quantile": part}
    )
    return HistGradientBoostingRegressor(
        **loss,
        max_iter=rounds,
        max_leaf_nodes=leaves,
        min_samples_leaf=30,
        learning_rate=0.1,
        early_stopping=False,
        random_state=0,
    )
