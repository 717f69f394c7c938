"""Turn a trace into jobs: sample it, set its arrivals, build the objects.

Sampling and arrivals follow the published PAI simulator, so that the same seed picks the
same jobs.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from random import Random
from typing import Final

import polars as pl

from interlane.model import (
    Demand,
    InvalidField,
    Job,
    JobId,
    Request,
    Task,
)
from interlane.traces.schema import (
    TASK_COLUMNS,
    Trace,
    closeness_in,
    is_used,
    pairs_in,
)

BLOCKS: Final = 20
"""Blocks in which a trace is drawn anew."""

SAMPLE_FROM: Final = 10
"""A sample of n is drawn from the first 10 n + 1 jobs of the file."""

BATCH_S: Final = 60
"""At a given rate, jobs arrive in batches one minute apart."""

Adapt = Callable[[Request, int], Request]


def sample(trace: Trace, n: int, seed: int) -> Trace:
    """Return ``n`` jobs drawn by the published rule, or all jobs when there are fewer."""
    if n < 1:
        raise InvalidField("sample", n, "it must be 1 or more")
    read = min(trace.jobs, SAMPLE_FROM * n + 1)
    if n > read:
        return trace
    order = list(range(read))
    Random(seed).shuffle(order)
    picks = pl.DataFrame({"job": pl.Series(order[:n], dtype=pl.UInt32)})
    frame = trace.frame.with_columns(pl.col("job_id").rle_id().alias("job"))
    drawn = picks.join(frame, on="job", how="left", maintain_order="left_right")
    return replace(trace, frame=drawn.drop("job"))


def resampled(trace: Trace, seed: int, blocks: int = BLOCKS) -> Trace:
    """Return as many jobs, drawn anew in blocks that follow each other as the trace's do.

    A block is so many jobs in a row, with the gaps between them: what comes in bursts goes on
    doing so, and the load stays about what it was (a moving-block bootstrap).
    """
    jobs = _job_rows(trace).sort("submit_s", "serial", maintain_order=True)
    count = jobs.height
    length = max(1, -(-count // blocks))
    rng = Random(seed)
    firsts = [rng.randrange(count - length + 1) for _ in range(-(-count // length))]
    begin_s = jobs["submit_s"].to_list()
    picks: list[int] = []
    at_s: list[float] = []
    now_s = 0.0
    for first in firsts:
        last = min(first + length, count)
        picks += range(first, last)
        at_s += [now_s + begin_s[place] - begin_s[first] for place in range(first, last)]
        # The gap to the next block is the one that came before this block in the trace.
        gap_s = begin_s[first] - begin_s[first - 1] if first else 0.0
        now_s = at_s[-1] + gap_s
    drawn = pl.DataFrame(
        {
            "job_id": jobs["job_id"].gather(picks[:count]),
            "at_s": at_s[:count],
            "copy": range(count),
        }
    )
    name = pl.col("job_id") + "/" + pl.col("copy").cast(pl.String)
    frame = drawn.join(trace.frame, on="job_id", how="left", maintain_order="left_right")
    frame = frame.with_columns(
        job_id=name, submit_s=pl.col("at_s"), serial=pl.col("copy").cast(pl.Int64)
    )
    return replace(trace, frame=frame.select(trace.frame.columns))


def at_rate(trace: Trace, rate: int) -> Trace:
    """Return the jobs in their order, ``rate`` of them arriving together every minute."""
    if rate < 1:
        raise InvalidField("rate", rate, "it must be 1 job per minute or more")
    jobs = _job_rows(trace).sort("submit_s", "serial", maintain_order=True)
    arrivals = jobs.select(
        "job_id",
        (pl.int_range(pl.len()) // rate * BATCH_S).cast(pl.Float64).alias("submit_s"),
    )
    frame = trace.frame.drop("submit_s").join(
        arrivals, on="job_id", how="left", maintain_order="left"
    )
    return replace(trace, frame=frame.select(trace.frame.columns))


def jobs_of(
    trace: Trace,
    *,
    estimate: str | None,
    adapt: Adapt | None = None,
    checkpoint_s: float = 0.0,
) -> tuple[list[Job], list[float]]:
    """Return the jobs and their true durations, ordered by submission, then serial.

    Jobs that ask for the same thing share one ``Request``.  ``adapt`` may replace a request,
    given how many pods the trace counted; it is asked once per distinct request.
    """
    if checkpoint_s < 0:
        raise InvalidField("checkpoint", checkpoint_s, "it must be 0 s or more")
    column = None if estimate is None else trace.estimate(estimate)
    shapes, tasks = _shapes(trace)
    requests, rows = _requests(trace, shapes, tasks, adapt)
    jobs = rows.sort("submit_s", "serial", maintain_order=True)
    estimates = [None] * jobs.height if column is None else jobs[column].to_list()
    columns = (
        map(JobId, jobs["job_id"].to_list()),
        map(requests.__getitem__, jobs["request"].to_list()),
        jobs["submit_s"].to_list(),
        jobs["serial"].to_list(),
        estimates,
        jobs["user"].to_list(),
        jobs["queue"].to_list(),
        jobs["priority"].to_list(),
        repeat(checkpoint_s),
        jobs["group"].to_list(),
        jobs["family"].to_list(),
    )
    with _collector_paused():
        return list(map(Job, *columns)), jobs["duration_s"].to_list()


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the cycle collector, which finds nothing here.

    Jobs hold no cycles, and walking a growing list of them takes as long as making them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _job_rows(trace: Trace) -> pl.DataFrame:
    """Return the first row of each job."""
    first = pl.col("job_id").rle_id().is_first_distinct()
    return trace.frame.filter(first)


def _numbered(frame: pl.DataFrame, columns: list[str], name: str) -> pl.DataFrame:
    """Return the distinct rows of these columns with a number each."""
    return frame.select(columns).unique(maintain_order=True).with_row_index(name)


def _shapes(trace: Trace) -> tuple[pl.Series, list[Task]]:
    """Return the number of each row's task shape, and the tasks."""
    columns = [name for name in TASK_COLUMNS if is_used(trace.frame, name)]
    distinct = _numbered(trace.frame, columns, "shape")
    joined = trace.frame.select(columns).join(
        distinct, on=columns, how="left", maintain_order="left"
    )
    return joined["shape"], [_task(row) for row in distinct.drop("shape").iter_rows(named=True)]


def _task(row: dict[str, object]) -> Task:
    fields = dict(row)
    sets = {
        "gpu_types": frozenset(str(fields.pop("gpu_types")).split("|")) - {""},
        "selectors": frozenset(pairs_in(str(fields.pop("selectors", "")))),
        "tolerations": frozenset(pairs_in(str(fields.pop("tolerations", "")))),
    }
    task = {name: fields.pop(name) for name in ("instances", "instances_min", "same_machine")}
    if task["instances_min"] == task["instances"]:
        task["instances_min"] = None
    role = fields.pop("role")
    return Task(Demand(**fields, **sets), **task, role=role)  # type: ignore[arg-type]


def _requests(
    trace: Trace, shapes: pl.Series, tasks: list[Task], adapt: Adapt | None
) -> tuple[list[Request], pl.DataFrame]:
    """Return the distinct requests, and the job rows with the number of theirs."""
    rows = trace.frame.with_columns(
        shapes.cast(pl.String).alias("shapes"), pl.col("job_id").rle_id().alias("job")
    )
    if trace.jobs < rows.height:
        # A job's request is the list of its tasks' shapes, spelt as text to compare it.
        several = rows.group_by("job", maintain_order=True).agg(
            pl.col("shapes").str.join("|"), pl.col("pods").sum()
        )
        firsts = rows.filter(pl.col("job").is_first_distinct()).drop("shapes", "pods")
        rows = firsts.join(several, on="job", how="left", maintain_order="left")
    key = ["shapes", "topology"] if is_used(rows, "topology") else ["shapes"]
    key += [] if adapt is None else ["pods"]
    distinct = _numbered(rows, key, "request")
    rows = rows.join(distinct, on=key, how="left", maintain_order="left")
    return _interned(distinct, tasks, adapt), rows


def _interned(distinct: pl.DataFrame, tasks: list[Task], adapt: Adapt | None) -> list[Request]:
    known: dict[Request, Request] = {}
    requests = []
    for row in distinct.iter_rows(named=True):
        of_job = tuple(tasks[int(shape)] for shape in row["shapes"].split("|"))
        request = Request(of_job, closeness_in(row.get("topology", "")))
        if adapt is not None:
            request = adapt(request, row["pods"])
        requests.append(known.setdefault(request, request))
    return requests
