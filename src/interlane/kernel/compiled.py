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
    ASK_BOUND,
    ASK_GPUS,
    ASK_MILLI,
    ASK_TOGETHER,
    BLOCK,
    POOLED,
    TIGHTEST,
    UP,
    ask_in_brief,
    change,
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

# Columns of the cursor table, one row per profile.
ROOM_CURSOR: Final = 0
SCORE_CURSOR: Final = 1
ASKED_CURSOR: Final = 2
"""Where the change list ended when the profile was last placed."""
ENOUGH: Final = 3
"""No cursor: units beyond which the profile's room need not be counted now."""
CURSORS: Final = 4

# How a gang is spread over machines.
ONE_BY_ONE: Final = 0
"""Choose anew for every instance, seeing where the earlier ones went."""
SWEEP: Final = 1
"""Rank the machines once and fill each before the next, as the PAI simulator does."""
SAMPLE: Final = 2
"""Draw a few machines with room at random and take the best of them."""

# Columns of a placement row.
AT_MACHINE: Final = 0
AT_MASK: Final = 1
AT_INSTANCES: Final = 2
AT_ASK: Final = 3
AT_TASK: Final = 4
AT_WIDTH: Final = 5

# Columns of the group tables.
KEY_RANK: Final = 0
KEY_VALUE: Final = 1
KEY_SLOPE: Final = 2
KEY_SERIAL: Final = 3
KEY_SHORTEST: Final = 4
KEY_WIDTH: Final = 5
GROUP_PROFILE: Final = 0
GROUP_NEED: Final = 1
GROUP_BARRED: Final = 2
GROUP_MOST: Final = 3
"""Units that a job may use, or 0 if room alone does not place it: several tasks, domains."""
GROUP_WIDTH: Final = 4

_FIRST: Final = int(Score.FIRST)
_PACK: Final = int(Score.PACK)
_RANDOM: Final = int(Score.RANDOM)
_LOWEST: Final = -float(ANY_FULLNESS)
_BRIEF_MAX: Final = (1 << 31) - 1
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
def _count_room(profile, asks, free, brief, rooms, sums, enough):
    """Count one profile's room machine by machine until it is ``enough``.

    Looks closely only where the brief, a necessary condition that is read at memory speed,
    says that it may fit.  Returns whether all machines were counted; if not, the sum is a
    lower bound that is enough to say yes, and the row is not to be used.
    """
    machines = free.shape[0]
    wanted = ask_in_brief(asks, profile)
    rooms[profile, :] = 0
    total = 0
    for block in range(machines, brief.shape[1]):
        if not may_fit(brief, block, wanted):
            continue
        begin = (block - machines) * BLOCK
        for machine in range(begin, min(begin + BLOCK, machines)):
            if may_fit(brief, machine, wanted):
                room = room_for_inlined(free, machine, asks, profile)
                rooms[profile, machine] = room
                total += room
        if total >= enough:
            break
    sums[profile] = total
    return block == brief.shape[1] - 1


@compiled
def catch_up_rooms(
    waiting, count, asks, free, brief, changes, changed, cursors, rooms, sums
):  # fmt: skip
    """Bring the room of the first ``count`` profiles of ``waiting`` up to date."""
    for index in range(count):
        profile = waiting[index]
        wanted = ask_in_brief(asks, profile)
        since = cursors[profile, ROOM_CURSOR]
        cursors[profile, ROOM_CURSOR] = changed
        if _is_stale(since, changed, free.shape[0]):
            enough = cursors[profile, ENOUGH]
            if not _count_room(profile, asks, free, brief, rooms, sums, enough):
                cursors[profile, ROOM_CURSOR] = -1
            continue
        for line in range(since, changed):
            machine = changes[line]
            if line + 1 < changed and changes[line + 1] == machine:
                continue
            room = 0
            if may_fit(brief, machine, wanted):
                room = room_for_inlined(free, machine, asks, profile)
            sums[profile] += room - rooms[profile, machine]
            rooms[profile, machine] = room


@compiled
def catch_up_room(profile, asks, free, brief, changes, changed, cursors, rooms, sums):
    """Bring one profile's room up to date with the change list."""
    waiting = np.full(1, profile, np.int64)
    cursors[profile, ENOUGH] = _ALL
    catch_up_rooms(waiting, 1, asks, free, brief, changes, changed, cursors, rooms, sums)


@inlined
def _score_of(rule, free, total, machine, asks, profile, typical, weights):
    """Score a machine; the default rule is inlined, as a call costs more than it does."""
    if rule == _PACK:
        return pack_score(free, total, machine, asks, profile)
    if rule == _FIRST:
        return -np.float64(machine)
    return score(rule, free, total, machine, asks, profile, typical, weights)


@compiled
def _score_machine(rule, machine, asks, profile, free, total, room, typical, weights):
    if room[machine] == 0:
        return _LOWEST
    return score(rule, free, total, machine, asks, profile, typical, weights)


@compiled
def _score_all(rule, profile, asks, free, total, room, scores, typical, weights):
    """Score every machine that has room."""
    for machine in range(free.shape[0]):
        if room[machine] > 0:
            scores[machine] = _score_of(
                rule, free, total, machine, asks, profile, typical, weights
            )


@compiled
def _catch_up_scores(
    rule, profile, asks, free, total, changes, changed, cursors, room, scores, typical, weights
):
    """Bring one profile's scores up to date where it has room; elsewhere they are void."""
    since = cursors[profile, SCORE_CURSOR]
    cursors[profile, SCORE_CURSOR] = changed
    if _is_stale(since, changed, free.shape[0]):
        _score_all(rule, profile, asks, free, total, room, scores, typical, weights)
        return
    for line in range(since, changed):
        machine = changes[line]
        if room[machine] > 0:
            scores[machine] = score(rule, free, total, machine, asks, profile, typical, weights)


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
def _best_directly(rule, profile, asks, free, total, brief, shares, avoid, typical, weights):
    """Return the best machine for one unit without the index; -1 if there is none."""
    machines = free.shape[0]
    wanted = ask_in_brief(asks, profile)
    best = -1
    highest = _LOWEST
    machine = next_candidate(brief, machines, 0, wanted)
    while machine < machines:
        may_win = not is_brief(rule) or (
            at_best(rule, brief, shares, machine, asks, profile, weights) > highest
        )
        if may_win and not avoid[machine] and room_for(free, machine, asks, profile) > 0:
            if rule == _FIRST:
                return machine
            here = score(rule, free, total, machine, asks, profile, typical, weights)
            if here > highest:
                best = machine
                highest = here
        machine = next_candidate(brief, machines, machine + 1, wanted)
    return best


@compiled
def _pack_directly(profile, asks, free, total, brief, shares, avoid):
    """Return what ``_best_directly`` would for the default rule, by the brief alone.

    A row is looked at only where its machine would be the best so far: on a busy cluster the
    rows are out of the fast caches, and fetching them would cost more than all the rest.
    """
    machines = free.shape[0]
    wanted = ask_in_brief(asks, profile)
    milli = asks[profile, ASK_MILLI] if asks[profile, ASK_GPUS] == 1 else 0
    best = -1
    to_beat = ANY_FULLNESS
    for block in range(machines, brief.shape[1]):
        if not may_fit(brief, block, wanted) or fullness(brief, block) >= to_beat:
            continue
        begin = (block - machines) * BLOCK
        for machine in range(begin, min(begin + BLOCK, machines)):
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
def _candidates_in_brief(
    rule, profile, asks, free, brief, shares, avoid, weights, able, room, ranked
):
    """List the machines that may have room, and the best they may score; return how many.

    The rows are left alone, as ``_pack_directly`` does and for the same reason.
    """
    machines = free.shape[0]
    wanted = ask_in_brief(asks, profile)
    count = 0
    for block in range(machines, brief.shape[1]):
        if not may_fit(brief, block, wanted):
            continue
        begin = (block - machines) * BLOCK
        for machine in range(begin, min(begin + BLOCK, machines)):
            if may_fit(brief, machine, wanted) and not avoid[machine]:
                ranked[machine] = at_best(rule, brief, shares, machine, asks, profile, weights)
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
def _drawn(scores, room, avoid, choices, rule, rng):
    """Return the best of ``choices`` machines drawn at random among those with room."""
    able = 0
    for machine in range(room.shape[0]):
        if room[machine] > 0 and not avoid[machine]:
            able += 1
    if able == 0:
        return -1
    best = -1
    for _ in range(min(choices, able)):
        rank = next_random(rng) % able
        machine = -1
        while rank >= 0:
            machine += 1
            if room[machine] > 0 and not avoid[machine]:
                rank -= 1
        if best < 0 or scores[machine] > scores[best]:
            best = machine
    return best


@compiled
def _gpus_for(rule, free, machine, asks, profile, choice, rng, typical, weights):
    if asks[profile, ASK_GPUS] == 1 and free[machine, POOLED] == 0:
        gpu = chosen_gpu(rule, free, machine, asks, profile, typical, weights)
        if gpu >= 0:
            return np.int64(1) << gpu
    return choose_gpus(free, machine, asks, profile, choice, rng)


@compiled
def _append(out, count, machine, mask, instances, profile, task):
    """Add to the placement, joining equal neighbours; return the new length."""
    if (
        count > 0
        and out[count - 1, AT_MACHINE] == machine
        and out[count - 1, AT_MASK] == mask
        and out[count - 1, AT_TASK] == task
    ):
        out[count - 1, AT_INSTANCES] += instances
        return count
    out[count, AT_MACHINE] = machine
    out[count, AT_MASK] = mask
    out[count, AT_INSTANCES] = instances
    out[count, AT_ASK] = profile
    out[count, AT_TASK] = task
    return count + 1


@compiled
def _fill_machine(
    rule,
    free,
    machine,
    asks,
    profile,
    choice,
    instances,
    rng,
    typical,
    weights,
    out,
    count,
    task,
):
    """Put instances on one machine that has room for them, taking from its row."""
    if asks[profile, ASK_GPUS] == 0 or free[machine, POOLED] == 1:
        change(free, machine, asks, profile, 0, instances)
        return _append(out, count, machine, 0, instances, profile, task)
    for _ in range(instances):
        mask = _gpus_for(rule, free, machine, asks, profile, choice, rng, typical, weights)
        change(free, machine, asks, profile, mask, 1)
        count = _append(out, count, machine, mask, 1, profile, task)
    return count


@compiled
def change_rows(free, asks, out, begin, end, sign):
    """Take (``sign`` 1) or give back (-1) what placement rows ``begin`` to ``end`` hold."""
    for index in range(begin, end):
        change(
            free, out[index, AT_MACHINE], asks, out[index, AT_ASK], out[index, AT_MASK],
            sign * out[index, AT_INSTANCES],
        )  # fmt: skip


@compiled
def _place_one(
    rule, choice, profile, task, asks, free, total, brief, shares, avoid, typical, weights,
    rng, out, count
):  # fmt: skip
    """Place one unit without the index; see ``place_task``."""
    if rule == _PACK:
        machine = _pack_directly(profile, asks, free, total, brief, shares, avoid)
    else:
        machine = _best_directly(
            rule, profile, asks, free, total, brief, shares, avoid, typical, weights
        )
    if machine < 0:
        return -1
    return _fill_machine(
        rule, free, machine, asks, profile, choice, asks[profile, ASK_TOGETHER], rng, typical,
        weights, out, count, task,
    )  # fmt: skip


@compiled
def _candidates(
    rule, profile, asks, free, total, brief, shares, avoid, typical, weights, able, room,
    ranked
):  # fmt: skip
    """List the machines that may have room, their room and their scores; return how many."""
    if is_brief(rule):
        return _candidates_in_brief(
            rule, profile, asks, free, brief, shares, avoid, weights, able, room, ranked
        )
    machines = free.shape[0]
    wanted = ask_in_brief(asks, profile)
    count = 0
    machine = next_candidate(brief, machines, 0, wanted)
    while machine < machines:
        here = room_for_inlined(free, machine, asks, profile)
        if here > 0 and not avoid[machine]:
            able[count] = machine
            count += 1
            room[machine] = here
            ranked[machine] = _score_of(
                rule, free, total, machine, asks, profile, typical, weights
            )
        machine = next_candidate(brief, machines, machine + 1, wanted)
    return count


@compiled
def place_directly(
    rule, choice, profile, task, least, wanted, asks, free, total, brief, shares, avoid,
    typical, weights, rng, out, count
):  # fmt: skip
    """Place a task without the index: one look at all machines, nothing of it kept.

    For rules that are cheap to ask, and for profiles that are asked for so rarely that their
    index would be counted anew each time; see ``place_task``.
    """
    if wanted == 1:
        return _place_one(
            rule, choice, profile, task, asks, free, total, brief, shares, avoid, typical,
            weights, rng, out, count,
        )  # fmt: skip
    able = np.empty(free.shape[0], np.int64)
    room = np.empty(free.shape[0], np.int64)
    ranked = np.empty(free.shape[0], np.float64)
    ables = _candidates(
        rule, profile, asks, free, total, brief, shares, avoid, typical, weights, able, room,
        ranked,
    )  # fmt: skip
    begin = count
    placed = 0
    machine = -1
    second = -1
    while placed < wanted:
        if machine < 0 or not _stays_ahead(machine, second, ranked, room):
            machine, second = _best_two(ranked, room, able, ables)
            if machine < 0:
                break
        if room[machine] == _UNKNOWN:
            room[machine] = room_for(free, machine, asks, profile)
            ranked[machine] = _score_of(
                rule, free, total, machine, asks, profile, typical, weights
            )
            continue  # with its true score it may not be the best
        count = _fill_machine(
            rule, free, machine, asks, profile, choice, asks[profile, ASK_TOGETHER], rng,
            typical, weights, out, count, task,
        )  # fmt: skip
        placed += 1
        room[machine] = room_for(free, machine, asks, profile)
        if room[machine] > 0:
            ranked[machine] = _score_of(
                rule, free, total, machine, asks, profile, typical, weights
            )
    if placed < least:
        change_rows(free, asks, out, begin, count, -1)
        return -1
    return count


@inlined
def _asks_little(rule, wanted, profile, changed, cursors, machines):
    """Return whether a look at all machines costs less than bringing the index up to date."""
    asked = cursors[profile, ASKED_CURSOR]
    if rule == _PACK:
        return True
    return wanted <= _FEW and (is_brief(rule) or _is_stale(asked, changed, machines))


@compiled
def place_task(
    rule, mode, choice, choices, profile, task, least, wanted, asks, free, total, brief,
    shares, changes, changed, cursors, rooms, sums, scores, avoid, typical, weights, rng, out,
    count
):  # fmt: skip
    """Append one task's instances to the placement and take them from ``free``.

    Places as many units as fit, ``wanted`` at most; returns the new length of the placement,
    or -1 with nothing taken if fewer than ``least`` fit.  Index and brief are left as if
    nothing had been taken, so that a caller who undoes the rows finds everything as it was.
    """
    directly = mode == ONE_BY_ONE and _asks_little(
        rule, wanted, profile, changed, cursors, free.shape[0]
    )
    cursors[profile, ASKED_CURSOR] = changed
    if directly:
        return place_directly(
            rule, choice, profile, task, least, wanted, asks, free, total, brief, shares, avoid,
            typical, weights, rng, out, count,
        )  # fmt: skip
    return place_by_index(
        rule, mode, choice, choices, profile, task, least, wanted, asks, free, total, brief,
        changes, changed, cursors, rooms, sums, scores, avoid, typical, weights, rng, out,
        count,
    )  # fmt: skip


@compiled
def place_by_index(
    rule, mode, choice, choices, profile, task, least, wanted, asks, free, total, brief,
    changes, changed, cursors, rooms, sums, scores, avoid, typical, weights, rng, out, count
):  # fmt: skip
    """Place a task with the index, brought up to date first; see ``place_task``."""
    catch_up_room(profile, asks, free, brief, changes, changed, cursors, rooms, sums)
    if sums[profile] < least:
        return -1
    room = rooms[profile]
    ranked = scores[profile]
    scored = rule != _FIRST and rule != _RANDOM
    if scored:
        _catch_up_scores(
            rule, profile, asks, free, total, changes, changed, cursors, room, ranked, typical,
            weights,
        )  # fmt: skip
    begin = count
    count, placed = _fill_by_rank(
        rule, mode, choice, choices, profile, task, wanted, asks, free, total, avoid, typical,
        weights, rng, room, ranked, out, count,
    )  # fmt: skip
    if placed >= least and wanted == 1:
        return count
    change_rows(free, asks, out, begin, count, -1)
    _restore(
        rule, asks, profile, free, total, room, ranked, typical, weights, out, begin, count
    )
    if placed < least:
        return -1
    change_rows(free, asks, out, begin, count, 1)
    return count


@compiled
def _fill_by_rank(
    rule, mode, choice, choices, profile, task, wanted, asks, free, total, avoid, typical,
    weights, rng, room, ranked, out, count
):  # fmt: skip
    """Fill machines by rank; return the new length of the placement and the units placed."""
    scored = rule != _FIRST and rule != _RANDOM
    able = np.empty(free.shape[0], np.int64)
    ables = _able(room, avoid, able) if mode != SAMPLE and rule != _FIRST else 0
    placed = 0
    machine = -1
    second = -1
    while placed < wanted:
        if mode == SAMPLE:
            machine = _drawn(ranked, room, avoid, choices, rule, rng)
        elif rule == _FIRST:
            machine = _first(room, avoid)
        elif machine < 0 or not _stays_ahead(machine, second, ranked, room):
            machine, second = _best_two(ranked, room, able, ables)
        if machine < 0:
            break
        units = min(room[machine], wanted - placed) if mode == SWEEP else 1
        count = _fill_machine(
            rule, free, machine, asks, profile, choice, units * asks[profile, ASK_TOGETHER],
            rng, typical, weights, out, count, task,
        )  # fmt: skip
        placed += units
        if placed == wanted:
            break
        if mode == SWEEP:
            room[machine] = 0
            continue
        room[machine] = room_for(free, machine, asks, profile)
        if scored:
            ranked[machine] = _score_machine(
                rule, machine, asks, profile, free, total, room, typical, weights
            )
    return count, placed


@compiled
def choose_task(
    rule, mode, choice, choices, profile, least, wanted, asks, free, total, brief, shares,
    changes, changed, cursors, rooms, sums, scores, avoid, typical, weights, rng, out
):  # fmt: skip
    """Choose for a job of one task and leave the state as they were."""
    count = place_task(
        rule, mode, choice, choices, profile, 0, least, wanted, asks, free, total, brief,
        shares, changes, changed, cursors, rooms, sums, scores, avoid, typical, weights, rng,
        out, 0,
    )  # fmt: skip
    if count > 0:
        change_rows(free, asks, out, 0, count, -1)
    return count


@compiled
def _restore(rule, asks, profile, free, total, room, ranked, typical, weights, out, begin, end):
    """Set the index back to what the (restored) state says for the machines of some rows."""
    for index in range(begin, end):
        machine = out[index, AT_MACHINE]
        if index > begin and out[index - 1, AT_MACHINE] == machine:
            continue
        room[machine] = room_for(free, machine, asks, profile)
        if rule != _FIRST and rule != _RANDOM:
            ranked[machine] = _score_machine(
                rule, machine, asks, profile, free, total, room, typical, weights
            )


@compiled
def hold(free, total, asks, out, brief, shares, changes, changed, runs):
    """Take the placement from the state; return the new end of the change list, or -1.

    This is the referee: rows that do not fit change nothing.  Whoever ``runs`` already may do
    so on machines that take nothing new.
    """
    change_rows(free, asks, out, 0, out.shape[0], 1)
    if not _all_sound(free, asks, out, out.shape[0], runs):
        change_rows(free, asks, out, 0, out.shape[0], -1)
        return -1
    return note_changes(free, total, out, brief, shares, changes, changed)


@compiled
def release(free, total, asks, out, brief, shares, changes, changed):
    """Give the placement back to the state; return the new end of the change list."""
    change_rows(free, asks, out, 0, out.shape[0], -1)
    return note_changes(free, total, out, brief, shares, changes, changed)


@compiled
def note_changes(free, total, out, brief, shares, changes, changed):
    """Note that the machines of these rows were touched; return the end of the list."""
    for index in range(out.shape[0]):
        machine = out[index, AT_MACHINE]
        if index > 0 and out[index - 1, AT_MACHINE] == machine:
            continue
        summarise(free, total, machine, brief, shares)
        changes[changed] = machine
        changed += 1
    return changed


@compiled
def pick_group(active, actives, keys, groups, sums, now_s, epoch, only_with_room):
    """Return the group whose head comes first at ``now_s``, or -1.

    With ``only_with_room``, groups that do not fit now or were barred in this pass are left
    out: that is the greedy walk over the whole queue, done by shape instead of by job.
    """
    best = -1
    rank = np.inf
    value = np.inf
    serial = np.inf
    for index in range(actives):
        group = active[index]
        if only_with_room and (
            sums[groups[group, GROUP_PROFILE]] < groups[group, GROUP_NEED]
            or groups[group, GROUP_BARRED] == epoch
        ):
            continue
        ahead = keys[group]
        if ahead[KEY_RANK] > rank:
            continue
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
def catch_up_and_pick(
    waiting, profiles, asks, free, brief, changes, changed, cursors, rooms, sums, active,
    actives, keys, groups, now_s, epoch, only_with_room, exact
):  # fmt: skip
    """Do both in one call: a call costs more than either.

    Unless ``exact``, room is counted only as far as the largest gang that waits for it needs.
    """
    for index in range(profiles):
        cursors[waiting[index], ENOUGH] = _ALL if exact else 1
    for index in range(actives):
        group = active[index]
        profile = groups[group, GROUP_PROFILE]
        cursors[profile, ENOUGH] = max(cursors[profile, ENOUGH], groups[group, GROUP_NEED])
    catch_up_rooms(waiting, profiles, asks, free, brief, changes, changed, cursors, rooms, sums)
    return pick_group(active, actives, keys, groups, sums, now_s, epoch, only_with_room)


@compiled
def start_next(
    waiting, profiles, active, actives, keys, groups, now_s, epoch, only_with_room, exact, rule,
    mode, choice, choices, typical, weights, avoid, rng, asks, free, total, brief, shares,
    changes, changed, cursors, rooms, sums, scores, out
):  # fmt: skip
    """Pick the next group, place its head by a rule and hold that, all in one call.

    Returns the group (-1 if there is none), the length of the placement, and the new end of
    the change list.  The length is 0 if the head has several tasks or found no place; then
    nothing is held, and the caller goes the long way.
    """
    group = catch_up_and_pick(
        waiting, profiles, asks, free, brief, changes, changed, cursors, rooms, sums, active,
        actives, keys, groups, now_s, epoch, only_with_room, exact,
    )  # fmt: skip
    if group < 0 or groups[group, GROUP_MOST] == 0:
        return group, 0, changed
    profile, need = groups[group, GROUP_PROFILE], groups[group, GROUP_NEED]
    if sums[profile] < need:
        return group, 0, changed
    count = place_task(
        rule, mode, choice, choices, profile, 0, need, groups[group, GROUP_MOST], asks, free,
        total, brief, shares, changes, changed, cursors, rooms, sums, scores, avoid, typical,
        weights, rng, out, 0,
    )  # fmt: skip
    if count <= 0:
        return group, 0, changed
    if not _all_sound(free, asks, out, count, False):
        change_rows(free, asks, out, 0, count, -1)
        return group, 0, changed
    changed = note_changes(free, total, out[:count], brief, shares, changes, changed)
    return group, count, changed


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
def _may_pass(profile, need, shortest_s, window_s, asks, rooms, sums, reserved, spare):
    """Return whether some job of a group may start without delaying the reservation.

    It may if there is room apart from the reserved machines, if it is short enough, or if
    what the reservation leaves on those machines is enough.
    """
    apart = sums[profile]
    for index in range(reserved.shape[0]):
        apart -= rooms[profile, reserved[index]]
    if apart >= need or shortest_s <= window_s:
        return True
    for index in range(reserved.shape[0]):
        machine = reserved[index]
        beside = room_for(spare, machine, asks, profile)
        apart += min(beside, rooms[profile, machine])
    return apart >= need


@compiled
def bar_who_delays(
    active, actives, keys, groups, epoch, window_s, asks, rooms, sums, reserved, spare
):
    """Bar the groups that have room but from which nobody may pass the head."""
    for index in range(actives):
        group = active[index]
        profile = groups[group, GROUP_PROFILE]
        need = groups[group, GROUP_NEED]
        if sums[profile] < need or groups[group, GROUP_BARRED] == epoch:
            continue
        shortest_s = keys[group, KEY_SHORTEST]
        if not _may_pass(
            profile, need, shortest_s, window_s, asks, rooms, sums, reserved, spare
        ):
            groups[group, GROUP_BARRED] = epoch


@compiled
def room_on(rows, asks, profile):
    """Return how many units of a profile fit on these machine rows together."""
    total = 0
    for machine in range(rows.shape[0]):
        total += room_for(rows, machine, asks, profile)
    return total


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
def imagine_ends(rows, asks, profiles, missing, domain, held, first):
    """Let jobs end one by one until nothing is missing in some domain.

    Job ``j`` holds the rows ``first[j]`` to ``first[j + 1]`` of ``held``; ``missing[p, d]`` is
    how many units of each profile do not fit yet on the machines of domain ``d``, and
    ``domain`` says where each machine is (-1: in none).  Returns the last job's number and
    the domain, or -1 for both.
    """
    for job in range(first.shape[0] - 1):
        for index in range(first[job], first[job + 1]):
            machine = held[index, AT_MACHINE]
            at = domain[machine]
            for part in range(profiles.shape[0]):
                if at >= 0:
                    missing[part, at] += room_for(rows, machine, asks, profiles[part])
            change_rows(rows, asks, held, index, index + 1, -1)
            for part in range(profiles.shape[0]):
                if at >= 0:
                    missing[part, at] -= room_for(rows, machine, asks, profiles[part])
        for index in range(first[job], first[job + 1]):
            at = domain[held[index, AT_MACHINE]]
            if at >= 0 and missing[:, at].max() <= 0:
                return job, at
    return -1, -1


@compiled
def seat(rows, asks, profile, units, apart, used):
    """Seat units on the first rows with room, on the tightest GPUs; mark who is used.

    Machines that are ``apart`` are left alone.
    """
    rng = np.zeros(1, np.uint64)
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
