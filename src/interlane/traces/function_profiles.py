"""Read what functions are: one row per function, as CSV or Parquet.

==================  ============  ==================================================
column              default       meaning
==================  ============  ==================================================
``function``        needed        its name in the arrivals; ``*`` is everybody else
``workload``        drawn         its name among the measured co-runs
``memory_mib``      the workload  memory of one replica on a GPU
``use``             the workload  share of a GPU that it keeps busy while it works
``service_s``       see guide     seconds that a request takes, undisturbed
``load_s``          5             seconds from disk to the GPU
``deadline_s``      30            seconds after which a request has failed
``p99_limit``       2             times its solo latency that its p99 may be
==================  ============  ==================================================
"""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from interlane.model import InvalidFile
from interlane.traces.checks import Rows
from interlane.traces.read.source import Source, must_exist


@dataclass(frozen=True, slots=True)
class FunctionProfile:
    """What is told of a function; None is not told."""

    workload: str | None = None
    memory_mib: int | None = None
    use: float | None = None
    service_s: float | None = None
    load_s: float | None = None
    deadline_s: float | None = None
    p99_limit: float | None = None


def read_profiles(path: Path) -> dict[str, FunctionProfile]:
    """Return profiles by the function's name."""
    must_exist(path)
    source = Source(path)
    rows = Rows(source.table())
    rows.require(["function"])
    names = rows.text("function", missing=None)
    columns = {
        "memory_mib": _told(rows, "memory_mib", least=1.0),
        "use": _told(rows, "use", least=0.0, most=1.0),
        "service_s": _told(rows, "service_s", least=1e-6),
        "load_s": _told(rows, "load_s", least=0.0),
        "deadline_s": _told(rows, "deadline_s", least=1e-3),
        "p99_limit": _told(rows, "p99_limit", least=1.0),
    }
    workloads = rows.text("workload", missing="")
    rows.settle(skip_bad=False)
    if names.n_unique() != names.len():
        raise InvalidFile(source.file, "a function has two rows; leave one of them out.")
    found = {}
    for row, name in enumerate(names):
        given = {key: column[row] for key, column in columns.items()}
        memory = given.pop("memory_mib")
        found[name] = FunctionProfile(
            workloads[row] or None, None if memory is None else round(memory), **given
        )
    return found


def _told(rows: Rows, column: str, *, least: float, most: float | None = None) -> pl.Series:
    """Return the numbers of a column, None where there is none."""
    if column not in rows.columns:
        return pl.Series(column, [None], pl.Float64).new_from_index(0, rows.height)
    numbers = rows.optional(column)
    wrong = numbers.is_not_null() & (numbers < least)
    rule = f"it must be {least:g} or more"
    if most is not None:
        wrong |= numbers.is_not_null() & (numbers > most)
        rule = f"it must be from {least:g} to {most:g}"
    rows.flag_value(wrong.fill_null(value=False).to_numpy(), column, rule)
    return numbers
