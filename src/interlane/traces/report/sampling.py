"""Look at what runs at regular moments: who overlaps with them, and sums over them."""

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from interlane.traces.report.tables import HOUR_S

SAMPLES_MOST: Final = 8_000_000
"""Pairs of a row and a moment at which it ran; longer traces are looked at less often."""

MOMENTS_MOST: Final = 20_000

Floats = NDArray[np.float64]


def step_s(runs: pl.DataFrame, samples_most: int = SAMPLES_MOST) -> int:
    """Return how often to look, in whole hours, so that the sample stays small."""
    ran_s = runs.select((pl.col("end_s") - pl.col("start_s")).sum()).item() or 0.0
    first, last = _span(runs)
    wanted = max(ran_s / samples_most, (last - first) / MOMENTS_MOST, 1.0)
    return HOUR_S * max(1, int(np.ceil(wanted / HOUR_S)))


def sampled(runs: pl.DataFrame, every_s: int) -> pl.DataFrame:
    """Return a row for each moment at which a run was under way: the columns and ``moment``.

    A run is under way from its start up to, but not at, its end.
    """
    first, last = _moments("start_s", every_s), _moments("end_s", every_s)
    seen = runs.filter(pl.col("start_s").is_not_null() & pl.col("end_s").is_not_null())
    seen = seen.with_columns(first=first, last=last).filter(pl.col("last") > pl.col("first"))
    ranges = pl.int_ranges("first", "last", dtype=pl.Int64).alias("moment")
    return seen.with_columns(ranges).drop("first", "last", "start_s", "end_s").explode("moment")


def _moments(column: str, every_s: int) -> pl.Expr:
    return (pl.col(column) / every_s).ceil().cast(pl.Int64)


def under_way(runs: pl.DataFrame, amount: pl.Series, every_s: int) -> tuple[Floats, Floats]:
    """Return moments in seconds and the sum of an amount over what ran at each."""
    rows = runs.select("start_s", "end_s").with_columns(amount=amount.cast(pl.Float64))
    rows = rows.drop_nulls().filter(pl.col("amount") > 0)
    if rows.is_empty():
        return np.empty(0), np.empty(0)
    changes = pl.concat(
        rows.lazy()
        .group_by(_moments(column, every_s).alias("moment"))
        .agg(pl.col("amount").sum() * sign)
        for column, sign in (("start_s", 1.0), ("end_s", -1.0))
    )
    steps = changes.group_by("moment").agg(pl.col("amount").sum()).sort("moment").collect()
    moments = steps["moment"].to_numpy()
    every = np.arange(moments[0], moments[-1] + 1)
    place = np.searchsorted(moments, every, side="right") - 1
    level = np.cumsum(steps["amount"].to_numpy())[place]
    return every.astype(np.float64) * every_s, np.maximum(level, 0.0)


def _span(runs: pl.DataFrame) -> tuple[float, float]:
    first, last = runs["start_s"].min(), runs["end_s"].max()
    if not isinstance(first, float) or not isinstance(last, float):
        return 0.0, 0.0
    return first, last
