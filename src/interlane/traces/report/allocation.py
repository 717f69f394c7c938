"""How much of the machines is given away, by GPU type."""

from typing import Final

import polars as pl

from interlane.traces.report.figure import Number, Plot, PlotCurve, ReportFigure, absent, shown
from interlane.traces.report.spread import PERCENT, percent, total
from interlane.traces.report.tables import TraceTables

NEEDS: Final = (
    "instance.machine",
    "instance.start_time",
    "instance.end_time",
    "machine_spec.cap_cpu",
    "machine_spec.cap_gpu",
    "task.plan_cpu",
)


def allocation(tables: TraceTables) -> ReportFigure:
    """Show how much CPU and GPU time of each type is allocated."""
    key, title = "allocation", "Allocation by GPU type"
    if missing := tables.lacks(*NEEDS):
        return absent(key, title, missing)
    by_machine = _by_machine(tables)
    span_s = tables.span_s[1] - tables.span_s[0]
    misc = _allocated(by_machine, span_s, pl.col("gpu_type") == "MISC")
    v100 = _allocated(by_machine, span_s, pl.col("gpu_type").str.starts_with("V100"))
    small = _allocated(by_machine, span_s, pl.col("size") == 2)
    unit = "% of {} time"
    numbers = {
        "misc_cpu": Number(misc[0], unit.format("CPU"), 77),
        "misc_gpu": Number(misc[1], unit.format("GPU"), 74),
        "v100_cpu": Number(v100[0], unit.format("CPU"), 35),
        "v100_gpu": Number(v100[1], unit.format("GPU"), 49),
        "two_gpu_cpu": Number(small[0], unit.format("CPU"), 31),
    }
    lost = tables.lacks("sensor.cpu_usage", "sensor.worker_name", "instance.worker_name")
    if not lost:
        used = _cpu_used(tables, small[0])
        numbers["two_gpu_cpu_used"] = Number(used, unit.format("CPU"), 19)
    sentence = (
        f"MISC machines have {shown(misc[1])} % of their GPU time allocated and V100 machines "
        f"{shown(v100[1])} % (paper: 74 % and 49 %)."
    )
    return ReportFigure(key, title, sentence, numbers, (_plot(by_machine, span_s),), lost)


def _by_machine(tables: TraceTables) -> pl.DataFrame:
    """Return each machine with the CPU and GPU seconds that instances held of it."""
    held = (
        tables.instances.select("machine", "run_s", "task")
        .with_columns(cpus=tables.of_task("cpus"), gpus=tables.of_task("gpus"))
        .lazy()
        .filter(pl.col("machine").is_not_null() & pl.col("run_s").is_not_null())
        .group_by("machine")
        .agg(
            cpu_s=(pl.col("cpus") * pl.col("run_s")).sum(),
            gpu_s=(pl.col("gpus") * pl.col("run_s")).sum(),
        )
        .collect()
    )
    machines = tables.machines.with_row_index("machine").rename({"gpus": "size"})
    return machines.join(held, on="machine", how="left").fill_null(0.0)


def _allocated(
    by_machine: pl.DataFrame, span_s: float, which: pl.Expr
) -> tuple[float | None, float | None]:
    part = by_machine.filter(which.fill_null(value=False))
    cpu = percent(total(part["cpu_s"]), span_s * total(part["cpus"]))
    return cpu, percent(total(part["gpu_s"]), span_s * total(part["size"]))


def _cpu_used(tables: TraceTables, allocated: float | None) -> float | None:
    """Return what instances use of the CPU of machines with two GPUs.

    Not all instances are measured; what these use of their requests is taken for all.
    """
    at = tables.sensors["instance"]
    size = tables.machines["gpus"].gather(tables.instances["machine"].gather(at))
    on_small = (size == 2).fill_null(value=False)
    run_s = tables.instances["run_s"].gather(at)
    asked_s = tables.tasks["cpus"].gather(tables.instances["task"].gather(at)) * run_s
    used_s = tables.sensors["cpus"].cast(pl.Float64) * run_s
    asked = total(asked_s.filter(on_small))
    if allocated is None or not asked:
        return None
    return allocated * total(used_s.filter(on_small)) / asked


def _plot(by_machine: pl.DataFrame, span_s: float) -> Plot:
    types = (
        by_machine.drop_nulls("gpu_type")
        .group_by("gpu_type")
        .agg(pl.col("cpu_s", "gpu_s", "cpus", "size").sum())
        .sort("gpu_type")
    )
    names = types["gpu_type"].to_list()
    bars = []
    for word, held, capacity in (("CPU", "cpu_s", "cpus"), ("GPU", "gpu_s", "size")):
        parts = [
            PERCENT * amount / (span_s * limit) if span_s and limit else None
            for amount, limit in types.select(held, capacity).iter_rows()
        ]
        bars.append(PlotCurve(word, names, parts))
    return Plot("GPU type", "allocated, %", tuple(bars), bars=True)
