"""Deal classes out to weighted items, so that every class gets its share of the weight.

Drawing each item's class by itself would do so only in the mean: programs that run thousands
of times make the shares of a single draw coarse.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rng = np.random.Generator

LARGEST_PART: Final = 0.2
"""An item weighs at most this part of a class that it is dealt, if there are others."""


def deal(
    rng: Rng,
    weight: Floats,
    shares: Sequence[float],
    fit: Sequence[Floats | None] | None = None,
) -> Ints:
    """Return a class for each item; class ``c`` gets about ``shares[c]`` of the weight.

    ``fit[c]`` says how much more readily an item is taken for class ``c`` than others are
    (0: never).  The last class takes what is left.
    """
    total = float(weight.sum())
    dealt = np.full(len(weight), len(shares) - 1, np.int64)
    left = np.arange(len(weight))
    for number, share in enumerate(shares[:-1]):
        liking = None if fit is None else fit[number]
        taken = _take(rng, weight, left, share * total, liking)
        dealt[taken] = number
        left = left[dealt[left] == len(shares) - 1]
    return dealt


def _take(rng: Rng, weight: Floats, left: Ints, quota: float, liking: Floats | None) -> Ints:
    """Draw items without replacement until their weight is the quota."""
    if quota <= 0:
        return left[:0]
    able = left if liking is None else left[liking[left] > 0]
    small = able[weight[able] <= LARGEST_PART * quota]
    able = small if len(small) else able
    key = rng.exponential(size=len(able))
    if liking is not None:
        key /= liking[able]
    order = able[np.argsort(key)]
    reached = np.cumsum(weight[order])
    # Half of the last item is within the quota: neither too much nor too little on average.
    return order[: int(np.searchsorted(reached - weight[order] / 2, quota))]


def portion(
    rng: Rng, weight: Floats, share: float, among: Flags, liking: Floats | None = None
) -> Flags:
    """Return flags of items ``among`` some that make up a share of the weight of these."""
    fit = np.where(among, 1.0 if liking is None else liking, 0.0)
    part = share * float(weight[among].sum() / max(weight.sum(), 1e-9))
    return np.asarray(deal(rng, weight, (part, 1.0 - part), (fit, None)) == 0)


def pick(rng: Rng, choices: Sequence[tuple[float, float]], count: int) -> Floats:
    """Draw values by their shares."""
    values, odds = np.array(choices, float).T
    return np.asarray(rng.choice(values, count, p=odds / odds.sum()))


def by_weight(
    rank: Floats, weight: Floats, at: Sequence[float], value: Sequence[float]
) -> Floats:
    """Return a value for each item, by its rank, with given quantiles over the weight.

    ``at`` are probabilities from 0 to 1 and ``value`` the quantiles there, above 0; between
    them the logarithm runs straight.
    """
    order = np.argsort(rank, kind="stable")
    reached = np.cumsum(weight[order])
    middle = (reached - weight[order] / 2) / reached[-1]
    found = np.empty(len(rank))
    found[order] = np.exp(np.interp(middle, at, np.log(value)))
    return found
