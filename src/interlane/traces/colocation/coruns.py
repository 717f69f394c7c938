"""Co-runs as readers give them: plain columns, whoever measured them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Corun(NamedTuple):
    """What one side of a co-run kept."""

    gpu_type: str
    victim: str
    aggressor: str
    throughput: float
    """Co-run speed over solo speed; for latencies solo over co-run."""


class Way(NamedTuple):
    """How a GPU was shared, and what was measured."""

    mode: str
    """``side-by-side``, ``mps``, ``mps-priority``, ``time-slice``, ``tgs`` or ``tally``."""
    target: str
    """``training`` throughput, or the ``latency`` or ``p99`` of an inference server."""


@dataclass(frozen=True, eq=False)
class CoRuns:
    """Workloads with what they do alone, and what they keep beside each other."""

    name: str
    workloads: tuple[str, ...]
    families: tuple[str, ...]
    gpu_types: tuple[str, ...]
    counters: tuple[str, ...]
    values: NDArray[np.float64]
    """GPU type x workload x counter; NaN where it was not taken."""
    coruns: Mapping[Way, tuple[Corun, ...]]

    @property
    def count(self) -> int:
        """Co-runs over all ways."""
        return sum(map(len, self.coruns.values()))
