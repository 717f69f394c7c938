"""Play arrivals to advisors, and count what their advice would have cost.

A replica serves a fifth of the function's mean load.  A slot costs what was missing, times a
weight, and what was too much; a function's cost is the sum over the judged slots, per
replica that was needed, at most ``CAP``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.functions.catalogue import advisors
from interlane.functions.events import (
    DevicesChanged,
    DropReplica,
    FunctionDeployed,
    FunctionEvent,
    LoadReplica,
    ReplicasEnded,
    ReplicasLoaded,
    ReplicasNeeded,
    ReplicasObserved,
    SlotPassed,
)
from interlane.functions.portfolio import Portfolio, cost_of
from interlane.functions.rank import Ranking
from interlane.functions.scheduler import FunctionScheduler
from interlane.functions.watch import FunctionWatch
from interlane.model import Machine, MachineId
from interlane.model.function import Function
from interlane.policy.colocate.catalogue import NONE, make_colocator
from interlane.predict.arrivals.live import Forecaster, RecordedForecasts
from interlane.predict.arrivals.series import Arrivals, Floats, split_at

CAP: Final = 20.0
REPLICA: Final = 0.2
"""The part of a function's mean load, over judged slots with requests, that is a replica's."""


@dataclass(frozen=True, eq=False)
class FunctionGroup:
    """Functions that were watched over the same slots: one row per slot, one column each."""

    names: tuple[str, ...]
    first: int
    slot_s: float
    counts: Floats
    judged_from: int

    @property
    def capacity(self) -> Floats:
        """Requests in a slot that one replica of each function serves."""
        judged = np.nan_to_num(self.counts[self.judged_from :])
        cases = np.maximum(1, (judged > 0).sum(axis=0))
        return np.asarray(REPLICA * judged.sum(axis=0) / cases)

    @property
    def needs(self) -> Floats:
        """Replicas that each slot takes."""
        return np.ceil(np.nan_to_num(self.counts) / self.capacity)


def groups_of(arrivals: Arrivals, part: float) -> Iterator[FunctionGroup]:
    """Yield the functions that are asked in the judged part, by when they were watched."""
    spans: dict[tuple[int, int], list[int]] = {}
    for place, one in enumerate(arrivals):
        if one.active[split_at(one, part) :].any():
            spans.setdefault((one.first, len(one)), []).append(place)
    for (first, slots), places in spans.items():
        chosen = [arrivals.series[place] for place in places]
        yield FunctionGroup(
            tuple(one.name for one in chosen),
            first,
            arrivals.slot_s,
            np.column_stack([one.counts for one in chosen]),
            int(slots * part),
        )


Makers = Mapping[str, Callable[[FunctionGroup], Forecaster]]
"""Name -> maker of a forecast for a group."""

PORTFOLIO: Final = "portfolio"


def costs(arrivals: Arrivals, part: float, weight: float, makers: Makers) -> dict[str, Floats]:
    """Return the cost of every function under each advisor, and under a portfolio of all."""
    found: dict[str, list[Floats]] = {}
    for group in groups_of(arrivals, part):
        weights = np.full(len(group.names), weight)
        forecasts = {name: make(group) for name, make in makers.items()}
        everybody = advisors(
            forecasts, weight=weights, capacity=group.capacity, slot_s=group.slot_s
        )
        portfolio = Portfolio(everybody, weights)
        first, *others = forecasts.values()
        watch = FunctionWatch(
            group.names, first, portfolio, weights, group.capacity, tuple(others)
        )
        for name, cost in _played(group, watch, portfolio).items():
            found.setdefault(name, []).append(cost)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _played(
    group: FunctionGroup, watch: FunctionWatch, portfolio: Portfolio
) -> dict[str, Floats]:
    needs = group.needs
    spent = np.zeros((len(portfolio.advisors) + 1, len(group.names)))
    for slot, counts in enumerate(group.counts):
        if slot >= group.judged_from:
            said = np.vstack([portfolio.said_, watch.wanted])
            spent += cost_of(said, needs[slot], portfolio.weight)
        watch.passed(counts)
    total = needs[group.judged_from :].sum(axis=0)
    return {
        name: np.minimum(CAP, cost / total)
        for name, cost in zip((*portfolio.advisors, PORTFOLIO), spent, strict=True)
    }


# -- a few warm places ----------------------------------------------------------------


def cold_share(
    group: FunctionGroup,
    places: int,
    ranking: Ranking,
    forecast: Forecaster | None = None,
    *,
    together: bool = False,
) -> float:
    """Return the share of the judged function-slots with requests that were cold.

    So many functions of equal size are warm.  Within a slot, functions are asked in turn: who
    makes room for one does not know of those after it.  Or they are asked ``together``: those
    that are warm are busy until the slot is over, and its requests are known when the others
    are let in.
    """
    warm = _WarmPlaces(group, places, ranking, forecast)
    cold = asked = 0
    for slot, counts in enumerate(group.counts):
        active = [group.names[place] for place in np.flatnonzero(counts > 0)]
        told = dict(zip(group.names, counts.tolist(), strict=True))
        missed = warm.together(active, told) if together else warm.in_turn(active, told)
        if slot >= group.judged_from:
            asked += len(active)
            cold += missed
    return cold / asked if asked else 0.0


class _WarmPlaces:
    """One device with room for so many functions, which stay until room is needed."""

    def __init__(
        self, group: FunctionGroup, places: int, ranking: Ranking, told: Forecaster | None
    ) -> None:
        count = len(group.names)
        nothing = RecordedForecasts(np.zeros((1, count)), np.ones((1, count)))
        watch = FunctionWatch(
            group.names, told or nothing, None, np.ones(count), np.ones(count)
        )
        self._scheduler = FunctionScheduler(
            make_colocator(NONE),
            slot_s=group.slot_s,
            make_watch=lambda *_: watch,
            ranking=ranking,
        )
        self._warm: dict[str, int] = {}
        """Functions that are warm, and their replicas."""
        machine = Machine(MachineId("places"), "ANY", 1, gpu_memory_mib=places)
        self._tell(DevicesChanged((machine,)))
        for name in group.names:
            self._tell(FunctionDeployed(Function(name, name, 1)))

    def in_turn(self, active: Sequence[str], counts: Mapping[str, float]) -> int:
        """Ask functions one after another; return how many were cold."""
        missed = 0
        for name in active:
            if name not in self._warm:
                missed += 1
                self._tell(ReplicasNeeded({name: 1}))
            self._tell(ReplicasObserved(frozenset(), frozenset({name})))
        self._tell(SlotPassed(counts))
        return missed

    def together(self, active: Sequence[str], counts: Mapping[str, float]) -> int:
        """Ask functions at once; return how many were cold."""
        cold = [name for name in active if name not in self._warm]
        self._observe(active, frozenset(active))
        self._tell(SlotPassed(counts))
        for name in cold:
            self._tell(ReplicasNeeded({name: 1}))
            self._observe(active)
        self._observe(())
        return len(cold)

    def _observe(self, active: Sequence[str], asked: frozenset[str] = frozenset()) -> None:
        busy = frozenset(self._warm[name] for name in active if name in self._warm)
        self._tell(ReplicasObserved(busy, asked))

    def _tell(self, event: FunctionEvent) -> None:
        """Tell the scheduler, and do at once what it says."""
        for action in self._scheduler.tell(event, 0.0):
            if isinstance(action, DropReplica):
                del self._warm[action.function]
                self._tell(ReplicasEnded((action.replica,)))
            elif isinstance(action, LoadReplica):
                self._warm[action.function] = action.replica
                self._tell(ReplicasLoaded((action.replica,)))
