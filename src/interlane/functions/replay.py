"""Play arrivals to advisors, and count what their advice would have cost.

A replica serves a fifth of the function's mean load.  A slot costs what was missing, times a
weight, and what was too much; a function's cost is the sum over the judged slots, per
replica that was needed, at most ``CAP``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.functions.advise import Advisor
from interlane.functions.catalogue import advisors
from interlane.functions.pool import NoRoom, Pool, Unload
from interlane.functions.portfolio import Portfolio, cost_of
from interlane.functions.rank import Ranking
from interlane.model.function import Function
from interlane.predict.arrivals.live import Forecaster
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


def advised(group: FunctionGroup, advisor: Advisor) -> Floats:
    """Return the replicas that an advisor wants: one row per slot, told of each afterwards."""
    needs = group.needs
    wanted = np.zeros_like(needs)
    for slot, counts in enumerate(group.counts):
        wanted[slot] = advisor.wanted()
        advisor.passed(counts, needs[slot])
    return wanted


Makers = Mapping[str, Callable[[FunctionGroup], Forecaster]]
"""Name -> maker of a forecast for a group."""

PORTFOLIO: Final = "portfolio"


def costs(arrivals: Arrivals, part: float, weight: float, makers: Makers) -> dict[str, Floats]:
    """Return the cost of every function under each advisor, and under a portfolio of all."""
    found: dict[str, list[Floats]] = {}
    for group in groups_of(arrivals, part):
        weights = np.full(len(group.names), weight)
        everybody = advisors(
            {name: make(group) for name, make in makers.items()},
            weight=weights,
            capacity=group.capacity,
            slot_s=group.slot_s,
        )
        for name, cost in _played(group, Portfolio(everybody, weights)).items():
            found.setdefault(name, []).append(cost)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _played(group: FunctionGroup, portfolio: Portfolio) -> dict[str, Floats]:
    needs = group.needs
    spent = np.zeros((len(portfolio.advisors) + 1, len(group.names)))
    for slot, counts in enumerate(group.counts):
        followed = portfolio.wanted()
        if slot >= group.judged_from:
            said = np.vstack([portfolio.said_, followed])
            spent += cost_of(said, needs[slot], portfolio.weight)
        portfolio.passed(counts, needs[slot])
    total = needs[group.judged_from :].sum(axis=0)
    return {
        name: np.minimum(CAP, cost / total)
        for name, cost in zip((*portfolio.advisors, PORTFOLIO), spent, strict=True)
    }


# -- a few warm places ----------------------------------------------------------------


def cold_share(
    group: FunctionGroup, places: int, ranking: Ranking, *, together: bool = False
) -> float:
    """Return the share of the judged function-slots with requests that were cold.

    So many functions of equal size are warm.  Within a slot, functions are asked in turn: who
    makes room for one does not know of those after it.  Or they are asked ``together``: those
    that are warm are busy until the slot is over, and its requests are known when the others
    are let in.
    """
    pool = Pool((Function(name, name, 1) for name in group.names), device_mib=places)
    play = _together if together else _in_turn
    cold = asked = 0
    for slot, counts in enumerate(group.counts):
        active = np.flatnonzero(counts > 0).tolist()
        missed = play(pool, group.names, active, counts, ranking)
        if slot >= group.judged_from:
            asked += len(active)
            cold += missed
    return cold / asked if asked else 0.0


def _in_turn(
    pool: Pool, names: Sequence[str], active: list[int], counts: Floats, ranking: Ranking
) -> int:
    missed = 0
    for place in active:
        if not pool.asked(names[place]):
            missed += 1
            _let_in(pool, names, place, ranking)
            pool.asked(names[place])
        pool.served(names[place])
        ranking.asked(place)
    ranking.passed(counts)
    return missed


def _together(
    pool: Pool, names: Sequence[str], active: list[int], counts: Floats, ranking: Ranking
) -> int:
    warm = [place for place in active if pool.asked(names[place])]
    for place in active:
        ranking.asked(place)
    ranking.passed(counts)
    busy = warm + [
        place
        for place in active
        if place not in warm
        and _let_in(pool, names, place, ranking)
        and pool.asked(names[place])
    ]
    for place in busy:
        pool.served(names[place])
    return len(active) - len(warm)


def _let_in(pool: Pool, names: Sequence[str], place: int, ranking: Ranking) -> bool:
    """Load a function at once; False where all others are busy."""
    order = {name: at for at, name in enumerate(names)}
    actions = pool.load(names[place], lambda one: ranking.worth(order[one]))
    if isinstance(actions, NoRoom):
        return False
    for action in actions:
        if isinstance(action, Unload):
            ranking.parted(order[action.function])
    pool.loaded(names[place])
    return True
