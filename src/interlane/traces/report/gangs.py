"""Tasks whose instances must start together, and what they ask of machines."""

from typing import Final

import polars as pl

from interlane.traces.report.figure import Number, Plot, PlotCurve, ReportFigure, absent, shown
from interlane.traces.report.spread import PERCENT, WeightedValues, mean, percent, total
from interlane.traces.report.tables import TraceTables

CDF: Final = {2: 14.0, 10: 28.0, 20: 42.0, 50: 68.0, 100: 87.0, 200: 93.0, 400: 97.0}
"""Gang size -> percentage of instances in gangs up to it, read off figure 2b."""

LARGE: Final = 100
BELOW_LARGE_READ_OFF: Final = 76.0
READ_OFF: Final = "read off"


def gang_sizes(tables: TraceTables) -> ReportFigure:
    """Show how many instances come in gangs, and how large these are (figure 2b)."""
    key, title = "gangs", "Gangs"
    if missing := tables.lacks("task.inst_num"):
        return absent(key, title, missing)
    tasks = tables.tasks
    gangs = tasks.filter(pl.col("instances") > 1)
    everyone = total(tasks["instances"])
    in_gangs = percent(total(gangs["instances"]), everyone)
    asked = tasks["instances"] * tasks["gpus"]
    gang_asked = gangs["instances"] * gangs["gpus"]
    of_gpus = percent(total(gang_asked), total(asked))
    sizes = WeightedValues(tasks["instances"], tasks["instances"])
    needing = percent(total(tasks["instances"].filter(asked >= LARGE)), everyone)
    large = percent(total(tasks["instances"].filter(tasks["instances"] >= LARGE)), everyone)
    largest = sizes.quantile(1.0)
    unit = "% of instances"
    numbers = {
        "gang_share_of_instances": Number(in_gangs, unit, 85),
        "gang_share_of_gpus": Number(of_gpus, "% of GPUs asked", 79),
        "share_in_gangs_of_100": Number(large, unit, 20, "over"),
        "share_asking_100_gpus": Number(needing, unit, 20, "over, in GPUs"),
        "largest_gang": Number(largest, "instances", 1000, "over"),
        "at_most_1": Number(sizes.at_most(1), unit),
        **{
            f"at_most_{size}": Number(sizes.at_most(size), unit, paper, READ_OFF)
            for size, paper in CDF.items()
        },
        "below_100": Number(sizes.below(LARGE), unit, BELOW_LARGE_READ_OFF, READ_OFF),
    }
    sentence = (
        f"{shown(in_gangs)} % of instances are in gangs, which ask for {shown(of_gpus)} % of "
        f"the GPUs, and {shown(large)} % are in gangs of 100 or more; the largest has "
        f"{shown(largest)} (paper: 85 %, 79 %, over 20 %, and some above 1,000)."
    )
    if gangs.is_empty():
        sentence = "No task has more than one instance, so that there are no gangs to show."
    paper = PlotCurve("paper, read off", list(CDF), list(CDF.values()))
    curves = (sizes.curve("this trace"), paper)
    plots = (Plot("instances of the task", unit, curves, x_log=True),)
    return ReportFigure(key, title, sentence, numbers, plots)


def locality(tables: TraceTables) -> ReportFigure:
    """Show who names a GPU type, and whether gangs stay on one machine."""
    key, title = "locality", "GPU types named, and locality"
    missing = tables.lacks("group_tag.gpu_type_spec", "instance.machine")
    numbers: dict[str, Number] = {}
    said, plots = [], []
    if not tables.lacks("group_tag.gpu_type_spec"):
        with_gpus = tables.tasks.filter(pl.col("gpus") > 0)
        named = tables.tasks["gpu_type_spec"].is_not_null()
        naming = percent(float(named.sum()), tables.tasks.height)
        numbers["tasks_naming_gpu_type"] = Number(naming, "% of tasks", 6)
        said.append(f"{shown(naming)} % of tasks name a GPU type (paper: 6 %)")
        plots.append(_types(with_gpus))
    asked = tables.tasks["same_machine"]
    if asked.any():
        together = percent(float(asked.sum()), asked.len())
        numbers["tasks_asking_one_machine"] = Number(together, "% of tasks")
        said.append(f"{shown(together)} % ask to stay on one machine")
    if not tables.lacks("instance.machine"):
        numbers |= _spread_out(tables)
        alone = numbers["gangs_on_one_machine"].value
        said.append(f"{shown(alone)} % of gangs with GPUs ran on one machine")
    if not said:
        return absent(key, title, missing)
    return ReportFigure(key, title, "; ".join(said) + ".", numbers, tuple(plots), missing)


def _types(tasks: pl.DataFrame) -> Plot:
    counts = (
        tasks.filter(pl.col("gpu_type_spec").is_not_null())
        .group_by("gpu_type_spec")
        .agg(pl.len(), pl.col("instances").sum())
        .sort("len", "gpu_type_spec", descending=[True, False])
        .head(12)
    )
    names = counts["gpu_type_spec"].to_list()
    of_all = [PERCENT * count / max(tasks.height, 1) for count in counts["len"].to_list()]
    return Plot("GPU type", "of GPU tasks, %", (PlotCurve("tasks", names, of_all),), bars=True)


def _spread_out(tables: TraceTables) -> dict[str, Number]:
    """Count the machines over which gangs with GPUs were spread."""
    large = tables.tasks.select("task", "instances", "gpus").filter(
        (pl.col("instances") > 1) & (pl.col("gpus") > 0)
    )
    machines = (
        tables.instances.lazy()
        .select("task", "machine")
        .drop_nulls()
        .join(large.lazy().select("task"), on="task", how="semi")
        .group_by("task")
        .agg(pl.col("machine").n_unique().alias("machines"))
        .collect()["machines"]
    )
    alone = mean((machines == 1).cast(pl.Float64))
    return {
        "gangs_on_one_machine": Number(
            None if alone is None else PERCENT * alone, "% of gangs"
        ),
        "machines_per_gang_median": Number(WeightedValues(machines).quantile(0.5), "machines"),
    }
