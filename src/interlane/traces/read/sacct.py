"""Read what Slurm's ``sacct --parsable2`` exports: fields cut by ``|``, with a header.

::

    sacct --allusers --parsable2 --starttime 2024-01-01 --format \
        JobID,User,JobName,Partition,Submit,Start,End,State,ReqTRES,NNodes,Timelimit,Priority

``JobID`` and ``Submit`` are needed, and ``Start`` with ``End`` or ``Elapsed``; other columns
are used where they are there.  What a job asks for comes from ``ReqTRES``, else from
``AllocTRES``, else from ``ReqGRES``, ``ReqCPUS``, ``NCPUS`` and ``ReqMem``.

What the export does not tell, and what is put in its place:

* A job of several nodes is a gang of one instance a node, if they divide its GPUs; else one
  of an instance a GPU.
* A GPU type is a demand only where the user named one (``ReqTRES`` has it then) and somebody
  knows it: interlane, or the cluster that the trace is read for.  ``gres/gpu:a100`` is A100.
* Jobs of one user with one name are the same program (``group``).
* The time limit is the estimate ``timelimit_estimate``.

Steps of jobs, jobs that have not ended or never ran, and earlier runs of requeued jobs are no
jobs to play: they are passed over and counted in the trace's notes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

import numpy as np
import polars as pl

from interlane.model import MILLI
from interlane.traces.checks import (
    MOST_GPUS,
    Mask,
    RawTable,
    Rows,
    first_of,
    known_gpu_types,
    waits,
)
from interlane.traces.read.finish import finish
from interlane.traces.read.source import Options, Source
from interlane.traces.schema import Trace

SEPARATOR: Final = "|"
IDS: Final = ("JobID", "JobIDRaw")
NOT_YET: Final = ("", "unknown", "none", "n/a")
"""What a time reads like that has not come."""

UNENDED: Final = frozenset(
    {"PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "CONFIGURING", "COMPLETING"}
)

MIB: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
PRIORITY_MOST: Final = 10**9

_LENGTH: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?$")
_DAYS_HOURS: Final = re.compile(r"(\d+)-(\d+)$")
_SIZE: Final = re.compile(r"([\d.]+)([KMGTP]?)([nc]?)$", re.IGNORECASE)
_GRES: Final = re.compile(r"gpu(?::([A-Za-z][\w.-]*))?(?::(\d+))?(?:\(|,|$)")
_BRANDS: Final = re.compile(r"^(NVIDIA|TESLA|GEFORCE|QUADRO)[_\- ]+")


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a job asks for as a whole."""

    gpus: int | None = None
    types: tuple[str, ...] = ()
    cpus: float | None = None
    memory_mib: float | None = None
    nodes: int | None = None


def is_export(source: Source) -> bool:
    """Tell an export by its first line."""
    header = source.header_by(SEPARATOR)
    return len(header) > 1 and "Submit" in header and not set(IDS).isdisjoint(header)


def read(source: Source, options: Options) -> Trace:
    """Read an export; every job is one task."""
    rows = Rows(source.plain_table(SEPARATOR))
    rows.require(("Submit",))
    rows, notes = _jobs_alone(rows)
    starts_s, ends_s = _moments(rows, "Start"), _moments(rows, "End")
    submits_s = _moments(rows, "Submit", needed=True)
    zero_s = first_of(submits_s)
    waited_s = starts_s - submits_s
    early = int((waited_s < 0).sum())
    asked, unknown = _asked(rows, known_gpu_types(options.extra_gpu_types))
    columns = {
        "job_id": rows.text(_id(rows), missing=None),
        "submit_s": submits_s - zero_s,
        "duration_s": _durations(rows, starts_s, ends_s),
        **asked,
        "user": rows.text("User"),
        "queue": rows.text("Partition"),
        "priority": _priorities(rows),
        "group": _groups(rows),
        "waited_s": waits(waited_s),
    }
    limits = _limits(rows)
    if limits is not None:
        columns["timelimit_estimate"] = limits
    notes += (("clock step: Start is before Submit, so that the wait is unknown", early),)
    notes += (("a GPU type that nobody knows was asked for, taken as any", unknown),)
    trace = finish(source, rows, columns, options, zero_s)
    return replace(trace, notes=tuple(note for note in notes if note[1]))


# -- which rows are jobs --------------------------------------------------------------


def _id(rows: Rows) -> str:
    return next(name for name in IDS if name in rows.columns)


def _jobs_alone(rows: Rows) -> tuple[Rows, tuple[tuple[str, int], ...]]:
    """Return the rows that are jobs which ran and ended, and how many others there were."""
    table = rows.table
    states = rows.text("State").str.split(" ").list.first().str.to_uppercase().fill_null("")
    is_done = (states == "COMPLETED").to_numpy()
    step = rows.text(_id(rows)).str.contains(".", literal=True).to_numpy()
    unstarted = _has_not_come(rows, "Start") & ~is_done
    unended = states.is_in(UNENDED).to_numpy() | (_has_not_come(rows, "End") & ~is_done)
    reasons = (
        ("passed over: steps of jobs", step),
        ("passed over: jobs that never started", unstarted),
        ("passed over: jobs that have not ended", unended),
        ("passed over: jobs that ran for 0 s", _is_empty_run(rows)),
    )
    gone = np.zeros(rows.height, dtype=np.bool_)
    notes = []
    for what, mask in reasons:
        notes.append((what, int((mask & ~gone).sum())))
        gone |= mask
    kept = _without(table, gone)
    again = ~kept.frame[_id(rows)].is_last_distinct().to_numpy()
    notes.append(("passed over: earlier runs of requeued jobs", int(again.sum())))
    return Rows(_without(kept, again)), tuple(notes)


def _has_not_come(rows: Rows, column: str) -> Mask:
    if column not in rows.columns:
        return np.zeros(rows.height, dtype=np.bool_)
    return rows.text(column).str.to_lowercase().is_in(NOT_YET).to_numpy()


def _is_empty_run(rows: Rows) -> Mask:
    """Tell which jobs ended in the second in which they started."""
    if "ElapsedRaw" in rows.columns:
        return (rows.text("ElapsedRaw") == "0").to_numpy()
    if "Elapsed" in rows.columns:
        return rows.text("Elapsed").is_in(("00:00:00", "00:00")).to_numpy()
    if rows.columns.issuperset(("Start", "End")):
        return (rows.text("Start") == rows.text("End")).to_numpy()
    return np.zeros(rows.height, dtype=np.bool_)


def _without(table: RawTable, gone: Mask) -> RawTable:
    kept = pl.Series(~gone)
    return replace(table, frame=table.frame.filter(kept), numbers=table.numbers.filter(kept))


# -- times ----------------------------------------------------------------------------


def _moments(rows: Rows, column: str, *, needed: bool = False) -> pl.Series:
    """Return times as seconds, empty where they have not come; a strange one is bad."""
    if column not in rows.columns:
        return pl.Series(column, [None], pl.Float64).new_from_index(0, rows.height)
    given = rows.text(column)
    date = given.str.replace("T", " ", literal=True).str.to_datetime(
        "%Y-%m-%d %H:%M:%S", time_unit="ms", strict=False
    )
    seconds = given.cast(pl.Float64, strict=False)
    found = (date.cast(pl.Int64).cast(pl.Float64) / 1000).zip_with(date.is_not_null(), seconds)
    not_yet = given.str.to_lowercase().is_in(NOT_YET)
    wrong = found.is_null() & (pl.Series([needed]) | ~not_yet)
    rows.flag_value(wrong.to_numpy(), column, "it must be a time like 2024-05-01T12:00:00")
    return found


def _durations(rows: Rows, starts_s: pl.Series, ends_s: pl.Series) -> pl.Series:
    """Return how long jobs ran: as Slurm counts it, else from start to end."""
    backward = (ends_s < starts_s).fill_null(value=False)
    if "End" in rows.columns:
        rows.flag_value(backward.to_numpy(), "End", "a job cannot end before it starts")
    if "ElapsedRaw" in rows.columns:
        return rows.number("ElapsedRaw", above=0)
    if "Elapsed" in rows.columns:
        elapsed = _seconds(rows.text("Elapsed"))
        rule = "it must be a time like 1-02:03:04"
        rows.flag_value(elapsed.is_null().to_numpy(), "Elapsed", rule)
        return elapsed
    rows.require(("Start", "End"))
    lengths_s = ends_s - starts_s
    for name, times_s in (("Start", starts_s), ("End", ends_s)):
        rows.flag_value(times_s.is_null().to_numpy(), name, "a job that ended has one")
    return lengths_s


def _limits(rows: Rows) -> pl.Series | None:
    """Return time limits in seconds, empty where there is none."""
    if "TimelimitRaw" in rows.columns:
        return 60 * rows.text("TimelimitRaw").cast(pl.Float64, strict=False)
    if "Timelimit" in rows.columns:
        return _seconds(rows.text("Timelimit"))
    return None


def seconds_of(text: str) -> float | None:
    """Return the seconds of ``2-03:04:05``, ``03:04:05``, ``04:05`` or ``2-03``."""
    if found := _LENGTH.match(text):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    if found := _DAYS_HOURS.match(text):
        return float((int(found[1]) * 24 + int(found[2])) * 3600)
    return None


def _seconds(values: pl.Series) -> pl.Series:
    """Read each distinct length once; exports repeat themselves."""
    distinct = values.unique()
    answers = pl.Series([seconds_of(text) for text in distinct.to_list()], dtype=pl.Float64)
    return values.replace_strict(distinct, answers, return_dtype=pl.Float64)


# -- requests -------------------------------------------------------------------------


def _asked(rows: Rows, known: frozenset[str]) -> tuple[dict[str, pl.Series], int]:
    """Return the columns of requests, and how many asked for a type that nobody knows."""
    sources = ("ReqTRES", "AllocTRES", "ReqGRES", "AllocGRES", "ReqMem")
    counts = ("NNodes", "ReqNodes", "AllocNodes", "ReqCPUS", "NCPUS", "AllocCPUS")
    names = [name for name in (*sources, *counts) if name in rows.columns]
    if not names:
        return {}, 0
    key = pl.DataFrame({name: rows.text(name) for name in names})
    distinct = key.unique(maintain_order=True)
    found = [_task(_whole(fields), known) for fields in distinct.iter_rows(named=True)]
    kinds = {
        "instances": pl.Int64,
        "gpus": pl.Int64,
        "cpu_milli": pl.Int64,
        "memory_mib": pl.Int64,
        "gpu_types": pl.String,
        "unknown": pl.Boolean,
    }
    answers = distinct.hstack(pl.DataFrame(found, schema=kinds, orient="row"))
    joined = key.join(answers, on=names, how="left", nulls_equal=True, maintain_order="left")
    huge = (joined["instances"] > MOST_GPUS) | (joined["gpus"] > MOST_GPUS)
    rule = f"at most {MOST_GPUS:,} nodes or GPUs can be asked for"
    rows.flag_value(huge.to_numpy(), names[0], rule)
    columns = {name: joined[name] for name in kinds if name != "unknown"}
    return columns, int(joined["unknown"].sum())


def _whole(fields: Mapping[str, str]) -> JobRequest:
    """Return what a job asks for, from the best column that tells it."""
    requested = _tres(fields.get("ReqTRES", ""))
    allocated = _tres(fields.get("AllocTRES", ""))
    gres = _gres(fields.get("ReqGRES") or fields.get("AllocGRES") or "")
    nodes = (
        requested.nodes
        or allocated.nodes
        or _count(fields, "NNodes", "ReqNodes", "AllocNodes")
        or 1
    )
    cpus = requested.cpus or allocated.cpus or _count(fields, "ReqCPUS", "NCPUS", "AllocCPUS")
    gpus = requested.gpus if requested.gpus is not None else allocated.gpus
    if not gpus and gres.gpus is not None:
        gpus = gres.gpus * nodes
    memory = requested.memory_mib or allocated.memory_mib
    if memory is None:
        memory = _memory(fields.get("ReqMem", ""), nodes, cpus or 1)
    return JobRequest(gpus, requested.types or gres.types, cpus, memory, nodes)


def _tres(text: str) -> JobRequest:
    """Read ``billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1``."""
    amounts = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    typed = {
        name.partition(":")[2]: _digits(count)
        for name, count in amounts.items()
        if name.startswith("gres/gpu:")
    }
    total = _digits(amounts["gres/gpu"]) if "gres/gpu" in amounts else sum(typed.values())
    return JobRequest(
        total if amounts else None,
        tuple(sorted(typed)),
        float(_digits(amounts["cpu"])) if "cpu" in amounts else None,
        _memory(amounts["mem"], 1, 1) if "mem" in amounts else None,
        _digits(amounts["node"]) if "node" in amounts else None,
    )


def _gres(text: str) -> JobRequest:
    """Read ``gpu:2`` or ``gpu:a100:2``, which older versions give for each node."""
    found = _GRES.findall(text.removeprefix("gres:"))
    if not found:
        return JobRequest()
    types = tuple(sorted({kind for kind, _ in found if kind}))
    return JobRequest(sum(int(count or 1) for _, count in found), types)


def _digits(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _count(fields: Mapping[str, str], *names: str) -> int | None:
    counts = (_digits(fields.get(name, "")) for name in names)
    return next((count for count in counts if count), None)


def _memory(text: str, nodes: int, cpus: float) -> float | None:
    """Read ``64G``, or of older versions ``4Gc`` (each CPU) and ``64Gn`` (each node)."""
    found = _SIZE.match(text)
    if found is None or found[1].count(".") > 1 or found[1] == ".":
        return None
    each = {"n": nodes, "c": cpus}.get(found[3].lower(), 1)
    return float(found[1]) * MIB[found[2].upper() or "M"] * each


def _task(asked: JobRequest, known: frozenset[str]) -> tuple[int, int, int, int, str, bool]:
    """Return instances, and of each: GPUs, CPU, memory; the types, and if one is unknown."""
    gpus, nodes = asked.gpus or 0, asked.nodes or 1
    instances = nodes if gpus % nodes == 0 else gpus
    named = [known_type(name, known) for name in asked.types] if gpus else []
    types = sorted({name for name in named if name is not None})
    return (
        instances,
        gpus // instances,
        round((asked.cpus or 0) * MILLI / instances),
        round((asked.memory_mib or 0) / instances),
        "" if None in named else "|".join(types),
        None in named,
    )


def known_type(name: str, known: frozenset[str]) -> str | None:
    """Return the known GPU type that Slurm calls by this name, or None.

    ``a100``, ``nvidia_a100-sxm4-80gb`` and ``tesla_v100`` are A100, A100M80 and V100.
    """
    given = name.upper()
    by_name = {one.upper(): one for one in known}
    if given in by_name:
        return by_name[given]
    model, *rest = re.split(r"[_\- ]+", _BRANDS.sub("", given))
    large = next((part.removesuffix("GB") for part in rest if part.endswith("GB")), "")
    for candidate in (f"{model}M{large}", f"RTX{model}", model, "".join((model, *rest))):
        if candidate in by_name:
            return by_name[candidate]
    return None


# -- who and what ---------------------------------------------------------------------


def _priorities(rows: Rows) -> pl.Series:
    """Return priorities as far as they are numbers; Slurm's may exceed ours."""
    given = rows.text("Priority").cast(pl.Float64, strict=False).fill_nan(None).fill_null(0.0)
    return given.clip(0, PRIORITY_MOST).round().cast(pl.Int64)


def _groups(rows: Rows) -> pl.Series:
    """Return a tag for jobs of one user with one name; a job without a name has none."""
    names = rows.text("JobName")
    if "JobName" not in rows.columns:
        return names
    whose = pl.DataFrame({"name": names, "user": rows.text("User")})
    distinct = whose.unique(maintain_order=True)
    tags = [_tag(name, user) for name, user in distinct.iter_rows()]
    tagged = distinct.with_columns(pl.Series("tag", tags, pl.String))
    return whose.join(tagged, on=["name", "user"], how="left", maintain_order="left")["tag"]


def _tag(name: str, user: str) -> str:
    return sha256(f"{user}\x1f{name}".encode()).hexdigest()[:32] if name else ""
