"""Interlane's own trace schema: one row per task, as CSV, gzipped CSV or Parquet.

======================  =======  =====================================================
column                  default  meaning
======================  =======  =====================================================
``job_id``              needed   name of the job; rows with one ``job_id`` are one job
``submit_s``            needed   when the job was submitted, seconds, 0 or more
``duration_s``          needed   how long the job runs once started, seconds, above 0
``serial``              row      breaks ties; the trace's own number where ids are numbers
``role``                worker   the task's role; a job has each role once
``instances``           1        instances of the task
``instances_min``       all      instances without which the task does not start
``gpus``                0        GPUs of one instance
``gpu_milli``           1000     thousandths asked of *each* of these GPUs, 1 to 1000
``gpu_memory_mib``      0        memory asked of each of these GPUs
``cpu_milli``           0        thousandths of a core per instance
``memory_mib``          0        main memory per instance
``gpu_types``           any      GPU types that will do, separated by ``|``
``same_machine``        false    all instances must share one machine
``selectors``           none     labels that a machine must have, as ``zone=a|disk=ssd``
``tolerations``         none     taints that a machine may have, as ``dedicated=team-a``
``topology``            none     how close the job's instances want to be, as ``same=rack``
``user``                empty    who handed the job in
``queue``               empty    queue, virtual cluster or class of service
``priority``            0        larger is more urgent
``group``               empty    what recurs: jobs of one group run the same program
``family``              empty    family of the model, such as ``ctr`` or ``bert``
``pods``                all      pods the trace counted where it gives job totals only
``waited_s``            unknown  how long the job really waited; for reports, never played
======================  =======  =====================================================

Where ``group`` is empty, it is made from ``script`` and ``arguments``, if the file has them:
the same user, script and arguments are the same group.

Further columns whose names end in ``_dur`` or ``_estimate``, or begin with ``predicted_``, hold
estimates of the duration in seconds; an empty field means that there is no estimate.  The true
duration serves as the estimate called ``duration``; it is never stored, because ``duration_s``
is there already.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import polars as pl

from interlane.model import MILLI, Closeness, InvalidField, Label, UnknownName

COLUMNS: Final[Mapping[str, pl.DataType]] = MappingProxyType(
    {
        "job_id": pl.String(),
        "serial": pl.Int64(),
        "submit_s": pl.Float64(),
        "duration_s": pl.Float64(),
        "role": pl.String(),
        "instances": pl.Int64(),
        "instances_min": pl.Int64(),
        "gpus": pl.Int64(),
        "gpu_milli": pl.Int64(),
        "gpu_memory_mib": pl.Int64(),
        "cpu_milli": pl.Int64(),
        "memory_mib": pl.Int64(),
        "gpu_types": pl.String(),
        "same_machine": pl.Boolean(),
        "selectors": pl.String(),
        "tolerations": pl.String(),
        "topology": pl.String(),
        "user": pl.String(),
        "queue": pl.String(),
        "priority": pl.Int64(),
        "group": pl.String(),
        "family": pl.String(),
        "pods": pl.Int64(),
        "waited_s": pl.Float64(),
    }
)
"""Column -> its type, in the order in which files are written."""

NEEDED: Final = ("job_id", "submit_s", "duration_s")
"""Columns without which a row is no job."""

TASK_COLUMNS: Final = (
    "role",
    "instances",
    "instances_min",
    "gpus",
    "gpu_milli",
    "gpu_memory_mib",
    "cpu_milli",
    "memory_mib",
    "gpu_types",
    "same_machine",
    "selectors",
    "tolerations",
)
"""What a task asks for: rows that agree in these have the same shape."""

PROGRAM: Final = ("script", "arguments")
"""Columns that a file may have instead of ``group``; they are not kept."""

JOB_COLUMNS: Final = (
    "submit_s",
    "duration_s",
    "topology",
    "user",
    "queue",
    "priority",
    "group",
    "family",
    "waited_s",
)
"""What belongs to the whole job and must agree in all of its rows."""

RARE: Final = ("selectors", "tolerations", "topology")
"""Columns that few traces use; where all of one is empty, it is not written."""

TRUE_DURATION: Final = "duration"
"""The estimate that is always right."""

_DEFAULTS: Final[Mapping[str, object]] = MappingProxyType(
    {
        "role": "worker",
        "instances": 1,
        "gpus": 0,
        "gpu_milli": MILLI,
        "gpu_memory_mib": 0,
        "cpu_milli": 0,
        "memory_mib": 0,
        "gpu_types": "",
        "same_machine": False,
        "selectors": "",
        "tolerations": "",
        "topology": "",
        "user": "",
        "queue": "",
        "priority": 0,
        "group": "",
        "family": "",
        "waited_s": None,
    }
)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was left out, and why."""

    file: str
    line: int
    what: str


@dataclass(frozen=True, eq=False)
class Trace:
    """Jobs as a table: canonical columns, one row per task, rows of one job adjacent."""

    name: str
    frame: pl.DataFrame
    estimates: tuple[str, ...] = (TRUE_DURATION,)
    """Columns of ``frame`` that may serve as an estimate of the duration."""
    bad: tuple[BadRow, ...] = field(default=(), repr=False)
    """The first of the rows that were left out."""
    bad_count: int = 0
    """All rows that were left out."""
    notes: tuple[tuple[str, int], ...] = ()
    """What else the reader did with rows, and with how many: passed over, or mended."""
    clock_s: float | None = None
    """Seconds from a Thursday's midnight to ``submit_s`` 0; None where nobody knows."""

    @property
    def jobs(self) -> int:
        """Jobs in the trace; fewer than rows when jobs have several tasks."""
        return self.frame["job_id"].rle_id().n_unique()

    def estimate(self, name: str) -> str:
        """Return the column that a word names: ``timelimit`` means ``timelimit_estimate``."""
        meant = [form for form in (name, *estimate_columns(name)) if form in self.estimates]
        if not meant:
            raise UnknownName("estimate column", name, self.estimates)
        return meant[0]


def pairs_in(text: str) -> tuple[Label, ...]:
    """Return the pairs of ``zone=a|disk=ssd``, sorted, each once."""
    pairs = set()
    for part in filter(None, (part.strip() for part in text.split("|"))):
        key, equals, value = part.partition("=")
        if not key or not equals or not value or not part.isprintable():
            raise InvalidField("pair", part, "it must read like zone=a")
        pairs.add((key, value))
    return tuple(sorted(pairs))


def closeness_in(text: str) -> Closeness:
    """Return how close instances want to be by ``same=rack|spread=machine``."""
    pairs = pairs_in(text)
    if len(dict(pairs)) != len(pairs):
        raise InvalidField("topology", text, "each of same, pack and spread may come once")
    strange = [key for key, _ in pairs if key not in ("same", "pack", "spread")]
    if strange:
        raise UnknownName("topology", strange[0], ("same", "pack", "spread"))
    return Closeness(**dict(pairs))


def is_used(frame: pl.DataFrame, column: str) -> bool:
    """Tell whether a column says anything, if it is one that few traces use."""
    return column not in RARE or not (frame[column] == "").all()


_OLD: Final = "_guess"
"""How names of such columns ended in the version before."""


def is_estimate(column: str) -> bool:
    """Tell whether a file's column holds estimates of the duration."""
    return column.endswith(("_dur", "_estimate", _OLD)) or column.startswith("predicted_")


def estimate_columns(word: str) -> tuple[str, ...]:
    """Return the names that a column of estimates may have for a plain word."""
    return f"{word}_estimate", f"{word}_dur", f"predicted_{word}", f"{word}{_OLD}"


def canonical(columns: Mapping[str, pl.Series]) -> pl.DataFrame:
    """Return the canonical table of these columns, with defaults for what is not given."""
    frame = pl.DataFrame(dict(columns))
    missing = [name for name in _DEFAULTS if name not in columns]
    frame = frame.with_columns(pl.lit(_DEFAULTS[name]).alias(name) for name in missing)
    if "serial" not in columns:
        frame = frame.with_columns(serials(frame["job_id"]))
    for name in ("instances_min", "pods"):
        if name not in columns:
            frame = frame.with_columns(pl.col("instances").alias(name))
    frame = frame.with_columns(pl.col("duration_s").alias(TRUE_DURATION))
    estimates = [TRUE_DURATION, *(name for name in columns if is_estimate(name))]
    return frame.select(
        *(pl.col(name).cast(kind) for name, kind in COLUMNS.items()),
        *(pl.col(name).cast(pl.Float64) for name in estimates),
    )


def serials(job_ids: pl.Series) -> pl.Series:
    """Return the ids themselves where all are whole numbers, else their order."""
    numbers = job_ids.cast(pl.Int64, strict=False)
    if numbers.null_count():
        numbers = job_ids.rle_id().cast(pl.Int64)
    return numbers.alias("serial")
