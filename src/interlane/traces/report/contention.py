"""Whether instances that share a GPU get in each other's way."""

from typing import Final

import polars as pl

from interlane.traces.report.figure import Number, Plot, ReportFigure, absent, shown
from interlane.traces.report.sampling import sampled, step_s
from interlane.traces.report.spread import PERCENT, WeightedValues, mean
from interlane.traces.report.tables import TraceTables

BUSY: Final = 95.0
"""A GPU that is used this much, in percent, has nothing left to share."""

IDLE: Final = 0.5
"""A GPU that is used less than this, in percent, does nothing."""

NEEDS: Final = (
    "sensor.gpu_name",
    "sensor.gpu_wrk_util",
    "sensor.worker_name",
    "instance.worker_name",
    "instance.start_time",
    "instance.end_time",
)
SAMPLES_MOST: Final = 4_000_000


def busy_gpus(tables: TraceTables) -> ReportFigure:
    """Show the use of GPUs, and who shares the busiest (figure 9)."""
    key, title = "contention", "Contention on busy GPUs"
    if missing := tables.lacks(*NEEDS):
        return absent(key, title, missing)
    gpus = _gpus_at_moments(tables)
    if gpus.is_empty():
        return absent(key, title, ("instances with GPUs that ran at a full hour",))
    used = WeightedValues(gpus["used"])
    busy = gpus.filter(pl.col("used") >= BUSY)
    hosting = mean((busy["instances"] > 1).cast(pl.Float64))
    several = mean((gpus["instances"] > 1).cast(pl.Float64))
    numbers = {
        "busy": Number(PERCENT * busy.height / gpus.height, "% of GPUs in use", 7),
        "busy_hosting_several": Number(_percent(hosting), "% of busy GPUs", 4.5),
        "hosting_several": Number(_percent(several), "% of GPUs in use"),
        "idle": Number(used.below(IDLE), "% of GPUs in use", 28, "read off"),
        "used_p50": Number(used.quantile(0.5), "% of the GPU", 20, "read off"),
    }
    sentence = (
        f"{shown(numbers['busy'].value)} % of the GPUs in use are busy at 95 % or more, and of "
        f"these {shown(_percent(hosting))} % host several instances (paper: 7 % and 4.5 %)."
    )
    plot = Plot("use of the GPU, %", "of GPUs in use, %", (used.curve("GPUs"),))
    return ReportFigure(key, title, sentence, numbers, (plot,))


def _percent(part: float | None) -> float | None:
    return None if part is None else PERCENT * part


def _gpus_at_moments(tables: TraceTables) -> pl.DataFrame:
    """Return the GPUs that hosted somebody, at full hours: their use and their guests.

    An instance with several GPUs is measured on one of them; its use is spread evenly.
    """
    runs = tables.sensors.select("instance", "gpu", "gpus").drop_nulls()
    at = runs["instance"]
    asked = tables.tasks["gpus"].gather(tables.instances["task"].gather(at))
    runs = runs.select("gpu", "gpus").with_columns(
        asked.alias("asked"),
        tables.instances["start_s"].gather(at),
        tables.instances["end_s"].gather(at),
    )
    runs = runs.filter((pl.col("asked") > 0) & pl.col("start_s").is_not_null()).select(
        "gpu",
        "start_s",
        "end_s",
        used=PERCENT * pl.col("gpus") / pl.max_horizontal(pl.col("asked").ceil(), pl.lit(1.0)),
    )
    return (
        sampled(runs, step_s(runs, SAMPLES_MOST))
        .lazy()
        .group_by("moment", "gpu")
        .agg(pl.col("used").sum().clip(0.0, PERCENT), pl.len().alias("instances"))
        .collect()
    )
