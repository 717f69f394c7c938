"""Describe a trace in numbers."""

from typing import Final

import polars as pl

from interlane.model import MILLI
from interlane.traces.schema import Trace

QUANTILES: Final = (10, 25, 50, 75, 90, 95, 99)
"""Percentiles that are reported."""

CLOSE: Final = 0.25
"""An estimate within this part of the truth counts as close."""


def describe(trace: Trace) -> dict[str, object]:
    """Return what the trace holds: sizes, requests, durations, load and how good estimates are.

    Shares are of tasks unless their name says otherwise; a gang is a task of several
    instances.
    """
    tasks = trace.frame.with_columns(
        gpu_milli_all=pl.col("gpus") * pl.col("gpu_milli") * pl.col("instances")
    )
    jobs = tasks.filter(pl.col("job_id").rle_id().is_first_distinct())
    return {
        "name": trace.name,
        "jobs": jobs.height,
        "tasks": tasks.height,
        "instances": int(tasks["instances"].sum()),
        "users": jobs["user"].replace("", None).drop_nulls().n_unique(),
        "bad_rows": trace.bad_count,
        **_load(tasks),
        "kinds": _kinds(tasks),
        "gangs": _gangs(tasks),
        "duration_s": _spread(jobs["duration_s"]),
        "gpus_per_instance": _spread(_gpus_per_instance(tasks)),
        "gpus_per_job": _spread(_gpus_per_job(tasks)),
        "gpu_types": _types(tasks),
        "estimates": {name: _quality(jobs, name) for name in trace.estimates},
    }


def _load(tasks: pl.DataFrame) -> dict[str, object]:
    """Return the span of submissions, and the GPUs that would be busy if nobody waited."""
    span_s = _span_s(tasks["submit_s"])
    gpu_s = float((tasks["gpu_milli_all"] * tasks["duration_s"]).sum()) / MILLI
    return {
        "span_s": span_s,
        "gpu_hours": round(gpu_s / 3600, 3),
        "gpus_busy_mean": round(gpu_s / span_s, 3) if span_s else None,
    }


def _span_s(submit_s: pl.Series) -> float:
    return float(submit_s.to_numpy().max() - submit_s.to_numpy().min())


def _kinds(tasks: pl.DataFrame) -> dict[str, float]:
    """Return the share of tasks by what an instance asks for."""
    each = pl.col("gpus") * pl.col("gpu_milli")
    kinds = tasks.select(
        cpu_only=(each == 0).mean(),
        shared_gpu=((each > 0) & (each < MILLI)).mean(),
        one_gpu=(each == MILLI).mean(),
        more=(each > MILLI).mean(),
    )
    return {name: round(float(share), 4) for name, share in kinds.row(0, named=True).items()}


def _gangs(tasks: pl.DataFrame) -> dict[str, float]:
    """Return how much of everything is in tasks of several instances."""
    gangs = tasks.filter(pl.col("instances") > 1)
    return {
        "of_tasks": round(gangs.height / tasks.height, 4),
        "of_instances": _share(gangs["instances"], tasks["instances"]),
        "of_gpu_demand": _share(gangs["gpu_milli_all"], tasks["gpu_milli_all"]),
        "largest": int(tasks["instances"].to_numpy().max()),
    }


def _share(part: pl.Series, whole: pl.Series) -> float:
    return round(float(part.sum()) / (float(whole.sum()) or 1.0), 4)


def _gpus_per_instance(tasks: pl.DataFrame) -> pl.Series:
    with_gpus = tasks.filter(pl.col("gpus") > 0)
    return with_gpus["gpus"] * with_gpus["gpu_milli"] / MILLI


def _gpus_per_job(tasks: pl.DataFrame) -> pl.Series:
    by_job = tasks.group_by(pl.col("job_id").rle_id()).agg(pl.col("gpu_milli_all").sum())
    return by_job.filter(pl.col("gpu_milli_all") > 0)["gpu_milli_all"] / MILLI


def _spread(values: pl.Series) -> dict[str, float]:
    """Return quantiles, mean and largest; empty when there is nothing to describe."""
    if values.is_empty():
        return {}
    points = {f"p{point}": values.quantile(point / 100, "linear") for point in QUANTILES}
    found = {**points, "mean": values.to_numpy().mean(), "max": values.to_numpy().max()}
    return {name: round(float(value or 0.0), 3) for name, value in found.items()}


def _types(tasks: pl.DataFrame) -> dict[str, int]:
    """Count tasks by the GPU types that they name, commonest first."""
    with_gpus = tasks.filter(pl.col("gpus") > 0)
    counts = (
        with_gpus.group_by("gpu_types").len().sort("len", "gpu_types", descending=[True, False])
    )
    return {types or "any": count for types, count in counts.iter_rows()}


def _quality(jobs: pl.DataFrame, estimate: str) -> dict[str, object]:
    """Return how far an estimate is from the truth, over the jobs that have one."""
    known = jobs.filter(pl.col(estimate).is_not_null())
    if known.is_empty():
        return {"jobs": 0}
    off_s = (known[estimate] - known["duration_s"]).abs()
    close = off_s <= CLOSE * known["duration_s"]
    return {
        "jobs": known.height,
        "mae_s": round(float(off_s.to_numpy().mean()), 3),
        "within_25_percent": round(float(close.to_numpy().mean()), 4),
    }
