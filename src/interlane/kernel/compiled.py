"""The kernel's inner loops, compiled: the room index, choosing machines, holding, picking.

**The room index.**  For every *profile* (a demand under a type rule) that somebody waits for,
``rooms[p, m]`` says how many units of it machine ``m`` could take and ``scores[p, m]`` how
good that machine is.  Both are brought up to date lazily: whoever changes a machine appends
its number to a change list, and each profile remembers how far it has read.  A question
therefore costs what has changed since it was last asked, not the size of the cluster.

``sums[p]`` is the sum over machines, i.e. how many units fit in total: a gang of identical
instances fits exactly when the sum is large enough, because taking an instance from one
machine takes nothing from another.
"""

from typing import Final

import numpy as np

from interlane.compiling import compiled, inlined
from interlane.policy.packing import looseness, pack_score
from interlane.policy.rows import (
    ANY_FULLNESS,
    TIGHTEST,
    ask_in_brief,
    choose_gpus,
    fullness,
    may_fit,
    may_use,
    next_candidate,
    next_random,
    room_for,
    room_for_inlined,
    summarise,
    was_there,
)
from interlane.policy.scores import Score, at_best, chosen_gpu, is_brief, score
from interlane.tables import (
    ANYBODY,
    ASK_BOUND,
    ASK_GPUS,
    ASK_MILLI,
    ASK_TOGETHER,
    ASKED_CURSOR,
    AT_ASK,
    AT_INSTANCES,
    AT_MACHINE,
    AT_MASK,
    AT_TASK,
    BLOCK,
    ENOUGH,
    GROUP_BARRED,
    GROUP_MOST,
    GROUP_NEED,
    GROUP_PROFILE,
    KEY_RANK,
    KEY_SERIAL,
    KEY_SHORTEST,
    KEY_SLOPE,
    KEY_VALUE,
    NOBODY,
    POOLED,
    ROOM_CURSOR,
    SAME_GROUP,
    SCORE_CURSOR,
    UP,
    Machines,
    RoomIndex,
    RuleArgs,
    Waiting,
    WantedTask,
)
from interlane.tables.compiled import change, change_rows

# How a gang is spread over machines.
ONE_BY_ONE: Final = 0
"""Choose anew for every instance, seeing where the earlier ones went."""
SWEEP: Final = 1
"""Rank the machines once and fill each before the next, as the PAI simulator does."""
SAMPLE: Final = 2
"""Draw a few machines with room at random and take the best of them."""

_FIRST: Final = int(Score.FIRST)
_PACK: Final = int(Score.PACK)
_RANDOM: Final = int(Score.RANDOM)
_LOWEST: Final = -float(ANY_FULLNESS)
_ALL: Final = 1 << 62
"""More room than there can be: count every machine."""
_UNKNOWN: Final = -1
"""Room that has not been looked at."""
_FEW: Final = 8
"""Instances up to which a rarely asked profile is placed without its index."""
_START_OVER: Final = 16
"""With more changes than this (and a quarter of the machines), counting anew is cheaper."""


@inlined
def _is_stale(since, changed, machines):
    """Return whether counting anew is cheaper than following the change list."""
    return since < 0 or changed - since > _START_OVER + machines // 4


@compiled
def _count_room(profile, machines, index, enough):
    """Count one profile's room machine by machine until it is ``enough``.

    Looks closely only where the brief, a necessary condition that is read at memory speed,
    says that it may fit.  Returns whether all machines were counted; if not, the sum is a
    lower bound that is enough to say yes, and the row is not to be used.
    """
    free, asks, brief, rooms = machines.free, machines.asks, machines.brief, index.rooms
    count = free.shape[0]
    wanted = ask_in_brief(asks, profile)
    rooms[profile, :] = 0
    total = 0
    for block in range(count, brief.shape[1]):
        if not may_fit(brief, block, wanted):
            continue
        begin = (block - count) * BLOCK
        for machine in range(begin, min(begin + BLOCK, count)):
            if may_fit(brief, machine, wanted):
                room = room_for_inlined(free, machine, asks, profile)
                rooms[profile, machine] = room
                total += room
        if total >= enough:
            break
    index.sums[profile] = total
    return block == brief.shape[1] - 1


@compiled
def _catch_up_rooms(profiles, count, machines, index):
    """Bring the room of the first ``count`` of these profiles up to date."""
    free, asks, brief = machines.free, machines.asks, machines.brief
    changes, changed = machines.changes, machines.changed
    cursors, rooms, sums = index.cursors, index.rooms, index.sums
    for nth in range(count):
        profile = profiles[nth]
        since = cursors[profile, ROOM_CURSOR]
        if since == changed:
            continue
        wanted = ask_in_brief(asks, profile)
        cursors[profile, ROOM_CURSOR] = changed
        if _is_stale(since, changed, free.shape[0]):
            enough = cursors[profile, ENOUGH]
            if not _count_room(profile, machines, index, enough):
                # The row is only counted in part: whoever needs all of it starts over.
                cursors[profile, ROOM_CURSOR] = -1
            continue
        for line in range(since, changed):
            machine = changes[line]
            # Gangs change one machine many times in a row; the last look is the true one.
            if line + 1 < changed and changes[line + 1] == machine:
                continue
            room = 0
            if may_fit(brief, machine, wanted):
                room = room_for_inlined(free, machine, asks, profile)
            sums[profile] += room - rooms[profile, machine]
            rooms[profile, machine] = room


@compiled
def _catch_up_room(profile, machines, index):
    """Bring one profile's room up to date with the change list."""
    profiles = np.full(1, profile, np.int64)
    index.cursors[profile, ENOUGH] = _ALL
    _catch_up_rooms(profiles, 1, machines, index)


@compiled
def catch_up_room(profile, machine_tables, index_tables):
    """Bring one profile's room up to date with the change list."""
    _catch_up_room(profile, Machines(*machine_tables), RoomIndex(*index_tables))


@inlined
def _score_of(rule, free, total, machine, asks, profile, typical, weights):
    """Score a machine; the default rule is inlined, as a call costs more than it does."""
    if rule == _PACK:
        return pack_score(free, total, machine, asks, profile)
    if rule == _FIRST:
        return -np.float64(machine)
    return score(rule, free, total, machine, asks, profile, typical, weights)


@compiled
def _score_with_room(rule, machines, machine, profile, room):
    """Score a machine that has just been given to; without room its score is void."""
    if room[machine] == 0:
        return _LOWEST
    free, total, asks = machines.free, machines.total, machines.asks
    return score(rule.score, free, total, machine, asks, profile, rule.typical, rule.weights)


@compiled
def _score_all(rule, profile, machines, room, scores):
    """Score every machine that has room."""
    free, total, asks = machines.free, machines.total, machines.asks
    name, typical, weights = rule.score, rule.typical, rule.weights
    for machine in range(free.shape[0]):
        if room[machine] > 0:
            scores[machine] = _score_of(
                name, free, total, machine, asks, profile, typical, weights
            )


@compiled
def _catch_up_scores(rule, profile, machines, index):
    """Bring one profile's scores up to date where it has room; elsewhere they are void."""
    free, total, asks = machines.free, machines.total, machines.asks
    changes, changed = machines.changes, machines.changed
    room, scores = index.rooms[profile], index.scores[profile]
    since = index.cursors[profile, SCORE_CURSOR]
    index.cursors[profile, SCORE_CURSOR] = changed
    if _is_stale(since, changed, free.shape[0]):
        _score_all(rule, profile, machines, room, scores)
        return
    name, typical, weights = rule.score, rule.typical, rule.weights
    for line in range(since, changed):
        machine = changes[line]
        if room[machine] > 0:
            scores[machine] = score(name, free, total, machine, asks, profile, typical, weights)


@compiled
def _able(room, avoid, able):
    """List the machines with room that are not to be avoided; return how many."""
    count = 0
    for machine in range(room.shape[0]):
        if room[machine] > 0 and not avoid[machine]:
            able[count] = machine
            count += 1
    return count


@compiled
def _best_two(scores, room, able, count):
    """Return the machine with the highest score and the runner-up, first on ties, or -1.

    While the best stays ahead of the runner-up, the next instance of a gang goes there too:
    placing one changes nothing elsewhere.
    """
    best = -1
    second = -1
    for index in range(count):
        machine = able[index]
        if room[machine] == 0:
            continue
        if best < 0 or scores[machine] > scores[best]:
            second = best
            best = machine
        elif second < 0 or scores[machine] > scores[second]:
            second = machine
    return best, second


@inlined
def _stays_ahead(machine, second, scores, room):
    """Return whether a machine that has just taken an instance is still the best."""
    if room[machine] == 0:
        return False
    return (
        second < 0
        or scores[machine] > scores[second]
        or (scores[machine] == scores[second] and machine < second)
    )


@compiled
def _best_directly(rule, profile, machines, avoid):
    """Return the best machine for one unit without the index; -1 if there is none."""
    free, total, asks = machines.free, machines.total, machines.asks
    brief, shares = machines.brief, machines.shares
    name, typical, weights = rule.score, rule.typical, rule.weights
    count = free.shape[0]
    wanted = ask_in_brief(asks, profile)
    best = -1
    highest = _LOWEST
    machine = next_candidate(brief, count, 0, wanted)
    while machine < count:
        # The brief bounds the score from above: most machines are out without their row.
        may_win = not is_brief(name) or (
            at_best(name, brief, shares, machine, asks, profile, weights) > highest
        )
        if may_win and not avoid[machine] and room_for(free, machine, asks, profile) > 0:
            if name == _FIRST:
                return machine
            here = score(name, free, total, machine, asks, profile, typical, weights)
            if here > highest:
                best = machine
                highest = here
        machine = next_candidate(brief, count, machine + 1, wanted)
    return best


@compiled
def _pack_directly(profile, machines, avoid):
    """Return what ``_best_directly`` would for the default rule, by the brief alone.

    A row is looked at only where its machine would be the best so far: on a busy cluster the
    rows are out of the fast caches, and fetching them would cost more than all the rest.
    """
    free, total, asks = machines.free, machines.total, machines.asks
    brief, shares = machines.brief, machines.shares
    count = free.shape[0]
    wanted = ask_in_brief(asks, profile)
    milli = asks[profile, ASK_MILLI] if asks[profile, ASK_GPUS] == 1 else 0
    best = -1
    to_beat = ANY_FULLNESS
    for block in range(count, brief.shape[1]):
        # A block's fullness is that of its fullest machine: if even that is no better, skip.
        if not may_fit(brief, block, wanted) or fullness(brief, block) >= to_beat:
            continue
        begin = (block - count) * BLOCK
        for machine in range(begin, min(begin + BLOCK, count)):
            full = fullness(brief, machine)
            if full >= to_beat or not may_fit(brief, machine, wanted):
                continue
            if looseness(brief, shares, machine, milli, full) >= to_beat or avoid[machine]:
                continue
            here = np.int64(-pack_score(free, total, machine, asks, profile))
            if here < to_beat and room_for(free, machine, asks, profile) > 0:
                best = machine
                to_beat = here
    return best


@compiled
def _candidates_in_brief(rule, profile, machines, avoid, able, room, ranked):
    """List the machines that may have room, and the best they may score; return how many.

    The rows are left alone, as ``_pack_directly`` does and for the same reason.
    """
    asks, brief, shares = machines.asks, machines.brief, machines.shares
    name, weights = rule.score, rule.weights
    machines_count = machines.free.shape[0]
    wanted = ask_in_brief(asks, profile)
    count = 0
    for block in range(machines_count, brief.shape[1]):
        if not may_fit(brief, block, wanted):
            continue
        begin = (block - machines_count) * BLOCK
        for machine in range(begin, min(begin + BLOCK, machines_count)):
            if may_fit(brief, machine, wanted) and not avoid[machine]:
                ranked[machine] = at_best(name, brief, shares, machine, asks, profile, weights)
                room[machine] = _UNKNOWN
                able[count] = machine
                count += 1
    return count


@compiled
def _first(room, avoid):
    for machine in range(room.shape[0]):
        if room[machine] > 0 and not avoid[machine]:
            return machine
    return -1


@compiled
def _drawn(scores, room, avoid, choices, random):
    """Return the best of ``choices`` machines drawn at random among those with room."""
    # Counted and found again by rank: a list of them would cost an allocation per draw.
    able = 0
    for machine in range(room.shape[0]):
        if room[machine] > 0 and not avoid[machine]:
            able += 1
    if able == 0:
        return -1
    best = -1
    for _ in range(min(choices, able)):
        rank = next_random(random) % able
        machine = -1
        while rank >= 0:
            machine += 1
            if room[machine] > 0 and not avoid[machine]:
                rank -= 1
        if best < 0 or scores[machine] > scores[best]:
            best = machine
    return best


@compiled
def _gpus_for(rule, free, machine, asks, profile):
    """Return the mask of the GPUs that the next instance takes; some rules pick by score."""
    if asks[profile, ASK_GPUS] == 1 and free[machine, POOLED] == 0:
        gpu = chosen_gpu(rule.score, free, machine, asks, profile, rule.typical, rule.weights)
        if gpu >= 0:
            return np.int64(1) << gpu
    return choose_gpus(free, machine, asks, profile, rule.gpu_choice, rule.random)


@compiled
def _append(out, count, machine, mask, instances, wanted):
    """Add to the placement, joining equal neighbours; return the new length."""
    if (
        count > 0
        and out[count - 1, AT_MACHINE] == machine
        and out[count - 1, AT_MASK] == mask
        and out[count - 1, AT_TASK] == wanted.task
    ):
        out[count - 1, AT_INSTANCES] += instances
        return count
    out[count, AT_MACHINE] = machine
    out[count, AT_MASK] = mask
    out[count, AT_INSTANCES] = instances
    out[count, AT_ASK] = wanted.profile
    out[count, AT_TASK] = wanted.task
    return count + 1


@compiled
def _fill_machine(rule, free, machine, asks, wanted, units, out, count):
    """Put units on one machine that has room for them, taking from its row."""
    profile = wanted.profile
    instances = units * asks[profile, ASK_TOGETHER]
    if asks[profile, ASK_GPUS] == 0 or free[machine, POOLED] == 1:
        # No GPU to be told apart: all instances are one row.
        change(free, machine, asks, profile, 0, instances)
        return _append(out, count, machine, 0, instances, wanted)
    for _ in range(instances):
        mask = _gpus_for(rule, free, machine, asks, profile)
        change(free, machine, asks, profile, mask, 1)
        count = _append(out, count, machine, mask, 1, wanted)
    return count


@compiled
def _place_one(rule, wanted, machines, avoid, out, count):
    """Place one unit without the index; see ``_place_task``."""
    if rule.score == _PACK:
        machine = _pack_directly(wanted.profile, machines, avoid)
    else:
        machine = _best_directly(rule, wanted.profile, machines, avoid)
    if machine < 0:
        return -1
    return _fill_machine(rule, machines.free, machine, machines.asks, wanted, 1, out, count)


@compiled
def _candidates(rule, profile, machines, avoid, able, room, ranked):
    """List the machines that may have room, their room and their scores; return how many."""
    if is_brief(rule.score):
        return _candidates_in_brief(rule, profile, machines, avoid, able, room, ranked)
    free, total, asks, brief = machines.free, machines.total, machines.asks, machines.brief
    name, typical, weights = rule.score, rule.typical, rule.weights
    wanted = ask_in_brief(asks, profile)
    count = 0
    machine = next_candidate(brief, free.shape[0], 0, wanted)
    while machine < free.shape[0]:
        here = room_for_inlined(free, machine, asks, profile)
        if here > 0 and not avoid[machine]:
            able[count] = machine
            count += 1
            room[machine] = here
            ranked[machine] = _score_of(
                name, free, total, machine, asks, profile, typical, weights
            )
        machine = next_candidate(brief, free.shape[0], machine + 1, wanted)
    return count


@compiled
def place_directly(rule, wanted, machines, avoid, out, count):
    """Place a task without the index: one look at all machines, nothing of it kept.

    For rules that are cheap to ask, and for profiles that are asked for so rarely that their
    index would be counted anew each time; see ``_place_task``.
    """
    if wanted.most == 1:
        return _place_one(rule, wanted, machines, avoid, out, count)
    free, total, asks, profile = machines.free, machines.total, machines.asks, wanted.profile
    name, typical, weights = rule.score, rule.typical, rule.weights
    able = np.empty(free.shape[0], np.int64)
    room = np.empty(free.shape[0], np.int64)
    ranked = np.empty(free.shape[0], np.float64)
    ables = _candidates(rule, profile, machines, avoid, able, room, ranked)
    begin = count
    placed = 0
    machine = -1
    second = -1
    while placed < wanted.most:
        if machine < 0 or not _stays_ahead(machine, second, ranked, room):
            machine, second = _best_two(ranked, room, able, ables)
            if machine < 0:
                break
        if room[machine] == _UNKNOWN:
            room[machine] = room_for(free, machine, asks, profile)
            ranked[machine] = _score_of(
                name, free, total, machine, asks, profile, typical, weights
            )
            continue  # with its true score it may not be the best
        count = _fill_machine(rule, free, machine, asks, wanted, 1, out, count)
        placed += 1
        room[machine] = room_for(free, machine, asks, profile)
        if room[machine] > 0:
            ranked[machine] = _score_of(
                name, free, total, machine, asks, profile, typical, weights
            )
    if placed < wanted.least:
        change_rows(free, asks, out, begin, count, -1)
        return -1
    return count


@inlined
def _asks_little(rule, wanted, machines, cursors):
    """Return whether a look at all machines costs less than bringing the index up to date."""
    if rule.score == _PACK:
        return True
    asked = cursors[wanted.profile, ASKED_CURSOR]
    return wanted.most <= _FEW and (
        is_brief(rule.score) or _is_stale(asked, machines.changed, machines.free.shape[0])
    )


@compiled
def _place_task(rule, wanted, machines, index, avoid, out, count):
    """Append one task's instances to the placement and take them from ``free``.

    Places as many units as fit, ``wanted.most`` at most; returns the new length of the
    placement, or -1 with nothing taken if fewer than ``wanted.least`` fit.  Index and brief
    are left as if nothing had been taken, so that a caller who undoes the rows finds
    everything as it was.
    """
    directly = rule.spread == ONE_BY_ONE and _asks_little(rule, wanted, machines, index.cursors)
    index.cursors[wanted.profile, ASKED_CURSOR] = machines.changed
    if directly:
        return place_directly(rule, wanted, machines, avoid, out, count)
    return place_by_index(rule, wanted, machines, index, avoid, out, count)


@compiled
def place_by_index(rule, wanted, machines, index, avoid, out, count):
    """Place a task with the index, brought up to date first; see ``_place_task``."""
    free, asks, profile = machines.free, machines.asks, wanted.profile
    _catch_up_room(profile, machines, index)
    if index.sums[profile] < wanted.least:
        return -1
    if rule.score != _FIRST and rule.score != _RANDOM:
        _catch_up_scores(rule, profile, machines, index)
    room, ranked = index.rooms[profile], index.scores[profile]
    begin = count
    count, placed = _fill_by_rank(rule, wanted, machines, avoid, room, ranked, out, count)
    if placed >= wanted.least and wanted.most == 1:
        return count  # a single unit was placed before the index was touched
    # The index has followed every unit; it must again say what it said before.
    change_rows(free, asks, out, begin, count, -1)
    _restore(rule, profile, machines, room, ranked, out[begin:count])
    if placed < wanted.least:
        return -1
    change_rows(free, asks, out, begin, count, 1)
    return count


@compiled
def _fill_by_rank(rule, wanted, machines, avoid, room, ranked, out, count):
    """Fill machines by rank; return the new length of the placement and the units placed."""
    free, asks, profile = machines.free, machines.asks, wanted.profile
    name, spread = rule.score, rule.spread
    scored = name != _FIRST and name != _RANDOM
    able = np.empty(free.shape[0], np.int64)
    ables = _able(room, avoid, able) if spread != SAMPLE and name != _FIRST else 0
    placed = 0
    machine = -1
    second = -1
    while placed < wanted.most:
        if spread == SAMPLE:
            machine = _drawn(ranked, room, avoid, rule.choices, rule.random)
        elif name == _FIRST:
            machine = _first(room, avoid)
        elif machine < 0 or not _stays_ahead(machine, second, ranked, room):
            machine, second = _best_two(ranked, room, able, ables)
        if machine < 0:
            break
        units = min(room[machine], wanted.most - placed) if spread == SWEEP else 1
        count = _fill_machine(rule, free, machine, asks, wanted, units, out, count)
        placed += units
        if placed == wanted.most:
            break
        if spread == SWEEP:
            room[machine] = 0
            continue
        room[machine] = room_for(free, machine, asks, profile)
        if scored:
            ranked[machine] = _score_with_room(rule, machines, machine, profile, room)
    return count, placed


@compiled
def place_task(rule_args, wanted_args, machine_tables, index_tables, avoid, out, count):
    """Append one task's instances to the placement; see ``_place_task``."""
    rule, wanted = RuleArgs(*rule_args), WantedTask(*wanted_args)
    machines, index = Machines(*machine_tables), RoomIndex(*index_tables)
    return _place_task(rule, wanted, machines, index, avoid, out, count)


@compiled
def choose_task(rule_args, wanted_args, machine_tables, index_tables, avoid, out):
    """Choose for a job of one task and leave the tables as they were."""
    rule, wanted = RuleArgs(*rule_args), WantedTask(*wanted_args)
    machines, index = Machines(*machine_tables), RoomIndex(*index_tables)
    count = _place_task(rule, wanted, machines, index, avoid, out, 0)
    if count > 0:
        change_rows(machines.free, machines.asks, out, 0, count, -1)
    return count


@compiled
def _restore(rule, profile, machines, room, ranked, placed):
    """Set the index back to what the (restored) rows say for the machines of a placement."""
    free, asks = machines.free, machines.asks
    for index in range(placed.shape[0]):
        machine = placed[index, AT_MACHINE]
        if index > 0 and placed[index - 1, AT_MACHINE] == machine:
            continue
        room[machine] = room_for(free, machine, asks, profile)
        if rule.score != _FIRST and rule.score != _RANDOM:
            ranked[machine] = _score_with_room(rule, machines, machine, profile, room)


@compiled
def hold(machine_tables, out, runs):
    """Take the placement from the ledger; return the new end of the change list, or -1.

    This is the referee: rows that do not fit change nothing.  Whoever ``runs`` already may do
    so on machines that take nothing new.
    """
    machines = Machines(*machine_tables)
    free, asks = machines.free, machines.asks
    # Taken first and judged after: rows of one placement may fit alone and not together.
    change_rows(free, asks, out, 0, out.shape[0], 1)
    if not _all_sound(free, asks, out, out.shape[0], runs):
        change_rows(free, asks, out, 0, out.shape[0], -1)
        return -1
    return _note_changes(machines, out)


@compiled
def release(machine_tables, out):
    """Give the placement back to the ledger; return the new end of the change list."""
    machines = Machines(*machine_tables)
    change_rows(machines.free, machines.asks, out, 0, out.shape[0], -1)
    return _note_changes(machines, out)


@compiled
def note_changes(machine_tables, out):
    """Note that the machines of these rows were touched; return the end of the list."""
    return _note_changes(Machines(*machine_tables), out)


@compiled
def _note_changes(machines, out):
    free, total, brief, shares = machines.free, machines.total, machines.brief, machines.shares
    changed = machines.changed
    for index in range(out.shape[0]):
        machine = out[index, AT_MACHINE]
        if index > 0 and out[index - 1, AT_MACHINE] == machine:
            continue
        summarise(free, total, machine, brief, shares)
        machines.changes[changed] = machine
        changed += 1
    return changed


@compiled
def _pick_group(waiting, sums, now_s, epoch, only_with_room):
    """Return the group whose head comes first at ``now_s``, or -1.

    With ``only_with_room``, groups that do not fit now or were barred in this pass are left
    out: that is the greedy walk over the whole queue, done by shape instead of by job.
    """
    active, keys, groups = waiting.active, waiting.keys, waiting.groups
    best = -1
    rank = np.inf
    value = np.inf
    serial = np.inf
    for index in range(waiting.actives):
        group = active[index]
        if only_with_room and (
            sums[groups[group, GROUP_PROFILE]] < groups[group, GROUP_NEED]
            or groups[group, GROUP_BARRED] == epoch
        ):
            continue
        ahead = keys[group]
        if ahead[KEY_RANK] > rank:
            continue  # the rank comes before everything else: shares of accounts, borrowers
        at_now = ahead[KEY_VALUE] + ahead[KEY_SLOPE] * now_s
        if (
            best < 0
            or ahead[KEY_RANK] < rank
            or at_now < value
            or (at_now == value and ahead[KEY_SERIAL] < serial)
        ):
            best = group
            rank = ahead[KEY_RANK]
            value = at_now
            serial = ahead[KEY_SERIAL]
    return best


@compiled
def _catch_up_and_pick(waiting, machines, index, now_s, epoch, only_with_room, exact):
    """Count the room of all who wait, then pick.

    Unless ``exact``, room is counted only as far as the largest gang that waits for it needs.
    """
    profiles, groups, cursors = waiting.profiles, waiting.groups, index.cursors
    for nth in range(waiting.waited_for):
        cursors[profiles[nth], ENOUGH] = _ALL if exact else 1
    for nth in range(waiting.actives):
        group = waiting.active[nth]
        profile = groups[group, GROUP_PROFILE]
        cursors[profile, ENOUGH] = max(cursors[profile, ENOUGH], groups[group, GROUP_NEED])
    _catch_up_rooms(profiles, waiting.waited_for, machines, index)
    return _pick_group(waiting, index.sums, now_s, epoch, only_with_room)


@compiled
def catch_up_and_pick(
    waiting_tables, machine_tables, index_tables, now_s, epoch, only_with_room, exact
):
    """Count room and pick in one call: a call costs more than either."""
    waiting = Waiting(*waiting_tables)
    machines, index = Machines(*machine_tables), RoomIndex(*index_tables)
    return _catch_up_and_pick(waiting, machines, index, now_s, epoch, only_with_room, exact)


@compiled
def start_next(
    waiting_tables, machine_tables, index_tables, rule_args, avoid, out, now_s, epoch,
    only_with_room, exact,
):  # fmt: skip
    """Pick the next group, place its head by a rule and hold that, all in one call.

    Returns the group (-1 if there is none), the length of the placement, the new end of the
    change list, and who still has room.  The length is 0 if the head has several tasks or
    found no place; then nothing is held, and the caller goes the long way.
    """
    waiting, rule = Waiting(*waiting_tables), RuleArgs(*rule_args)
    machines, index = Machines(*machine_tables), RoomIndex(*index_tables)
    group = _catch_up_and_pick(waiting, machines, index, now_s, epoch, only_with_room, exact)
    if group < 0 or waiting.groups[group, GROUP_MOST] == 0:
        return group, 0, machines.changed, ANYBODY
    profile, need, most = (
        waiting.groups[group, GROUP_PROFILE],
        waiting.groups[group, GROUP_NEED],
        waiting.groups[group, GROUP_MOST],
    )
    if index.sums[profile] < need:
        return group, 0, machines.changed, ANYBODY
    wanted = WantedTask(profile, np.int64(0), need, most)
    count = _place_task(rule, wanted, machines, index, avoid, out, 0)
    if count <= 0:
        return group, 0, machines.changed, ANYBODY
    if not _all_sound(machines.free, machines.asks, out, count, False):
        # The index promised more than there was; the caller's way finds and says why.
        change_rows(machines.free, machines.asks, out, 0, count, -1)
        return group, 0, machines.changed, ANYBODY
    changed = _note_changes(machines, out[:count])
    if not only_with_room:
        return group, count, changed, ANYBODY
    return group, count, changed, _who_has_room(group, waiting, machines, changed, index, epoch)


@compiled
def _who_has_room(started, waiting, machines, changed, index, epoch):
    """Say who has room after a start, so that nobody asks for the next where there is none."""
    now = Machines(
        machines.free, machines.total, machines.asks, machines.brief, machines.shares,
        machines.changes, changed,
    )  # fmt: skip
    _catch_up_rooms(waiting.profiles, waiting.waited_for, now, index)
    found = NOBODY
    for nth in range(waiting.actives):
        group = waiting.active[nth]
        if (
            index.sums[waiting.groups[group, GROUP_PROFILE]] < waiting.groups[group, GROUP_NEED]
            or waiting.groups[group, GROUP_BARRED] == epoch
        ):
            continue
        if group != started:
            return ANYBODY
        found = SAME_GROUP
    return found


@compiled
def _all_sound(free, asks, out, count, runs):
    """Return whether all that a placement took was there to be taken: the referee."""
    for index in range(count):
        machine = out[index, AT_MACHINE]
        profile = out[index, AT_ASK]
        if not runs and (
            free[machine, UP] == 0
            or (asks[profile, ASK_BOUND] == 1 and not may_use(free, machine, asks, profile))
        ):
            return False
        if not was_there(free, machine, asks, profile, out[index, AT_MASK]):
            return False
    return True


@compiled
def _may_pass(profile, need, short_enough, asks, index, reserved, spare):
    """Return whether some job of a group may start without delaying the reservation.

    It may if there is room apart from the reserved machines, if it is short enough, or if
    what the reservation leaves on those machines is enough.
    """
    rooms = index.rooms
    apart = index.sums[profile]
    for nth in range(reserved.shape[0]):
        apart -= rooms[profile, reserved[nth]]
    if apart >= need or short_enough:
        return True
    for nth in range(reserved.shape[0]):
        machine = reserved[nth]
        beside = room_for(spare, machine, asks, profile)
        apart += min(beside, rooms[profile, machine])
    return apart >= need


@compiled
def bar_who_delays(waiting_tables, index_tables, asks, reserved, spare, window_s, epoch):
    """Bar the groups that have room but from which nobody may pass the head."""
    waiting, index = Waiting(*waiting_tables), RoomIndex(*index_tables)
    keys, groups = waiting.keys, waiting.groups
    for nth in range(waiting.actives):
        group = waiting.active[nth]
        profile = groups[group, GROUP_PROFILE]
        need = groups[group, GROUP_NEED]
        if index.sums[profile] < need or groups[group, GROUP_BARRED] == epoch:
            continue
        short_enough = keys[group, KEY_SHORTEST] <= window_s
        if not _may_pass(profile, need, short_enough, asks, index, reserved, spare):
            groups[group, GROUP_BARRED] = epoch


@compiled
def room_by(rows, asks, profile, domain, domains):
    """Return how many units of a profile fit on the machines of each domain."""
    room = np.zeros(domains, np.int64)
    for machine in range(rows.shape[0]):
        if domain[machine] >= 0:
            room[domain[machine]] += room_for(rows, machine, asks, profile)
    return room


@compiled
def fits(rows, asks, out, runs):
    """Return whether a placement fits on these machine rows, which are left unchanged."""
    change_rows(rows, asks, out, 0, out.shape[0], 1)
    sound = _all_sound(rows, asks, out, out.shape[0], runs)
    change_rows(rows, asks, out, 0, out.shape[0], -1)
    return sound


@compiled
def imagine_ends(rows, asks, profiles, missing, domain, held_tables, slots):
    """Let jobs end one by one until nothing is missing in some domain.

    ``slots`` says which, in order; ``missing[p, d]`` is how many units of each profile do not
    fit yet on the machines of domain ``d``, and ``domain`` says where each machine is (-1: in
    none).  Returns how many ended before the last, and the domain, or -1 for both.
    """
    held, first, count = held_tables
    for nth in range(slots.shape[0]):
        begin = first[slots[nth]]
        end = begin + count[slots[nth]]
        for index in range(begin, end):
            # Room is not additive over changes, so a machine's part is taken out and put back.
            machine = held[index, AT_MACHINE]
            at = domain[machine]
            for part in range(profiles.shape[0]):
                if at >= 0:
                    missing[part, at] += room_for(rows, machine, asks, profiles[part])
            change_rows(rows, asks, held, index, index + 1, -1)
            for part in range(profiles.shape[0]):
                if at >= 0:
                    missing[part, at] -= room_for(rows, machine, asks, profiles[part])
        for index in range(begin, end):
            at = domain[held[index, AT_MACHINE]]
            if at >= 0 and missing[:, at].max() <= 0:
                return nth, at
    return -1, -1


@compiled
def imagine_end(rows, asks, held_tables, slots):
    """Let jobs end, whatever that sets free."""
    held, first, count = held_tables
    for slot in slots:
        change_rows(rows, asks, held, first[slot], first[slot] + count[slot], -1)


@compiled
def seat(rows, asks, profile, units, apart, used):
    """Seat units on the first rows with room, on the tightest GPUs; mark who is used.

    Machines that are ``apart`` are left alone.
    """
    rng = np.zeros(1, np.uint64)  # never drawn from: the tightest are chosen
    for machine in range(rows.shape[0]):
        if units == 0:
            break
        here = 0 if apart[machine] else min(units, room_for(rows, machine, asks, profile))
        if here == 0:
            continue
        used[machine] = True
        units -= here
        instances = here * asks[profile, ASK_TOGETHER]
        if asks[profile, ASK_GPUS] == 0 or rows[machine, POOLED] == 1:
            change(rows, machine, asks, profile, 0, instances)
            continue
        for _ in range(instances):
            mask = choose_gpus(rows, machine, asks, profile, TIGHTEST, rng)
            change(rows, machine, asks, profile, mask, 1)
