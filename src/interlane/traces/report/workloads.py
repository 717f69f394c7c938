"""Kinds of models that the trace names, and what they use."""

from typing import Final

import polars as pl

from interlane.traces.report.figure import Number, Plot, PlotCurve, ReportFigure, absent, shown
from interlane.traces.report.spread import PERCENT, mean, percent, total
from interlane.traces.report.tables import TraceTables

NLP: Final = frozenset({"bert", "nmt", "xlnet", "nlp", "gpt", "transformer"})
CTR: Final = frozenset({"ctr"})
GRAPH_AND_RL: Final = frozenset({"graphlearn", "gnn", "rl"})

LARGE_GIB: Final = 16.0
"""GPU memory that only the larger cards have."""

MUCH: Final = 0.4
LITTLE: Final = 0.1
SHOWN: Final = 12

TRAINING: Final = "which instances train and which infer (no table has it)"


def workloads(tables: TraceTables) -> ReportFigure:
    """Show how common the named workloads are, and what they use."""
    key, title = "workloads", "Workloads"
    if missing := tables.lacks("group_tag.workload", "group_tag.inst_id", "job.job_name"):
        return absent(key, title, missing)
    tasks = tables.tasks.select("instances", "gpus", workload=_lower("workload"))
    nlp = percent(tasks.filter(pl.col("workload").is_in(NLP)).height, tasks.height)
    ctr = percent(tasks.filter(pl.col("workload").is_in(CTR)).height, tasks.height)
    rare = tasks.filter(pl.col("workload").is_in(GRAPH_AND_RL))["instances"]
    named = tasks.filter(pl.col("workload").is_not_null())["instances"]
    everyone = total(tasks["instances"])
    numbers = {
        "named": Number(percent(total(named), everyone), "% of instances", 9, "about"),
        "nlp": Number(nlp, "% of tasks", 6.4),
        "ctr": Number(ctr, "% of tasks", 6.7),
        "graph_and_rl": Number(percent(total(rare), everyone), "% of instances", 2),
    }
    needs = ("sensor.gpu_wrk_util", "sensor.max_gpu_wrk_mem", "instance.worker_name")
    lost = tables.lacks(*needs)
    if not lost:
        numbers |= _measured(tables)
    sentence = (
        f"{shown(nlp)} % of tasks are named as language models and {shown(ctr)} % as "
        "click-through prediction (paper: 6.4 % and 6.7 %)."
    )
    return ReportFigure(key, title, sentence, numbers, (_plot(tasks),), (*lost, TRAINING))


def _lower(column: str) -> pl.Expr:
    return pl.col(column).str.to_lowercase()


def _measured(tables: TraceTables) -> dict[str, Number]:
    """Return what language models and click-through prediction use of GPUs.

    The paper counts tasks for the first and instances for the second.
    """
    named = tables.tasks.select(
        "task", asked=pl.col("gpus"), workload=_lower("workload")
    ).filter(pl.col("workload").is_not_null())
    task = tables.instances["task"].gather(tables.sensors["instance"])
    seen = (
        tables.sensors.select("gpus", "gpu_memory_gib")
        .with_columns(task.alias("task"))
        .join(named, on="task", how="inner")
    )
    nlp = (
        seen.filter(pl.col("workload").is_in(NLP))
        .group_by("task")
        .agg(pl.col("gpus").mean(), pl.col("gpu_memory_gib").max(), pl.col("asked").first())
    )
    ctr = seen.filter(pl.col("workload").is_in(CTR))
    large = nlp["gpu_memory_gib"] >= LARGE_GIB
    eager = (nlp["asked"] >= 1) & (nlp["gpus"] > MUCH)
    modest = ctr["gpus"] < LITTLE
    unit = "% of NLP tasks"
    return {
        "nlp_large_memory": Number(_part(large), unit, 73),
        "nlp_whole_gpu_well_used": Number(_part(eager), unit, 60, "over"),
        "ctr_little_gpu": Number(_part(modest), "% of CTR instances", 75, "over"),
    }


def _part(rows: pl.Series) -> float | None:
    part = mean(rows.cast(pl.Float64))
    return None if part is None else PERCENT * part


def _plot(tasks: pl.DataFrame) -> Plot:
    counts = (
        tasks.drop_nulls("workload")
        .group_by("workload")
        .len()
        .sort("len", "workload", descending=[True, False])
        .head(SHOWN)
    )
    names = counts["workload"].to_list()
    shares = [PERCENT * count / tasks.height for count in counts["len"].to_list()]
    return Plot("workload", "of tasks, %", (PlotCurve("tasks", names, shares),), bars=True)
