"""Why not: refusals in words, computed from the very state that refused.

The binding constraint is found by experiment, not by estimate: one part of the demand is
relaxed at a time, and what would make the job fit is what the sentence names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from interlane.kernel import compiled
from interlane.kernel.ledger import Ledger
from interlane.kernel.shapes import Shape, ShapePart
from interlane.model import (
    MILLI,
    Closeness,
    Demand,
    JobId,
    Placement,
    Refusal,
    Request,
    Spot,
    Task,
    Tier,
    amounts,
)
from interlane.policy.base import PlanStage, TypeRule
from interlane.policy.rows import is_left_to, room_for, room_on
from interlane.tables import (
    ANY_TYPE,
    ASK_BOUND,
    ASK_CPU,
    ASK_GPU_MEMORY,
    ASK_GPUS,
    ASK_MEMORY,
    ASK_MILLI,
    ASK_TOGETHER,
    ASK_TYPES,
    CPU,
    FREE,
    MEMORY,
    TYPES,
    UP,
    Table,
)
from interlane.tables.compiled import slots_of

_RELAXATIONS = (
    ("less CPU", ASK_CPU, 0),
    ("less memory", ASK_MEMORY, 0),
    ("less GPU memory", ASK_GPU_MEMORY, 0),
    ("any GPU type", ASK_TYPES, ANY_TYPE),
    ("smaller GPU shares", ASK_MILLI, 1),
    ("fewer GPUs per instance", ASK_GPUS, 1),
)


def describe(demand: Demand) -> str:
    """Return a demand in a few words."""
    parts = []
    if demand.gpus:
        share = "" if demand.gpu_milli == MILLI else f" x {demand.gpu_milli / MILLI:g}"
        kinds = "/".join(sorted(demand.gpu_types))
        parts.append(f"{demand.gpus}{share} {kinds + ' ' if kinds else ''}GPU")
        if demand.gpu_memory_mib:
            parts.append(f"{demand.gpu_memory_mib} MiB of GPU memory each")
    if demand.cpu_milli:
        parts.append(f"{demand.cpu_milli / MILLI:g} CPU")
    if demand.memory_mib:
        parts.append(f"{demand.memory_mib} MiB")
    return ", ".join(parts) or "nothing"


def explain_shortage(ledger: Ledger, shape: Shape) -> Refusal | None:
    """Return why the request could not run even on the empty cluster, or None.

    A cluster without machines refuses nobody: they are yet to come.
    """
    unknown = _unknown_level(ledger, shape.closeness)
    if unknown is not None or not len(ledger.cluster):
        return unknown
    request = shape.request
    for task, part in zip(request.tasks, shape.parts, strict=True):
        room = int(room_on(ledger.total, ledger.asks, part.profile))
        if room < part.least:
            return _never(ledger, task, part, room)
    return _never_together(ledger, request) or _never_in_one(ledger, shape)


def _unknown_level(ledger: Ledger, closeness: Closeness) -> Refusal | None:
    levels = ledger.topology.levels
    for action in ("same", "pack", "spread"):
        level = getattr(closeness, action)
        if level is not None and level not in levels:
            return Refusal(
                Tier.INVALID,
                f"The job asks for {action} {level}, but the topology has no level {level}.",
                f"Use one of {', '.join(levels)}.",
            )
    return None


def _never(ledger: Ledger, task: Task, part: ShapePart, room: int) -> Refusal:
    demand = task.demand
    known = ledger.cluster.gpu_types
    if part.types and not part.types & known and room == 0:
        return Refusal(
            Tier.NEVER_FITS,
            f"No machine has GPU type {'/'.join(sorted(part.types))}.",
            f"Ask for one of {', '.join(sorted(known)) or 'none: the cluster has no GPUs'}.",
        )
    asked = f"{part.least * part.instances_per_unit} x ({describe(demand)})"
    place = " on one machine" if task.same_machine else ""
    if _room_if_unbound(ledger.total, ledger.asks[part.profile]) >= part.least:
        only = f"; machines that it may use have room for {room}" if room else ""
        return Refusal(
            Tier.NEVER_FITS,
            f"Task {task.role} asks for {asked}{place}{only}. {why_kept_away(ledger, demand)}",
            "Select labels that machines have, or tolerate their taints.",
        )
    if room == 0:
        ask = ledger.asks[part.profile]
        ways = [
            *_fewer_together(ledger.total, ask),
            *_what_would_help(ledger.total, ask, part.least),
        ]
        return Refusal(
            Tier.NEVER_FITS,
            f"Task {task.role} asks for {asked}{place}; no machine is large enough"
            f"{_while_lost(ledger)}.",
            f"Ask for {' or '.join(ways) or 'less'}.",
        )
    return Refusal(
        Tier.NEVER_FITS,
        f"Task {task.role} asks for {asked}; the empty cluster has room for {room}.",
        f"Ask for at most {room} instance{'s' * (room != 1)}.",
    )


def why_kept_away(ledger: Ledger, demand: Demand) -> str:
    """Return which label no machine has, or which taint is not tolerated, as a sentence."""
    machines = [machine for _, machine in ledger.numbered()]
    wanted = sorted(demand.selectors)
    for key, value in wanted:
        if not any(machine.label(key) == value for machine in machines):
            others = sorted({here for one in machines if (here := one.label(key)) is not None})
            there = f"; {key} is {_listed(others)} there" if others else ""
            return f"No machine has the label {key}={value}{there}."
    able = [one for one in machines if demand.selectors <= set(one.labels)]
    labels = _listed([f"{key}={value}" for key, value in wanted] or ["asked for"])
    if not able:
        return f"No machine has all of the labels {labels}."
    for machine in able:
        for key, value in machine.taints:
            if (key, value) not in demand.tolerations:
                alike = sum((key, value) in one.taints for one in able) - 1
                more = f" and {alike} more" if alike else ""
                return f"The taint {key}={value} of {machine.id}{more} is not tolerated."
    return f"Only {_listed([one.id for one in able])} {_has(able)} the label {labels}."


def _while_lost(ledger: Ledger) -> str:
    """Return which devices are lost: with them, there might be room."""
    lost = [
        f"GPU {number} of {machine.id}"
        for machine in ledger.cluster
        for number, device in enumerate(machine.devices)
        if not device.compute_milli
    ]
    return f" while {_listed(lost)} {'is' if len(lost) == 1 else 'are'} lost" if lost else ""


def _has(several: Sequence[object]) -> str:
    return "has" if len(several) == 1 else "have"


def _listed(names: Sequence[str], most: int = 4) -> str:
    """Return a few names, and how many more there are."""
    more = [f"{len(names) - most} more"] if len(names) > most else []
    shown = [*names[:most], *more]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _never_together(ledger: Ledger, request: Request) -> Refusal | None:
    """Return why several tasks that fit alone cannot fit at the same time, if sums show it."""
    least_gpu, least_cpu = request.least_gpu_milli, request.least_cpu_milli
    cluster = ledger.cluster
    gpu = cluster.gpu_milli
    if least_gpu <= gpu and least_cpu <= cluster.cpu_milli:
        return None
    return Refusal(
        Tier.NEVER_FITS,
        f"Its tasks ask for {least_gpu / MILLI:g} GPUs and {least_cpu / MILLI:g} CPUs "
        f"together; the cluster has {gpu / MILLI:g} and "
        f"{cluster.cpu_milli / MILLI:g}.",
        "Ask for fewer instances.",
    )


def _never_in_one(ledger: Ledger, shape: Shape) -> Refusal | None:
    """Return why no single domain is large enough, if the job must be in one."""
    short = _short_of_one_domain(ledger, ledger.total, shape)
    if short is None:
        return None
    reason, remedy = short
    return Refusal(Tier.NEVER_FITS, f"{reason} even when it is empty.", remedy)


def scattered(ledger: Ledger, shape: Shape) -> Refusal | None:
    """Return why a job that must be in one domain fits in none now, if so."""
    short = _short_of_one_domain(ledger, ledger.free, shape)
    if short is None:
        return None
    reason, _ = short
    return Refusal(
        Tier.FRAGMENTATION,
        f"{reason} now; the cluster has room, but scattered.",
        "It starts when more becomes free in one of them.",
    )


def _short_of_one_domain(
    ledger: Ledger, machines: Table, shape: Shape
) -> tuple[str, str] | None:
    """Return which domain comes closest to having what the job needs; None if one has it."""
    level = shape.closeness.same
    if level is None:
        return None
    domains, parts = ledger.domains(level), shape.parts
    if not domains.names:
        return f"The job must be in one {level}, and no machine is in any", "Ask for another."
    least = np.array([[part.least] for part in parts])
    room = np.stack(
        [
            compiled.room_by(
                machines, ledger.asks, part.profile, domains.of, len(domains.names)
            )
            for part in parts
        ]
    )
    if (room >= least).all(axis=0).any():
        return None
    best = int((np.minimum(room, least) / least).min(axis=0).argmax())
    part = int((np.minimum(room[:, best], least[:, 0]) / least[:, 0]).argmin())
    task, units = shape.request.tasks[part], parts[part].instances_per_unit
    needed, found = int(least[part, 0]) * units, int(room[part, best]) * units
    return (
        f"Task {task.role} needs room for {needed} x ({describe(task.demand)}) in one {level}; "
        f"{level} {domains.names[best]}, the best, has room for {found}"
    ), f"Ask for at most {found} instance{'s' * (found != 1)}, or a wider level."


def explain_waiting(ledger: Ledger, shape: Shape) -> Refusal:
    """Return why the request does not fit now."""
    if not len(ledger.cluster):
        return Refusal(
            Tier.CAPACITY, "The cluster has no machines.", "It starts when machines join."
        )
    request, parts = shape.request, shape.parts
    for task, part in zip(request.tasks, parts, strict=True):
        room = int(room_on(ledger.free, ledger.asks, part.profile))
        if room < part.least:
            return _waiting(ledger, task, part, room, alone=len(parts) == 1)
    where = "" if shape.closeness.same is None else f" in one {shape.closeness.same}"
    return scattered(ledger, shape) or Refusal(
        Tier.FRAGMENTATION,
        f"Each task fits alone, but not all of them together{where}.",
        "It starts when more becomes free.",
    )


def _waiting(ledger: Ledger, task: Task, part: ShapePart, room: int, *, alone: bool) -> Refusal:
    ask = ledger.asks[part.profile]
    needed, found = part.least * part.instances_per_unit, room * part.instances_per_unit
    enough = _enough_in_sum(ledger.free, ledger.asks, part.profile, needed)
    # What would help one task of several need not help the job, so that nothing is promised.
    ways = list(_what_would_help(ledger.free, ask, part.least)) if alone else []
    if room and alone:
        ways.append(f"at most {found} instance{'s' * (found != 1)}")
    together = " on one machine" if task.same_machine else ""
    scattered = "; enough is free in sum, but scattered" if enough else ""
    causes = "".join(f" {cause}" for cause in _causes(ledger, task.demand, part))
    return Refusal(
        Tier.FRAGMENTATION if enough else Tier.CAPACITY,
        f"Task {task.role} needs room for {needed} x ({describe(task.demand)}){together}, "
        f"found {found}{scattered}.{causes}",
        "It starts when more becomes free"
        + (f"; with {' or '.join(ways)} it would fit now." if ways else "."),
    )


def _needs_all(
    ledger: Ledger, part: ShapePart, away: Sequence[int], state: str
) -> Iterator[str]:
    """Yield that machines which are away will be needed, whatever else becomes free."""
    idle = ledger.total.copy()
    idle[:, UP] = ledger.free[:, UP]
    if room_on(idle, ledger.asks, part.profile) >= part.least:
        return
    idle[away, UP] = 1
    able = [at for at in away if room_for(idle, at, ledger.asks, part.profile)]
    if room_on(idle, ledger.asks, part.profile) >= part.least:
        where = _listed([ledger.machine(at).id for at in able])
        yield f"It cannot do without {where}, which {_is(able)} {state}."


def _causes(ledger: Ledger, demand: Demand, part: ShapePart) -> Iterator[str]:
    """Yield what keeps the task from room that is there: each alone would let it fit."""
    asks, profile = ledger.asks, part.profile
    for state, numbers in (("drained", ledger.drained), ("lost", ledger.lost)):
        if numbers:
            # A machine may be both; this is about those that are only one of them.
            only = sorted(numbers - (ledger.lost if state == "drained" else ledger.drained))
            machines = ledger.free.copy()
            machines[only, UP] = 1
            able = [at for at in only if room_for(machines, at, asks, profile)]
            if room_on(machines, asks, profile) >= part.least:
                where = _listed([ledger.machine(at).id for at in able])
                yield f"It would fit on {where}, which {_is(able)} {state}."
            else:
                yield from _needs_all(ledger, part, only, state)
    machines = ledger.free.copy()
    taken = np.zeros_like(machines[0])
    names = []
    for number, row in ledger.occupied():
        machines[number] += row
        if room_for(machines, number, asks, profile) > 0:
            taken += row
            names.append(ledger.machine(number).id)
    if names and room_on(machines, asks, profile) >= part.least:
        yield f"Others occupy {_amounts(taken)} of {_listed(names)}; without them it would fit."
    if _room_if_unbound(ledger.free, asks[profile]) >= part.least:
        yield f"Other machines have room. {why_kept_away(ledger, demand)}"


def _is(several: Sequence[object]) -> str:
    return "is" if len(several) == 1 else "are"


def _amounts(row: Table) -> str:
    """Return what others have, in a few words."""
    slots = slots_of(row[np.newaxis])
    gpu_milli = int(row[FREE : FREE + slots].sum())
    memory_mib = int(row[FREE + slots : FREE + 2 * slots].sum())
    parts = [
        (gpu_milli, f"{gpu_milli / MILLI:g} GPU"),
        (memory_mib, f"{memory_mib} MiB of GPU memory"),
        (int(row[CPU]), f"{int(row[CPU]) / MILLI:g} CPU"),
        (int(row[MEMORY]), f"{int(row[MEMORY])} MiB"),
    ]
    return _listed([words for amount, words in parts if amount])


def _room_if_unbound(machines: Table, ask: Table) -> int:
    """Return the room on all machines, whatever their labels and taints; -1 if none matters."""
    if ask[ASK_BOUND] == 0:
        return -1
    free = ask[np.newaxis].copy()
    free[0, ASK_BOUND] = 0
    return int(room_on(machines, free, 0))


def _enough_in_sum(free: Table, asks: Table, profile: int, instances: int) -> bool:
    """Return whether the machines that may be used have enough of everything in sum."""
    ask = asks[profile]
    usable = free[:, UP] == 1
    slots = slots_of(free)
    usable &= ask[ASK_TYPES] & free[:, TYPES] != 0
    if ask[ASK_BOUND]:
        usable &= [bool(is_left_to(free, at, asks, profile)) for at in range(len(free))]
    idle = np.maximum(free[usable], 0)
    gpu_milli = ask[ASK_GPUS] * ask[ASK_MILLI]
    return bool(
        idle[:, FREE : FREE + slots].sum() >= instances * gpu_milli
        and idle[:, CPU].sum() >= instances * ask[ASK_CPU]
        and idle[:, MEMORY].sum() >= instances * ask[ASK_MEMORY]
    )


def _what_would_help(machines: Table, ask: Table, least: int) -> Iterator[str]:
    """Yield the parts of the demand that, relaxed alone, would let it fit."""
    for name, column, easy in _RELAXATIONS:
        if ask[column] == easy or (column != ASK_TYPES and ask[column] < easy):
            continue
        relaxed = ask[np.newaxis].copy()
        relaxed[0, column] = easy
        if room_on(machines, relaxed, 0) >= least:
            yield name


def _fewer_together(machines: Table, ask: Table) -> Iterator[str]:
    """Yield how many of those that must share a machine would find one, if fewer would."""
    fewer = ask[np.newaxis].copy()
    for instances in range(int(ask[ASK_TOGETHER]) - 1, 0, -1):
        fewer[0, ASK_TOGETHER] = instances
        if room_on(machines, fewer, 0) > 0:
            yield f"at most {instances} instance{'s' * (instances != 1)}"
            return


def in_stage(refusal: Refusal, stage: PlanStage) -> Refusal:
    """Return a refusal that says which part of the job's plan it is about."""
    what = "holds it to" if stage.types else "keeps it from"
    types = "/".join(sorted(stage.types or stage.spared))
    if not types:
        return refusal
    until = "" if stage.timeout_s == inf else f" for {stage.timeout_s:g} s"
    return replace(refusal, reason=f"{refusal.reason} Its plan {what} {types}{until}.")


def behind(head: JobId, *, reserved_in_s: float | None = None) -> Refusal:
    """Return the refusal of a job that must not pass the head of the queue."""
    if reserved_in_s is None:
        return Refusal(
            Tier.ORDER,
            f"Job {head} is ahead in a strict queue and does not fit yet.",
            f"It is its turn after job {head} has started.",
            head,
        )
    return Refusal(
        Tier.ORDER,
        f"Starting it now could delay job {head}, which has a reservation in "
        f"{amounts.span(reserved_in_s)}.",
        "It starts after that job, or earlier if it is estimated to end before then or finds a "
        "place that the other does not need.",
        head,
    )


def not_yet_considered() -> Refusal:
    """Return the refusal of a job that arrived after the last decision."""
    return Refusal(
        Tier.ORDER, "No decision has been made since it was submitted.", "Ask again."
    )


def covers(ledger: Ledger, request: Request, placement: Placement, types: TypeRule) -> bool:
    """Return whether a placement places what was asked: counts, GPUs, togetherness, types."""
    if any(not 0 <= spot.task < len(request.tasks) for spot in placement.spots):
        return False
    return all(
        _covers_task(
            ledger, task, types, [spot for spot in placement.spots if spot.task == number]
        )
        for number, task in enumerate(request.tasks)
    )


def _covers_task(ledger: Ledger, task: Task, types: TypeRule, spots: Sequence[Spot]) -> bool:
    placed = sum(spot.instances for spot in spots)
    if not task.least <= placed <= task.instances or any(spot.instances < 1 for spot in spots):
        return False
    if task.same_machine and len({spot.machine for spot in spots}) > 1:
        return False
    return all(_names_its_gpus(ledger, task.demand, types, spot) for spot in spots)


def _names_its_gpus(ledger: Ledger, demand: Demand, types: TypeRule, spot: Spot) -> bool:
    """Return whether a spot names as many GPUs of its machine as each instance uses."""
    if not ledger.knows(spot.machine):
        return False
    machine = ledger.machine(ledger.number(spot.machine))
    if demand.gpus == 0:
        return not spot.gpus
    if machine.pooled:
        named = {machine.gpu_type}
    elif all(0 <= gpu < machine.gpus for gpu in spot.gpus):
        named = {machine.device(gpu).type for gpu in spot.gpus}
    else:
        return False
    allowed = types.binding(demand)
    if allowed and not named <= allowed | {ledger.wildcard}:
        return False
    if machine.pooled:
        return not spot.gpus
    return len(set(spot.gpus)) == len(spot.gpus) == demand.gpus
