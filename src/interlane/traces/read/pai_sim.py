"""Read the job lists of the published PAI simulator, with and without estimates.

The list without estimates gives ``num_inst`` instances with a request each.  The list with
estimates gives the request of the whole job and the number of its pods; there the job is
one instance, because that is how the published simulator counts it.
"""

from typing import Final

import numpy as np
import polars as pl

from interlane.traces.checks import MOST_GPUS, Rows, known_gpu_types, split_cards
from interlane.traces.read.finish import finish
from interlane.traces.read.source import Options, Source
from interlane.traces.schema import Trace

NEEDED: Final = ("job_id", "duration", "num_gpu", "num_cpu")
ESTIMATES: Final = ("user_dur", "user_gpu_dur", "group_dur", "group_gpu_dur")


def recognises(header: frozenset[str]) -> bool:
    """Tell a job list of the simulator by its header."""
    return header.issuperset(NEEDED)


def read(source: Source, options: Options) -> Trace:
    """Read a job list; requests are rounded to hundredths as the simulator rounds them."""
    rows = Rows(source.table())
    rows.require(NEEDED)
    columns = {
        "job_id": rows.text("job_id", missing=None),
        "submit_s": rows.number("submit_time", missing=1),
        "duration_s": _whole_seconds(rows),
        "instances": rows.whole("num_inst", missing=1, least=1, most=MOST_GPUS),
        "cpu_milli": rows.rounded("num_cpu", times=100, missing=0, most=10**9) * 10,
        "gpu_types": rows.gpu_types("gpu_type", known_gpu_types(options.extra_gpu_types)),
        "user": rows.text("user"),
        "group": rows.text("group"),
    }
    if "num_pod" in rows.columns:
        columns["pods"] = rows.whole("num_pod", missing=1, least=1, most=MOST_GPUS)
    total = rows.rounded("num_gpu", times=100, missing=0, most=MOST_GPUS) * 10
    pods = columns.get("pods", pl.Series([1], dtype=pl.Int64).new_from_index(0, rows.height))
    columns["gpus"], columns["gpu_milli"] = split_cards(total, pods)
    columns |= {name: rows.optional(name) for name in ESTIMATES if name in rows.columns}
    rows.each_once("job_id")
    return finish(source, rows, columns, options)


def _whole_seconds(rows: Rows) -> pl.Series:
    durations = rows.number("duration", above=0).to_numpy()
    return pl.Series("duration_s", np.maximum(1.0, np.floor(durations)))
