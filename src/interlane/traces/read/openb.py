"""Read the pod lists of the Alibaba v2023 trace ("openb").

Some lists carry no times; their pods come one second apart and run for a second, which is
all that an experiment on placement alone needs.
"""

from typing import Final

import numpy as np
import polars as pl

from interlane.model import MILLI
from interlane.traces.checks import MOST_GPUS, Rows, known_gpu_types, waits
from interlane.traces.read.finish import finish
from interlane.traces.read.source import Options, Source
from interlane.traces.schema import Trace

NEEDED: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES: Final = ("creation_time", "deletion_time", "scheduled_time")


def recognises(header: frozenset[str]) -> bool:
    """Tell a pod list by its header."""
    return header.issuperset(NEEDED)


def read(source: Source, options: Options) -> Trace:
    """Read a pod list; every pod is a job of one instance."""
    rows = Rows(source.table())
    rows.require(NEEDED)
    gpus, gpu_milli = _cards(rows)
    submit_s, duration_s, waited_s = _times(rows)
    columns = {
        "job_id": rows.text("name", missing=None),
        "submit_s": submit_s,
        "duration_s": duration_s,
        "gpus": gpus,
        "gpu_milli": gpu_milli,
        "cpu_milli": rows.whole("cpu_milli"),
        "memory_mib": rows.whole("memory_mib"),
        "gpu_types": rows.gpu_types("gpu_spec", known_gpu_types(options.extra_gpu_types)),
        "queue": rows.text("qos"),
        "waited_s": waited_s,
    }
    rows.each_once("name")
    return finish(source, rows, columns, options)


def _cards(rows: Rows) -> tuple[pl.Series, pl.Series]:
    gpus = rows.whole("num_gpu", most=MOST_GPUS).to_numpy()
    share = rows.whole("gpu_milli", most=MILLI).to_numpy()
    rows.flag_value((gpus > 0) & (share == 0), "gpu_milli", "a pod with GPUs needs a share")
    rows.flag_value(
        (gpus > 1) & (share < MILLI), "gpu_milli", "a pod with several GPUs has them whole"
    )
    return pl.Series(gpus), pl.Series(np.where(gpus == 0, MILLI, share))


def _times(rows: Rows) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Return submissions, lengths and waits."""
    if not rows.columns.issuperset(TIMES[:2]):
        one = np.ones(rows.height)
        nothing = pl.Series([None], dtype=pl.Float64).new_from_index(0, rows.height)
        return pl.Series(np.arange(rows.height, dtype=np.float64)), pl.Series(one), nothing
    created_s = rows.number("creation_time").to_numpy()
    deleted_s = rows.number("deletion_time").to_numpy()
    scheduled_s = rows.number("scheduled_time", missing=-1, least=-1).to_numpy()
    rows.flag_value(deleted_s < created_s, "deletion_time", "it cannot precede the creation")
    was_scheduled = scheduled_s >= 0
    started_s = np.where(was_scheduled, np.maximum(scheduled_s, created_s), created_s)
    rows.flag_value(
        was_scheduled & (deleted_s <= started_s),
        "deletion_time",
        "it must come after the pod was scheduled",
    )
    # A pod that was never scheduled has no true length; it gives up after its life time.
    lengths_s = np.maximum(deleted_s - started_s, 1.0)
    waited_s = np.where(was_scheduled, scheduled_s - created_s, np.nan)
    return pl.Series(created_s), pl.Series(lengths_s), waits(pl.Series(waited_s))
