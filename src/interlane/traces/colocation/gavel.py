"""Gavel's pairs (OSDI'20): training jobs in twos on K80, P100 and V100.

There are no utilisation counters.  What stands for them: batch, speed, how speed grows with
the batch, and how much faster newer GPUs are at it.
"""

from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from interlane.traces.checks import Rows
from interlane.traces.colocation.coruns import Corun, CoRuns, Way
from interlane.traces.read.source import Source

PAIRS: Final = "pairs.csv.gz"
MEASURED: Final = "simulation"
"""Of the two sets of measurements in the file, the one that the paper schedules by."""
GPU_TYPES: Final = ("K80", "P100", "V100")
COUNTERS: Final = (
    "log_batch",
    "log_speed",
    "log_samples",
    "elasticity",
    "log_p100_over_k80",
    "log_v100_over_k80",
)
_COLUMNS: Final = ("iso_a", "iso_b", "retention_a", "retention_b")


def read(folder: Path) -> CoRuns:
    """Read the pairs on one GPU that fit into memory together."""
    table = _pairs(folder)
    coruns: dict[tuple[str, str, str], Corun] = {}
    speeds: dict[tuple[str, str], float] = {}
    for gpu, one, other, iso_one, iso_other, kept_one, kept_other in table.iter_rows():
        speeds[gpu, one], speeds[gpu, other] = iso_one, iso_other
        for who in ((one, other, kept_one), (other, one, kept_other)):
            if who[-1] > 0:
                coruns.setdefault((gpu, *who[:2]), Corun(gpu, *who))
    workloads = tuple(sorted({run.victim for run in coruns.values()}, key=_family_and_batch))
    return CoRuns(
        "gavel",
        workloads,
        tuple(_family_and_batch(name)[0] for name in workloads),
        GPU_TYPES,
        COUNTERS,
        _counters(workloads, speeds),
        {Way("side-by-side", "training"): tuple(coruns.values())},
    )


def _pairs(folder: Path) -> pl.DataFrame:
    rows = Rows(Source(folder / PAIRS).table())
    rows.require(("file", "gpu", "scale_factor", "no_colocation", *_COLUMNS))
    frame = pl.DataFrame(
        [
            rows.text("gpu").str.to_uppercase(),
            *(_names(rows, side) for side in "ab"),
            *(rows.number(column, missing=0) for column in _COLUMNS),
        ]
    )
    fits = (
        (rows.text("file") == MEASURED)
        & (rows.number("scale_factor") == 1)
        & (rows.number("no_colocation") == 0)
    )
    rows.settle(skip_bad=False)
    return frame.filter(fits)


def _names(rows: Rows, side: str) -> pl.Series:
    batch = rows.number(f"batch_{side}", missing=0).cast(pl.Int64).cast(pl.String)
    return (rows.text(f"model_{side}", missing=None) + "/" + batch).alias(side)


def _family_and_batch(name: str) -> tuple[str, int]:
    family, _, batch = name.rpartition("/")
    return family, int(batch)


def _counters(
    workloads: tuple[str, ...], speeds: dict[tuple[str, str], float]
) -> NDArray[np.float64]:
    measured = [[speeds.get((gpu, name), np.nan) for name in workloads] for gpu in GPU_TYPES]
    log_speed = np.log(np.array(measured))
    batches = np.array([_family_and_batch(name)[1] for name in workloads])
    log_batch = np.log2(np.maximum(batches, 1.0))
    families = np.array([_family_and_batch(name)[0] for name in workloads])
    everywhere = np.ones((len(GPU_TYPES), 1))
    columns = (
        everywhere * log_batch,
        log_speed,
        log_speed + np.log(2.0) * log_batch,
        np.array([_elasticity(speeds, log_batch, families) for speeds in log_speed]),
        everywhere * (log_speed[1] - log_speed[0]),
        everywhere * (log_speed[2] - log_speed[0]),
    )
    return np.stack(columns, axis=-1)


def _elasticity(
    log_speed: NDArray[np.float64], log_batch: NDArray[np.float64], families: NDArray[np.str_]
) -> NDArray[np.float64]:
    """Return by how much speed falls as the batch doubles, from the nearest batches."""
    found = np.zeros(len(families))
    for place, family in enumerate(families):
        kin = np.flatnonzero((families == family) & np.isfinite(log_speed))
        near = kin[np.argsort(np.abs(log_batch[kin] - log_batch[place]), kind="stable")[:3]]
        if len(near) > 1:
            found[place] = np.polyfit(log_batch[near], log_speed[near], 1)[0]
    return found
