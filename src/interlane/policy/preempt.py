"""Whom to stop for a more urgent job: the victims that lose the least work.

A job may take the place of running jobs with a strictly larger *rank* only.  The sorted list
of running ranks therefore falls, in lexicographic order, with every preemption; as ranks do
not fall while a job waits, no chain of preemptions can come back to where it was.

The search is greedy by machine: where does the least lost work buy room for one more unit?
Afterwards, victims that turn out not to be needed are spared, dearest first.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numba import njit

from interlane.model import InvalidField
from interlane.policy.rows import change, room_for

# Columns of the table of holdings, one row a spot.
HELD_MACHINE: Final = 0
HELD_MASK: Final = 1
HELD_INSTANCES: Final = 2
HELD_ASK: Final = 3
HELD_BY: Final = 4


@dataclass(frozen=True, slots=True)
class Preemption:
    """How running jobs may be stopped.

    ``min_run_s`` protects a job that has just started; ``restart_s`` is what stopping and
    starting again costs a victim on top of the work since its last checkpoint.
    """

    min_run_s: float = 0.0
    restart_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("min_run_s", "restart_s"):
            if getattr(self, name) < 0:
                raise InvalidField(name, getattr(self, name), "it must be 0 or more")


@njit(cache=True)
def _release(rows, asks, held, holder, by_holder, first, sign):  # type: ignore[no-untyped-def]
    """Give back (-1) or take again (+1) all that one job holds."""
    for at in range(first[holder], first[holder + 1]):
        spot = held[by_holder[at]]
        change(
            rows[spot[HELD_MACHINE]], asks[spot[HELD_ASK]], spot[HELD_MASK],
            sign * spot[HELD_INSTANCES],
        )  # fmt: skip


@njit(cache=True)
def _room(rows, ask):  # type: ignore[no-untyped-def]
    total = 0
    for machine in range(rows.shape[0]):
        total += room_for(rows[machine], ask)
    return total


@njit(cache=True)
def _cheapest(rows, ask, asks, held, by_machine, starts, cost, chosen):  # type: ignore[no-untyped-def]
    """Return (machine, how many of its holders to stop) with the least cost a unit gained."""
    best_machine = -1
    best_depth = 0
    best_price = np.inf
    scratch = np.empty(rows.shape[1], np.int64)
    for machine in range(rows.shape[0]):
        if starts[machine] == starts[machine + 1]:
            continue
        scratch[:] = rows[machine]
        before = room_for(scratch, ask)
        price = 0.0
        last = -1
        for at in range(starts[machine], starts[machine + 1]):
            spot = held[by_machine[at]]
            holder = spot[HELD_BY]
            if chosen[holder]:
                continue
            change(scratch, asks[spot[HELD_ASK]], spot[HELD_MASK], -spot[HELD_INSTANCES])
            if holder != last:
                price += cost[holder]
                last = holder
            if price >= best_price:
                break
            gained = room_for(scratch, ask) - before
            if gained > 0 and price / gained < best_price:
                best_price = price / gained
                best_machine = machine
                best_depth = at + 1
                break
    return best_machine, best_depth


@njit(cache=True)
def find_victims(  # type: ignore[no-untyped-def]
    free, asks, ask, need, held, by_machine, starts, by_holder, first, cost
):
    """Return which holders to stop so that ``need`` units of the ask fit; none if in vain.

    ``held`` lists what the eligible jobs hold; ``by_machine`` sorts it by machine and cost
    (``starts`` delimits the machines), ``by_holder`` by job (``first`` delimits the jobs).
    """
    rows = free.copy()
    holders = cost.shape[0]
    chosen = np.zeros(holders, np.bool_)
    room = _room(rows, ask)
    while room < need:
        machine, depth = _cheapest(rows, ask, asks, held, by_machine, starts, cost, chosen)
        if machine < 0:
            return np.zeros(holders, np.bool_)
        for at in range(starts[machine], depth):
            holder = held[by_machine[at], HELD_BY]
            if not chosen[holder]:
                chosen[holder] = True
                _release(rows, asks, held, holder, by_holder, first, -1)
        room = _room(rows, ask)
    for holder in np.argsort(-cost):
        if not chosen[holder]:
            continue
        _release(rows, asks, held, holder, by_holder, first, 1)
        if _room(rows, ask) >= need:
            chosen[holder] = False
        else:
            _release(rows, asks, held, holder, by_holder, first, -1)
    return chosen
