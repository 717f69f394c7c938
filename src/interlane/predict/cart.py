"""The paper's predictor: one regression tree with absolute-error splits.

"MLaaS in the Wild", section 6.1: a CART over group, user and resources, at most ten splits
from the root to a leaf.  Names have no order of their own, so a name stands in the table as
the middle run time of its runs; a tree can then part long names from short ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType
from typing import Final, Self

import numpy as np

from interlane.model import InvalidInput, UnknownName
from interlane.predict import bands
from interlane.predict.bands import Bases
from interlane.predict.estimates import DurationEstimates, EstimateBasis
from interlane.predict.runs import Floats, Runs, in_time_order, must_have_ended
from interlane.predict.trees import Forest, no_trees, of_tree

KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "user": ("user",),
        "user+gpu": ("user", "gpus", "gpu_type"),
        "group+user": ("group", "user"),
        "group+user+gpu": ("group", "user", "gpus", "gpu_type"),
        "group+user+resource": (
            "group",
            "user",
            "gpus",
            "gpu_type",
            "cpus",
            "memory_gib",
            "instances",
        ),
    }
)
"""What a tree may look at, as the paper's figure 12 names it."""

NAMES: Final = ("group", "user", "gpu_type")
"""Columns of names."""


@dataclass
class Cart:
    """A regression tree over group, user and resources, after the paper."""

    keys: str = "group+user+resource"
    depth: int = 10

    tree_: Forest = field(default_factory=lambda: no_trees(), repr=False)
    codes_: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)
    """Column of names -> name -> the middle run time of its runs."""
    offsets_: Floats = field(default_factory=bands.no_offsets, repr=False)
    fallback_s: float = 1.0
    """The estimate for a job of which nothing is known: the middle of all runs."""

    def __post_init__(self) -> None:
        if self.keys not in KEYS:
            raise UnknownName("set of keys", self.keys, KEYS)

    def fit(self, runs: Runs) -> Self:
        """Forget everything and grow a tree on runs that ended."""
        must_have_ended(runs)
        runs = in_time_order(runs)
        # Bands must not be judged on runs that the tree has seen: first without the newest.
        known = len(runs) - len(runs) // 5
        self._grow(runs.take(np.arange(known)))
        held = runs.take(np.arange(known, len(runs)))
        middle, basis = self._middles(held)
        self.offsets_ = bands.offsets(held.log_s, middle, middle, basis)
        self._grow(runs)
        return self

    def predict(self, runs: Runs) -> DurationEstimates:
        """Estimate from the tree."""
        middle, basis = self._middles(runs)
        low, high = (middle + self.offsets_[basis, edge] for edge in (0, 1))
        return bands.estimates(middle, low, high, basis)

    def _grow(self, runs: Runs) -> None:
        self.fallback_s = float(np.median(runs.duration_s))
        self.codes_ = {
            column: _middle_by_name(getattr(runs, column), runs.duration_s)
            for column in KEYS[self.keys]
            if column in NAMES
        }
        tree = _tree(self.depth).fit(self._table(runs), runs.duration_s)
        self.tree_ = of_tree(tree)

    def _middles(self, runs: Runs) -> tuple[Floats, Bases]:
        seconds = self.tree_.predict(self._table(runs))
        basis = self._basis(runs)
        seconds[basis == EstimateBasis.EVERYTHING] = self.fallback_s
        return np.log(np.maximum(seconds, 1.0)), basis

    def _table(self, runs: Runs) -> Floats:
        columns = [self._column(runs, column) for column in KEYS[self.keys]]
        # scikit-learn compares single precision; so must we, or edges would fall apart.
        return np.column_stack(columns).astype(np.float32).astype(np.float64)

    def _column(self, runs: Runs, column: str) -> Floats:
        values = getattr(runs, column)
        if column not in NAMES:
            return np.asarray(values, np.float64)
        codes = self.codes_[column]
        if column != "group":
            return np.array([codes.get(name, self.fallback_s) for name in values], float)
        # A group never seen is taken for the user's usual, else trees would be misled.
        users, unknown = self.codes_["user"], self.fallback_s
        return np.array(
            [
                codes[group] if group and group in codes else users.get(user, unknown)
                for group, user in zip(values, runs.user, strict=True)
            ],
            float,
        )

    def _basis(self, runs: Runs) -> Bases:
        """Return what is known of each job: its group, its user, or neither."""
        basis = np.full(len(runs), EstimateBasis.EVERYTHING, np.int8)
        for column, kind in (("user", EstimateBasis.USER), ("group", EstimateBasis.GROUP)):
            if column in self.codes_:
                codes = self.codes_[column]
                known = [bool(name) and name in codes for name in getattr(runs, column)]
                basis[np.array(known, bool)] = kind
        return basis


def _middle_by_name(names: Sequence[str], seconds: Floats) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for name, length_s in zip(names, seconds.tolist(), strict=True):
        found.setdefault(name, []).append(length_s)
    return {name: median(lengths_s) for name, lengths_s in found.items()}


def _tree(depth: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - scikit-learn's own
    try:
        from sklearn.tree import DecisionTreeRegressor
    except ImportError:
        raise InvalidInput(
            "Training needs scikit-learn; install it with 'pip install interlane[ml]'."
        ) from None
    return DecisionTreeRegressor(criterion="absolute_error", max_depth=depth, random_state=0)
