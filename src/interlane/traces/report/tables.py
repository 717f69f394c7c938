"""The tables that figures are made from, whatever the trace came as.

The seven PAI v2020 tables are read from CSV and joined: a name becomes the number of a row in
the table that it points to, so that 7.5 million instances are a few hundred megabytes.  A
trace in our own schema gives the same tables with the columns that it has.  What a trace
lacks is empty here and is named by ``lacks``; what does not join or cannot be true is counted
in ``findings``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final

import polars as pl

from interlane.model import InvalidFile
from interlane.traces.read.pai2020 import TABLES
from interlane.traces.report.lines import ColumnKind, LoadedRows, load
from interlane.traces.report.quality import QualityFinding, found

HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S

PAI_CLOCK_S: Final = 8.0 * HOUR_S
"""The PAI tables keep the time of day and of the week in UTC+8."""

LATEST_S: Final = 1e10
"""No clock counts further than three centuries, unless it counts something else."""

FAR: Final = 50
"""A time further from the median than this many times the middle 90 % is a clock's fault."""

SOME: Final = 100_000
"""Times that suffice to know the middle of them all."""

Tell = Callable[[str], None]

_KEY, _NUMBER, _WORD = ColumnKind.KEY, ColumnKind.NUMBER, ColumnKind.WORD

_TAKE: Final[Mapping[str, Mapping[str, ColumnKind]]] = MappingProxyType(
    {
        "pai_job_table": {
            "job_name": _KEY,
            "inst_id": _KEY,
            "user": _KEY,
            "start_time": _NUMBER,
            "end_time": _NUMBER,
        },
        "pai_task_table": {
            "job_name": _KEY,
            "task_name": _WORD,
            "inst_num": _NUMBER,
            "start_time": _NUMBER,
            "end_time": _NUMBER,
            "plan_cpu": _NUMBER,
            "plan_mem": _NUMBER,
            "plan_gpu": _NUMBER,
            "gpu_type": _WORD,
        },
        "pai_instance_table": {
            "worker_name": _KEY,
            "start_time": _NUMBER,
            "end_time": _NUMBER,
            "machine": _KEY,
        },
        "pai_group_tag_table": {
            "inst_id": _KEY,
            "gpu_type_spec": _WORD,
            "group": _KEY,
            "workload": _WORD,
        },
        "pai_sensor_table": {
            "worker_name": _KEY,
            "machine": _KEY,
            "gpu_name": _KEY,
            "cpu_usage": _NUMBER,
            "gpu_wrk_util": _NUMBER,
            "avg_mem": _NUMBER,
            "max_gpu_wrk_mem": _NUMBER,
            "read": _NUMBER,
        },
        "pai_machine_spec": {
            "machine": _KEY,
            "gpu_type": _WORD,
            "cap_cpu": _NUMBER,
            "cap_mem": _NUMBER,
            "cap_gpu": _NUMBER,
        },
        "pai_machine_metric": {
            "worker_name": _KEY,
            "machine": _KEY,
            "start_time": _NUMBER,
            "end_time": _NUMBER,
            "machine_cpu_iowait": _NUMBER,
            "machine_cpu_kernel": _NUMBER,
            "machine_cpu_usr": _NUMBER,
            "machine_gpu": _NUMBER,
            "machine_net_receive": _NUMBER,
            "machine_cpu": _NUMBER,
        },
    }
)
"""What is read of each table."""

_TASK: Final = {"task_key": ("job_name", "task_name")}
_JOINT: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = MappingProxyType(
    {"pai_task_table": _TASK, "pai_instance_table": _TASK}
)


@dataclass(frozen=True, eq=False)
class TraceTables:
    """A trace as joined tables; a row is found in another table by its number there.

    =========== ===========================================================================
    table       columns
    =========== ===========================================================================
    jobs        user, submit_s, end_s, inst_id
    tasks       job, role, instances, cpus, memory_gib, gpus (of one instance), gpu_type (of
                the machines that ran it), start_s, end_s, submit_s, user, wait_s, group,
                workload, gpu_type_spec, same_machine
    instances   task, machine, worker, start_s, end_s, run_s, count (instances in this row)
    sensors     instance, machine, gpu, cpus, gpus, memory_gib, gpu_memory_gib, net_read
    machines    gpu_type, cpus, memory_gib, gpus
    metrics     instance, machine, start_s, end_s, iowait, kernel, usr, gpu, net, cpu
    =========== ===========================================================================
    """

    name: str
    jobs: pl.DataFrame
    tasks: pl.DataFrame
    instances: pl.DataFrame
    sensors: pl.DataFrame
    machines: pl.DataFrame
    metrics: pl.DataFrame
    absent: frozenset[str]
    """Columns that the trace lacks, as ``table.column`` of the seven tables."""
    findings: tuple[QualityFinding, ...] = ()
    clock_s: float | None = None
    """Seconds from a Thursday's midnight to time 0 of the trace; None where nobody knows."""
    words: Mapping[str, str] = field(default_factory=dict)
    """What the trace itself would call a column that it lacks."""

    def lacks(self, *columns: str) -> tuple[str, ...]:
        """Return which of these columns the trace does not have, in its own words."""
        missing = [self.words.get(name, name) for name in columns if name in self.absent]
        return tuple(dict.fromkeys(missing))

    def of_task(self, column: str) -> pl.Series:
        """Return a column of the tasks, one value for each row of the instances."""
        return self.tasks[column].gather(self.instances["task"])

    @cached_property
    def span_s(self) -> tuple[float, float]:
        """When the first instance started and the last one ended."""
        start, end = self.instances["start_s"].min(), self.instances["end_s"].max()
        first = float(start) if isinstance(start, float) else 0.0
        return first, max(float(end), first) if isinstance(end, float) else first


def silent(what: str) -> None:
    """Say nothing."""


# -- the seven tables -----------------------------------------------------------------


def read_tables(folder: Path, tell: Tell = silent) -> TraceTables:
    """Read the tables that a directory has; at least the task table must be there."""
    paths = {table: _find(folder, table) for table in TABLES}
    if paths["pai_task_table"] is None:
        raise InvalidFile(
            str(folder),
            "the directory has no pai_task_table.csv, which every report needs; unpack the "
            "tables there.",
        )
    loaded = {}
    for table, path in paths.items():
        if path is not None:
            tell(table)
        loaded[table] = _load(table, path)
    if not loaded["pai_task_table"].frame.height:
        raise InvalidFile(
            str(paths["pai_task_table"]),
            "the table has no readable row, and a report needs at least one task; fetch it "
            "again.",
        )
    tell("joining")
    return _joined(folder.resolve().name, loaded)


def _find(folder: Path, table: str) -> Path | None:
    paths = (folder / f"{table}.csv", folder / f"{table}.csv.gz")
    return next((path for path in paths if path.is_file()), None)


def _load(table: str, path: Path | None) -> LoadedRows:
    if path is not None:
        return load(path, TABLES[table], _TAKE[table], _JOINT.get(table))
    kinds: dict[str, pl.DataType] = {name: kind.value for name, kind in _TAKE[table].items()}
    kinds |= dict.fromkeys(_JOINT.get(table, {}), ColumnKind.KEY.value)
    return LoadedRows(pl.DataFrame(schema=kinds), frozenset())


def _joined(name: str, loaded: dict[str, LoadedRows]) -> TraceTables:
    findings = [finding for table in loaded.values() for finding in table.findings]
    lost = _absent(loaded)
    frames = {table: one.frame for table, one in loaded.items()}
    loaded.clear()
    jobs, more = _jobs(frames.pop("pai_job_table"))
    findings += more
    tags, more = _once(frames.pop("pai_group_tag_table"), "inst_id", "pai_group_tag_table")
    findings += more
    machines, more = _once(frames.pop("pai_machine_spec"), "machine", "pai_machine_spec")
    findings += more
    tasks, more = _tasks(frames.pop("pai_task_table"), jobs, tags)
    findings += more
    instances, more = _instances(frames.pop("pai_instance_table"), tasks, machines)
    findings += more
    workers = _workers(instances)
    sensors, more = _sensors(frames.pop("pai_sensor_table"), workers, machines)
    findings += more
    metrics, more = _metrics(frames.pop("pai_machine_metric"), workers, machines)
    findings += more
    return TraceTables(
        name,
        jobs.drop("key"),
        tasks.drop("task_key", "job_name", "inst_id"),
        instances,
        sensors,
        machines.select(
            "gpu_type",
            cpus=pl.col("cap_cpu"),
            memory_gib=pl.col("cap_mem"),
            gpus=pl.col("cap_gpu"),
        ),
        metrics,
        lost,
        tuple(findings),
        PAI_CLOCK_S,
    )


def _absent(loaded: Mapping[str, LoadedRows]) -> frozenset[str]:
    """Return what cannot be told: columns and tables that are not there or have no row."""
    return frozenset(
        f"{short(table)}.{column}"
        for table, one in loaded.items()
        for column in TABLES[table]
        if column not in one.has or not one.frame.height
    )


def short(table: str) -> str:
    """Return a table's name as figures name it."""
    return table.removeprefix("pai_").removesuffix("_table")


EVERY_COLUMN: Final = frozenset(
    f"{short(table)}.{column}" for table, columns in TABLES.items() for column in columns
)
"""All that the seven tables can tell."""


def _once(
    frame: pl.DataFrame, key: str, table: str
) -> tuple[pl.DataFrame, list[QualityFinding]]:
    """Return the first row of each key; others are counted, rows without a key too."""
    named = frame.filter(pl.col(key).is_not_null())
    once = named.unique(key, keep="first", maintain_order=True)
    return once, [
        *found(table, f"{key} is empty", frame.height - named.height, frame.height),
        *found(table, f"{key} came before", named.height - once.height, frame.height),
    ]


def _times(frame: pl.DataFrame, table: str) -> tuple[pl.DataFrame, list[QualityFinding]]:
    """Return start_s and end_s as far as they can be true, and what cannot.

    An empty or zero time has not happened yet.
    """
    start, end = pl.col("start_s"), pl.col("end_s")
    frame = frame.rename({"start_time": "start_s", "end_time": "end_s"}).with_columns(
        pl.when(start > 0).then(start), pl.when(end > 0).then(end)
    )
    findings: list[QualityFinding] = []
    for name in ("start_s", "end_s"):
        low, high = _plausible(frame[name])
        far = (frame[name] < low) | (frame[name] > high)
        rows = int(far.sum())
        if rows:
            example = f"as far as {_furthest(frame[name].filter(far)):,.0f} s"
            what = f"clock step: {name} is far outside the time of the others"
            findings += found(table, what, rows, frame.height, example)
            frame = frame.with_columns(pl.when(~far).then(pl.col(name)).alias(name))
    backward = (frame["end_s"] < frame["start_s"]).fill_null(value=False)
    rows = int(backward.sum())
    if rows:
        findings += found(
            table, "negative run time: it ends before it starts", rows, frame.height
        )
        frame = frame.with_columns(pl.when(~backward).then(pl.col("end_s")).alias("end_s"))
    return frame, findings


def _plausible(times_s: pl.Series) -> tuple[float, float]:
    """Return the bounds within which a time can be true, by the middle of the others."""
    known = times_s.drop_nulls()
    some = known.gather_every(max(1, len(known) // SOME))
    low, middle, high = (some.quantile(q, "nearest") for q in (0.05, 0.5, 0.95))
    if low is None or middle is None or high is None:
        return 0.0, LATEST_S
    width = FAR * max(high - low, DAY_S)
    return max(middle - width, 0.0), min(middle + width, LATEST_S)


def _furthest(times_s: pl.Series) -> float:
    most = times_s.abs().max()
    return float(most) if isinstance(most, float) else 0.0


def _jobs(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[QualityFinding]]:
    table = "pai_job_table"
    once, findings = _once(frame, "job_name", table)
    timed, more = _times(once, table)
    jobs = timed.rename({"job_name": "key", "start_s": "submit_s"})
    return jobs.with_row_index("job"), findings + more


def _tasks(
    frame: pl.DataFrame, jobs: pl.DataFrame, tags: pl.DataFrame
) -> tuple[pl.DataFrame, list[QualityFinding]]:
    table = "pai_task_table"
    rows = frame.height
    again = rows - frame["task_key"].n_unique() if frame["task_key"].null_count() < rows else 0
    timed, findings = _times(frame, table)
    count = pl.col("inst_num")
    strange = int(((frame["inst_num"] < 1) | frame["inst_num"].is_null()).sum())
    owners = jobs.select("key", "job", "inst_id", "user", "submit_s", job_end_s="end_s")
    tasks = (
        timed.with_row_index("task")
        .join(owners, left_on="job_name", right_on="key", how="left", maintain_order="left")
        .join(tags, on="inst_id", how="left", maintain_order="left")
        .with_columns(
            role=pl.col("task_name"),
            instances=pl.when(count >= 1).then(count).otherwise(1.0).fill_null(1.0),
            cpus=pl.col("plan_cpu") / 100,
            gpus=(pl.col("plan_gpu") / 100).fill_null(0.0),
            memory_gib=pl.col("plan_mem"),
            same_machine=pl.lit(None, pl.Boolean),
        )
        .drop("task_name", "inst_num", "plan_cpu", "plan_gpu", "plan_mem")
    )
    orphans = int(tasks["job"].is_null().sum())
    untagged = int((tasks["group"].is_null() & tasks["job"].is_not_null()).sum())
    findings += [
        *found(table, "job_name and task_name came before", again, rows),
        *found(table, "inst_num is empty or below 1, taken as 1", strange, rows),
        *_unjoined(table, "job_name is not in pai_job_table", orphans, rows, jobs),
        *_unjoined(table, "the job has no group in pai_group_tag_table", untagged, rows, tags),
    ]
    tasks = with_waits(tasks)
    early = int((tasks["wait_s"] < 0).sum())
    findings += found(table, "clock step: it starts before it was submitted", early, rows)
    return tasks.with_columns(pl.when(pl.col("wait_s") >= 0).then(pl.col("wait_s"))), findings


def with_waits(tasks: pl.DataFrame) -> pl.DataFrame:
    """Return the tasks with ``wait_s``: from submission to the first start in their job."""
    first = pl.col("start_s").min().over("job")
    wait = pl.when(pl.col("job").is_not_null()).then(first - pl.col("submit_s"))
    return tasks.with_columns(wait_s=wait)


def _unjoined(
    table: str, what: str, rows: int, of: int, other: pl.DataFrame
) -> tuple[QualityFinding, ...]:
    """Return rows whose key leads nowhere; a table that is not there is no such case."""
    return found(table, what, rows, of) if other.height else ()


def _numbered(machines: pl.DataFrame) -> pl.DataFrame:
    return machines.select(pl.col("machine").alias("key")).with_row_index("machine")


def _placed(frame: pl.DataFrame, machines: pl.DataFrame) -> pl.DataFrame:
    """Replace the machine's name by its number."""
    numbers = _numbered(machines)
    return (
        frame.rename({"machine": "key"})
        .join(numbers, on="key", how="left", maintain_order="left")
        .rename({"key": "machine_key"})
    )


def _instances(
    frame: pl.DataFrame, tasks: pl.DataFrame, machines: pl.DataFrame
) -> tuple[pl.DataFrame, list[QualityFinding]]:
    table = "pai_instance_table"
    timed, findings = _times(frame, table)
    owners = tasks.select("task_key", "task").unique("task_key", keep="first")
    placed = _placed(
        timed.join(owners, on="task_key", how="left", maintain_order="left").drop("task_key"),
        machines,
    )
    rows = placed.height
    orphans = int(placed["task"].is_null().sum())
    nowhere = int((placed["machine"].is_null() & placed["machine_key"].is_not_null()).sum())
    findings += [
        *found(table, "job_name and task_name are not in pai_task_table", orphans, rows),
        *_unjoined(table, "machine is not in pai_machine_spec", nowhere, rows, machines),
    ]
    instances = placed.select(
        "task",
        "machine",
        worker=pl.col("worker_name"),
        start_s=pl.col("start_s"),
        end_s=pl.col("end_s"),
        run_s=pl.col("end_s") - pl.col("start_s"),
        count=pl.lit(1, pl.UInt32),
    )
    return instances, findings


def _workers(instances: pl.DataFrame) -> pl.DataFrame:
    """Return the first instance of each worker name."""
    named = instances.select("worker").with_row_index("instance").drop_nulls()
    return named.unique("worker", keep="first")


def _observed(
    table: str, frame: pl.DataFrame, workers: pl.DataFrame, machines: pl.DataFrame
) -> tuple[pl.DataFrame, list[QualityFinding]]:
    """Join what was measured with the instance and the machine it was measured on."""
    joined = frame.join(
        workers, left_on="worker_name", right_on="worker", how="left", maintain_order="left"
    ).drop("worker_name")
    placed = _placed(joined, machines)
    rows = placed.height
    orphans = int(placed["instance"].is_null().sum())
    nowhere = int((placed["machine"].is_null() & placed["machine_key"].is_not_null()).sum())
    return placed, [
        *_unjoined(table, "worker_name is not in pai_instance_table", orphans, rows, workers),
        *_unjoined(table, "machine is not in pai_machine_spec", nowhere, rows, machines),
    ]


def _sensors(
    frame: pl.DataFrame, workers: pl.DataFrame, machines: pl.DataFrame
) -> tuple[pl.DataFrame, list[QualityFinding]]:
    table = "pai_sensor_table"
    placed, findings = _observed(table, frame, workers, machines)
    used = ("cpu_usage", "gpu_wrk_util", "avg_mem")
    negative = pl.any_horizontal(pl.col(name) < 0 for name in used).fill_null(value=False)
    rows = int(placed.select(negative.sum()).item())
    if rows:
        findings += found(table, "a measured use is negative", rows, placed.height)
        placed = placed.filter(~negative)
    # A GPU is known by its machine and its name there.
    gpu = pl.when(pl.col("gpu_name").is_not_null()).then(
        pl.struct("machine_key", "gpu_name").hash()
    )
    sensors = placed.select(
        "instance",
        "machine",
        gpu=gpu,
        cpus=pl.col("cpu_usage").cast(pl.Float32) / 100,
        gpus=pl.col("gpu_wrk_util").cast(pl.Float32) / 100,
        memory_gib=pl.col("avg_mem").cast(pl.Float32),
        gpu_memory_gib=pl.col("max_gpu_wrk_mem").cast(pl.Float32),
        net_read=pl.col("read").cast(pl.Float32),
    )
    return sensors, findings


def _metrics(
    frame: pl.DataFrame, workers: pl.DataFrame, machines: pl.DataFrame
) -> tuple[pl.DataFrame, list[QualityFinding]]:
    table = "pai_machine_metric"
    timed, findings = _times(frame, table)
    placed, more = _observed(table, timed, workers, machines)
    measured = {
        "iowait": "machine_cpu_iowait",
        "kernel": "machine_cpu_kernel",
        "usr": "machine_cpu_usr",
        "gpu": "machine_gpu",
        "net": "machine_net_receive",
        "cpu": "machine_cpu",
    }
    metrics = placed.select(
        "instance",
        "machine",
        "start_s",
        "end_s",
        **{name: pl.col(column).cast(pl.Float32) for name, column in measured.items()},
    )
    return metrics, findings + more
