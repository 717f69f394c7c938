"""How often the same program is run again."""

from typing import Final

import polars as pl

from interlane.traces.report.figure import Number, Plot, PlotCurve, ReportFigure, absent, shown
from interlane.traces.report.spread import WeightedValues
from interlane.traces.report.tables import TraceTables

CDF: Final = {1: 15.0, 2: 27.5, 10: 40.0, 62: 60.0, 100: 77.0, 1000: 95.0}
"""Runs -> percentage of tasks whose program runs at most so often, read off figure 10."""

OFTEN: Final = 5


def recurrence(tables: TraceTables) -> ReportFigure:
    """Show how often tasks recur (figure 10)."""
    key, title = "recurrence", "Recurrence"
    if missing := tables.lacks("group_tag.group", "group_tag.inst_id", "job.job_name"):
        return absent(key, title, missing)
    known = tables.tasks.select("job", "group").drop_nulls()
    if known.is_empty():
        return absent(key, title, ("group_tag.group",))
    # A job runs its group once, however many tasks it has.
    runs = known.group_by("group").agg(pl.col("job").n_unique().alias("runs"), pl.len())
    spread = WeightedValues(runs["runs"], runs["len"])
    below = spread.below(OFTEN)
    often = None if below is None else 100.0 - below
    unit = "% of tasks"
    numbers = {
        "groups": Number(runs.height, "groups"),
        "run_5_times": Number(often, unit, 65),
        **{
            f"at_most_{count}": Number(spread.at_most(count), unit, paper, "read off")
            for count, paper in CDF.items()
        },
    }
    sentence = (
        f"{shown(often)} % of tasks belong to a program that runs at least 5 times, "
        f"{shown(numbers['at_most_1'].value)} % to one that runs once (paper: 65 % and 15 %)."
    )
    if runs.height == 1:
        sentence = (
            "All tasks carry the same group, so that nothing can be said about recurrence."
        )
    paper = PlotCurve("paper, read off", list(CDF), list(CDF.values()))
    plot = Plot("runs of the program", unit, (spread.curve("this trace"), paper), x_log=True)
    return ReportFigure(key, title, sentence, numbers, (plot,))
