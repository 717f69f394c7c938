"""Read the PAI v2020 tables from a directory; only the job and task tables are needed.

A job's submission is the start in the job table, its tasks are roles, and its length runs
from the earliest start to the latest end of its instances (of its tasks, where the instance
table is missing or silent).  The task table's ``gpu_type`` says where a task ran; only the
group table's ``gpu_type_spec`` is a demand.

The instance table has 7.5 million rows, so it is streamed: only two times per job are kept.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import polars as pl

from interlane.model import InvalidFile
from interlane.model.units import MIB_PER_GIB
from interlane.traces.checks import (
    KEPT,
    MOST_GPUS,
    Bad,
    RawTable,
    Rows,
    known_gpu_types,
    split_cards,
    waits,
)
from interlane.traces.read.finish import make_trace
from interlane.traces.read.source import Options, Source, unpacked
from interlane.traces.schema import Trace

TABLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "pai_job_table": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
        "pai_task_table": (
            "job_name",
            "task_name",
            "inst_num",
            "status",
            "start_time",
            "end_time",
            "plan_cpu",
            "plan_mem",
            "plan_gpu",
            "gpu_type",
        ),
        "pai_instance_table": (
            "job_name",
            "task_name",
            "inst_name",
            "worker_name",
            "inst_id",
            "status",
            "start_time",
            "end_time",
            "machine",
        ),
        "pai_group_tag_table": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
        "pai_sensor_table": (
            "job_name",
            "task_name",
            "worker_name",
            "inst_id",
            "machine",
            "gpu_name",
            "cpu_usage",
            "gpu_wrk_util",
            "avg_mem",
            "max_mem",
            "avg_gpu_wrk_mem",
            "max_gpu_wrk_mem",
            "read",
            "write",
            "read_count",
            "write_count",
        ),
        "pai_machine_spec": ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"),
        "pai_machine_metric": (
            "worker_name",
            "machine",
            "start_time",
            "end_time",
            "machine_cpu_iowait",
            "machine_cpu_kernel",
            "machine_cpu_usr",
            "machine_gpu",
            "machine_load_1",
            "machine_net_receive",
            "machine_num_worker",
            "machine_cpu",
        ),
    }
)
"""Table -> its columns; the files may come with or without a header line.

The reader of jobs needs the first four; reports read them all.
"""

_SPAN = ("started_s", "ended_s")


def read(source: Source, options: Options) -> Trace:
    """Read the tables of a directory; bad rows of all tables are counted together."""
    jobs, bad_jobs = _jobs(source, options)
    tasks, bad_tasks = _tasks(source, options, jobs)
    spans, bad_instances = _spans(source, options, tasks)
    tags, bad_tags = _tags(source, options)
    whole, bad_spans = _with_spans(source, options, jobs, spans)
    frame = (
        tasks.lazy()
        .select(pl.exclude("task_started_s", "task_ended_s", "line"))
        .join(whole.lazy(), on="job_id", how="inner", maintain_order="left")
        .join(tags.lazy(), on="inst_id", how="left", maintain_order="left")
        .with_columns(pl.col("gpu_types", "group", "family").fill_null(""))
        .sort("row", maintain_order=True)
        .drop("row", "inst_id")
        .collect()
    )
    bad = bad_jobs + bad_tasks + bad_instances + bad_tags + bad_spans
    return make_trace(source, frame.to_dict(), bad)


def _jobs(source: Source, options: Options) -> tuple[pl.DataFrame, Bad]:
    rows = _rows(source, "pai_job_table")
    columns = {
        "job_id": rows.text("job_name", missing=None),
        "inst_id": rows.text("inst_id"),
        "user": rows.text("user"),
        "submit_s": rows.number("start_time"),
    }
    rows.each_once("job_name")
    good, bad = rows.settle(skip_bad=options.skip_bad)
    frame = pl.DataFrame(columns).with_columns(rows.table.numbers.alias("line")).filter(good)
    return frame.with_row_index("row"), bad


def _tasks(source: Source, options: Options, jobs: pl.DataFrame) -> tuple[pl.DataFrame, Bad]:
    rows = _rows(source, "pai_task_table")
    total = rows.rounded("plan_gpu", times=10, missing=0, most=MOST_GPUS)
    gpus, gpu_milli = split_cards(total, pl.ones(rows.height, pl.Int64, eager=True))
    columns = {
        "job_id": rows.text("job_name", missing=None),
        "role": rows.text("task_name", missing=None),
        "instances": rows.whole("inst_num", missing=1, least=1, most=MOST_GPUS),
        "gpus": gpus,
        "gpu_milli": gpu_milli,
        "cpu_milli": rows.rounded("plan_cpu", times=10, missing=0, most=10**9),
        "memory_mib": rows.rounded("plan_mem", times=MIB_PER_GIB, missing=0, most=10**9),
        "task_started_s": rows.optional("start_time"),
        "task_ended_s": rows.optional("end_time"),
    }
    _check_tasks(rows, columns, jobs)
    if options.skip_bad:
        rows.spread(columns["job_id"])
    good, bad = rows.settle(skip_bad=options.skip_bad)
    return pl.DataFrame(columns).with_columns(rows.table.numbers.alias("line")).filter(
        good
    ), bad


def _check_tasks(rows: Rows, columns: dict[str, pl.Series], jobs: pl.DataFrame) -> None:
    rows.each_once("job_name", "task_name")
    orphans = ~columns["job_id"].is_in(jobs["job_id"].implode())
    rows.flag_value(orphans.to_numpy(), "job_name", "the job table has no such job")
    backward = columns["task_ended_s"] < columns["task_started_s"]
    rows.flag_value(
        backward.fill_null(value=False).to_numpy(),
        "end_time",
        "a task cannot end before it starts",
    )


def _spans(source: Source, options: Options, tasks: pl.DataFrame) -> tuple[pl.DataFrame, Bad]:
    """Return when each job's work began and ended, from instances where they tell."""
    by_task = tasks.group_by("job_id").agg(
        _happened("task_started_s").min(), _happened("task_ended_s").max()
    )
    path = _find(source, "pai_instance_table")
    if path is None:
        names = {"task_started_s": "started_s", "task_ended_s": "ended_s"}
        return by_task.rename(names), Bad()
    by_instance, bad = _instance_spans(path, options)
    spans = by_task.join(by_instance, on="job_id", how="left").select(
        "job_id",
        pl.coalesce("started_s", "task_started_s").alias("started_s"),
        pl.coalesce("ended_s", "task_ended_s").alias("ended_s"),
    )
    return spans, bad


def _happened(column: str) -> pl.Expr:
    """Give the times of what has happened; what has not is empty or 0 in the tables."""
    return pl.col(column).filter(pl.col(column) > 0)


def _instance_spans(path: Path, options: Options) -> tuple[pl.DataFrame, Bad]:
    columns = TABLES["pai_instance_table"]
    with unpacked(path) as plain:
        rows = _instances(plain, columns)
        spans = (
            rows.filter(pl.col("why").is_null())
            .group_by("job_id")
            .agg(_happened("started_s").min(), _happened("ended_s").max())
        )
        wrong = rows.filter(pl.col("why").is_not_null()).select("line", "why")
        counted, listed = wrong.select(pl.len()), wrong.sort("line").head(KEPT)
        try:
            found = pl.collect_all([spans, counted, listed], engine="streaming")
        except pl.exceptions.PolarsError as error:
            first = str(error).splitlines()[0]
            raise InvalidFile(
                str(path), f"the table cannot be read ({first}); fetch it again."
            ) from None
    broken = tuple((int(line), str(why)) for line, why in found[2].iter_rows())
    nothing = pl.DataFrame()
    table = RawTable(str(path), nothing, pl.Series(), "line", broken, found[1].item())
    _, bad = Rows(table).settle(skip_bad=options.skip_bad)
    return found[0], bad


def _instances(path: Path, columns: tuple[str, ...]) -> pl.LazyFrame:
    """Return job, times and fault of every instance, to be streamed.

    Lines are cut here for the reason given in ``source``; this table has no quotes.
    """
    header = ",".join(columns)
    text, fields = pl.col("text"), pl.col("fields")
    started, ended = (_field(columns.index(name)) for name in ("start_time", "end_time"))
    lines = pl.scan_lines(path, name="text", row_index_name="line", row_index_offset=1)
    count = text.str.count_matches(",", literal=True) + 1
    return (
        lines.filter((text.str.strip_chars() != "") & (text != header))
        .with_columns(text.str.split(",").alias("fields"), count.alias("count"))
        .with_columns(started.alias("start"), ended.alias("end"))
        .select(
            "line",
            fields.list.get(0).alias("job_id"),
            _seconds("start").alias("started_s"),
            _seconds("end").alias("ended_s"),
            pl.when(pl.col("count") != len(columns))
            .then(
                pl.format("the row has {} fields, but ", "count")
                + f"{len(columns)} are expected"
            )
            .when((pl.col("start") != "") & _seconds("start").is_null())
            .then(pl.format("start_time is '{}', but it must be a number", "start"))
            .when((pl.col("end") != "") & _seconds("end").is_null())
            .then(pl.format("end_time is '{}', but it must be a number", "end"))
            .alias("why"),
        )
    )


def _field(place: int) -> pl.Expr:
    return pl.col("fields").list.get(place, null_on_oob=True).str.strip_chars()


def _seconds(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Float64, strict=False)


def _with_spans(
    source: Source, options: Options, jobs: pl.DataFrame, spans: pl.DataFrame
) -> tuple[pl.DataFrame, Bad]:
    """Return the jobs with their lengths; a job without tasks or without an end is bad."""
    joined = jobs.join(spans, on="job_id", how="left", maintain_order="left")
    path = _needed(source, "pai_job_table")
    rows = Rows(RawTable(str(path), joined, joined["line"]))
    duration_s = joined["ended_s"] - joined["started_s"]
    has_tasks = joined["job_id"].is_in(spans["job_id"].implode())
    rows.flag(
        (~has_tasks).to_numpy(),
        lambda row: f"job {joined['job_id'][row]!r} has no usable task in the task table",
    )
    rows.flag(
        duration_s.is_null().to_numpy(),
        lambda row: f"job {joined['job_id'][row]!r} never started or has not ended",
    )
    rows.flag(
        (duration_s <= 0).fill_null(value=False).to_numpy(),
        lambda row: (
            f"job {joined['job_id'][row]!r} lasts {duration_s[row]:g} s, "
            "but a duration must be above 0"
        ),
    )
    good, bad = rows.settle(skip_bad=options.skip_bad)
    waited_s = waits(joined["started_s"] - joined["submit_s"])
    whole = joined.with_columns(duration_s.alias("duration_s"), waited_s)
    whole = whole.drop(*_SPAN, "line")
    return whole.filter(good), bad


def _tags(source: Source, options: Options) -> tuple[pl.DataFrame, Bad]:
    if _find(source, "pai_group_tag_table") is None:
        kinds = dict.fromkeys(("inst_id", "gpu_types", "group", "family"), pl.String)
        return pl.DataFrame(schema=kinds), Bad()
    rows = _rows(source, "pai_group_tag_table")
    columns = {
        "inst_id": rows.text("inst_id", missing=None),
        "gpu_types": rows.gpu_types("gpu_type_spec", known_gpu_types(options.extra_gpu_types)),
        "group": rows.text("group"),
        "family": rows.text("workload"),
    }
    good, bad = rows.settle(skip_bad=options.skip_bad)
    return pl.DataFrame(columns).filter(good).unique("inst_id", keep="first"), bad


def _rows(source: Source, table: str) -> Rows:
    return Rows(Source(_needed(source, table)).table(TABLES[table]))


def _needed(source: Source, table: str) -> Path:
    path = _find(source, table)
    if path is None:
        raise InvalidFile(
            source.file,
            f"the directory has no {table}.csv, but the job and task tables are needed; "
            "unpack the tables there.",
        )
    return path


def _find(source: Source, table: str) -> Path | None:
    paths = (source.path / f"{table}.csv", source.path / f"{table}.csv.gz")
    return next((path for path in paths if path.is_file()), None)
