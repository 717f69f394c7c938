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

from interlane.model.units import MILLI
from interlane.policy.packing import pack_score
from interlane.policy.rows import (
    ASK_CPU,
    ASK_GPU_MEMORY,
    ASK_GPUS,
    ASK_MEMORY,
    ASK_MILLI,
    ASK_TOGETHER,
    ASK_TYPES,
    BRIEF_CPU,
    BRIEF_GPU,
    BRIEF_IDLE,
    BRIEF_MEMORY,
    FREE,
    GPUS,
    POOLED,
    TIGHTEST,
    TYPE,
    UP,
    change,
    choose_gpus,
    compiled,
    inlined,
    is_sound,
    next_random,
    room_for,
    room_for_inlined,
    summarise,
)
from interlane.policy.scores import Score, chosen_gpu, score

# Columns of the cursor table, one row a profile.
ROOM_CURSOR: Final = 0
SCORE_CURSOR: Final = 1
ASKED_CURSOR: Final = 2
"""Where the change list ended when the profile was last placed."""
CURSORS: Final = 3

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
GROUP_WIDTH: Final = 3

_FIRST: Final = int(Score.FIRST)
_PACK: Final = int(Score.PACK)
_RANDOM: Final = int(Score.RANDOM)
_LOWEST: Final = -np.inf
_BRIEF_MAX: Final = (1 << 31) - 1
_ALL: Final = 1 << 62
"""More room than there can be: count every machine."""
_FEW: Final = 8
"""Instances up to which a rarely asked profile is placed without its index."""
_START_OVER: Final = 16
"""With more changes than this (and a quarter of the machines), counting anew is cheaper."""


@inlined
def _is_simple(asks, profile, free):
    """Return whether instances stand alone and use at most one GPU, on many machines."""
    return (
        asks[profile, ASK_GPUS] <= 1 and asks[profile, ASK_TOGETHER] == 1 and free.shape[0] > 1
    )


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
    cpu = min(asks[profile, ASK_CPU], _BRIEF_MAX)
    memory = min(asks[profile, ASK_MEMORY], _BRIEF_MAX)
    milli = asks[profile, ASK_MILLI] if asks[profile, ASK_GPUS] > 0 else 0
    total = 0
    for machine in range(free.shape[0]):
        room = 0
        if (
            brief[BRIEF_CPU, machine] >= cpu
            and brief[BRIEF_GPU, machine] >= milli
            and brief[BRIEF_MEMORY, machine] >= memory
        ):
            room = room_for_inlined(free, machine, asks, profile)
        rooms[profile, machine] = room
        total += room
        if total >= enough:
            sums[profile] = total
            return machine + 1 == free.shape[0]
    sums[profile] = total
    return True


@compiled
def catch_up_rooms(
    waiting, count, asks, free, brief, changes, changed, cursors, rooms, sums, enough
):
    """Bring the room of the first ``count`` profiles of ``waiting`` up to date."""
    for index in range(count):
        profile = waiting[index]
        since = cursors[profile, ROOM_CURSOR]
        cursors[profile, ROOM_CURSOR] = changed
        if _is_stale(since, changed, free.shape[0]):
            if not _count_room(profile, asks, free, brief, rooms, sums, enough):
                cursors[profile, ROOM_CURSOR] = -1
            continue
        for line in range(since, changed):
            machine = changes[line]
            if line + 1 < changed and changes[line + 1] == machine:
                continue
            room = 0
            if brief[BRIEF_CPU, machine] >= min(asks[profile, ASK_CPU], _BRIEF_MAX) and (
                asks[profile, ASK_GPUS] == 0
                or brief[BRIEF_GPU, machine] >= asks[profile, ASK_MILLI]
            ):
                room = room_for_inlined(free, machine, asks, profile)
            sums[profile] += room - rooms[profile, machine]
            rooms[profile, machine] = room


@compiled
def catch_up_room(profile, asks, free, brief, changes, changed, cursors, rooms, sums):
    """Bring one profile's room up to date with the change list."""
    waiting = np.full(1, profile, np.int64)
    catch_up_rooms(waiting, 1, asks, free, brief, changes, changed, cursors, rooms, sums, _ALL)


@compiled
def _score_machine(rule, machine, asks, profile, free, total, room, typical, weights):
    if room[machine] == 0:
        return _LOWEST
    return score(rule, free, total, machine, asks, profile, typical, weights)


@compiled
def _score_all(rule, profile, asks, free, total, room, scores, typical, weights):
    """Score every machine that has room."""
    for machine in range(free.shape[0]):
        if room[machine] == 0:
            continue
        if rule == _PACK:
            # The default rule is inlined: a call would cost three times as much as it does.
            scores[machine] = pack_score(free, total, machine, asks, profile)
        else:
            scores[machine] = score(rule, free, total, machine, asks, profile, typical, weights)


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
def _best_directly(rule, profile, asks, free, total, brief, avoid, typical, weights):
    """Return the best machine for one unit without the index; -1 if there is none.

    For profiles that are asked for so rarely that their index would be counted anew each
    time: one pass, nothing written.
    """
    cpu = min(asks[profile, ASK_CPU], _BRIEF_MAX)
    memory = min(asks[profile, ASK_MEMORY], _BRIEF_MAX)
    milli = asks[profile, ASK_MILLI] if asks[profile, ASK_GPUS] > 0 else 0
    best = -1
    highest = _LOWEST
    for machine in range(free.shape[0]):
        if (
            brief[BRIEF_CPU, machine] < cpu
            or brief[BRIEF_GPU, machine] < milli
            or brief[BRIEF_MEMORY, machine] < memory
            or avoid[machine]
        ):
            continue
        # No machine packs better than by all of its idle share being taken.
        if rule == _PACK and -brief[BRIEF_IDLE, machine] <= highest:
            continue
        if room_for_inlined(free, machine, asks, profile) == 0:
            continue
        if rule == _FIRST:
            return machine
        if rule == _PACK:
            here = pack_score(free, total, machine, asks, profile)
        else:
            here = score(rule, free, total, machine, asks, profile, typical, weights)
        if here > highest:
            best = machine
            highest = here
    return best


@compiled
def _first(room, avoid):
    for machine in range(room.shape[0]):
        if room[machine] > 0 and not avoid[machine]:
            return machine
    return -1


@compiled
def _drawn(scores, room, avoid, choices, rule, dice):
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


@compiled
def _gpus_for(rule, free, machine, asks, profile, choice, dice, typical, weights):
    if asks[profile, ASK_GPUS] == 1 and free[machine, POOLED] == 0:
        gpu = chosen_gpu(rule, free, machine, asks, profile, typical, weights)
        if gpu >= 0:
            return np.int64(1) << gpu
    return choose_gpus(free, machine, asks, profile, choice, dice)


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
    dice,
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
        mask = _gpus_for(rule, free, machine, asks, profile, choice, dice, typical, weights)
        change(free, machine, asks, profile, mask, 1)
        count = _append(out, count, machine, mask, 1, profile, task)
    return count


@compiled
def undo(free, asks, out, begin, end):
    """Give back what placement rows ``begin`` to ``end`` took."""
    for index in range(begin, end):
        change(
            free, out[index, AT_MACHINE], asks, out[index, AT_ASK], out[index, AT_MASK],
            -out[index, AT_INSTANCES],
        )  # fmt: skip


@compiled
def _pack_directly(profile, asks, free, total, brief, avoid):
    """Return the best machine to pack one instance with at most one GPU, or -1.

    The default rule's most frequent question, answered as ``_best_directly`` would, but from
    the brief as far as it goes: whether the instance fits and how it scores come out of one
    look at the machine's GPUs, and divisions are left to machines that may win.
    """
    cpu = min(asks[profile, ASK_CPU], _BRIEF_MAX)
    memory = min(asks[profile, ASK_MEMORY], _BRIEF_MAX)
    gpus = asks[profile, ASK_GPUS]
    milli = asks[profile, ASK_MILLI] if gpus > 0 else 0
    gpu_memory = asks[profile, ASK_GPU_MEMORY]
    slots = (free.shape[1] - FREE) // 2
    best = -1
    highest = _LOWEST
    for machine in range(free.shape[0]):
        if (
            brief[BRIEF_CPU, machine] < cpu
            or brief[BRIEF_GPU, machine] < milli
            or brief[BRIEF_MEMORY, machine] < memory
            or -brief[BRIEF_IDLE, machine] <= highest
            or avoid[machine]
        ):
            continue
        if gpus == 1 and (asks[profile, ASK_TYPES] >> free[machine, TYPE]) & 1 == 0:
            continue
        left = 0
        if gpus == 1 and free[machine, POOLED] == 0:
            left = MILLI + 1
            for gpu in range(free[machine, GPUS]):
                rest = free[machine, FREE + gpu] - milli
                if 0 <= rest < left and free[machine, FREE + slots + gpu] >= gpu_memory:
                    left = rest
            if left > MILLI:
                continue
        if -100_000.0 * left - brief[BRIEF_IDLE, machine] <= highest:
            continue
        here = pack_score(free, total, machine, asks, profile)
        if here > highest and room_for(free, machine, asks, profile) > 0:
            best = machine
            highest = here
    return best


@compiled
def _place_directly(
    rule, choice, profile, task, least, wanted, asks, free, total, brief, avoid, typical,
    weights, dice, out, count
):  # fmt: skip
    """Place a few units without the index; see ``place_task`` and ``_best_directly``."""
    begin = count
    placed = 0
    while placed < wanted:
        if rule == _PACK and _is_simple(asks, profile, free):
            machine = _pack_directly(profile, asks, free, total, brief, avoid)
        else:
            machine = _best_directly(
                rule, profile, asks, free, total, brief, avoid, typical, weights
            )
        if machine < 0:
            break
        count = _fill_machine(
            rule, free, machine, asks, profile, choice, asks[profile, ASK_TOGETHER], dice,
            typical, weights, out, count, task,
        )  # fmt: skip
        placed += 1
        if placed < wanted:
            summarise(free, machine, brief)
    if wanted == 1:
        return count if placed == 1 else -1
    # The brief is left as if nothing had been taken, like the index.
    undo(free, asks, out, begin, count)
    for index in range(begin, count):
        summarise(free, out[index, AT_MACHINE], brief)
    if placed < least:
        return -1
    take(free, asks, out, begin, count)
    return count


@compiled
def place_task(
    rule, mode, choice, choices, profile, task, least, wanted, asks, free, total, brief,
    changes, changed, cursors, rooms, sums, scores, avoid, typical, weights, dice, out, count
):  # fmt: skip
    """Append one task's instances to the placement and take them from ``free``.

    Places as many units as fit, ``wanted`` at most; returns the new length of the placement,
    or -1 with nothing taken if fewer than ``least`` fit.  The index is left as if nothing
    had been taken, so that a caller who undoes the rows finds everything as it was.
    """
    asked = cursors[profile, ASKED_CURSOR]
    cursors[profile, ASKED_CURSOR] = changed
    if mode == ONE_BY_ONE and (
        (wanted <= _FEW and _is_stale(asked, changed, free.shape[0]))
        or (wanted == 1 and rule == _PACK and _is_simple(asks, profile, free))
    ):
        return _place_directly(
            rule, choice, profile, task, least, wanted, asks, free, total, brief, avoid,
            typical, weights, dice, out, count,
        )  # fmt: skip
    catch_up_room(profile, asks, free, brief, changes, changed, cursors, rooms, sums)
    if sums[profile] < least:
        return -1
    room = rooms[profile]
    if rule != _FIRST and rule != _RANDOM:
        _catch_up_scores(
            rule, profile, asks, free, total, changes, changed, cursors, room, scores[profile],
            typical, weights,
        )  # fmt: skip
    begin = count
    placed = 0
    together = asks[profile, ASK_TOGETHER]
    ranked = scores[profile]
    able = np.empty(free.shape[0], np.int64)
    ables = _able(room, avoid, able) if mode != SAMPLE and rule != _FIRST else 0
    machine = -1
    second = -1
    while placed < wanted:
        if mode == SAMPLE:
            machine = _drawn(ranked, room, avoid, choices, rule, dice)
        elif rule == _FIRST:
            machine = _first(room, avoid)
        elif machine < 0 or not _stays_ahead(machine, second, ranked, room):
            machine, second = _best_two(ranked, room, able, ables)
        if machine < 0:
            break
        units = min(room[machine], wanted - placed) if mode == SWEEP else 1
        count = _fill_machine(
            rule, free, machine, asks, profile, choice, units * together, dice, typical,
            weights, out, count, task,
        )  # fmt: skip
        placed += units
        if placed < wanted:
            if mode == SWEEP:
                room[machine] = 0
            else:
                room[machine] = room_for(free, machine, asks, profile)
                if rule != _FIRST and rule != _RANDOM:
                    ranked[machine] = _score_machine(
                        rule, machine, asks, profile, free, total, room, typical, weights
                    )
    if placed < least:
        undo(free, asks, out, begin, count)
        _restore(
            rule, asks, profile, free, total, room, ranked, typical, weights, out, begin, count
        )
        return -1
    if wanted > 1:
        undo(free, asks, out, begin, count)
        _restore(
            rule, asks, profile, free, total, room, ranked, typical, weights, out, begin, count
        )
        take(free, asks, out, begin, count)
    return count


@compiled
def choose_task(
    rule, mode, choice, choices, profile, least, wanted, asks, free, total, brief, changes,
    changed, cursors, rooms, sums, scores, avoid, typical, weights, dice, out
):  # fmt: skip
    """Choose for a job of one task and leave the books as they were."""
    count = place_task(
        rule, mode, choice, choices, profile, 0, least, wanted, asks, free, total, brief,
        changes, changed, cursors, rooms, sums, scores, avoid, typical, weights, dice, out, 0,
    )  # fmt: skip
    if count > 0:
        undo(free, asks, out, 0, count)
    return count


@compiled
def _restore(rule, asks, profile, free, total, room, ranked, typical, weights, out, begin, end):
    """Set the index back to what the (restored) books say for the machines of some rows."""
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
def hold(free, total, asks, out, count, brief, changes, changed):
    """Take the placement from the books; return the new end of the change list, or -1.

    This is the referee: rows that do not fit change nothing.
    """
    for index in range(count):
        machine = out[index, AT_MACHINE]
        take(free, asks, out, index, index + 1)
        if free[machine, UP] == 0 or not is_sound(free, total, machine):
            undo(free, asks, out, 0, index + 1)
            return -1
    return note_changes(free, out, brief, changes, changed)


@compiled
def release(free, asks, out, brief, changes, changed):
    """Give the placement back to the books; return the new end of the change list."""
    undo(free, asks, out, 0, out.shape[0])
    return note_changes(free, out, brief, changes, changed)


@compiled
def note_changes(free, out, brief, changes, changed):
    """Note that the machines of these rows were touched; return the end of the list."""
    for index in range(out.shape[0]):
        machine = out[index, AT_MACHINE]
        if index > 0 and out[index - 1, AT_MACHINE] == machine:
            continue
        summarise(free, machine, brief)
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

    Unless ``exact``, room is counted only as far as the largest gang in the queue needs.
    """
    enough = _ALL
    if not exact:
        enough = 1
        for index in range(actives):
            enough = max(enough, groups[active[index], GROUP_NEED])
    catch_up_rooms(
        waiting, profiles, asks, free, brief, changes, changed, cursors, rooms, sums, enough
    )
    return pick_group(active, actives, keys, groups, sums, now_s, epoch, only_with_room)


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
def fits(rows, total, asks, out):
    """Return whether a placement fits on these machine rows, which are left unchanged."""
    sound = True
    taken = 0
    for index in range(out.shape[0]):
        machine = out[index, AT_MACHINE]
        take(rows, asks, out, index, index + 1)
        taken += 1
        if not is_sound(rows, total, machine):
            sound = False
            break
    undo(rows, asks, out, 0, taken)
    return sound


@compiled
def take(rows, asks, out, begin, end):
    """Take what placement rows ``begin`` to ``end`` ask for, unchecked."""
    for index in range(begin, end):
        change(
            rows, out[index, AT_MACHINE], asks, out[index, AT_ASK], out[index, AT_MASK],
            out[index, AT_INSTANCES],
        )  # fmt: skip


@compiled
def imagine_ends(rows, asks, profiles, missing, held, first):
    """Let jobs end one by one until nothing is missing; return the last one's number, or -1.

    Job ``j`` holds the rows ``first[j]`` to ``first[j + 1]`` of ``held``; ``missing`` is how
    many units of each profile do not fit yet.
    """
    for job in range(first.shape[0] - 1):
        for index in range(first[job], first[job + 1]):
            machine = held[index, AT_MACHINE]
            for part in range(profiles.shape[0]):
                missing[part] += room_for(rows, machine, asks, profiles[part])
            undo(rows, asks, held, index, index + 1)
            for part in range(profiles.shape[0]):
                missing[part] -= room_for(rows, machine, asks, profiles[part])
        if missing.max() <= 0:
            return job
    return -1


@compiled
def seat(rows, machine, asks, profile, instances):
    """Take instances from one machine row that has room, on the tightest GPUs."""
    dice = np.zeros(1, np.uint64)
    if asks[profile, ASK_GPUS] == 0 or rows[machine, POOLED] == 1:
        change(rows, machine, asks, profile, 0, instances)
        return
    for _ in range(instances):
        mask = choose_gpus(rows, machine, asks, profile, TIGHTEST, dice)
        change(rows, machine, asks, profile, mask, 1)
