"""The inner loops of tree search and of the genetic algorithm: GPUs filled by the million.

``left`` is what each service still misses of its need, 1 at first and 0 when it is served.
``given`` names the service in each slot of a GPU, in the order of its set-up's slots.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlane.compiling import compiled

NOBODY: Final = -1
"""In a slot: it is empty, or there is no such slot.  As a set-up: there is none."""

_ENOUGH: Final = 1e-9

_RECALL: Final = 0.5
"""Chance that a step of a roll-out looks at remembered GPUs."""
_URGENT: Final = 0.3
"""Chance that a roll-out weighs services by what they miss, as the greedy of the paper does."""
_MOST_NOISE: Final = 0.2

OVER: Final = 0.25
"""What it counts that services get more than they need: some of it may yet be spared."""

FULL: Final = -2
"""Steps of a roll-out for which there was no room to write it down."""


@compiled
def uniform(rng):
    """Draw from [0, 1); ``rng`` is one 64-bit number, and is moved on (splitmix64).

    numba's own generators are seeded for all callers at once, or take ten times as long to
    compile.
    """
    rng[0] += np.uint64(0x9E3779B97F4A7C15)
    mixed = rng[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return float(mixed >> np.uint64(11)) / 9007199254740992.0


class CoveringTables(NamedTuple):
    """A covering, as compiled code reads it."""

    slots: NDArray[np.int64]
    """Set-ups by slots: the kind of block, dear ones first, then ``NOBODY``."""
    group: NDArray[np.int64]
    """Of each set-up."""
    price: NDArray[np.float64]
    """Of each set-up; hardly anything where its GPU is there in any case."""
    share: NDArray[np.float64]
    """Services by blocks: the share of its need that one block completes."""
    worth: NDArray[np.float64]
    """Of each service's whole need, in the price of GPUs."""
    block_worth: NDArray[np.float64]
    """Of each kind of block, while it is empty."""


class Memo(NamedTuple):
    """GPUs that served good plans, to be tried again."""

    set_ups: NDArray[np.int64]
    given: NDArray[np.int64]
    known: int
    """How many rows are in use."""


# Plain loops instead of array expressions: these take numba several times as long to compile.


@compiled
def _copy(source, into):
    for at in range(len(into)):
        into[at] = source[at]


@compiled
def _is_any(left):
    most = 0.0
    for at in range(len(left)):
        most = max(most, left[at])
    return most > 0.0


@compiled
def fill(tables, set_up, weight, left, given):
    """Give every slot to whoever gains most by weight; return what all gain.

    What is given is taken from ``left``.
    """
    value = 0.0
    for at in range(tables.slots.shape[1]):
        block = tables.slots[set_up, at]
        given[at] = NOBODY
        if block == NOBODY:
            continue
        most = 0.0
        for service in range(len(left)):
            if left[service] > 0.0:
                gain = weight[service] * min(tables.share[service, block], left[service])
                if gain > most:
                    most = gain
                    given[at] = service
        if given[at] != NOBODY:
            left[given[at]] -= min(tables.share[given[at], block], left[given[at]])
            value += most
    return value


@compiled
def value_of(tables, set_up, given, weight, left):
    """Return what a filled GPU is worth; what is given is taken from ``left``."""
    value = 0.0
    for at in range(tables.slots.shape[1]):
        service = given[at]
        if service != NOBODY and left[service] > 0.0:
            gain = min(tables.share[service, tables.slots[set_up, at]], left[service])
            left[service] -= gain
            value += weight[service] * gain
    return value


@compiled
def take(tables, set_up, given, left, free):
    """Add a filled GPU; slots whose service misses nothing any more become empty.

    Returned is what services get beyond their need, in the worth of needs.
    """
    over = 0.0
    free[tables.group[set_up]] -= 1
    for at in range(tables.slots.shape[1]):
        service = given[at]
        if service == NOBODY:
            continue
        if left[service] <= 0.0:
            given[at] = NOBODY
            continue
        left[service] -= tables.share[service, tables.slots[set_up, at]]
        if left[service] < _ENOUGH:
            over -= left[service] * tables.worth[service]
            left[service] = 0.0
    return over


@compiled
def _best_fill(tables, weight, left, free, noise, rng, trial, given, scratch):
    """Fill each set-up; keep the one that is worth most for its price, give or take noise."""
    chosen = NOBODY
    best = 0.0
    for set_up in range(len(tables.price)):
        if free[tables.group[set_up]] <= 0:
            continue
        _copy(left, scratch)
        value = fill(tables, set_up, weight, scratch, trial) / tables.price[set_up]
        value *= 1.0 + noise * uniform(rng)
        if value > best:
            best = value
            chosen = set_up
            _copy(trial, given)
    return chosen


@compiled
def _best_known(tables, memo, weight, left, free, noise, rng, given, scratch):
    """Return the best of the remembered GPUs, as ``_best_fill`` does of all."""
    chosen = NOBODY
    best = 0.0
    for known in range(memo.known):
        set_up = memo.set_ups[known]
        if free[tables.group[set_up]] <= 0:
            continue
        _copy(left, scratch)
        value = value_of(tables, set_up, memo.given[known], weight, scratch)
        value *= (1.0 + noise * uniform(rng)) / tables.price[set_up]
        if value > best:
            best = value
            chosen = known
    if chosen == NOBODY:
        return NOBODY
    _copy(memo.given[chosen], given)
    return memo.set_ups[chosen]


@compiled
def roll_out(tables, memo, weight, urgency, noise, rng, left, free, set_ups, given):
    """Add GPUs by randomised greed until all is served or GPUs run out.

    The GPUs are written to ``set_ups`` and ``given``; returned is how many there are, and what
    services get beyond their need.  Every other step looks at remembered GPUs only.  With
    ``urgency`` a service weighs the more, the more of its need it misses.
    """
    scratch = np.empty_like(left)
    trial = np.empty(tables.slots.shape[1], dtype=np.int64)
    now = np.empty_like(left)
    _copy(weight, now)
    steps, over = 0, 0.0
    while _is_any(left):
        if steps == len(set_ups):
            return FULL, over
        if urgency:
            for service in range(len(left)):
                now[service] = weight[service] * left[service]
        row = given[steps]
        chosen = NOBODY
        if memo.known > 0 and uniform(rng) < _RECALL:
            chosen = _best_known(tables, memo, now, left, free, noise, rng, row, scratch)
        if chosen == NOBODY:
            chosen = _best_fill(tables, now, left, free, noise, rng, trial, row, scratch)
        if chosen == NOBODY:
            return steps, over
        set_ups[steps] = chosen
        over += take(tables, chosen, row, left, free)
        steps += 1
    return steps, over


@compiled
def _room(tables, set_up, given):
    """Return what the empty slots of a GPU are worth."""
    found = 0.0
    for at in range(tables.slots.shape[1]):
        block = tables.slots[set_up, at]
        if block != NOBODY and given[at] == NOBODY:
            found += tables.block_worth[block]
    return found


@compiled
def value_after(tables, set_ups, given, count, left, dear):
    """Return what GPUs cost, less what is empty, plus a forbidding price of what is missing."""
    value = 0.0
    for gpu in range(count):
        value += tables.price[set_ups[gpu]] - _room(tables, set_ups[gpu], given[gpu])
    for service in range(len(left)):
        if left[service] > 0.0:
            value += dear * (1.0 + left[service] * tables.worth[service])
    return value


@compiled
def best_roll_out(tables, memo, times, dear, rng, left, free, set_ups, given):
    """Roll out so many times; write down the best.

    Returned are how many GPUs it has, its value, the mean value, and whether all is served.
    """
    weight, now, available = np.empty_like(left), np.empty_like(left), np.empty_like(free)
    trial_set_ups, trial_given = np.empty_like(set_ups), np.empty_like(given)
    best, total, count, serves = np.inf, 0.0, 0, False
    for _ in range(times):
        spread = uniform(rng)
        for service in range(len(left)):
            weight[service] = tables.worth[service] * np.exp(spread * (2 * uniform(rng) - 1))
        urgency = uniform(rng) < _URGENT
        noise = _MOST_NOISE * uniform(rng)
        _copy(left, now)
        _copy(free, available)
        steps, over = roll_out(
            tables,
            memo,
            weight,
            urgency,
            noise,
            rng,
            now,
            available,
            trial_set_ups,
            trial_given,
        )
        if steps == FULL:
            return FULL, np.inf, np.inf, False
        value = value_after(tables, trial_set_ups, trial_given, steps, now, dear)
        value -= OVER * over
        total += value
        if value < best:
            best, count, serves = value, steps, not _is_any(now)
            for gpu in range(steps):
                set_ups[gpu] = trial_set_ups[gpu]
                _copy(trial_given[gpu], given[gpu])
    return count, best, total / times, serves


@compiled
def candidates(tables, weight, left, free, set_ups, given, values):
    """Write the filling of every set-up that is worth anything, and its worth for its price."""
    scratch = np.empty_like(left)
    count = 0
    for set_up in range(len(tables.price)):
        if free[tables.group[set_up]] <= 0:
            continue
        _copy(left, scratch)
        value = fill(tables, set_up, weight, scratch, given[count])
        if value > 0.0:
            set_ups[count] = set_up
            values[count] = value / tables.price[set_up]
            count += 1
    return count


@compiled
def served(tables, set_ups, given):
    """Return which share of its need each service gets."""
    shares = np.zeros(len(tables.worth))
    for gpu in range(len(set_ups)):
        for at in range(tables.slots.shape[1]):
            service = given[gpu, at]
            if service != NOBODY:
                shares[service] += tables.share[service, tables.slots[set_ups[gpu], at]]
    return shares


@compiled
def trim(tables, set_ups, given, order):
    """Empty slots, in this order of GPUs, that their services can do without."""
    shares = served(tables, set_ups, given)
    for gpu in order:
        for at in range(tables.slots.shape[1]):
            service = given[gpu, at]
            if service == NOBODY:
                continue
            share = tables.share[service, tables.slots[set_ups[gpu], at]]
            if shares[service] - share >= 1.0 - _ENOUGH:
                shares[service] -= share
                given[gpu, at] = NOBODY


@compiled
def room(tables, set_ups, given):
    """Return what the empty slots of each GPU are worth."""
    found = np.zeros(len(set_ups))
    for gpu in range(len(set_ups)):
        found[gpu] = _room(tables, set_ups[gpu], given[gpu])
    return found


@compiled
def swap(tables, set_ups, given, times, rng):
    """Exchange what random slots of the same kind on different GPUs hold."""
    width = tables.slots.shape[1]
    for _ in range(times):
        one = int(uniform(rng) * len(set_ups))
        other = int(uniform(rng) * len(set_ups))
        at = int(uniform(rng) * width)
        block = tables.slots[set_ups[one], at]
        if one == other or block == NOBODY:
            continue
        first = int(uniform(rng) * width)
        for step in range(width):
            there = (first + step) % width
            if tables.slots[set_ups[other], there] == block:
                held = given[one, at]
                given[one, at] = given[other, there]
                given[other, there] = held
                break
