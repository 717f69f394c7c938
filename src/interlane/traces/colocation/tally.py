"""Tally's pairs (ASPLOS'25): an inference server at half load beside a training job.

The only public table with this mix: 12 pairs under five ways to share an A100.
"""

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.traces.checks import Rows
from interlane.traces.colocation.coruns import Corun, CoRuns, Way
from interlane.traces.read.source import Source

PAIRS: Final = "priority-aware-perf.csv"
SOLO: Final = "single-job-perf.csv"
GPU: Final = "A100"
MEMORY_MIB: Final = 40 * 1024
COUNTERS: Final = ("sm_active", "dram_active", "memory", "load")
SERVER_LOAD: Final = 0.5
MODES: Final = {
    "mps": "mps",
    "mps-priority": "mps_priority",
    "time-slice": "time_slicing",
    "tgs": "tgs",
    "tally": "tally",
}
_LATENCIES: Final = {"latency": "avg", "p99": "99th"}


def read(folder: Path) -> CoRuns:
    """Read all pairs; of Tally's own settings the first of each pair."""
    rows = Rows(Source(folder / PAIRS).table())
    server = rows.text("high_priority_job", missing=None).to_list()
    trainer = rows.text("best_effort_job", missing=None).to_list()
    coruns: dict[Way, tuple[Corun, ...]] = {}
    for mode, column in MODES.items():
        kept = rows.number(f"best_effort_{column}_throughput", above=0).to_numpy()
        coruns[Way(mode, "training")] = _firsts(trainer, server, kept)
        for target, figure in _LATENCIES.items():
            alone, beside = (
                rows.number(f"high_priority_{way}_{figure}_latency", above=0).to_numpy()
                for way in ("orig", column)
            )
            coruns[Way(mode, target)] = _firsts(server, trainer, alone / beside)
    rows.settle(skip_bad=False)
    workloads = tuple(sorted({*server, *trainer}))
    return CoRuns(
        "tally",
        workloads,
        tuple(name.split("_")[1] for name in workloads),
        (GPU,),
        COUNTERS,
        _counters(folder, workloads),
        coruns,
    )


def _firsts(
    victims: list[str], aggressors: list[str], kept: NDArray[np.float64]
) -> tuple[Corun, ...]:
    found: dict[tuple[str, str], Corun] = {}
    for victim, aggressor, throughput in zip(victims, aggressors, kept.tolist(), strict=True):
        found.setdefault((victim, aggressor), Corun(GPU, victim, aggressor, throughput))
    return tuple(found.values())


def _counters(folder: Path, workloads: tuple[str, ...]) -> NDArray[np.float64]:
    rows = Rows(Source(folder / SOLO).table())
    names = rows.text("exp_key", missing=None).to_list()
    shares = zip(
        (rows.number("gpu_util") / 100).to_list(),
        (rows.number("mem_util") / 100).to_list(),
        (rows.number("mem") / MEMORY_MIB).to_list(),
        strict=True,
    )
    rows.settle(skip_bad=False)
    solo = dict(zip(names, shares, strict=True))
    unknown = (np.nan,) * 3
    return np.array(
        [[(*solo.get(name, unknown), _load(name)) for name in workloads]], dtype=np.float64
    )


def _load(name: str) -> float:
    return SERVER_LOAD if "server_load" in name else 1.0
