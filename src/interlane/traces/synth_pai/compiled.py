"""The loop that puts instances on machines, compiled; see ``place`` for what it is for."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlane.compiling import compiled

Ints = NDArray[np.int64]


class MachineSite(NamedTuple):
    """The machines, and what is taken of them."""

    first: Ints
    """The first machine of each kind."""
    machines: Ints
    """How many there are of it."""
    gpus: Ints
    cpus: Ints
    cards: Ints
    """Percent of each card that is taken."""
    cores: Ints
    """Percent of the cores that is taken."""
    heat: NDArray[np.float64]


class Ending(NamedTuple):
    """What ends when: slots, linked by the minute."""

    ends: Ints
    slots: Ints
    state: Ints


class Coming(NamedTuple):
    """The instances, in the order of their starts."""

    start_s: Ints
    end_s: Ints
    task: Ints
    kind: Ints
    gpu: Ints
    cpu: Ints
    lean: Ints
    rng: Ints


PICKS = 6
LEANING_PICKS = 16
WHOLE = 100


@compiled
def _free_ended(ends, slots, state, cards, cores, now):
    """Give back what ended before this minute; state is (minute, first free slot)."""
    while state[0] < now:
        slot = ends[state[0]]
        while slot >= 0:
            after, at, mask, each, cpu = slots[slot]
            for card in range(cards.shape[1]):
                if mask >> card & 1:
                    cards[at, card] -= each
            cores[at] -= cpu
            slots[slot, 0] = state[1]
            state[1] = slot
            slot = after
        state[0] += 1


@compiled
def _best_card(cards, gpus, at, gpu):
    """Return the fullest card with room for a share, or -1."""
    best, most = -1, -1
    for card in range(gpus[at]):
        taken = cards[at, card]
        if taken + gpu <= WHOLE and taken > most:
            best, most = card, taken
    return best


@compiled
def _has_room(cards, cores, gpus, cpus, at, gpu, cpu):
    if cores[at] + cpu > cpus[at]:
        return False
    if gpu == 0:
        return True
    if gpu < WHOLE:
        return _best_card(cards, gpus, at, gpu) >= 0
    free = 0
    for card in range(gpus[at]):
        free += cards[at, card] == 0
    return free * WHOLE >= gpu


@compiled
def _fullness(cards, cores, gpus, cpus, at):
    taken = 0
    for card in range(gpus[at]):
        taken += cards[at, card]
    return cores[at] / cpus[at] + taken / (WHOLE * max(gpus[at], 1))


@compiled
def _hold(cards, gpus, at, gpu):
    """Take cards, the emptiest if none is free; return their mask and the percent of each."""
    if gpu == 0:
        return 0, 0
    wanted = 1 if gpu < WHOLE else min(gpu // WHOLE, gpus[at])
    each = gpu if gpu < WHOLE else WHOLE
    mask = 0
    for _ in range(wanted):
        card = _best_card(cards, gpus, at, each)
        if card < 0 or mask >> card & 1:
            card = -1
            for other in range(gpus[at]):
                if not mask >> other & 1 and (card < 0 or cards[at, other] < cards[at, card]):
                    card = other
        mask |= 1 << card
        cards[at, card] += each
    return mask, each


@compiled
def _choose(site, kind, gpu, cpu, lean, rng):
    """Return the machine of one instance."""
    gpus, cpus, cards, cores, heat = site.gpus, site.cpus, site.cards, site.cores, site.heat
    first, count = site.first[kind], site.machines[kind]
    picks = LEANING_PICKS if lean != 0 else PICKS
    word = rng
    best, best_score = -1, 0.0
    for _ in range(picks):
        word = (word * 6364136223846793005 + 1442695040888963407) & 0x7FFFFFFFFFFFFFFF
        at = first + (word >> 33) % count
        if _has_room(cards, cores, gpus, cpus, at, gpu, cpu):
            if lean == 0:
                return at
            if best < 0 or lean * heat[at] > best_score:
                best, best_score = at, lean * heat[at]
    if best >= 0:
        return best
    # None of the few had room: look at all, from a random one on so that none fills first.
    begin = (word >> 33) % count
    emptiest, least = first + begin, 1e18
    for step in range(count):
        at = first + (begin + step) % count
        if _has_room(cards, cores, gpus, cpus, at, gpu, cpu):
            return at
        full = _fullness(cards, cores, gpus, cpus, at)
        if full < least and gpus[at] * WHOLE >= gpu:
            emptiest, least = at, full
    return emptiest


@compiled
def place_all(site, ending, coming, machine, card):
    """Place instances one by one; writes machine and first card of each."""
    gpus, cpus, cards, cores = site.gpus, site.cpus, site.cards, site.cores
    ends, slots, state = ending.ends, ending.slots, ending.state
    start_s, end_s, task = coming.start_s, coming.end_s, coming.task
    kind, gpu, cpu, lean = coming.kind, coming.gpu, coming.cpu, coming.lean
    last_task, last = -1, -1
    for one in range(len(start_s)):
        _free_ended(ends, slots, state, cards, cores, start_s[one] // 60)
        at = last
        with_gang = task[one] == last_task and lean[one] == 0
        if not (with_gang and _has_room(cards, cores, gpus, cpus, at, gpu[one], cpu[one])):
            at = _choose(site, kind[one], gpu[one], cpu[one], lean[one], coming.rng[one])
        last_task, last = task[one], at
        mask, each = _hold(cards, gpus, at, gpu[one])
        cores[at] += cpu[one]
        slot = state[1]
        state[1] = slots[slot, 0]
        minute = max(end_s[one] // 60, state[0])
        slots[slot, 0] = ends[minute]
        slots[slot, 1], slots[slot, 2] = at, mask
        slots[slot, 3], slots[slot, 4] = each, cpu[one]
        ends[minute] = slot
        machine[one] = at
        card[one] = -1
        for other in range(gpus[at]):
            if mask >> other & 1:
                card[one] = other
                break
