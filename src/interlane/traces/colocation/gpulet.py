"""gpu-let's solo counters (ATC'22) and its published line: slowdown by L2 and DRAM use."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.traces.checks import Rows
from interlane.traces.colocation.coruns import CoRuns
from interlane.traces.read.source import Source

MARK: Final = "2080ti_util.csv"
GPU_FILES: Final = {"RTX2080TI": "2080ti", "RTX3080": "3080"}
COUNTERS: Final = ("sm_active", "l2_active", "dram_active", "sm_occupancy", "log_batch")
_PERCENT: Final = ("SM_util(%)", "l2_util(%)", "mem_util(%)", "achieved occupancy")
_TERMS: Final = ("l2_util_m1", "l2_util_m2", "dram_util_m1", "dram_util_m2", "constant")


def read(folder: Path) -> CoRuns:
    """Read solo counters on both GPUs; nobody published its co-runs."""
    solo = {gpu: _solo(folder / f"{file}_util.csv") for gpu, file in GPU_FILES.items()}
    workloads = tuple(sorted({name for on_gpu in solo.values() for name in on_gpu}))
    unknown = (np.nan,) * len(COUNTERS)
    values = [[solo[gpu].get(name, unknown) for name in workloads] for gpu in GPU_FILES]
    return CoRuns(
        "gpu-let",
        workloads,
        tuple(name.split("/")[0] for name in workloads),
        tuple(GPU_FILES),
        COUNTERS,
        np.array(values, dtype=np.float64),
        {},
    )


def _solo(path: Path) -> dict[str, tuple[float, ...]]:
    source = Source(path)
    # Every row but the header ends in a comma.
    header = [*source.header, ""]
    lines = source.text.splitlines()[1:]
    found = {}
    for line in lines:
        fields = dict(zip(header, line.split(","), strict=False))
        shares = [float(fields[name]) / 100 for name in _PERCENT]
        batch = int(fields["batch"])
        found[f"{fields['bench']}/{batch}"] = (*shares, float(np.log2(batch)))
    return found


@dataclass(frozen=True, slots=True)
class GpuletRow:
    """The published line of one GPU."""

    own_l2: float
    other_l2: float
    own_dram: float
    other_dram: float
    constant: float

    def slow_down(self, own: NDArray[np.float64], other: NDArray[np.float64]) -> float:
        """Return the slowdown of one workload beside another, of rows of ``COUNTERS``."""
        _, l2, dram, *_ = range(len(COUNTERS))
        return float(
            self.constant
            + self.own_l2 * own[l2]
            + self.other_l2 * other[l2]
            + self.own_dram * own[dram]
            + self.other_dram * other[dram]
        )


def line(folder: Path, gpu_type: str) -> GpuletRow:
    """Read the published coefficients of a GPU."""
    path = folder / f"{GPU_FILES[gpu_type]}_interference_coefficients.csv"
    rows = Rows(Source(path).table())
    rows.require(_TERMS)
    terms = [float(rows.number(term, least=-10, most=10)[0]) for term in _TERMS]
    rows.settle(skip_bad=False)
    return GpuletRow(*terms)
