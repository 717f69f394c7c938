"""Read interlane's own schema, which ``traces.schema`` documents."""

from dataclasses import replace
from difflib import get_close_matches
from hashlib import sha256

import numpy as np
import polars as pl

from interlane.model import MILLI, InvalidFile
from interlane.traces.checks import MOST_GPUS, Rows, known_gpu_types
from interlane.traces.read.finish import finish
from interlane.traces.read.source import Options, Source
from interlane.traces.schema import (
    COLUMNS,
    JOB_COLUMNS,
    NEEDED,
    PROGRAM,
    Trace,
    closeness_in,
    is_estimate,
)

_TOPOLOGY = "it must read like same=rack|pack=zone, and pack and spread exclude each other"
_TRUE = ("true", "1", "yes")
_FALSE = ("false", "0", "no", "")


def recognises(header: frozenset[str]) -> bool:
    """Tell our own schema by its header."""
    return header.issuperset(NEEDED)


def read(source: Source, options: Options) -> Trace:
    """Read a file in our own schema."""
    rows = Rows(source.table())
    rows.require(NEEDED)
    _refuse_strangers(rows)
    columns = _columns(rows, options)
    if options.skip_bad:
        rows.spread(columns["job_id"])
    _check_roles(rows)
    _check_jobs_agree(rows, columns)
    return _adjacent(finish(source, rows, columns, options))


def _refuse_strangers(rows: Rows) -> None:
    for name in rows.table.frame.columns:
        if name not in COLUMNS and name not in PROGRAM and not is_estimate(name):
            close = get_close_matches(name, COLUMNS, n=1)
            hint = (
                f"did you mean {close[0]!r}?"
                if close
                else "estimates end in _dur or _estimate."
            )
            raise InvalidFile(rows.table.file, f"column {name!r} is not in the schema; {hint}")


def _columns(rows: Rows, options: Options) -> dict[str, pl.Series]:
    instances = rows.whole("instances", missing=1, least=1, most=MOST_GPUS)
    columns = {
        "job_id": rows.text("job_id", missing=None),
        "submit_s": rows.number("submit_s"),
        "duration_s": rows.number("duration_s", above=0),
        "role": rows.text("role", missing="worker").replace("", "worker"),
        "instances": instances,
        "instances_min": _at_most_all(rows, instances),
        "gpus": rows.whole("gpus", missing=0, most=MOST_GPUS),
        "gpu_milli": rows.whole("gpu_milli", missing=MILLI, least=1, most=MILLI),
        "gpu_memory_mib": rows.whole("gpu_memory_mib", missing=0),
        "cpu_milli": rows.whole("cpu_milli", missing=0),
        "memory_mib": rows.whole("memory_mib", missing=0),
        "gpu_types": rows.gpu_types("gpu_types", known_gpu_types(options.extra_gpu_types)),
        "same_machine": _claims(rows, "same_machine"),
        "selectors": rows.pairs("selectors"),
        "tolerations": rows.pairs("tolerations"),
        "topology": rows.pairs("topology", closeness_in, _TOPOLOGY),
        "user": rows.text("user"),
        "queue": rows.text("queue"),
        "priority": rows.whole("priority", missing=0, least=-(10**9), most=10**9),
        "group": _groups(rows),
        "family": rows.text("family"),
    }
    if "serial" in rows.columns:
        columns["serial"] = rows.whole("serial", least=-(2**53), most=2**53)
    if "pods" in rows.columns:
        columns["pods"] = rows.whole("pods", least=1, most=MOST_GPUS)
    if "waited_s" in rows.columns:
        columns["waited_s"] = rows.optional("waited_s")
    estimates = [name for name in rows.table.frame.columns if is_estimate(name)]
    return columns | {name: rows.optional(name) for name in estimates}


def _at_most_all(rows: Rows, instances: pl.Series) -> pl.Series:
    """Instances without which the task does not start: all of them unless the row says so."""
    least = rows.whole("instances_min", missing=0, most=MOST_GPUS).to_numpy()
    everyone = instances.to_numpy()
    if "instances_min" in rows.columns:
        rows.flag_value(least > everyone, "instances_min", "it must not exceed instances")
    return pl.Series(np.where(least == 0, everyone, least))


def _groups(rows: Rows) -> pl.Series:
    """Return what recurs: the group, or where it is empty a hash of user and program."""
    groups = rows.text("group")
    if rows.columns.isdisjoint(PROGRAM):
        return groups
    programs = zip(groups, *(rows.text(name) for name in ("user", *PROGRAM)), strict=True)
    return pl.Series([group or _tag(*program) for group, *program in programs], dtype=pl.String)


def _tag(user: str, script: str, arguments: str) -> str:
    """Return the tag of a program; a job of which nothing is told belongs to no group."""
    if not script and not arguments:
        return ""
    return sha256("\x1f".join((user, script, arguments)).encode()).hexdigest()[:32]


def _claims(rows: Rows, column: str) -> pl.Series:
    given = rows.text(column).str.to_lowercase()
    if column in rows.columns:
        unclear = ~given.is_in([*_TRUE, *_FALSE])
        rows.flag_value(unclear.to_numpy(), column, "it must be true or false")
    return given.is_in(_TRUE)


def _check_roles(rows: Rows) -> None:
    rows.each_once(*(("job_id", "role") if "role" in rows.columns else ("job_id",)))


def _check_jobs_agree(rows: Rows, columns: dict[str, pl.Series]) -> None:
    """Refuse rows that contradict the first row of their job."""
    ids = columns["job_id"]
    if ids.is_first_distinct().all():
        return
    for name in (one for one in JOB_COLUMNS if one in rows.columns):
        values = pl.DataFrame({"id": ids, name: columns[name]})
        first = values.select(pl.col(name).first().over("id")).to_series()
        differs = (values[name] != first).fill_null(value=False)
        rows.flag_value(differs.to_numpy(), name, "all rows of a job must agree in it")


def _adjacent(trace: Trace) -> Trace:
    """Bring the rows of each job together, with the place and serial of its first row."""
    if trace.frame.height == trace.frame["job_id"].n_unique():
        return trace
    numbered = trace.frame.with_row_index("row").with_columns(
        pl.col("row", "serial").first().over("job_id")
    )
    frame = numbered.sort("row", maintain_order=True).drop("row")
    return replace(trace, frame=frame)
