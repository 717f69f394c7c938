"""The inner loops of prediction: rings of run times, trees, bands.

A ring holds the logarithms of the last ``DEPTH`` run times of a key.  What is asked of it at
a submission are four numbers: how many runs it has seen, their middle, the middle of the
newest few, and their spread.  A ring costs the same to ask and to add to whatever it has
seen, so that learning as jobs finish is as cheap as learning from a trace.
"""

from typing import Final

import numpy as np

from interlane.compiling import compiled

LEAF: Final = -1
"""The feature of a node that compares nothing."""

DEPTH: Final = 32
"""Runs that a ring remembers: enough for a steady middle, few enough to follow change."""

NEWEST: Final = 4
"""Runs that count as the newest."""

# What is said of one ring.
SEEN: Final = 0
MIDDLE: Final = 1
RECENT: Final = 2
SPREAD: Final = 3
WIDTH: Final = 4


@compiled
def _sorted_part(ring, places, into):
    """Copy the values at these places in rising order; return how many."""
    for at in range(len(places)):
        value = ring[places[at]]
        spot = at
        while spot > 0 and into[spot - 1] > value:
            into[spot] = into[spot - 1]
            spot -= 1
        into[spot] = value
    return len(places)


@compiled
def _quantile(rising, count, part):
    place = part * (count - 1)
    low = int(place)
    high = min(low + 1, count - 1)
    return rising[low] + (rising[high] - rising[low]) * (place - low)


@compiled
def ask(ring, seen, out, scratch):
    """Write what a ring that has seen so many runs says; a ring without runs says nothing."""
    out[SEEN] = seen
    if seen == 0:
        out[MIDDLE:WIDTH] = np.nan
        return
    held = min(seen, DEPTH)
    count = _sorted_part(ring, np.arange(held), scratch)
    out[MIDDLE] = _quantile(scratch, count, 0.5)
    out[SPREAD] = _quantile(scratch, count, 0.75) - _quantile(scratch, count, 0.25)
    newest = min(seen, NEWEST)
    count = _sorted_part(ring, (seen - 1 - np.arange(newest)) % DEPTH, scratch)
    out[RECENT] = _quantile(scratch, count, 0.5)


@compiled
def note(rings, seen, keys, log_s):
    """Add a run to the rings of its keys; a key of -1 has no ring."""
    for key in keys:
        if key >= 0:
            rings[key, seen[key] % DEPTH] = log_s
            seen[key] += 1


@compiled
def _ask_job(rings, seen, keys, out, scratch):
    """Write what the rings of one job's keys say, one row per key."""
    for level in range(len(keys)):
        key = keys[level]
        if key < 0:
            ask(rings[0], 0, out[level], scratch)
        else:
            ask(rings[key], seen[key], out[level], scratch)


@compiled
def ask_all(rings, seen, keys, out):
    """Write what the rings say of every job, one row per job and key."""
    scratch = np.empty(DEPTH)
    for job in range(len(keys)):
        _ask_job(rings, seen, keys[job], out[job], scratch)


@compiled
def replay(rings, seen, keys, log_s, events, out):
    """Play events in order: job n is submitted at event n, and ends at event n + jobs."""
    jobs = len(keys)
    scratch = np.empty(DEPTH)
    for event in events:
        if event < jobs:
            _ask_job(rings, seen, keys[event], out[event], scratch)
        else:
            note(rings, seen, keys[event - jobs], log_s[event - jobs])


@compiled
def add_up(table, roots, feature, threshold, left, right, missing_left, value, out):
    """Add the value of the leaf that each row reaches in each tree."""
    for row in range(len(table)):
        for root in roots:
            node = root
            while feature[node] != LEAF:
                seen = table[row, feature[node]]
                lower = missing_left[node] if np.isnan(seen) else seen <= threshold[node]
                node = left[node] if lower else right[node]
            out[row] += value[node]


@compiled
def adjust(offsets, basis, log_s, low, high, step, part):
    """Move the edges of one basis after a job ended: out if it was outside, else in a little.

    In the long run the asked-for part of jobs ends beyond either edge, whatever the jobs do
    (adaptive conformal inference, Gibbs and Candes 2021).
    """
    below = 1.0 if log_s < low + offsets[basis, 0] else 0.0
    above = 1.0 if log_s > high + offsets[basis, 1] else 0.0
    offsets[basis, 0] -= step * (below - part)
    offsets[basis, 1] += step * (above - part)


@compiled
def follow_bands(events, basis, log_s, low, high, offsets, step, part, out):
    """Play events in order: a submission is told the offsets of now, an end adjusts them."""
    jobs = len(basis)
    for event in events:
        if event < jobs:
            out[event, 0] = low[event] + offsets[basis[event], 0]
            out[event, 1] = high[event] + offsets[basis[event], 1]
        else:
            job = event - jobs
            adjust(offsets, basis[job], log_s[job], low[job], high[job], step, part)
