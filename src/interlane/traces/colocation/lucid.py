"""Lucid's pairs (ASPLOS'23): training jobs side by side on an RTX 3090, with solo counters."""

from pathlib import Path
from typing import Final

import numpy as np

from interlane.traces.checks import Rows
from interlane.traces.colocation.coruns import Corun, CoRuns, Way
from interlane.traces.read.source import Source

PAIRS: Final = "colocate_info.csv"
SOLO: Final = "single_data.csv"
GPU: Final = "RTX3090"
MEMORY_MIB: Final = 24 * 1024
COUNTERS: Final = ("sm_active", "dram_active", "memory", "log_batch", "amp", "log_speed")
_KEY: Final = ("model", "dataset", "batchsize", "amp")


def read(folder: Path) -> CoRuns:
    """Read all pairs and all solo runs; some workloads were only ever run alone."""
    pairs = Rows(Source(folder / PAIRS).table())
    sides = [_names(pairs, str(side)) for side in (1, 2)]
    kept = [pairs.number(f"speed{side}", above=0).to_list() for side in (1, 2)]
    pairs.settle(skip_bad=False)
    solo = _solo(folder)
    ordered = zip(*sides, *kept, strict=True)
    both = [
        Corun(GPU, *who)
        for one, other, kept_one, kept_other in ordered
        for who in ((one, other, kept_one), (other, one, kept_other))
    ]
    # A workload beside itself is measured once a side; one of the two counts.
    coruns = tuple({run[1:3]: run for run in reversed(both)}.values())
    workloads = tuple(sorted({*solo, *(run.victim for run in coruns)}))
    return CoRuns(
        "lucid",
        workloads,
        tuple(name.split("/")[0] for name in workloads),
        (GPU,),
        COUNTERS,
        np.array([[solo.get(name, (np.nan,) * len(COUNTERS)) for name in workloads]]),
        {Way("side-by-side", "training"): coruns},
    )


def _solo(folder: Path) -> dict[str, tuple[float, ...]]:
    rows = Rows(Source(folder / SOLO).table())
    names = _names(rows, "")
    numbers = {
        name: rows.number(name).to_numpy()
        for name in ("gpu_util", "gmem_util", "gmem", "batchsize", "amp", "speed")
    }
    rows.settle(skip_bad=False)
    columns = (
        numbers["gpu_util"] / 100,
        numbers["gmem_util"] / 100,
        numbers["gmem"] / MEMORY_MIB,
        np.log2(np.maximum(numbers["batchsize"], 1)),
        numbers["amp"],
        np.log(np.maximum(numbers["speed"], 1e-6)),
    )
    taken = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(names, taken, strict=True))


def _names(rows: Rows, side: str) -> list[str]:
    rows.require(f"{column}{side}" for column in _KEY)
    model, dataset, batch, amp = (rows.text(f"{column}{side}", missing=None) for column in _KEY)
    half = (amp.cast(float, strict=False) > 0).fill_null(value=False)
    return [
        f"{one}/{two}/{int(float(three))}{'/amp' if four else ''}"
        for one, two, three, four in zip(model, dataset, batch, half, strict=True)
    ]
