"""What instances ask for, what they use, and who uses more than asked."""

from typing import Final

import polars as pl

from interlane.traces.report.figure import Number, Plot, ReportFigure, absent, shown
from interlane.traces.report.spread import PERCENT, WeightedValues, mean
from interlane.traces.report.tables import TraceTables

RESOURCES: Final = {
    "cpu": ("task.plan_cpu", "cpus", "vCPUs", 6.0, 12.0),
    "gpu": ("task.plan_gpu", "gpus", "GPUs", 0.5, 1.0),
    "memory": ("task.plan_mem", "memory_gib", "GiB", 29.0, 59.0),
}
"""Resource -> where it is asked for, our column, its unit, the paper's median and p95."""

SENSED: Final = {
    "cpu": ("sensor.cpu_usage", "cpus", "vCPUs", 1.4),
    "gpu": ("sensor.gpu_wrk_util", "gpus", "GPUs", 0.042),
    "memory": ("sensor.avg_mem", "memory_gib", "GiB", 3.5),
}
"""Resource -> where its use is measured, our column, its unit, the paper's median."""

JOINED: Final = ("sensor.worker_name", "instance.worker_name")
NEARLY: Final = 1e-6


def requests(tables: TraceTables) -> ReportFigure:
    """Show what instances ask for (figure 5)."""
    key, title = "requests", "Requests"
    missing = tables.lacks(*(source for source, *_ in RESOURCES.values()))
    tasks = tables.tasks
    numbers: dict[str, Number] = {}
    plots = []
    for name, (source, column, unit, middle, high) in RESOURCES.items():
        if tables.lacks(source):
            continue
        asking = tasks.filter(pl.col(column) > 0)
        spread = WeightedValues(asking[column], asking["instances"])
        numbers[f"{name}_p50"] = Number(spread.quantile(0.5), unit, middle)
        numbers[f"{name}_p95"] = Number(spread.quantile(0.95), unit, high)
        curve = spread.curve("asked")
        plots.append(Plot(f"{unit} of one instance", "of instances, %", (curve,), x_log=True))
    if not numbers:
        return absent(key, title, missing)
    said = [
        f"{shown(numbers[f'{name}_p50'].value)} {unit} (paper: {shown(middle)})"
        for name, (_, _, unit, middle, _) in RESOURCES.items()
        if f"{name}_p50" in numbers
    ]
    sentence = f"Half of the instances that ask for any ask for at most {', '.join(said)}."
    return ReportFigure(key, title, sentence, numbers | _steps(tasks), tuple(plots), missing)


def _steps(tasks: pl.DataFrame) -> dict[str, Number]:
    """Return how many of the GPU instances ask for which part of a GPU."""
    asking = tasks.filter(pl.col("gpus") > 0)
    spread = WeightedValues(asking["gpus"], asking["instances"])

    def exactly(share: float) -> float | None:
        upto, below = spread.at_most(share + NEARLY), spread.below(share - NEARLY)
        return None if upto is None or below is None else upto - below

    unit, says = "% of GPU instances", "read off"
    return {
        "gpu_at_most_0_1": Number(spread.at_most(0.1 + NEARLY), unit, 6, says),
        "gpu_below_0_25": Number(spread.below(0.25 - NEARLY), unit, 10, says),
        "gpu_0_25": Number(exactly(0.25), unit, 33, says),
        "gpu_0_5": Number(exactly(0.5), unit, 28, says),
        "gpu_1": Number(exactly(1.0), unit, 28, says),
        "gpu_above_1": Number(spread.above(1.0 + NEARLY), unit, 1.5, says),
    }


def use(tables: TraceTables) -> ReportFigure:
    """Show what instances use of CPU, GPU and memory (figure 5)."""
    key, title = "use", "Requests against use"
    missing = tables.lacks(*(source for source, *_ in SENSED.values()))
    if len(missing) == len(SENSED):
        return absent(key, title, missing)
    sensors = with_requests(tables)
    numbers = {}
    plots = []
    for name, (source, column, unit, paper) in SENSED.items():
        if tables.lacks(source):
            continue
        seen = sensors.filter(pl.col("asked_gpus") > 0) if name == "gpu" else sensors
        used, asked = WeightedValues(seen[column]), WeightedValues(seen[f"asked_{column}"])
        numbers[f"{name}_p50"] = Number(used.quantile(0.5), unit, paper)
        numbers[f"{name}_mean"] = Number(mean(seen[column].cast(pl.Float64)), unit)
        curves = tuple(
            spread.curve(word) for spread, word in ((used, "used"), (asked, "asked"))
        )
        plots.append(Plot(f"{unit} of one instance", "of instances, %", curves))
    if "gpu_p50" in numbers:
        idle = WeightedValues(sensors.filter(pl.col("asked_gpus") > 0)["gpus"]).at_most(0.0)
        numbers["gpu_never_used"] = Number(idle, "% of GPU instances")
    said = [
        f"{shown(numbers[f'{name}_p50'].value)} {unit} (paper: {paper})"
        for name, (_, _, unit, paper) in SENSED.items()
        if f"{name}_p50" in numbers
    ]
    sentence = f"Half of the measured instances use at most {', '.join(said)}."
    missing += tables.lacks(*JOINED)
    return ReportFigure(key, title, sentence, numbers, tuple(plots), missing)


def over_use(tables: TraceTables) -> ReportFigure:
    """Show who uses more than it asked for (figure 5d)."""
    key, title = "over_use", "Use above the request"
    needed = [source for source, *_ in SENSED.values()]
    needed += [source for source, *_ in RESOURCES.values()]
    missing = tables.lacks(*needed, *JOINED)
    if missing:
        return absent(key, title, missing)
    sensors = with_requests(tables)
    by_instance = {"cpu": 19.0, "gpu": 3.0, "memory": None}
    by_task = {"cpu": 15.51, "gpu": 1.97, "memory": 4.12}
    numbers = {}
    for name, (_, column, _, _) in SENSED.items():
        asking = sensors.filter(pl.col(f"asked_{column}") > 0).select(
            "task", over=pl.col(column) - pl.col(f"asked_{column}")
        )
        tasks = asking.group_by("task").agg(pl.col("over").mean())
        for of, rows, paper in (
            ("instances", asking, by_instance[name]),
            ("tasks", tasks, by_task[name]),
        ):
            above = mean((rows["over"] > 0).cast(pl.Float64))
            value = None if above is None else PERCENT * above
            numbers[f"{of}_over_{name}"] = Number(value, f"% of {of}", paper)
    sentence = (
        f"{shown(numbers['instances_over_cpu'].value)} % of instances use more CPU than they "
        f"asked for, {shown(numbers['instances_over_gpu'].value)} % more GPU "
        "(paper: 19 % and 3 %)."
    )
    return ReportFigure(key, title, sentence, numbers)


def with_requests(tables: TraceTables) -> pl.DataFrame:
    """Return what was measured beside what the task had asked for."""
    task = tables.instances["task"].gather(tables.sensors["instance"])
    asked = {
        f"asked_{column}": tables.tasks[column].gather(task).cast(pl.Float32)
        for column in ("cpus", "gpus", "memory_gib")
    }
    columns = ("cpus", "gpus", "memory_gib")
    return tables.sensors.select(*columns).with_columns(task.alias("task"), **asked)
