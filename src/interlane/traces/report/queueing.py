"""How long work waits before it starts."""

from itertools import pairwise
from typing import Final

import polars as pl

from interlane.traces.report.figure import Number, Plot, PlotCurve, ReportFigure, absent, shown
from interlane.traces.report.kinds import KINDS, SEVERAL, SHARED, WHOLE, kind_of
from interlane.traces.report.spread import WeightedValues
from interlane.traces.report.tables import TraceTables

NEEDS: Final = ("job.start_time", "task.start_time")

BUCKETS_S: Final = (60, 300, 1800, 7200, 36_000)
"""Run times by which waits are told apart."""

P90_BY_KIND: Final = {SHARED: 497.0, WHOLE: 1150.0, SEVERAL: 10_000.0}
BY_TYPE: Final = {"V100": (113.0, 13_709.0), "MISC": (11.0, 360.0)}
"""GPU type -> median and p90 of the wait, in seconds (figure 4d)."""

TYPES_SHOWN: Final = 8
HALF: Final = 0.5


def queueing_delay(tables: TraceTables) -> ReportFigure:
    """Show waits by share of a GPU, by GPU type and by run time (figures 4b to 4d)."""
    key, title = "queueing", "Queueing delay"
    if missing := tables.lacks(*NEEDS):
        return absent(key, title, missing)
    tasks = tables.tasks.select("instances", "wait_s", "gpu_type", kind=kind_of())
    tasks = tasks.filter(pl.col("wait_s").is_not_null())
    if tasks.is_empty():
        return absent(key, title, ("tasks that started",))
    numbers, by_kind = _by_kind(tasks)
    plots = [Plot("wait, s", "of instances, %", by_kind, x_log=True)]
    missing = tables.lacks("task.gpu_type", "instance.start_time", "instance.end_time")
    if not tables.lacks("task.gpu_type"):
        more, by_type = _by_type(tasks)
        numbers |= more
        plots.append(Plot("wait, s", "of instances, %", by_type, x_log=True))
    more, bars = _by_run_time(tables)
    numbers |= more
    plots.append(Plot("run time", "wait, s", bars, bars=True, y_log=True))
    return ReportFigure(key, title, _sentence(numbers), numbers, tuple(plots), missing)


def _sentence(numbers: dict[str, Number]) -> str:
    said = [
        f"of those that ask for {KINDS[kind]} within {shown(wait.value)} s "
        f"(paper: {shown(paper)})"
        for kind, paper in P90_BY_KIND.items()
        if (wait := numbers[f"{kind}_p90"]).value is not None
    ]
    every = f"90 % of instances start within {shown(numbers['p90'].value)} s"
    return "; ".join((every, *said)) + "."


def _by_kind(tasks: pl.DataFrame) -> tuple[dict[str, Number], tuple[PlotCurve, ...]]:
    every = WeightedValues(tasks["wait_s"], tasks["instances"])
    numbers = {
        "p50": Number(every.quantile(0.5), "s"),
        "p90": Number(every.quantile(0.9), "s"),
    }
    curves = []
    for kind, word in KINDS.items():
        of_kind = tasks.filter(pl.col("kind") == kind)
        spread = WeightedValues(of_kind["wait_s"], of_kind["instances"])
        says = "read off, about" if kind == SEVERAL else ""
        numbers[f"{kind}_p50"] = Number(spread.quantile(0.5), "s")
        numbers[f"{kind}_p90"] = Number(spread.quantile(0.9), "s", P90_BY_KIND.get(kind), says)
        if not of_kind.is_empty():
            curves.append(_at_least_a_second(spread.curve(word)))
    return numbers, tuple(curves)


def _at_least_a_second(curve: PlotCurve) -> PlotCurve:
    """Return a curve that a logarithmic axis can show."""
    return PlotCurve(curve.name, [max(float(x), 1.0) for x in curve.x], curve.y)


def _by_type(tasks: pl.DataFrame) -> tuple[dict[str, Number], tuple[PlotCurve, ...]]:
    with_gpus = tasks.filter(pl.col("kind") != "cpu_only")
    numbers = {}
    for name, (middle, high) in BY_TYPE.items():
        of_type = with_gpus.filter(pl.col("gpu_type") == name)
        spread = WeightedValues(of_type["wait_s"], of_type["instances"])
        numbers[f"{name.lower()}_p50"] = Number(spread.quantile(0.5), "s", middle)
        numbers[f"{name.lower()}_p90"] = Number(spread.quantile(0.9), "s", high)
    common = (
        with_gpus.drop_nulls("gpu_type")
        .group_by("gpu_type")
        .len()
        .sort("len", "gpu_type", descending=[True, False])
        .head(TYPES_SHOWN)
    )
    curves = []
    for name in sorted(common["gpu_type"].to_list()):
        of_type = with_gpus.filter(pl.col("gpu_type") == name)
        spread = WeightedValues(of_type["wait_s"], of_type["instances"])
        curves.append(_at_least_a_second(spread.curve(name)))
    return numbers, tuple(curves)


def _by_run_time(tables: TraceTables) -> tuple[dict[str, Number], tuple[PlotCurve, ...]]:
    """Compare waits with run times; short is what runs at most as long as the median."""
    whole_s = tables.of_task("job_end_s") - tables.of_task("submit_s")
    runs = (
        tables.instances.select("run_s", "count")
        .with_columns(tables.of_task("wait_s").alias("wait_s"), whole_s.alias("whole_s"))
        .filter(pl.col("run_s").is_not_null() & pl.col("wait_s").is_not_null())
    )
    middle = WeightedValues(runs["run_s"], runs["count"]).quantile(0.5)
    timed = runs.filter(pl.col("whole_s") > 0)
    numbers = {"short_means": Number(middle, "s or less")}
    for name, paper, part in (
        ("short", 9.0, timed.filter(pl.col("run_s") <= (middle or 0.0))),
        ("long", 3.0, timed.filter(pl.col("run_s") > (middle or 0.0))),
    ):
        share = WeightedValues(part["wait_s"] / part["whole_s"], part["count"])
        value = share.above(HALF)
        numbers[f"{name}_waiting_half"] = Number(value, f"% of {name} instances", paper)
    return numbers, _buckets(runs)


def _buckets(runs: pl.DataFrame) -> tuple[PlotCurve, ...]:
    edges = (0, *BUCKETS_S, float("inf"))
    names, middles, highs = [], [], []
    for low, high in pairwise(edges):
        part = runs.filter((pl.col("run_s") > low) & (pl.col("run_s") <= high))
        if part.is_empty():
            continue
        spread = WeightedValues(part["wait_s"], part["count"])
        names.append(f"up to {high:,.0f} s" if high != edges[-1] else f"over {low:,.0f} s")
        middles.append(spread.quantile(0.5))
        highs.append(spread.quantile(0.9))
    return (PlotCurve("median wait", names, middles), PlotCurve("p90 wait", names, highs))
