"""What a few seeds say: means with intervals, and differences of runs on the same jobs.

Intervals are Student's, at 95 %.  Policies are compared in pairs, seed by seed, because what
one seed does to one policy it mostly does to the other as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

LEVEL: Final = 0.95

Column = Sequence[float]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and where it lies with 95 % confidence; from one value nothing is known."""

    mean: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """How far the ends are from the mean."""
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How much larger one is than another on the same seeds."""

    interval: Interval
    p_value: float
    """How likely so large a difference is if there is none (paired t-test, two-sided)."""


def interval(values: Column, level: float = LEVEL) -> Interval:
    """Return the mean of values and its interval."""
    given = np.asarray(values, float)
    mean = float(given.mean())
    if len(given) < 2:
        return Interval(mean, float("-inf"), float("inf"))
    reach = _quantile(len(given) - 1, level) * _error(given)
    return Interval(mean, mean - reach, mean + reach)


def difference(first: Column, second: Column, level: float = LEVEL) -> PairedDifference:
    """Return how much larger the first is than the second, seed by seed."""
    apart = np.asarray(first, float) - np.asarray(second, float)
    found = interval(apart.tolist(), level)
    return PairedDifference(found, _p_value(apart))


def clearly_best(columns: Sequence[Column], *, largest: bool = False) -> int | None:
    """Return which column is best beyond doubt: ahead of every other, each difference told.

    With several others each difference must be that much clearer (Bonferroni).
    """
    if len(columns) < 2 or any(isnan(value) for column in columns for value in column):
        return None
    sign = -1.0 if largest else 1.0
    means = [sign * float(np.mean(column)) for column in columns]
    first = int(np.argmin(means))
    level = 1.0 - (1.0 - LEVEL) / (len(columns) - 1)
    for other, column in enumerate(columns):
        if other != first:
            apart = difference(columns[first], column, level).interval
            if not (apart.high < 0 if sign > 0 else apart.low > 0):
                return None
    return first


def _error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1)) / sqrt(len(values))


def _quantile(degrees: int, level: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + level / 2))


def _p_value(apart: NDArray[np.float64]) -> float:
    from scipy.special import stdtr

    if len(apart) < 2:
        return 1.0
    error = _error(apart)
    if error == 0.0:
        return 1.0 if apart.mean() == 0 else 0.0
    return float(2 * stdtr(len(apart) - 1, -abs(float(apart.mean())) / error))
