"""The search for victims, compiled: buy room where it costs the least lost work.

Greedy by machine: the next unit of room is bought where it costs the least.  Afterwards,
victims that turn out not to be needed are spared, dearest first.
"""

from typing import Final

import numpy as np

from interlane.compiling import compiled
from interlane.policy.rows import change, room_for

# Columns of the table of holdings, one row per spot.
HELD_MACHINE: Final = 0
HELD_MASK: Final = 1
HELD_INSTANCES: Final = 2
HELD_ASK: Final = 3
HELD_BY: Final = 4


@compiled
def _release(rows, asks, held, holder, by_holder, first, sign):
    """Give back (-1) or take again (+1) all that one job holds."""
    for at in range(first[holder], first[holder + 1]):
        spot = held[by_holder[at]]
        change(
            rows, spot[HELD_MACHINE], asks, spot[HELD_ASK], spot[HELD_MASK],
            sign * spot[HELD_INSTANCES],
        )  # fmt: skip


@compiled
def _room(rows, asks, profile):
    total = 0
    for machine in range(rows.shape[0]):
        total += room_for(rows, machine, asks, profile)
    return total


@compiled
def _cheapest(rows, asks, profile, held, by_machine, starts, cost, chosen):
    """Return (machine, how many of its holders to stop) with the least cost a unit gained."""
    best_machine = -1
    best_depth = 0
    best_price = np.inf
    scratch = np.empty((1, rows.shape[1]), np.int64)
    for machine in range(rows.shape[0]):
        if starts[machine] == starts[machine + 1]:
            continue
        scratch[0] = rows[machine]
        before = room_for(scratch, 0, asks, profile)
        price = 0.0
        last = -1
        for at in range(starts[machine], starts[machine + 1]):
            spot = held[by_machine[at]]
            holder = spot[HELD_BY]
            if chosen[holder]:
                continue
            change(scratch, 0, asks, spot[HELD_ASK], spot[HELD_MASK], -spot[HELD_INSTANCES])
            if holder != last:
                price += cost[holder]
                last = holder
            if price >= best_price:
                break
            gained = room_for(scratch, 0, asks, profile) - before
            if gained > 0 and price / gained < best_price:
                best_price = price / gained
                best_machine = machine
                best_depth = at + 1
                break
    return best_machine, best_depth


@compiled
def find_victims(free, asks, profile, need, held, by_machine, starts, by_holder, first, cost):
    """Return which holders to stop so that ``need`` units of the profile fit; none if in vain.

    ``held`` lists what the eligible jobs hold; ``by_machine`` sorts it by machine and cost
    (``starts`` delimits the machines), ``by_holder`` by job (``first`` delimits the jobs).
    """
    rows = free.copy()
    holders = cost.shape[0]
    chosen = np.zeros(holders, np.bool_)
    room = _room(rows, asks, profile)
    while room < need:
        machine, depth = _cheapest(rows, asks, profile, held, by_machine, starts, cost, chosen)
        if machine < 0:
            return np.zeros(holders, np.bool_)
        for at in range(starts[machine], depth):
            holder = held[by_machine[at], HELD_BY]
            if not chosen[holder]:
                chosen[holder] = True
                _release(rows, asks, held, holder, by_holder, first, -1)
        room = _room(rows, asks, profile)
    for holder in np.argsort(-cost):
        if not chosen[holder]:
            continue
        _release(rows, asks, held, holder, by_holder, first, 1)
        if _room(rows, asks, profile) >= need:
            chosen[holder] = False
        else:
            _release(rows, asks, held, holder, by_holder, first, -1)
    return chosen
