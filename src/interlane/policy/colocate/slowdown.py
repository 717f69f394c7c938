"""Predicted slowdown of everybody on a GPU, for every way to share it.

All numbers come from tables that were filled beforehand; here they lie in plain lists, because
a decision reads dozens of them one by one.  A sharing mode that has tables is a mode that may
be chosen: side by side, time slices, lanes, or a MIG slice, in which neighbours hardly matter
and a function is as fast as its slice.  Nothing here raises: what is not known has the table's
stated fallback in the last row and column, where a number of -1 leads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from interlane.model.function import Function
from interlane.predict.slowdown.multiway import Crowd, SuperAdditive
from interlane.predict.slowdown.pairs import Floats
from interlane.predict.slowdown.table import SlowdownTable

Rows = list[list[float]]
"""Slowdown less 1, by victim and aggressor."""


class Slowdown(NamedTuple):
    """What a set of neighbours costs, each as a slowdown: 1 is undisturbed."""

    training: float
    """Of the training job, 1 where there is none."""
    p99: float
    """Of the function that suffers most, over what it may suffer: above 1 is too much."""
    own: float
    """Of the newest function."""


class SlowdownRule(Protocol):
    """Says how pairwise slowdowns add up."""

    def total(self, excess: float, worst: float, neighbours: int) -> float:
        """Return the slowdown, of the sum and the largest of pairwise ones less 1."""
        ...

    def learn(self, crowd: Crowd, slow_down: float) -> None:
        """Take in what was measured of a victim and its neighbours."""
        ...

    def snapshot(self) -> Floats:
        """Return what was learned."""
        ...

    def restore(self, learned: Floats) -> None:
        """Go on from what was learned."""
        ...


@dataclass(frozen=True, slots=True)
class SharingTables:
    """The tables of one way to share."""

    training: SlowdownTable
    latency: SlowdownTable
    """Of functions: their p99 where it was measured, else their throughput."""


@dataclass
class Slowdowns:
    """Reads tables for whole GPUs."""

    modes: Mapping[str, SharingTables]
    rule: SlowdownRule = field(default_factory=SuperAdditive)
    cautious: bool = True
    """Count with bounds; otherwise with means, as SMore does."""
    _rows: dict[tuple[str, str, bool], tuple[Rows, Rows]] = field(
        default_factory=dict, repr=False
    )
    _numbers: dict[str, int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.read_from(self.modes)

    def read_from(self, modes: Mapping[str, SharingTables]) -> None:
        """Read other tables from now on; how pairs add up stays as it was learned."""
        self.modes = modes
        first = next(iter(modes.values())).training
        self._numbers = {name: place for place, name in enumerate(first.profiles.names)}
        self.forget()

    def forget(self) -> None:
        """Read tables anew: something was measured."""
        self._rows.clear()

    def slowdown(
        self,
        mode: str,
        gpu_type: str,
        trainer: str | None,
        guests: Sequence[Function],
        newest: Function,
        *,
        estimated: bool = False,
    ) -> Slowdown:
        """Return what a function would cost beside a training job and other functions.

        ``estimated`` counts with means where bounds are the rule.
        """
        cautious = self.cautious and not estimated
        rows = self._rows.get((mode, gpu_type, cautious))
        rows = rows or self._read(mode, gpu_type, cautious=cautious)
        numbers = self._numbers
        new = numbers.get(newest.workload, -1)
        trains = None if trainer is None else numbers.get(trainer, -1)
        if guests:
            here = [numbers.get(guest.workload, -1) for guest in guests]
            return self._crowded(rows, trains, here, guests, new, newest)
        if trains is None:
            return Slowdown(1.0, 1.0 / newest.p99_limit, 1.0)
        on_training, on_latency = rows
        own = 1.0 + on_latency[new][trains]
        return Slowdown(1.0 + on_training[trains][new], own / newest.p99_limit, own)

    def _crowded(
        self,
        rows: tuple[Rows, Rows],
        trains: int | None,
        here: list[int],
        guests: Sequence[Function],
        new: int,
        newest: Function,
    ) -> Slowdown:
        on_training, on_latency = rows
        total = self.rule.total
        everybody = [*here, new]
        training = 1.0
        if trains is not None:
            row = on_training[trains]
            costs = [row[one] for one in everybody]
            training = total(sum(costs), max(costs), len(costs))
            everybody.append(trains)
        row = on_latency[new]
        costs = [row[one] for one in everybody]
        del costs[len(here)]
        own = total(sum(costs), max(costs), len(costs))
        worst = own / newest.p99_limit
        for place, guest in enumerate(guests):
            row = on_latency[here[place]]
            costs = [row[one] for one in everybody]
            del costs[place]
            worst = max(worst, total(sum(costs), max(costs), len(costs)) / guest.p99_limit)
        return Slowdown(training, worst, own)

    def learn(
        self, mode: str, gpu_type: str, victim: str, others: Sequence[str], slow_down: float
    ) -> None:
        """Take in what was measured of a victim beside several others."""
        table = self.modes[mode].training
        gpu, at = table.gpu(gpu_type), table.workload(victim)
        readings = (table.read(gpu, at, table.workload(other)) for other in others)
        self.rule.learn(
            Crowd(tuple(max(1.0, 1.0 / one.throughput) for one in readings)), slow_down
        )

    def _read(self, mode: str, gpu_type: str, *, cautious: bool) -> tuple[Rows, Rows]:
        tables = self.modes[mode]
        found = self._rows[mode, gpu_type, cautious] = (
            _excess(tables.training, gpu_type, cautious=cautious),
            _excess(tables.latency, gpu_type, cautious=cautious),
        )
        return found


def _excess(table: SlowdownTable, gpu_type: str, *, cautious: bool) -> Rows:
    kept = table.padded(table.gpu(gpu_type), cautious=cautious)
    rows: Rows = np.maximum(0.0, 1.0 / kept - 1.0).tolist()
    return rows
