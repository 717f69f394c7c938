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
from numba import njit

from interlane.policy.rows import (
    ASK_GPUS,
    ASK_TOGETHER,
    POOLED,
    TIGHTEST,
    UP,
    change,
    choose_gpus,
    is_sound,
    next_random,
    room_for,
)
from interlane.policy.scores import Score, fgd_gain, score

# Columns of the cursor table, one row a profile.
ROOM_CURSOR: Final = 0
SCORE_CURSOR: Final = 1

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
KEY_WIDTH: Final = 4
GROUP_PROFILE: Final = 0
GROUP_NEED: Final = 1
GROUP_BARRED: Final = 2
GROUP_WIDTH: Final = 3

_FIRST: Final = int(Score.FIRST)
_FGD: Final = int(Score.FGD)
_RANDOM: Final = int(Score.RANDOM)
_LOWEST: Final = -np.inf


@njit(cache=True)
def catch_up_room(profile, ask, free, changes, changed, cursors, rooms, sums):  # type: ignore[no-untyped-def]
    """Bring one profile's room up to date with the change list."""
    row = rooms[profile]
    since = cursors[profile, ROOM_CURSOR]
    if since < 0:
        total = 0
        for machine in range(free.shape[0]):
            row[machine] = room_for(free[machine], ask)
            total += row[machine]
        sums[profile] = total
    else:
        for index in range(since, changed):
            machine = changes[index]
            now = room_for(free[machine], ask)
            sums[profile] += now - row[machine]
            row[machine] = now
    cursors[profile, ROOM_CURSOR] = changed


@njit(cache=True)
def catch_up_rooms(waiting, count, asks, free, changes, changed, cursors, rooms, sums):  # type: ignore[no-untyped-def]
    """Bring the room of all profiles that somebody waits for up to date."""
    for index in range(count):
        profile = waiting[index]
        if cursors[profile, ROOM_CURSOR] != changed:
            catch_up_room(profile, asks[profile], free, changes, changed, cursors, rooms, sums)


@njit(cache=True)
def _score_machine(rule, machine, ask, free, total, room, typical, weights):  # type: ignore[no-untyped-def]
    if room[machine] == 0:
        return _LOWEST
    return score(rule, free[machine], total[machine], ask, typical, weights)


@njit(cache=True)
def _catch_up_scores(  # type: ignore[no-untyped-def]
    rule, profile, ask, free, total, changes, changed, cursors, room, scores, typical, weights
):
    since = cursors[profile, SCORE_CURSOR]
    if since < 0:
        for machine in range(free.shape[0]):
            scores[machine] = _score_machine(
                rule, machine, ask, free, total, room, typical, weights
            )
    else:
        for index in range(since, changed):
            machine = changes[index]
            scores[machine] = _score_machine(
                rule, machine, ask, free, total, room, typical, weights
            )
    cursors[profile, SCORE_CURSOR] = changed


@njit(cache=True)
def _best(scores, room, avoid):  # type: ignore[no-untyped-def]
    """Return the machine with the highest score, the first on ties, or -1."""
    best = -1
    highest = _LOWEST
    for machine in range(room.shape[0]):
        if room[machine] > 0 and scores[machine] > highest and not avoid[machine]:
            best = machine
            highest = scores[machine]
    return best


@njit(cache=True)
def _first(room, avoid):  # type: ignore[no-untyped-def]
    for machine in range(room.shape[0]):
        if room[machine] > 0 and not avoid[machine]:
            return machine
    return -1


@njit(cache=True)
def _drawn(scores, room, avoid, choices, rule, dice):  # type: ignore[no-untyped-def]
    """Return the best of ``choices`` machines drawn at random among those with room."""
    able = 0
    for machine in range(room.shape[0]):
        if room[machine] > 0 and not avoid[machine]:
            able += 1
    if able == 0:
        return -1
    best = -1
    for _ in range(min(choices, able)):
        rank = next_random(dice) % able
        machine = -1
        while rank >= 0:
            machine += 1
            if room[machine] > 0 and not avoid[machine]:
                rank -= 1
        if best < 0 or scores[machine] > scores[best]:
            best = machine
    return best


@njit(cache=True)
def _gpus_for(rule, row, ask, choice, dice, typical, weights):  # type: ignore[no-untyped-def]
    if rule == _FGD and ask[ASK_GPUS] == 1 and row[POOLED] == 0:
        return np.int64(1) << fgd_gain(row, ask, typical, weights)[1]
    return choose_gpus(row, ask, choice, dice)


@njit(cache=True)
def _append(out, count, machine, mask, instances, profile, task):  # type: ignore[no-untyped-def]
    """Add to the placement, joining equal neighbours; return the new length."""
    if count > 0:
        last = out[count - 1]
        if (
            last[AT_MACHINE] == machine
            and last[AT_MASK] == mask
            and last[AT_TASK] == task
        ):
            last[AT_INSTANCES] += instances
            return count
    out[count, AT_MACHINE] = machine
    out[count, AT_MASK] = mask
    out[count, AT_INSTANCES] = instances
    out[count, AT_ASK] = profile
    out[count, AT_TASK] = task
    return count + 1


@njit(cache=True)
def _fill_machine(  # type: ignore[no-untyped-def]
    rule, row, ask, choice, instances, dice, typical, weights, out, count, machine, profile, task
):
    """Put instances on one machine that has room for them, taking from its row."""
    if ask[ASK_GPUS] == 0 or row[POOLED] == 1:
        change(row, ask, 0, instances)
        return _append(out, count, machine, 0, instances, profile, task)
    for _ in range(instances):
        mask = _gpus_for(rule, row, ask, choice, dice, typical, weights)
        change(row, ask, mask, 1)
        count = _append(out, count, machine, mask, 1, profile, task)
    return count


@njit(cache=True)
def undo(free, asks, out, begin, end):  # type: ignore[no-untyped-def]
    """Give back what placement rows ``begin`` to ``end`` took."""
    for index in range(begin, end):
        machine = out[index, AT_MACHINE]
        ask = asks[out[index, AT_ASK]]
        change(free[machine], ask, out[index, AT_MASK], -out[index, AT_INSTANCES])


@njit(cache=True)
def place_task(  # type: ignore[no-untyped-def]
    rule, mode, choice, choices, profile, task, least, wanted, asks, free, total, changes,
    changed, cursors, rooms, sums, scores, avoid, typical, weights, dice, out, count
):  # fmt: skip
    """Append one task's instances to the placement and take them from ``free``.

    Places as many units as fit, ``wanted`` at most; returns the new length of the placement,
    or -1 with nothing taken if fewer than ``least`` fit.  The index is left as if nothing
    had been taken, so that a caller who undoes the rows finds everything as it was.
    """
    ask = asks[profile]
    catch_up_room(profile, ask, free, changes, changed, cursors, rooms, sums)
    if sums[profile] < least:
        return -1
    room = rooms[profile]
    if rule != _FIRST and rule != _RANDOM:
        _catch_up_scores(
            rule, profile, ask, free, total, changes, changed, cursors, room, scores[profile],
            typical, weights,
        )  # fmt: skip
    begin = count
    placed = 0
    together = ask[ASK_TOGETHER]
    ranked = scores[profile]
    while placed < wanted:
        if mode == SAMPLE:
            machine = _drawn(ranked, room, avoid, choices, rule, dice)
        elif rule == _FIRST:
            machine = _first(room, avoid)
        else:
            machine = _best(ranked, room, avoid)
        if machine < 0:
            break
        units = min(room[machine], wanted - placed) if mode == SWEEP else 1
        count = _fill_machine(
            rule, free[machine], ask, choice, units * together, dice, typical, weights, out,
            count, machine, profile, task,
        )  # fmt: skip
        placed += units
        if placed < wanted:
            if mode == SWEEP:
                room[machine] = 0
            else:
                room[machine] = room_for(free[machine], ask)
                if rule != _FIRST and rule != _RANDOM:
                    ranked[machine] = _score_machine(
                        rule, machine, ask, free, total, room, typical, weights
                    )
    if placed < least:
        undo(free, asks, out, begin, count)
        _restore(rule, ask, free, total, room, ranked, typical, weights, out, begin, count)
        return -1
    if wanted > 1:
        undo(free, asks, out, begin, count)
        _restore(rule, ask, free, total, room, ranked, typical, weights, out, begin, count)
        for index in range(begin, count):
            change(free[out[index, AT_MACHINE]], ask, out[index, AT_MASK], out[index, AT_INSTANCES])
    return count


@njit(cache=True)
def choose_task(  # type: ignore[no-untyped-def]
    rule, mode, choice, choices, profile, least, wanted, asks, free, total, changes, changed,
    cursors, rooms, sums, scores, avoid, typical, weights, dice, out
):  # fmt: skip
    """Choose for a job of one task and leave the books as they were."""
    count = place_task(
        rule, mode, choice, choices, profile, 0, least, wanted, asks, free, total, changes,
        changed, cursors, rooms, sums, scores, avoid, typical, weights, dice, out, 0,
    )  # fmt: skip
    if count > 0:
        undo(free, asks, out, 0, count)
    return count


@njit(cache=True)
def _restore(rule, ask, free, total, room, ranked, typical, weights, out, begin, end):  # type: ignore[no-untyped-def]
    """Set the index back to what the (restored) books say for the machines of some rows."""
    for index in range(begin, end):
        machine = out[index, AT_MACHINE]
        if index > begin and out[index - 1, AT_MACHINE] == machine:
            continue
        room[machine] = room_for(free[machine], ask)
        if rule != _FIRST and rule != _RANDOM:
            ranked[machine] = _score_machine(
                rule, machine, ask, free, total, room, typical, weights
            )


@njit(cache=True)
def hold(free, total, asks, out, count, changes, changed):  # type: ignore[no-untyped-def]
    """Take the placement from the books; return the new end of the change list, or -1.

    This is the referee: rows that do not fit change nothing.
    """
    for index in range(count):
        machine = out[index, AT_MACHINE]
        change(free[machine], asks[out[index, AT_ASK]], out[index, AT_MASK],
               out[index, AT_INSTANCES])  # fmt: skip
        if free[machine, UP] == 0 or not is_sound(free[machine], total[machine]):
            undo(free, asks, out, 0, index + 1)
            return -1
    for index in range(count):
        changes[changed + index] = out[index, AT_MACHINE]
    return changed + count


@njit(cache=True)
def release(free, asks, out, changes, changed):  # type: ignore[no-untyped-def]
    """Give the placement back to the books; return the new end of the change list."""
    count = out.shape[0]
    undo(free, asks, out, 0, count)
    for index in range(count):
        changes[changed + index] = out[index, AT_MACHINE]
    return changed + count


@njit(cache=True)
def pick_group(  # type: ignore[no-untyped-def]
    active, actives, keys, groups, sums, now_s, epoch, only_with_room
):
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


@njit(cache=True)
def catch_up_and_pick(  # type: ignore[no-untyped-def]
    waiting, profiles, asks, free, changes, changed, cursors, rooms, sums, active, actives, keys,
    groups, now_s, epoch, only_with_room
):  # fmt: skip
    """Do both in one call: a call costs more than either."""
    catch_up_rooms(waiting, profiles, asks, free, changes, changed, cursors, rooms, sums)
    return pick_group(active, actives, keys, groups, sums, now_s, epoch, only_with_room)


@njit(cache=True)
def room_on(rows, ask):  # type: ignore[no-untyped-def]
    """Return how many units of the ask fit on these machine rows together."""
    total = 0
    for machine in range(rows.shape[0]):
        total += room_for(rows[machine], ask)
    return total


@njit(cache=True)
def fits(rows, total, asks, out):  # type: ignore[no-untyped-def]
    """Return whether a placement fits on these machine rows, which are left unchanged."""
    sound = True
    taken = 0
    for index in range(out.shape[0]):
        machine = out[index, AT_MACHINE]
        change(rows[machine], asks[out[index, AT_ASK]], out[index, AT_MASK],
               out[index, AT_INSTANCES])  # fmt: skip
        taken += 1
        if not is_sound(rows[machine], total[machine]):
            sound = False
            break
    undo(rows, asks, out, 0, taken)
    return sound


@njit(cache=True)
def take(rows, asks, out, sign):  # type: ignore[no-untyped-def]
    """Take (+1) or give back (-1) a placement on these machine rows, unchecked."""
    for index in range(out.shape[0]):
        change(rows[out[index, AT_MACHINE]], asks[out[index, AT_ASK]], out[index, AT_MASK],
               sign * out[index, AT_INSTANCES])  # fmt: skip


@njit(cache=True)
def seat(row, ask, instances):  # type: ignore[no-untyped-def]
    """Take instances from one machine row that has room, on the tightest GPUs."""
    dice = np.zeros(1, np.uint64)
    if ask[ASK_GPUS] == 0 or row[POOLED] == 1:
        change(row, ask, 0, instances)
        return
    for _ in range(instances):
        change(row, ask, choose_gpus(row, ask, TIGHTEST, dice), 1)
