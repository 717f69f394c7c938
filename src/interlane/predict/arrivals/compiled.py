"""The inner loops of arrival forecasts: the past of a function as a row of features.

All that is remembered of a function is a ring of its counts (a week) and a state of fixed
size; a slot costs the same however long the past.  ``emit`` reads them before a slot,
``learn`` adds the slot afterwards, so a row can not hold anything of the slot it is for.
Training, judging and serving run this same code.
"""

from typing import Final

import numpy as np

from interlane.compiling import compiled

LAGS: Final = (1, 2, 3, 4, 5, 10, 15, 30, 60)
"""Slots back that are looked at one by one."""
WINDOWS: Final = (2, 5, 10, 20, 60, 240)
"""Slots over which is averaged; two more averages span a day and a week."""
DAYS: Final = (1, 2, 3, 7)
"""Days back whose same time of day is looked at."""
AROUND: Final = 2
"""Slots to both sides that count as the same time of day."""
GAPS: Final = 4
"""Gaps between requests that are remembered one by one."""
BINS: Final = 48
"""Classes of gap lengths: 1 to 16 slots by themselves, then four classes an octave."""
ECHOES: Final = 64
"""Distances at which a function is watched for repeating itself."""

# Where things are in the state of a function; the tables of hours and days come last.
SLOTS: Final = 0
SINCE: Final = 1
EVER: Final = 2
RATE: Final = 3
RATE_SEEN: Final = 4
LEVEL: Final = 5
LEVEL_SEEN: Final = 6
GAP_MEAN: Final = 7
GAP_SPREAD: Final = 8
GAP_SEEN: Final = 9
LAST: Final = 10
LAST_GAPS: Final = 11
SUMS: Final = LAST_GAPS + GAPS
ACTIVE_SUMS: Final = SUMS + len(WINDOWS)
LONG_SUMS: Final = ACTIVE_SUMS + len(WINDOWS)
HAZARD: Final = LONG_SUMS + 2
HAZARD_SEEN: Final = HAZARD + BINS
ECHO: Final = HAZARD_SEEN + BINS
ECHO_SEEN: Final = ECHO + ECHOES + 1
TABLES: Final = ECHO_SEEN + ECHOES + 1

FEATURES: Final = len(LAGS) + 2 * len(WINDOWS) + 2 + 2 * len(DAYS) + GAPS + 16
"""Columns of a row."""

# How much of the past a running mean weighs: so many cases, or days.
HAZARD_CASES: Final = 200.0
HOUR_CASES: Final = 48.0
DAY_CASES: Final = 7.0
ECHO_CASES: Final = 200.0
LEVEL_CASES: Final = 200.0
GAP_CASES: Final = 50.0
RATE_DAYS: Final = 3.0


@compiled
def _gap_bin(gap):
    if gap <= 16:
        return gap - 1
    return min(16 + int(4 * np.log2(gap / 16.0)), BINS - 1)


@compiled
def _note(state, mean, seen, value, most):
    """Move a running mean towards a value; at most ``most`` cases weigh."""
    state[seen] = min(state[seen] + 1.0, most)
    state[mean] += (value - state[mean]) / state[seen]


@compiled
def emit(state, ring, phase, day, hour, out):
    """Write the row for the next slot, which is ``phase`` slots after a midnight."""
    at = _emit_lately(state, ring, day, out)
    at = _emit_days(state, ring, day, out, at)
    at = _emit_gaps(state, out, at)
    at = _emit_clock(state, phase, day, hour, out, at)
    at = _emit_echoes(state, ring, out, at)
    out[at] = state[RATE]
    out[at + 1] = state[LEVEL]
    out[at + 2] = phase % hour / hour
    out[at + 3] = phase / day
    out[at + 4] = min(state[SLOTS] / day, 7.0)
    out[at + 5] = state[LAST]


@compiled
def _emit_lately(state, ring, day, out):
    """Write the last slots and means over windows; return the next place, as all parts do."""
    slots = int(state[SLOTS])
    at = 0
    for lag in LAGS:
        out[at] = ring[(slots - lag) % len(ring)] if slots >= lag else np.nan
        at += 1
    for window in range(len(WINDOWS)):
        out[at] = state[SUMS + window] / WINDOWS[window]
        out[at + 1] = state[ACTIVE_SUMS + window] / WINDOWS[window]
        at += 2
    out[at] = state[LONG_SUMS] / min(max(slots, 1), day)
    out[at + 1] = state[LONG_SUMS + 1] / min(max(slots, 1), 7 * day)
    return at + 2


@compiled
def _emit_days(state, ring, day, out, at):
    """Write the same time on earlier days."""
    slots = int(state[SLOTS])
    size = len(ring)
    for days in DAYS:
        then = slots - days * day
        out[at] = np.nan
        out[at + 1] = np.nan
        if then >= 0:
            out[at] = ring[then % size]
            active, cases = 0.0, 0.0
            for near in range(max(0, then - AROUND), min(slots, then + AROUND + 1)):
                active += ring[near % size] > 0
                cases += 1.0
            out[at + 1] = active / cases
        at += 2
    return at


@compiled
def _emit_gaps(state, out, at):
    """Write the last gaps, the one that lasts, and how often such a one ended."""
    ever = state[EVER] > 0
    gap = int(state[SINCE]) + 1
    for back in range(GAPS):
        out[at] = state[LAST_GAPS + back] if state[GAP_SEEN] > back else np.nan
        at += 1
    out[at] = np.log(gap) if ever else np.nan
    out[at + 1] = state[GAP_MEAN] if state[GAP_SEEN] > 0 else np.nan
    out[at + 2] = np.sqrt(max(state[GAP_SPREAD], 0.0)) if state[GAP_SEEN] > 1 else np.nan
    out[at + 3] = gap - state[LAST_GAPS] if state[GAP_SEEN] > 0 else np.nan
    bin_ = _gap_bin(gap)
    cases = state[HAZARD_SEEN + bin_]
    ended = (state[HAZARD + bin_] * cases + 2 * state[RATE]) / (cases + 2)
    out[at + 4] = ended if ever else np.nan
    return at + 5


@compiled
def _emit_clock(state, phase, day, hour, out, at):
    """Write how often the function is asked in that minute of the hour and time of day."""
    rate = state[RATE]
    minute = phase % hour
    cases = state[TABLES + hour + minute]
    out[at] = (state[TABLES + minute] * cases + rate) / (cases + 1)
    times = TABLES + 2 * hour
    active, cases = 2 * rate, 2.0
    for near in range(-AROUND, AROUND + 1):
        place = (phase + near) % day
        weight = (AROUND + 1 - abs(near)) * state[times + day + place]
        active += weight * state[times + place]
        cases += weight
    out[at + 1] = active / cases
    out[at + 2] = state[times + phase] if state[times + day + phase] > 0 else np.nan
    return at + 3


@compiled
def _emit_echoes(state, ring, out, at):
    """Write the two distances at which the function repeats itself most surely."""
    slots = int(state[SLOTS])
    best, second = 0.0, 0.0
    for lag in range(1, min(ECHOES, slots) + 1):
        if ring[(slots - lag) % len(ring)] > 0 and state[ECHO_SEEN + lag] > 3:
            echo = state[ECHO + lag]
            if echo > best:
                best, second = echo, best
            elif echo > second:
                second = echo
    out[at] = best
    out[at + 1] = second
    return at + 2


@compiled
def learn(state, ring, phase, day, hour, count):
    """Add a slot to what is remembered."""
    slots = int(state[SLOTS])
    size = len(ring)
    value = np.float32(np.log1p(count))  # as the ring gives it back, so that sums stay exact
    active = 1.0 if count > 0 else 0.0
    for window in range(len(WINDOWS)):
        state[SUMS + window] += value
        state[ACTIVE_SUMS + window] += active
        if slots >= WINDOWS[window]:
            gone = ring[(slots - WINDOWS[window]) % size]
            state[SUMS + window] -= gone
            state[ACTIVE_SUMS + window] -= gone > 0
    for span in range(2):
        back = day if span == 0 else 7 * day
        state[LONG_SUMS + span] += active
        if slots >= back:
            state[LONG_SUMS + span] -= ring[(slots - back) % size] > 0
    gap = int(state[SINCE]) + 1
    if state[EVER] > 0:
        bin_ = _gap_bin(gap)
        _note(state, HAZARD + bin_, HAZARD_SEEN + bin_, active, HAZARD_CASES)
    _note(state, RATE, RATE_SEEN, active, RATE_DAYS * day)
    minute = phase % hour
    _note(state, TABLES + minute, TABLES + hour + minute, active, HOUR_CASES)
    times = TABLES + 2 * hour
    _note(state, times + phase, times + day + phase, active, DAY_CASES)
    for lag in range(1, min(ECHOES, slots) + 1):
        if ring[(slots - lag) % size] > 0:
            _note(state, ECHO + lag, ECHO_SEEN + lag, active, ECHO_CASES)
    if active > 0:
        if state[EVER] > 0:
            length = np.log(gap)
            off = length - state[GAP_MEAN]
            _note(state, GAP_MEAN, GAP_SEEN, length, GAP_CASES)
            moved = off * (length - state[GAP_MEAN])
            state[GAP_SPREAD] += (moved - state[GAP_SPREAD]) / state[GAP_SEEN]
            for back in range(GAPS - 1, 0, -1):
                state[LAST_GAPS + back] = state[LAST_GAPS + back - 1]
            state[LAST_GAPS] = gap
        state[EVER] = 1.0
        state[SINCE] = 0.0
        state[LAST] = value
        _note(state, LEVEL, LEVEL_SEEN, value, LEVEL_CASES)
    else:
        state[SINCE] += 1.0
    ring[slots % size] = value
    state[SLOTS] += 1.0


@compiled
def emit_all(states, rings, phase, day, hour, out):
    """Write the next row of every function."""
    for one in range(len(states)):
        emit(states[one], rings[one], phase, day, hour, out[one])


@compiled
def learn_all(states, rings, phase, day, hour, counts):
    """Add a slot of every function."""
    for one in range(len(states)):
        learn(states[one], rings[one], phase, day, hour, counts[one])


@compiled
def follow(state, ring, first, day, hour, counts, out):
    """Write the row of every slot of one function, each before the slot is learned."""
    for slot in range(len(counts)):
        phase = (first + slot) % day
        emit(state, ring, phase, day, hour, out[slot])
        learn(state, ring, phase, day, hour, counts[slot])


# -- histograms of gaps ---------------------------------------------------------------

# Where things are in what is remembered of a function's gaps; then come the counts of all
# gaps by length, those of recent gaps, and the gap that ended in each recent slot.
AGO: Final = 0
GAPS_KNOWN: Final = 1
GAPS_RECENT: Final = 2
HEAD_GAP: Final = 3
TAIL_GAP: Final = 4
AT_SLOT: Final = 5
COUNTS: Final = 6


@compiled
def _quantile(counts, total, part):
    """Return the shortest gap that so large a part of all gaps does not exceed."""
    count = 0.0
    for gap in range(1, len(counts)):
        count += counts[gap]
        if count >= part * total:
            return gap
    return len(counts) - 1


@compiled
def is_warm(gaps):
    """Tell whether the next slot lies between the two gaps after the last request."""
    return gaps[AGO] > 0 and gaps[HEAD_GAP] <= gaps[AGO] <= gaps[TAIL_GAP]


@compiled
def learn_gap(gaps, longest, recent, head, tail, least, weight, active):
    """Add a slot; quantiles of all gaps and of recent ones are mixed by ``weight``.

    With fewer than ``least`` gaps known, a function stays warm for ``longest`` slots.
    """
    every = gaps[COUNTS : COUNTS + longest + 1]
    newest = gaps[COUNTS + longest + 1 : COUNTS + 2 * longest + 2]
    ended = gaps[COUNTS + 2 * longest + 2 :]
    place = int(gaps[AT_SLOT]) % recent
    gaps[AT_SLOT] += 1
    old = int(ended[place])
    if old > 0:
        newest[old] -= 1
        gaps[GAPS_RECENT] -= 1
    ended[place] = 0
    if not active:
        if gaps[AGO] > 0:
            gaps[AGO] += 1
        return
    if gaps[AGO] > 0:
        gap = min(int(gaps[AGO]), longest)
        every[gap] += 1
        newest[gap] += 1
        ended[place] = gap
        gaps[GAPS_KNOWN] += 1
        gaps[GAPS_RECENT] += 1
    gaps[AGO] = 1
    gaps[HEAD_GAP], gaps[TAIL_GAP] = 0, longest
    known, few = gaps[GAPS_KNOWN], gaps[GAPS_RECENT]
    if known < least:
        return
    first, last = _quantile(every, known, head), _quantile(every, known, tail)
    gaps[HEAD_GAP], gaps[TAIL_GAP] = first, last
    if weight > 0 and few > 0:
        gaps[HEAD_GAP] += weight * (_quantile(newest, few, head) - first)
        gaps[TAIL_GAP] += weight * (_quantile(newest, few, tail) - last)


@compiled
def learn_gaps(gaps, longest, recent, head, tail, least, weight, active):
    """Add a slot of every function."""
    for one in range(len(gaps)):
        learn_gap(gaps[one], longest, recent, head, tail, least, weight, active[one])


@compiled
def warm_now(gaps, out):
    """Write for every function whether its next slot is warm."""
    for one in range(len(gaps)):
        out[one] = is_warm(gaps[one])


@compiled
def follow_gaps(gaps, longest, recent, head, tail, least, weight, active, out):
    """Write for each slot of one function whether it is warm, before it is learned."""
    for slot in range(len(active)):
        out[slot] = is_warm(gaps)
        learn_gap(gaps, longest, recent, head, tail, least, weight, active[slot])


# -- a correction for each function ---------------------------------------------------


@compiled
def corrected(logits, hazards, weights):
    """Return the probability that a function's own weights make of what is told."""
    told = weights[0] * logits + weights[1] * hazards + weights[2]
    return 1.0 / (1.0 + np.exp(-min(max(told, -12.0), 12.0)))


@compiled
def correct(logit, hazard, weights, step, active):
    """Move a function's weights after a slot, down the slope of the logarithmic loss."""
    off = step * (corrected(logit, hazard, weights) - active)
    weights[0] -= off * logit / (1.0 + abs(logit))
    weights[1] -= off * hazard / (1.0 + abs(hazard))
    weights[2] -= off


@compiled
def follow_corrected(logits, hazards, weights, step, active, watched, out):
    """Write the probability of each slot, each before its outcome is learned."""
    for slot in range(len(logits)):
        out[slot] = corrected(logits[slot], hazards[slot], weights)
        if watched[slot]:
            correct(logits[slot], hazards[slot], weights, step, active[slot])


# -- how many -------------------------------------------------------------------------

SPREAD_STEP: Final = 0.02
"""How far one request moves the measure of how far requests are off."""


@compiled
def track(marks, levels, step, off):
    """Move tracked quantiles after a request; ``off`` is how far it was from the middle.

    The last mark is how far requests are off on average, which measures the steps: the
    quantiles of a function that never varies must not tremble.
    """
    marks[-1] += SPREAD_STEP * (abs(off) - marks[-1])
    for level in range(len(levels)):
        over = off > marks[level]
        part = levels[level] if over else levels[level] - 1.0
        marks[level] += step * marks[-1] * part


@compiled
def follow_quantiles(middles, wanted, values, active, marks, levels, step, out):
    """Write for each slot a quantile of the count if there is one, before it is learned.

    ``middles`` and ``values`` are logarithms; ``wanted`` is the level that is asked for.
    """
    for slot in range(len(middles)):
        out[slot] = middles[slot] + np.interp(wanted[slot], levels, marks[:-1])
        if active[slot]:
            track(marks, levels, step, values[slot] - middles[slot])


# -- all functions at one slot --------------------------------------------------------


@compiled
def corrected_all(logits, hazards, weights, out):
    """Write the probability of every function."""
    for one in range(len(logits)):
        out[one] = corrected(logits[one], hazards[one], weights[one])


@compiled
def correct_all(logits, hazards, weights, step, counts):
    """Move the weights of every function that was watched."""
    for one in range(len(logits)):
        if not np.isnan(counts[one]):
            active = 1.0 if counts[one] > 0 else 0.0
            correct(logits[one], hazards[one], weights[one], step, active)


@compiled
def quantiles_all(middles, wanted, marks, levels, out):
    """Write the wanted quantile of every function."""
    for one in range(len(middles)):
        out[one] = middles[one] + np.interp(wanted[one], levels, marks[one, :-1])


@compiled
def track_all(middles, marks, levels, step, counts):
    """Move the tracked quantiles of every function that was asked."""
    for one in range(len(middles)):
        if counts[one] > 0:
            track(marks[one], levels, step, np.log1p(counts[one]) - middles[one])
