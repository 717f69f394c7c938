"""What jobs and functions suffer from each other, pair by pair, as far as is known.

Of workloads that were never seen together there are guesses.  What is measured counts for more
than they do, and fades in the course of days.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np

from interlane.model import Cluster
from interlane.policy.colocate.gpus import SEVERAL
from interlane.policy.colocate.slowdown import Mode, Tolls
from interlane.predict.degradation.models import Guess
from interlane.predict.degradation.pairs import Profiles
from interlane.predict.degradation.table import Basis, Table
from interlane.server.coruns import BESIDE, CoRun, is_function


class Prior(NamedTuple):
    """A guess of what is retained, and how far it may be off, as a logarithm."""

    retained: float
    spread: float


SIDE_BY_SIDE: Final = BESIDE.mode
TRAINING: Final = Prior(0.97, 0.05)
"""What a job is thought to retain beside a function before anything was measured."""
LATENCY: Final = Prior(0.97, 0.3)
"""The same of a function's 99th percentile beside a job."""
IDLE: Final = Prior(0.99, 0.01)
"""The same beside another function, which is idle most of the time."""

PriorOf = Callable[[str], Prior]
"""From an aggressor to what is thought of anybody beside it."""


class Experience:
    """Two tables of everybody who was ever seen: what jobs suffer, and what functions do."""

    def __init__(self, cluster: Cluster) -> None:
        self._gpu_types = tuple(sorted({machine.gpu_type for machine in cluster}))
        self._names: tuple[str, ...] = (SEVERAL,)
        self._training = self._table(_of_training)
        self._latency = self._table(_of_latency)

    def tolls(self) -> Tolls:
        """Return what is known now, to be read by whoever decides."""
        return Tolls({SIDE_BY_SIDE: Mode(self._training, self._latency)})

    def meet(self, names: Iterable[str]) -> bool:
        """Give workloads rows of their own; return whether any was new."""
        new = [name for name in dict.fromkeys(names) if name not in self._names]
        if new:
            self._names = (*self._names, *new)
            self._training = self._grown(self._training, _of_training)
            self._latency = self._grown(self._latency, _of_latency)
        return bool(new)

    def predicted(self, gpu_type: str, corun: CoRun) -> float:
        """Return the slow-down that was to be expected of a co-run."""
        table = self._table_of(corun)
        return 1.0 / table.read(*_cell(table, gpu_type, corun)).retained

    def remember(self, gpu_type: str, corun: CoRun, now_s: float) -> None:
        """Learn from a co-run."""
        table = self._table_of(corun)
        cell = _cell(table, gpu_type, corun)
        table.measured(*cell, 1.0 / max(1.0, corun.slowdown), now_s)
        table.refresh(cell[0], now_s)

    def _table_of(self, corun: CoRun) -> Table:
        return self._training if corun.way == BESIDE else self._latency

    def _table(self, prior_of: PriorOf) -> Table:
        """Return a table of guesses."""
        types, names = self._gpu_types, self._names
        retained, spread = np.array([prior_of(name) for name in names]).T
        victims = len(types) * len(names)
        return Table(
            Profiles(names, names, types, (), np.zeros((len(types), len(names), 0))),
            Guess(np.tile(np.log(retained), victims), np.tile(spread, victims)),
            np.ones(len(types)),
            np.full(victims * len(names), Basis.HINGE, np.int8),
        )

    def _grown(self, old: Table, prior_of: PriorOf) -> Table:
        """Return a table of all names that knows what was measured."""
        table, known = self._table(prior_of), len(old.profiles)
        for name in ("seen_mean", "seen_weight", "seen_at_s", "basis"):
            getattr(table, name)[:, :known, :known] = getattr(old, name)
        for gpu in range(len(self._gpu_types)):
            table.refresh(gpu)
        return table


def _of_training(aggressor: str) -> Prior:
    return TRAINING


def _of_latency(aggressor: str) -> Prior:
    return IDLE if is_function(aggressor) else LATENCY


def _cell(table: Table, gpu_type: str, corun: CoRun) -> tuple[int, int, int]:
    return table.gpu(gpu_type), table.workload(corun.victim), table.workload(corun.aggressor)
