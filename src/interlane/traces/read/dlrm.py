"""Read Alibaba's v2025 trace of recommendation models that are served in two parts.

Every instance is a job: GPU nodes (``HN``) hold a GPU and few cores, CPU nodes (``CN``) hold
many cores and no GPU.  An instance that was there before the trace began came at second 0; one
that outlives it ends with it.
"""

from typing import Final

import numpy as np
import polars as pl

from interlane.model import MILLI
from interlane.model.units import MIB_PER_GIB
from interlane.traces.checks import MOST_GPUS, Rows, waits
from interlane.traces.read.finish import finish
from interlane.traces.read.source import Options, Source
from interlane.traces.schema import Trace

NEEDED: Final = ("instance_sn", "role", "app_name", "cpu_request", "gpu_request")
TIMES: Final = ("creation_time", "scheduled_time", "deletion_time")


def recognises(header: frozenset[str]) -> bool:
    """Tell the trace by its header."""
    return header.issuperset((*NEEDED, *TIMES))


def read(source: Source, options: Options) -> Trace:
    """Read the trace; the application is the group, the role the queue."""
    rows = Rows(source.table())
    rows.require((*NEEDED, *TIMES))
    created_s, scheduled_s, deleted_s = (
        rows.number(name, missing=-1, least=-1).to_numpy() for name in TIMES
    )
    last_s = max(float(times_s.max(initial=0.0)) for times_s in (created_s, deleted_s))
    submit_s = np.maximum(created_s, 0.0)
    start_s = np.maximum(scheduled_s, submit_s)
    end_s = np.where(deleted_s < 0, last_s, deleted_s)
    rows.flag_value(end_s < start_s, "deletion_time", "it cannot precede the start")
    waited_s = np.where(scheduled_s >= 0, scheduled_s - created_s, np.nan)
    memory_mib = rows.number("memory_request", missing=0).to_numpy() * MIB_PER_GIB
    columns = {
        "job_id": rows.text("instance_sn", missing=None),
        "submit_s": pl.Series(submit_s),
        "duration_s": pl.Series(np.maximum(end_s - start_s, 1.0)),
        "gpus": rows.whole("gpu_request", most=MOST_GPUS),
        "cpu_milli": rows.whole("cpu_request", missing=0, most=MOST_GPUS) * MILLI,
        "memory_mib": pl.Series(np.round(memory_mib).astype(np.int64)),
        "group": rows.text("app_name"),
        "queue": rows.text("role"),
        "waited_s": waits(pl.Series(waited_s)),
    }
    rows.each_once("instance_sn")
    return finish(source, rows, columns, options)
