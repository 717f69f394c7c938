"""What jobs and functions suffer from each other, pair by pair, as far as is known.

Of workloads that were never seen together there are estimates.  What is measured counts for
more than they do, and fades in the course of days.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np

from interlane.live.measure.coruns import BESIDE, CoRun
from interlane.model import Workload, WorkloadKind
from interlane.policy.colocate.slowdown import SharingTables, Slowdowns
from interlane.predict.slowdown.models import SlowdownEstimate
from interlane.predict.slowdown.pairs import Profiles
from interlane.predict.slowdown.table import CellBasis, SlowdownTable


class Prior(NamedTuple):
    """An estimate of what is retained, and how far it may be off, as a logarithm."""

    throughput: float
    spread: float


SIDE_BY_SIDE: Final = BESIDE.mode
TRAINING: Final = Prior(0.97, 0.05)
"""What a job is thought to retain beside a function before anything was measured."""
LATENCY: Final = Prior(0.97, 0.3)
"""The same of a function's 99th percentile beside a job."""
IDLE: Final = Prior(0.99, 0.01)
"""The same beside another function, which is idle most of the time."""

SEVERAL: Final = Workload(WorkloadKind.SEVERAL, "jobs")
"""Jobs that share a device: what they bear or do together is not what each of them does."""

PriorOf = Callable[[Workload], Prior]
"""From an aggressor to what is thought of anybody beside it."""


class Experience:
    """Two tables of everybody who was ever seen: what jobs suffer, and what functions do."""

    def __init__(self) -> None:
        self._gpu_types: tuple[str, ...] = ()
        self._workloads: tuple[Workload, ...] = (SEVERAL,)
        self._training = self._table(_of_training)
        self._latency = self._table(_of_latency)

    def slowdowns(self) -> Slowdowns:
        """Return what is known now, to be read by whoever decides."""
        return Slowdowns({SIDE_BY_SIDE: SharingTables(self._training, self._latency)})

    def meet(self, workloads: Iterable[Workload], gpu_types: Iterable[str] = ()) -> bool:
        """Give rows to workloads and types of GPUs; return whether any was new."""
        before = self._workloads, self._gpu_types
        self._workloads = tuple(dict.fromkeys((*self._workloads, *workloads)))
        self._gpu_types = tuple(dict.fromkeys((*self._gpu_types, *gpu_types)))
        is_new = (self._workloads, self._gpu_types) != before
        if is_new:
            self._training = self._grown(self._training, _of_training)
            self._latency = self._grown(self._latency, _of_latency)
        return is_new

    def predicted(self, gpu_type: str, corun: CoRun) -> float:
        """Return the slowdown that was to be expected of a co-run."""
        table = self._table_of(corun)
        return 1.0 / table.read(*_cell(table, gpu_type, corun)).throughput

    def remember(self, gpu_type: str, corun: CoRun, now_s: float) -> None:
        """Learn from a co-run."""
        table = self._table_of(corun)
        cell = _cell(table, gpu_type, corun)
        table.measured(*cell, 1.0 / max(1.0, corun.slowdown), now_s)
        table.refresh(cell[0], now_s)

    def _table_of(self, corun: CoRun) -> SlowdownTable:
        return self._training if corun.way == BESIDE else self._latency

    def _table(self, prior_of: PriorOf) -> SlowdownTable:
        """Return a table of estimates."""
        types, names = self._gpu_types, tuple(map(str, self._workloads))
        throughput, spread = np.array([prior_of(one) for one in self._workloads]).T
        victims = len(types) * len(names)
        return SlowdownTable(
            Profiles(names, names, types, (), np.zeros((len(types), len(names), 0))),
            SlowdownEstimate(np.tile(np.log(throughput), victims), np.tile(spread, victims)),
            np.ones(len(types)),
            np.full(victims * len(names), CellBasis.HINGE, np.int8),
        )

    def _grown(self, old: SlowdownTable, prior_of: PriorOf) -> SlowdownTable:
        """Return a table of everybody that knows what was measured."""
        table = self._table(prior_of)
        known = tuple(map(slice, old.basis.shape))
        for name in ("seen_mean", "seen_weight", "seen_at_s", "basis"):
            getattr(table, name)[known] = getattr(old, name)
        for gpu in range(len(self._gpu_types)):
            table.refresh(gpu)
        return table


def _of_training(aggressor: Workload) -> Prior:
    return TRAINING


def _of_latency(aggressor: Workload) -> Prior:
    return IDLE if aggressor.kind is WorkloadKind.FUNCTION else LATENCY


def _cell(table: SlowdownTable, gpu_type: str, corun: CoRun) -> tuple[int, int, int]:
    victim, aggressor = map(table.workload, map(str, (corun.victim, corun.aggressor)))
    return table.gpu(gpu_type), victim, aggressor
