"""How busy machines, their network and their disks are."""

from math import log10
from typing import Final

import polars as pl

from interlane.traces.report.figure import (
    CURVE_POINTS,
    Number,
    Plot,
    PlotCurve,
    ReportFigure,
    absent,
    shown,
)
from interlane.traces.report.sampling import sampled, step_s
from interlane.traces.report.spread import PERCENT, WeightedValues, mean, round_off
from interlane.traces.report.tables import DAY_S, TraceTables

SIZES: Final = (2, 8)
"""GPUs of a machine; the paper tells two kinds apart."""

PAPER: Final = {
    ("cpu", 8): (36.0, 77.0),
    ("gpu", 8): (26.0, 87.0),
    ("cpu", 2): (12.0, 42.0),
    ("gpu", 2): (16.0, 77.0),
}
"""Medians over time of the p50 and the p90 machine in percent, read off figure 6."""

NEEDS: Final = (
    "machine_metric.machine",
    "machine_metric.start_time",
    "machine_metric.end_time",
    "machine_metric.machine_cpu",
    "machine_metric.machine_gpu",
    "machine_spec.cap_gpu",
)

MEMORY_NEEDS: Final = ("sensor.avg_mem", "machine_spec.cap_mem", "instance.machine")
MEMORY_BOUND: Final = 60.0

BANDWIDTH: Final = "the guaranteed bandwidth of machines (no table has it)"
GIGABIT: Final = 8e-9


def machine_use(tables: TraceTables) -> ReportFigure:
    """Show the use of the median and the p90 machine over time (figure 6)."""
    key, title = "machine_use", "Use of machines"
    if missing := tables.lacks(*NEEDS):
        return absent(key, title, missing)
    runs = tables.metrics.select("machine", "start_s", "end_s", "cpu", "gpu")
    runs = runs.filter(pl.col("machine").is_not_null())
    every_s = step_s(runs)
    seen = (
        sampled(runs, every_s)
        .lazy()
        .group_by("moment", "machine")
        .agg(pl.col("cpu", "gpu").mean())
        .with_columns(size=_sizes(tables))
        .filter(pl.col("size").is_in(SIZES))
        .group_by("moment", "size")
        .agg(
            pl.col("cpu", "gpu").quantile(0.5, "nearest").name.suffix("_p50"),
            pl.col("cpu", "gpu").quantile(0.9, "nearest").name.suffix("_p90"),
        )
        .sort("moment")
        .collect()
    )
    numbers = {}
    for (what, size), (middle, high) in PAPER.items():
        of_size = seen.filter(pl.col("size") == size)
        for quantile, paper in (("p50", middle), ("p90", high)):
            value = WeightedValues(of_size[f"{what}_{quantile}"]).quantile(0.5)
            name = f"{what}_{quantile}_{size}_gpu_machines"
            numbers[name] = Number(value, f"% of the {what.upper()}", paper, "read off")
    lost = tables.lacks(*MEMORY_NEEDS)
    if not lost:
        numbers["memory_p90_below_60"] = Number(
            _memory_below(tables), "% of the time", 100, "nearly always"
        )
    large, small = (numbers[f"gpu_p90_{size}_gpu_machines"].value for size in (8, 2))
    sentence = (
        f"Of ten machines that report, the second busiest typically uses {shown(large)} % of "
        f"its GPUs with 8 of them and {shown(small)} % with 2 (paper: 87 % and 77 %)."
    )
    plots = tuple(_over_time(seen, what, every_s) for what in ("cpu", "gpu"))
    return ReportFigure(key, title, sentence, numbers, plots, lost)


def _sizes(tables: TraceTables) -> pl.Expr:
    """Return the GPUs of the machine in a row."""
    sizes = tables.machines["gpus"].cast(pl.Int32, strict=False)
    return pl.col("machine").replace_strict(
        pl.int_range(len(sizes), dtype=pl.UInt32, eager=True), sizes, default=None
    )


def _over_time(seen: pl.DataFrame, what: str, every_s: int) -> Plot:
    curves = []
    for size in SIZES:
        of_size = seen.filter(pl.col("size") == size)
        if of_size.is_empty():
            continue
        thin = of_size.gather_every(max(1, -(-of_size.height // CURVE_POINTS)))
        days = [round_off(moment * every_s / DAY_S) for moment in thin["moment"].to_list()]
        for quantile in ("p90", "p50"):
            values = [round_off(value or 0.0) for value in thin[f"{what}_{quantile}"].to_list()]
            curves.append(PlotCurve(f"{quantile}, {size}-GPU machines", days, values))
    return Plot("day of the trace", f"use of {what.upper()}, %", tuple(curves))


def _memory_below(tables: TraceTables) -> float | None:
    """Return how often the p90 machine's instances use less than 60 % of its memory."""
    runs = tables.sensors.select("instance", "memory_gib").drop_nulls()
    at = runs["instance"]
    runs = runs.select("memory_gib").with_columns(
        tables.instances[name].gather(at).alias(name)
        for name in ("machine", "start_s", "end_s")
    )
    runs = runs.filter(pl.col("machine").is_not_null())
    by_machine = (
        sampled(runs, step_s(runs, samples_most=3_000_000))
        .lazy()
        .group_by("moment", "machine")
        .agg(pl.col("memory_gib").sum())
        .collect()
    )
    capacity = tables.machines["memory_gib"].gather(by_machine["machine"])
    part = by_machine.select("moment", part=PERCENT * pl.col("memory_gib") / capacity)
    high = part.group_by("moment").agg(pl.col("part").quantile(0.9, "nearest"))
    return WeightedValues(high["part"]).below(MEMORY_BOUND)


def network_io(tables: TraceTables) -> ReportFigure:
    """Show what comes in over the network, and how little waits for disks (figure 7)."""
    key, title = "network_io", "Network and I/O"
    columns = (
        "machine_net_receive",
        "machine_cpu_iowait",
        "machine_cpu_usr",
        "machine_cpu_kernel",
    )
    if missing := tables.lacks(*(f"machine_metric.{name}" for name in columns)):
        return absent(key, title, missing)
    metrics = tables.metrics
    received = WeightedValues(metrics["net"].cast(pl.Float64) * GIGABIT)
    busy = mean((metrics["usr"] + metrics["kernel"]).cast(pl.Float64))
    waiting = mean(metrics["iowait"].cast(pl.Float64))
    orders = log10(busy / waiting) if busy and waiting else None
    numbers = {
        "net_receive_p50": Number(received.quantile(0.5), "Gbit/s"),
        "net_receive_p95": Number(received.quantile(0.95), "Gbit/s"),
        "net_receive_p99": Number(received.quantile(0.99), "Gbit/s"),
        "iowait_mean": Number(waiting, "% of the CPU"),
        "usr_and_kernel_mean": Number(busy, "% of the CPU"),
        "iowait_orders_below": Number(orders, "orders of magnitude", 3),
    }
    sentence = (
        f"Waiting for disks takes {shown(orders)} orders of magnitude less CPU time than "
        f"work does (paper: 3), and in 95 % of the measurements a machine receives at most "
        f"{shown(numbers['net_receive_p95'].value)} Gbit/s (paper: below half of what is "
        "guaranteed)."
    )
    plots = (
        Plot("received, Gbit/s", "of measurements, %", (received.curve("machines"),)),
        Plot("of the CPU, %", "of measurements, %", _cpu_curves(metrics), x_log=True),
    )
    return ReportFigure(key, title, sentence, numbers, plots, (BANDWIDTH,))


def _cpu_curves(metrics: pl.DataFrame) -> tuple[PlotCurve, ...]:
    parts = (
        ("usr + kernel", metrics["usr"] + metrics["kernel"]),
        ("iowait", metrics["iowait"]),
    )
    return tuple(
        WeightedValues(values.filter(values > 0)).curve(name) for name, values in parts
    )
