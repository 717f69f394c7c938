"""The search for victims, compiled: buy room where it costs the least lost work.

Greedy by machine: the next unit of room is bought where it costs the least.  Afterwards,
victims that turn out not to be needed are spared, dearest first.
"""

import numpy as np

from interlane.compiling import compiled
from interlane.policy.rows import room_for, room_on
from interlane.tables import AT_ASK, AT_INSTANCES, AT_MASK, HELD_BY
from interlane.tables.compiled import change, change_rows


@compiled
def _cheapest(rows, asks, profile, holdings, chosen):
    """Return (machine, how many of its holders to stop) with the least cost per unit gained."""
    held, starts = holdings.held, holdings.starts
    best_machine = -1
    best_depth = 0
    best_price = np.inf
    # Stopping is tried on a copy of one row: what others hold elsewhere changes nothing here.
    scratch = np.empty((1, rows.shape[1]), np.int64)
    for machine in range(rows.shape[0]):
        if starts[machine] == starts[machine + 1]:
            continue
        scratch[0] = rows[machine]
        before = room_for(scratch, 0, asks, profile)
        price = 0.0
        last = -1
        for at in range(starts[machine], starts[machine + 1]):
            spot = held[holdings.by_machine[at]]
            holder = spot[HELD_BY]
            if chosen[holder]:
                continue
            change(scratch, 0, asks, spot[AT_ASK], spot[AT_MASK], -spot[AT_INSTANCES])
            if holder != last:
                price += holdings.cost[holder]
                last = holder
            # Holders come cheapest first, so that deeper on this machine is dearer still.
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
def _change_holder(rows, asks, holdings, holder, sign):
    """Take again (1) or give back (-1) all that one job holds, on whatever machines."""
    first = holdings.first
    change_rows(rows, asks, holdings.held, first[holder], first[holder + 1], sign)


@compiled
def find_victims(free, asks, profile, need, holdings):
    """Return which holders to stop so that ``need`` units of the profile fit; none if in vain.

    ``holdings`` are those of the jobs that may be stopped (``tables.Holdings``).
    """
    rows = free.copy()
    holders = holdings.cost.shape[0]
    chosen = np.zeros(holders, np.bool_)
    while room_on(rows, asks, profile) < need:
        machine, depth = _cheapest(rows, asks, profile, holdings, chosen)
        if machine < 0:
            return np.zeros(holders, np.bool_)
        for at in range(holdings.starts[machine], depth):
            holder = holdings.held[holdings.by_machine[at], HELD_BY]
            if not chosen[holder]:
                chosen[holder] = True
                _change_holder(rows, asks, holdings, holder, -1)
    # A later, larger victim may have made an earlier one superfluous.
    for holder in np.argsort(-holdings.cost):
        if not chosen[holder]:
            continue
        _change_holder(rows, asks, holdings, holder, 1)
        if room_on(rows, asks, profile) >= need:
            chosen[holder] = False
        else:
            _change_holder(rows, asks, holdings, holder, -1)
    return chosen
