"""Our own two files: ``profiles.csv`` with solo counters and ``coruns.csv`` with co-runs."""

import csv
from io import StringIO
from pathlib import Path
from typing import Final

import numpy as np

from interlane.model import InvalidFile
from interlane.traces.checks import Rows
from interlane.traces.colocation.coruns import Corun, CoRuns, Way
from interlane.traces.read.source import Source

CORUNS: Final = "coruns.csv"
PROFILES: Final = "profiles.csv"
_WHO: Final = ("workload", "family", "gpu_type")
_CORUN: Final = ("gpu_type", "mode", "target", "victim", "aggressor", "retained")


def read(folder: Path) -> CoRuns:
    """Read both files; a counter that was not taken is an empty field."""
    rows = Rows(Source(folder / PROFILES).table())
    rows.require(_WHO)
    counters = tuple(name for name in rows.table.frame.columns if name not in _WHO)
    names, families, gpus = (rows.text(column, missing=None).to_list() for column in _WHO)
    taken = [rows.optional(name).to_list() for name in counters]
    rows.settle(skip_bad=False)
    workloads, gpu_types = tuple(dict.fromkeys(names)), tuple(dict.fromkeys(gpus))
    values = np.full((len(gpu_types), len(workloads), len(counters)), np.nan)
    for name, gpu, *row in zip(names, gpus, *taken, strict=True):
        values[gpu_types.index(gpu), workloads.index(name)] = row
    family = dict(zip(names, families, strict=True))
    return CoRuns(
        folder.name,
        workloads,
        tuple(family[name] for name in workloads),
        gpu_types,
        counters,
        values,
        _coruns(folder / CORUNS, workloads, gpu_types),
    )


def _coruns(
    path: Path, workloads: tuple[str, ...], gpu_types: tuple[str, ...]
) -> dict[Way, tuple[Corun, ...]]:
    rows = Rows(Source(path).table())
    rows.require(_CORUN)
    texts = [rows.text(name, missing=None) for name in _CORUN[:5]]
    gpu, mode, target, victim, aggressor = texts
    throughput = rows.number("retained", above=0, most=3)
    for column, known, named in (
        ("victim", workloads, victim),
        ("aggressor", workloads, aggressor),
        ("gpu_type", gpu_types, gpu),
    ):
        strange = ~named.is_in(known).to_numpy()
        rows.flag_value(strange, column, f"{PROFILES} does not have it")
    rows.settle(skip_bad=False)
    found: dict[Way, list[Corun]] = {}
    for row in zip(mode, target, gpu, victim, aggressor, throughput, strict=True):
        found.setdefault(Way(*row[:2]), []).append(Corun(*row[2:]))
    return {way: tuple(runs) for way, runs in found.items()}


def write(coruns: CoRuns, folder: Path) -> None:
    """Write both files."""
    profiles = [
        [name, family, gpu, *("" if np.isnan(value) else f"{value:.6g}" for value in values)]
        for gpu, on_gpu in zip(coruns.gpu_types, coruns.values, strict=True)
        for name, family, values in zip(coruns.workloads, coruns.families, on_gpu, strict=True)
    ]
    runs = [
        [run.gpu_type, *way, run.victim, run.aggressor, f"{run.throughput:.6g}"]
        for way, kept in coruns.coruns.items()
        for run in kept
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PROFILES).write_text(_csv([*_WHO, *coruns.counters], profiles))
        (folder / CORUNS).write_text(_csv(_CORUN, runs))
    except OSError as error:
        why = (error.strerror or "it cannot be written").lower()
        raise InvalidFile(str(folder), f"{why}; check the path.") from None


def _csv(header: list[str] | tuple[str, ...], rows: list[list[str]]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()
