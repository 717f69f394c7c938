"""Quantiles and distribution curves in which a row may stand for many instances."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from interlane.traces.report.figure import CURVE_POINTS, PlotCurve

Floats = NDArray[np.float64]

PERCENT: Final = 100.0


class WeightedValues:
    """Sorted values with the weight at or below each.

    The quantile ``q`` is the smallest value at or below which lies ``q`` of the weight, so
    that it is always a value of the trace.  Rows without a value do not count.
    """

    def __init__(self, values: pl.Series, weights: pl.Series | None = None) -> None:
        if weights is None:
            self._values: Floats = values.drop_nulls().sort().to_numpy().astype(np.float64)
            self._below: Floats | None = None
            return
        rows = pl.DataFrame({"value": values, "weight": weights}).drop_nulls()
        rows = rows.filter(pl.col("weight") > 0).sort("value")
        self._values = rows["value"].to_numpy().astype(np.float64)
        self._below = np.cumsum(rows["weight"].to_numpy(), dtype=np.float64)

    @property
    def weight(self) -> float:
        """All the weight there is."""
        if self._below is None:
            return float(len(self._values))
        return float(self._below[-1]) if len(self._below) else 0.0

    def quantile(self, q: float) -> float | None:
        """Return a quantile, or None when there are no values."""
        if not len(self._values):
            return None
        if self._below is None:
            place = int(np.ceil(q * len(self._values) - 1e-9)) - 1
        else:
            place = int(np.searchsorted(self._below, q * self.weight * (1 - 1e-12)))
        return float(self._values[min(max(place, 0), len(self._values) - 1)])

    def at_most(self, value: float) -> float | None:
        """Return the percentage at or below a value."""
        return self._percent(int(np.searchsorted(self._values, value, side="right")))

    def below(self, value: float) -> float | None:
        """Return the percentage below a value."""
        return self._percent(int(np.searchsorted(self._values, value, side="left")))

    def above(self, value: float) -> float | None:
        """Return the percentage above a value."""
        part = self.at_most(value)
        return None if part is None else PERCENT - part

    def curve(self, name: str) -> PlotCurve:
        """Return the distribution as a curve of percentages, thinned out."""
        if not len(self._values):
            return PlotCurve(name, (), ())
        steps = np.linspace(0, 1, CURVE_POINTS)
        return PlotCurve(
            name,
            [round_off(self.quantile(float(step)) or 0.0) for step in steps],
            [float(PERCENT * step) for step in steps],
        )

    def _percent(self, rows: int) -> float | None:
        if not len(self._values):
            return None
        if self._below is None:
            return PERCENT * rows / len(self._values)
        return PERCENT * float(self._below[rows - 1]) / self.weight if rows else 0.0


def percent(part: float, whole: float) -> float | None:
    """Return a part in percent, or None of nothing."""
    return PERCENT * part / whole if whole else None


def total(values: pl.Series) -> float:
    """Return a sum as a float; nothing sums to 0."""
    return float(values.sum() or 0.0)


def mean(values: pl.Series | Sequence[float]) -> float | None:
    """Return a mean, or None of nothing."""
    found = pl.Series(values).drop_nulls()
    return total(found) / len(found) if len(found) else None


def round_off(value: float) -> float:
    """Return a number for drawing: six digits tell the same picture as sixteen."""
    return float(f"{value:.6g}")
