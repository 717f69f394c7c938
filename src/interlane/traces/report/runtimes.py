"""How long instances run."""

from typing import Final

import polars as pl

from interlane.traces.report.figure import Number, Plot, ReportFigure, absent, shown
from interlane.traces.report.kinds import KINDS, kind_of
from interlane.traces.report.spread import WeightedValues
from interlane.traces.report.tables import TraceTables

PAPER_S: Final = {10: 75.0, 50: 1400.0, 75: 5000.0, 90: 16_000.0, 99: 80_000.0}
"""Percentile -> seconds, read off figure 4a."""


def run_times(tables: TraceTables) -> ReportFigure:
    """Show the run times of instances, all and by kind of request (figure 4a)."""
    key, title = "run_times", "Run times"
    kinds = tables.tasks.select(kind_of()).to_series()
    runs = tables.instances.select("run_s", "count").with_columns(
        kinds.gather(tables.instances["task"]).alias("kind")
    )
    runs = runs.filter(pl.col("run_s").is_not_null())
    if runs.is_empty():
        lost = tables.lacks("instance.start_time", "instance.end_time")
        return absent(key, title, lost or ("instances that ended",))
    every = WeightedValues(runs["run_s"], runs["count"])
    numbers = {
        f"p{point}": Number(every.quantile(point / 100), "s", paper, "read off")
        for point, paper in PAPER_S.items()
    }
    numbers["instances"] = Number(every.weight, "instances", 7_500_000)
    curves = [every.curve("all")]
    for kind, word in KINDS.items():
        of_kind = runs.filter(pl.col("kind") == kind)
        spread = WeightedValues(of_kind["run_s"], of_kind["count"])
        numbers[f"p50_{kind}"] = Number(spread.quantile(0.5), "s")
        numbers[f"p90_{kind}"] = Number(spread.quantile(0.9), "s")
        if not of_kind.is_empty():
            curves.append(spread.curve(word))
    middle, long = numbers["p50"].value, numbers["p99"].value
    sentence = (
        f"Half of the instances run for at most {shown(middle)} s and 1 % for more than "
        f"{shown(long)} s (paper: 1,400 s and 80,000 s)."
    )
    plot = Plot("run time, s", "of instances, %", tuple(curves), x_log=True)
    return ReportFigure(key, title, sentence, numbers, (plot,))
