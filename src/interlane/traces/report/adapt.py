"""Give a trace in our own schema the shape of the tables, with the columns that it has.

A column that holds its default in every row counts as not told: a trace in which nobody asks
for memory knows nothing about memory.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from interlane.model import MILLI, Cluster
from interlane.model.units import MIB_PER_GIB
from interlane.traces.read.pai2020 import TABLES
from interlane.traces.report.lines import HASH_SEED
from interlane.traces.report.quality import QualityFinding, found
from interlane.traces.report.tables import EVERY_COLUMN, TraceTables
from interlane.traces.schema import Trace

STEP_S: Final = 3600.0
"""Submissions that go back by more than this, in the order of the file, are a clock step."""

_ALWAYS: Final = frozenset(
    {
        "job.job_name",
        "job.start_time",
        "task.job_name",
        "task.task_name",
        "task.inst_num",
        "task.plan_gpu",
        "instance.job_name",
        "instance.task_name",
    }
)

_BY_COLUMN: Final = {
    "user": ("job.user",),
    "group": ("group_tag.group", "group_tag.inst_id"),
    "gpu_types": ("group_tag.gpu_type_spec",),
    "cpu_milli": ("task.plan_cpu",),
    "memory_mib": ("task.plan_mem",),
    "waited_s": (
        "task.start_time",
        "task.end_time",
        "job.end_time",
        "instance.start_time",
        "instance.end_time",
    ),
}
"""Our column -> what of the seven tables it tells."""

_WORDS: Final = {name: ours for ours, names in _BY_COLUMN.items() for name in names}


def tables_of(trace: Trace, cluster: Cluster | None = None) -> TraceTables:
    """Return the tables of a trace, and of its cluster where that is known."""
    frame = trace.frame.with_columns(pl.col("job_id").rle_id().alias("job"))
    told = {name for name in _BY_COLUMN if _tells(frame, name)}
    has = _ALWAYS.union(*(_BY_COLUMN[name] for name in told))
    if cluster is not None:
        has |= _OF_MACHINES
    waited = pl.col("waited_s") if "waited_s" in told else pl.lit(None, pl.Float64)
    tasks = frame.select(
        "job",
        "role",
        "user",
        "submit_s",
        "same_machine",
        instances=pl.col("instances").cast(pl.Float64),
        cpus=pl.col("cpu_milli") / MILLI,
        memory_gib=pl.col("memory_mib") / MIB_PER_GIB,
        gpus=pl.col("gpus") * pl.col("gpu_milli") / MILLI,
        gpu_type=pl.lit(None, pl.String),
        start_s=pl.col("submit_s") + waited,
        end_s=pl.col("submit_s") + waited + pl.col("duration_s"),
        wait_s=waited,
        run_s=pl.col("duration_s"),
        group=_key("group"),
        workload=pl.lit(None, pl.String),
        gpu_type_spec=pl.when(pl.col("gpu_types") != "").then(pl.col("gpu_types")),
    ).with_columns(user=_key("user"), job_end_s=pl.col("end_s"))
    tasks = tasks.with_row_index("task")
    jobs = tasks.filter(pl.col("job").is_first_distinct()).select(
        "job", "user", "submit_s", "end_s"
    )
    return TraceTables(
        name=trace.name,
        jobs=jobs,
        tasks=tasks.drop("run_s"),
        instances=_instances(tasks),
        sensors=_none("instance", "machine", "gpu", *_SENSED),
        machines=_machines(cluster),
        metrics=_none("instance", "machine", "start_s", "end_s", *_MEASURED),
        absent=EVERY_COLUMN - has,
        findings=(
            *_bad_rows(trace),
            *_notes(trace),
            *_clock_steps(frame),
            *_one_group(trace, told),
        ),
        clock_s=trace.clock_s,
        words=_WORDS,
    )


_OF_MACHINES: Final = frozenset(
    f"machine_spec.{column}" for column in TABLES["pai_machine_spec"]
)
_SENSED: Final = ("cpus", "gpus", "memory_gib", "gpu_memory_gib", "net_read")
_MEASURED: Final = ("iowait", "kernel", "usr", "gpu", "net", "cpu")


def _tells(frame: pl.DataFrame, column: str) -> bool:
    """Tell whether a column says anything."""
    if column not in frame.columns:
        return False
    values = frame[column].drop_nulls()
    nothing = "" if values.dtype == pl.String else 0
    return bool((values != nothing).any()) or (column == "waited_s" and len(values) > 0)


def _key(column: str) -> pl.Expr:
    return pl.when(pl.col(column) != "").then(pl.col(column).hash(HASH_SEED))


def _instances(tasks: pl.DataFrame) -> pl.DataFrame:
    """Return one row for all instances of a task; nobody tells them apart.

    Where waits are not told, a task counts from its submission.
    """
    start = pl.coalesce("start_s", "submit_s")
    return tasks.select(
        "task",
        machine=pl.lit(None, pl.UInt32),
        worker=pl.lit(None, pl.UInt64),
        start_s=start,
        end_s=start + pl.col("run_s"),
        run_s=pl.col("run_s"),
        count=pl.col("instances").cast(pl.UInt32),
    )


def _none(*columns: str) -> pl.DataFrame:
    kinds: dict[str, pl.DataType] = dict.fromkeys(columns, pl.Float32())
    kinds |= {name: pl.UInt32() for name in ("instance", "machine") if name in kinds}
    if columns[2:3] == ("gpu",):
        kinds["gpu"] = pl.UInt64()
    return pl.DataFrame(schema=kinds)


def _machines(cluster: Cluster | None) -> pl.DataFrame:
    machines = () if cluster is None else cluster.machines
    return pl.DataFrame(
        {
            "gpu_type": pl.Series([one.gpu_type for one in machines], dtype=pl.String),
            "cpus": _amounts([one.cpu_milli / MILLI for one in machines]),
            "memory_gib": _amounts([one.memory_mib / MIB_PER_GIB for one in machines]),
            "gpus": _amounts([one.gpus for one in machines]),
        }
    )


def _amounts(values: Sequence[float]) -> pl.Series:
    return pl.Series(values, dtype=pl.Float64)


def _bad_rows(trace: Trace) -> tuple[QualityFinding, ...]:
    """Return the rows that the reader left out, by reason."""
    if not trace.bad_count:
        return ()
    rows = trace.frame.height + trace.bad_count
    first = trace.bad[0]
    table = trace.name
    listed = pl.DataFrame({"what": [_reason(bad.what) for bad in trace.bad]})
    counts = listed.group_by("what", maintain_order=True).len()
    by_reason = [
        QualityFinding(table, f"left out: {what}", count, rows, _example(trace, what))
        for what, count in counts.iter_rows()
    ]
    rest = trace.bad_count - len(trace.bad)
    return (
        *by_reason,
        *found(table, "left out: further bad rows", rest, rows, f"line {first.line} first"),
    )


def _notes(trace: Trace) -> tuple[QualityFinding, ...]:
    """Return what the reader passed over or mended."""
    rows = trace.frame.height + trace.bad_count + sum(count for _, count in trace.notes)
    return tuple(QualityFinding(trace.name, what, count, rows) for what, count in trace.notes)


def _reason(what: str) -> str:
    """Return the rule that a bad row breaks, without the value that breaks it."""
    column, is_, rest = what.partition(" is ")
    _, but, rule = rest.rpartition(", but ")
    return f"{column}: {rule}" if is_ and but else what


def _example(trace: Trace, reason: str) -> str:
    first = next(bad for bad in trace.bad if _reason(bad.what) == reason)
    return f"line {first.line}: {first.what}"


def _clock_steps(frame: pl.DataFrame) -> tuple[QualityFinding, ...]:
    jobs = frame.filter(pl.col("job").is_first_distinct())
    back_s = -jobs["submit_s"].diff()
    steps = back_s.filter(back_s > STEP_S)
    if steps.is_empty():
        return ()
    most = steps.max()
    largest = f"by up to {float(most):,.0f} s" if isinstance(most, float) else ""
    what = "submissions go back in the file's order: a clock step, or rows out of order"
    return found("jobs", what, len(steps), jobs.height, largest)


def _one_group(trace: Trace, told: set[str]) -> tuple[QualityFinding, ...]:
    rows = trace.frame.height
    if "group" not in told or rows < 2:
        return ()
    groups = trace.frame["group"].n_unique()
    what = "group has one value, so that it tells no job from another"
    return found("jobs", what, rows, rows) if groups == 1 else ()
