"""Trees as plain arrays: what is learned is data, and can be stored without code.

A forest is one table of nodes.  A node compares one feature with a threshold and names the
two nodes that follow; a leaf has no feature (-1) and a value.  Not-a-number goes where the
node says.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from interlane.predict import compiled
from interlane.predict.compiled import LEAF
from interlane.predict.runs import Floats

if TYPE_CHECKING:
    from sklearn.ensemble import (
        ExtraTreesRegressor,
        HistGradientBoostingRegressor,
        RandomForestRegressor,
    )
    from sklearn.tree import DecisionTreeRegressor


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees whose answers are added to a start value."""

    start: float
    roots: NDArray[np.int32]
    """The first node of each tree."""
    feature: NDArray[np.int32]
    threshold: Floats
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    missing_left: NDArray[np.bool_]
    value: Floats

    def predict(self, table: Floats) -> Floats:
        """Return the sum of all trees for each row."""
        out = np.full(len(table), self.start)
        compiled.add_up(
            table,
            self.roots,
            self.feature,
            self.threshold,
            self.left,
            self.right,
            self.missing_left,
            self.value,
            out,
        )
        return out


def no_trees() -> Forest:
    """Return a forest that answers 0."""
    none = np.zeros(0, np.int32)
    nothing = np.zeros(0)
    return Forest(0.0, none, none, nothing, none, none, np.zeros(0, bool), nothing)


def of_tree(model: "DecisionTreeRegressor") -> Forest:
    """Return a fitted regression tree of scikit-learn as arrays."""
    tree = model.tree_
    inner = tree.children_left >= 0
    return Forest(
        0.0,
        np.zeros(1, np.int32),
        np.where(inner, tree.feature, LEAF).astype(np.int32),
        tree.threshold.astype(np.float64),
        tree.children_left.astype(np.int32),
        tree.children_right.astype(np.int32),
        np.zeros(len(inner), bool),
        tree.value[:, 0, 0].astype(np.float64),
    )


def of_trees(model: "ExtraTreesRegressor | RandomForestRegressor") -> Forest:
    """Return a fitted ensemble of scikit-learn as arrays; its trees add up."""
    parts = [of_tree(tree) for tree in model.estimators_]
    shift = np.cumsum([0, *(len(part.feature) for part in parts[:-1])]).astype(np.int32)

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])

    moved = np.repeat(shift, [len(part.feature) for part in parts])
    return Forest(
        0.0,
        shift,
        joined("feature"),
        joined("threshold"),
        joined("left") + moved,
        joined("right") + moved,
        joined("missing_left"),
        joined("value"),
    )


def of_boosting(model: "HistGradientBoostingRegressor") -> Forest:
    """Return fitted boosted trees of scikit-learn as arrays.

    Their layout is not part of scikit-learn's promise; whoever calls this compares the
    answers of both (see ``recall``).
    """
    parts: list[Any] = [stage[0].nodes for stage in model._predictors]
    sizes = [len(part) for part in parts]
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    shift = np.repeat(roots, sizes)
    nodes = np.concatenate(parts)
    leaf = nodes["is_leaf"].astype(bool)
    return Forest(
        float(np.ravel(model._baseline_prediction)[0]),
        roots,
        np.where(leaf, LEAF, nodes["feature_idx"]).astype(np.int32),
        nodes["num_threshold"].astype(np.float64),
        (nodes["left"] + shift).astype(np.int32),
        (nodes["right"] + shift).astype(np.int32),
        nodes["missing_go_to_left"].astype(bool),
        nodes["value"].astype(np.float64),
    )
