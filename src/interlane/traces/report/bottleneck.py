"""Whether instances that take longer than usual ran on machines with a busy CPU."""

from typing import Final

import polars as pl

from interlane.traces.report.figure import Number, Plot, ReportFigure, absent, shown
from interlane.traces.report.spread import WeightedValues
from interlane.traces.report.tables import TraceTables
from interlane.traces.report.workloads import CTR

DELAYED: Final = 1.25
ACCELERATED: Final = 0.75
"""Run time against the median of the same program's instances."""

RUNS_LEAST: Final = 5
BUSY_CPU: Final = 24.0

NEEDS: Final = (
    "machine_metric.worker_name",
    "machine_metric.machine_cpu",
    "instance.worker_name",
    "instance.start_time",
    "instance.end_time",
    "group_tag.group",
)


def cpu_bottleneck(tables: TraceTables) -> ReportFigure:
    """Compare the machines of delayed and of accelerated instances (figure 22)."""
    key, title = "cpu_bottleneck", "CPU use around delayed and accelerated instances"
    if missing := tables.lacks(*NEEDS):
        return absent(key, title, missing)
    seen, whose = _against_usual(tables)
    delayed = seen.filter(pl.col("ratio") >= DELAYED)
    accelerated = seen.filter(pl.col("ratio") <= ACCELERATED)
    numbers: dict[str, Number] = {}
    plots = []
    for what in ("cpu", "gpu"):
        if what == "gpu" and tables.lacks("machine_metric.machine_gpu"):
            continue
        slow, fast = WeightedValues(delayed[what]), WeightedValues(accelerated[what])
        if what == "cpu":
            numbers |= _above(slow, fast)
        numbers[f"delayed_{what}_p50"] = Number(slow.quantile(0.5), "% of the machine")
        numbers[f"accelerated_{what}_p50"] = Number(fast.quantile(0.5), "% of the machine")
        curves = (slow.curve("delayed"), fast.curve("accelerated"))
        plots.append(Plot(f"{what.upper()} use of the machine, %", "of instances, %", curves))
    numbers["delayed"] = Number(delayed.height, "instances")
    numbers["accelerated"] = Number(accelerated.height, "instances")
    slow_part = numbers["delayed_above_24_percent_cpu"].value
    fast_part = numbers["accelerated_above_24_percent_cpu"].value
    sentence = (
        f"Machines above 24 % CPU use ran {shown(slow_part)} % of the delayed and "
        f"{shown(fast_part)} % of the accelerated {whose} instances (paper: 50 % and 10 % of "
        "the CTR instances)."
    )
    lost = tables.lacks("machine_metric.machine_gpu", "group_tag.workload")
    return ReportFigure(key, title, sentence, numbers, tuple(plots), lost)


def _above(slow: WeightedValues, fast: WeightedValues) -> dict[str, Number]:
    unit = "% of {} instances"
    return {
        "delayed_above_24_percent_cpu": Number(
            slow.above(BUSY_CPU), unit.format("delayed"), 50
        ),
        "accelerated_above_24_percent_cpu": Number(
            fast.above(BUSY_CPU), unit.format("accelerated"), 10
        ),
    }


def _against_usual(tables: TraceTables) -> tuple[pl.DataFrame, str]:
    """Return how long instances took against the median of their program and role.

    Those of click-through prediction, or of all programs where the trace names none.
    """
    programs = tables.tasks.select(
        "task", "group", "role", workload=pl.col("workload").str.to_lowercase()
    ).filter(pl.col("group").is_not_null())
    named = programs.filter(pl.col("workload").is_in(CTR))
    whose = "CTR" if named.height else "recurring"
    chosen = (named if named.height else programs).select("task", "group", "role")
    at = tables.metrics["instance"]
    seen = (
        tables.metrics.select("cpu", "gpu")
        .with_columns(tables.instances["task"].gather(at), tables.instances["run_s"].gather(at))
        .filter(pl.col("run_s") > 0)
        .join(chosen, on="task", how="inner")
        .with_columns(
            usual_s=pl.col("run_s").median().over("group", "role"),
            runs=pl.len().over("group", "role"),
        )
        .filter(pl.col("runs") >= RUNS_LEAST)
        .select("cpu", "gpu", ratio=pl.col("run_s") / pl.col("usual_s"))
    )
    return seen, whose
