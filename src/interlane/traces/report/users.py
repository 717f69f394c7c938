"""Who submits the work."""

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from interlane.traces.report.figure import (
    CURVE_POINTS,
    Number,
    Plot,
    PlotCurve,
    ReportFigure,
    absent,
    shown,
)
from interlane.traces.report.spread import PERCENT, round_off
from interlane.traces.report.tables import TraceTables

TOP: Final = 0.05
"""The part of the users that counts as the heaviest."""


def user_skew(tables: TraceTables) -> ReportFigure:
    """Show how unevenly users share the instances (figure 2a)."""
    key, title = "user_skew", "Users and their instances"
    if missing := tables.lacks("job.user", "task.inst_num", "job.job_name"):
        return absent(key, title, missing)
    by_user = (
        tables.tasks.filter(pl.col("user").is_not_null())
        .group_by("user")
        .agg(pl.col("instances").sum())
        .sort("instances", descending=True)
    )
    counts = by_user["instances"].to_numpy()
    users = len(counts)
    if not users:
        return absent(key, title, ("job.user",))
    heavy = max(1, round(TOP * users))
    lighter = counts[(users + 1) // 2 :]
    top_percent = float(PERCENT * counts[:heavy].sum() / counts.sum())
    bottom_most = float(lighter.max()) if len(lighter) else None
    numbers = {
        "users": Number(users, "users", 1300, "over"),
        "top_5_percent_share": Number(top_percent, "% of instances", 77),
        "top_5_percent_least": Number(float(counts[heavy - 1]), "instances", 17_500, "over"),
        "bottom_half_most": Number(bottom_most, "instances", 180, "below"),
    }
    sentence = (
        f"The heaviest 5 % of {users:,} users submit {shown(top_percent)} % of the instances, "
        f"and each of the lighter half at most {shown(bottom_most)} "
        "(paper: 77 % and fewer than 180)."
    )
    return ReportFigure(key, title, sentence, numbers, (_plot(counts),))


def _plot(counts: NDArray[np.float64]) -> Plot:
    upto = np.cumsum(counts) / counts.sum() * PERCENT
    places = np.unique(np.linspace(0, len(counts) - 1, CURVE_POINTS).astype(int))
    curve = PlotCurve(
        "instances",
        [round_off((place + 1) / len(counts) * PERCENT) for place in places],
        [round_off(float(upto[place])) for place in places],
    )
    return Plot("heaviest users, %", "of instances, %", (curve,))
