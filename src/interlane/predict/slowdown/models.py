"""Predictors of what a victim retains: fit on measured pairs, predict any pair.

``constant``, ``linear`` and ``hinge`` are naive; ``random-forest`` is SMore's, on concatenated
counters; ``blend`` is ours.  An estimate is a mean and a spread, both of the logarithm; the
spread says where a model is less sure of itself, and ``bounds`` makes a bound of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import numpy as np

from interlane.model import InvalidField, InvalidInput, UnknownName
from interlane.predict.slowdown import process
from interlane.predict.slowdown.features import concatenated, crossed, overflow
from interlane.predict.slowdown.pairs import Floats, Pairs
from interlane.predict.slowdown.process import GaussianProcess
from interlane.predict.trees import Forest, no_trees, of_trees

if TYPE_CHECKING:
    from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

LEAST_PAIRS: Final = 8
"""Measured pairs without which nothing is learned."""


@dataclass(frozen=True, eq=False)
class SlowdownEstimate:
    """Mean and spread of the logarithm of what is retained, one value per pair."""

    mean: Floats
    spread: Floats

    @property
    def throughput(self) -> Floats:
        """The estimate as a ratio."""
        return np.exp(self.mean)


class SlowdownPredictor(Protocol):
    """Learns from measured pairs and estimates others."""

    def fit(self, pairs: Pairs) -> Self:
        """Forget everything and learn from these pairs."""
        ...

    def refit(self, pairs: Pairs) -> Self:
        """Learn from these pairs, and keep what is slow to learn and changes little."""
        ...

    def predict(self, pairs: Pairs) -> SlowdownEstimate:
        """Estimate what each victim retains."""
        ...


@dataclass
class Constant:
    """The middle of everything seen."""

    mean_: float = 0.0
    spread_: float = 1.0

    def fit(self, pairs: Pairs) -> Self:
        """Take the mean and the deviation."""
        must_suffice(pairs)
        self.mean_ = float(np.log(pairs.throughput.mean()))
        self.spread_ = float(pairs.log_throughput.std()) or 1.0
        return self

    refit = fit

    def predict(self, pairs: Pairs) -> SlowdownEstimate:
        """Say the same of every pair."""
        return SlowdownEstimate(
            np.full(len(pairs), self.mean_), np.full(len(pairs), self.spread_)
        )


@dataclass
class Linear:
    """A straight line through the sums of both sides' counters."""

    hinged: bool = False
    """Look only at how far shares of one resource add up to more than there is."""
    line_: Floats = field(default_factory=lambda: np.zeros(1), repr=False)
    spread_: float = 1.0

    def fit(self, pairs: Pairs) -> Self:
        """Fit by least squares, with a little weight decay."""
        must_suffice(pairs)
        table = self._table(pairs)
        decay = 1e-3 * len(pairs) * np.eye(table.shape[1])
        decay[0, 0] = 0.0
        line = np.linalg.solve(table.T @ table + decay, table.T @ pairs.log_throughput)
        self.line_ = np.asarray(line, np.float64)
        off = pairs.log_throughput - table @ self.line_
        self.spread_ = float(off.std()) or 1.0
        return self

    refit = fit

    def predict(self, pairs: Pairs) -> SlowdownEstimate:
        """Read the line off."""
        return SlowdownEstimate(
            self._table(pairs) @ self.line_, np.full(len(pairs), self.spread_)
        )

    def _table(self, pairs: Pairs) -> Floats:
        if self.hinged:
            return np.column_stack([np.ones(len(pairs)), overflow(pairs)])
        one, other = pairs.sides(pairs.profiles.filled)
        return np.column_stack([np.ones(len(pairs)), one + other])


@dataclass
class SmoreForest:
    """SMore's pairwise predictor: a random forest on the counters of both sides."""

    trees: int = 150
    seed: int = 0
    forest_: Forest = field(default_factory=no_trees, repr=False)
    spread_: float = 1.0

    def fit(self, pairs: Pairs) -> Self:
        """Grow the forest on what was retained, as the paper does."""
        must_suffice(pairs)
        forest = _random_forest(self.trees, self.seed)
        forest.fit(concatenated(pairs), pairs.throughput)
        self.forest_ = of_trees(forest)
        off = pairs.log_throughput - self.predict(pairs).mean
        self.spread_ = float(off.std()) or 1.0
        return self

    refit = fit

    def predict(self, pairs: Pairs) -> SlowdownEstimate:
        """Ask all trees."""
        told = self.forest_.predict(_single(concatenated(pairs))) / self.trees
        return SlowdownEstimate(
            np.log(np.maximum(told, 1e-3)), np.full(len(pairs), self.spread_)
        )


@dataclass
class Blend:
    """A Gaussian process over pairs, and extremely randomised trees that see its estimate.

    The process knows who was measured with whom, trees find edges in counters.  Trees learn
    from what the process would have said of each pair without having seen it.  The estimate is
    the mean of both.
    """

    trees: int = 150
    seed: int = 0
    process_: GaussianProcess | None = field(default=None, repr=False)
    forest_: Forest = field(default_factory=no_trees, repr=False)

    def fit(self, pairs: Pairs) -> Self:
        """Learn the process's settings, then as ``refit``."""
        must_suffice(pairs)
        return self._grow(pairs, process.learn_settings(pairs, self.seed))

    def refit(self, pairs: Pairs) -> Self:
        """Learn from these pairs under the settings learned before."""
        must_suffice(pairs)
        return self._grow(pairs, self._fitted.settings)

    def predict(self, pairs: Pairs) -> SlowdownEstimate:
        """Estimate with both; they disagree where neither should be trusted."""
        mean, spread = self._fitted.predict(pairs)
        told = self.forest_.predict(_single(_seen(pairs, mean))) / self.trees
        return SlowdownEstimate((mean + told) / 2.0, np.sqrt(spread**2 + (mean - told) ** 2))

    @property
    def _fitted(self) -> GaussianProcess:
        if self.process_ is None:
            raise InvalidInput("The model has learned nothing yet; fit it first.")
        return self.process_

    def _grow(self, pairs: Pairs, settings: Floats) -> Self:
        self.process_ = process.condition(pairs, settings)
        held = self.process_.pairs
        mean, _ = self.process_.left_out()
        trees = _extra_trees(self.trees, self.seed).fit(_seen(held, mean), held.log_throughput)
        self.forest_ = of_trees(trees)
        return self


def _seen(pairs: Pairs, estimate: Floats) -> Floats:
    return np.column_stack([crossed(pairs), estimate])


PREDICTORS: Final[Mapping[str, Callable[[], SlowdownPredictor]]] = MappingProxyType(
    {
        "blend": Blend,
        "random-forest": SmoreForest,
        "linear": Linear,
        "hinge": lambda: Linear(hinged=True),
        "constant": Constant,
    }
)
"""Name -> maker; the first is ours and the default."""


def make_predictor(name: str) -> SlowdownPredictor:
    """Return a predictor that has learned nothing yet."""
    if name not in PREDICTORS:
        raise UnknownName("model", name, PREDICTORS)
    return PREDICTORS[name]()


def must_suffice(pairs: Pairs) -> None:
    """Refuse to learn from too little, or from what was not measured."""
    if len(pairs) < LEAST_PAIRS:
        rule = f"at least {LEAST_PAIRS} are needed; measure more co-runs"
        raise InvalidField("measured pairs", len(pairs), rule)
    if np.isnan(pairs.throughput).any():
        raise InvalidField("retained", "NaN", "only measured pairs can be learned from")


def _single(table: Floats) -> Floats:
    """Round as scikit-learn does when it grows trees; else edges would fall apart."""
    return table.astype(np.float32).astype(np.float64)


def _random_forest(trees: int, seed: int) -> "RandomForestRegressor":
    return _ensembles().RandomForestRegressor(trees, max_features=0.5, random_state=seed)


def _extra_trees(trees: int, seed: int) -> "ExtraTreesRegressor":
    return _ensembles().ExtraTreesRegressor(trees, max_features=0.5, random_state=seed)


def _ensembles() -> Any:  # noqa: ANN401 - scikit-learn has no types
    try:
        from sklearn import ensemble
    except ImportError:
        raise InvalidInput(
            "Training needs scikit-learn; install it with 'pip install interlane[ml]'."
        ) from None
    return ensemble
