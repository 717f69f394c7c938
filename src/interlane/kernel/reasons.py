"""Why not: refusals in words, computed from the very books that refused.

The binding constraint is found by experiment, not by guess: one part of the demand is
relaxed at a time, and what would make the job fit is what the sentence names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from interlane.kernel import compiled
from interlane.model import (
    MILLI,
    Demand,
    JobId,
    Placement,
    Refusal,
    Request,
    Spot,
    Task,
    Tier,
)
from interlane.policy import rows
from interlane.policy.base import Stage, TypeRule

if TYPE_CHECKING:
    from interlane.kernel.ledger import Ledger, Table
    from interlane.kernel.view import Part

_RELAXATIONS = (
    ("less CPU", rows.ASK_CPU, 0),
    ("less memory", rows.ASK_MEMORY, 0),
    ("less GPU memory", rows.ASK_GPU_MEMORY, 0),
    ("any GPU type", rows.ASK_TYPES, rows.ANY_TYPE),
    ("smaller GPU shares", rows.ASK_MILLI, 1),
    ("fewer GPUs per instance", rows.ASK_GPUS, 1),
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


def explain_shortage(
    ledger: "Ledger", request: Request, parts: Sequence["Part"]
) -> Refusal | None:
    """Return why the request could not run even on the empty cluster, or None.

    A cluster without machines refuses nobody: they are yet to come.
    """
    if not len(ledger.cluster):
        return None
    for task, part in zip(request.tasks, parts, strict=True):
        room = int(compiled.room_on(ledger.total, ledger.asks, part.profile))
        if room < part.least:
            return _never(ledger, task, part, room)
    return _never_together(ledger, request)


def _never(ledger: "Ledger", task: Task, part: "Part", room: int) -> Refusal:
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
    if room == 0:
        ways = _what_would_help(ledger.total, ledger.asks[part.profile], part.least)
        return Refusal(
            Tier.NEVER_FITS,
            f"Task {task.role} asks for {asked}{place}; no machine is large enough.",
            f"Ask for {' or '.join(ways) or 'less'}.",
        )
    return Refusal(
        Tier.NEVER_FITS,
        f"Task {task.role} asks for {asked}; the empty cluster has room for {room}.",
        f"Ask for at most {room} instance{'s' * (room != 1)}.",
    )


def _never_together(ledger: "Ledger", request: Request) -> Refusal | None:
    """Return why several tasks that fit alone cannot fit at the same time, if sums show it."""
    least_gpu, least_cpu = request.least_gpu_milli, request.least_cpu_milli
    gpu = int(ledger.cluster.gpus) * MILLI
    if least_gpu <= gpu and least_cpu <= ledger.cluster.cpu_milli:
        return None
    return Refusal(
        Tier.NEVER_FITS,
        f"Its tasks ask for {least_gpu / MILLI:g} GPUs and {least_cpu / MILLI:g} CPUs "
        f"together; the cluster has {gpu / MILLI:g} and "
        f"{ledger.cluster.cpu_milli / MILLI:g}.",
        "Ask for fewer instances.",
    )


def explain_waiting(ledger: "Ledger", request: Request, parts: Sequence["Part"]) -> Refusal:
    """Return why the request does not fit now."""
    if not len(ledger.cluster):
        return Refusal(
            Tier.CAPACITY, "The cluster has no machines.", "It starts when machines join."
        )
    for task, part in zip(request.tasks, parts, strict=True):
        room = int(compiled.room_on(ledger.free, ledger.asks, part.profile))
        if room < part.least:
            return _waiting(ledger, task, part, room, alone=len(parts) == 1)
    return Refusal(
        Tier.FRAGMENTATION,
        "Each task fits alone, but not all of them together.",
        "It starts when more becomes free.",
    )


def _waiting(ledger: "Ledger", task: Task, part: "Part", room: int, *, alone: bool) -> Refusal:
    ask = ledger.asks[part.profile]
    needed, found = part.least * part.instances_per_unit, room * part.instances_per_unit
    enough = _enough_in_sum(ledger.free, ask, needed)
    # What would help one task of several need not help the job, so that nothing is promised.
    ways = list(_what_would_help(ledger.free, ask, part.least)) if alone else []
    if room and alone:
        ways.append(f"at most {found} instance{'s' * (found != 1)}")
    together = " on one machine" if task.same_machine else ""
    scattered = "; enough is free in sum, but scattered" if enough else ""
    return Refusal(
        Tier.FRAGMENTATION if enough else Tier.CAPACITY,
        f"Task {task.role} needs room for {needed} x ({describe(task.demand)}){together}, "
        f"found {found}{scattered}.",
        "It starts when more becomes free"
        + (f"; with {' or '.join(ways)} it would fit now." if ways else "."),
    )


def _enough_in_sum(free: "Table", ask: "Table", instances: int) -> bool:
    """Return whether the machines that may be used have enough of everything in sum."""
    usable = free[:, rows.UP] == 1
    slots = rows.slots_of(free)
    usable &= (ask[rows.ASK_TYPES] >> free[:, rows.TYPE]) & 1 == 1
    idle = np.maximum(free[usable], 0)
    gpu_milli = ask[rows.ASK_GPUS] * ask[rows.ASK_MILLI]
    return bool(
        idle[:, rows.FREE : rows.FREE + slots].sum() >= instances * gpu_milli
        and idle[:, rows.CPU].sum() >= instances * ask[rows.ASK_CPU]
        and idle[:, rows.MEMORY].sum() >= instances * ask[rows.ASK_MEMORY]
    )


def _what_would_help(machines: "Table", ask: "Table", least: int) -> Iterator[str]:
    """Yield the parts of the demand that, relaxed alone, would let it fit."""
    for name, column, easy in _RELAXATIONS:
        if ask[column] == easy or (column != rows.ASK_TYPES and ask[column] < easy):
            continue
        relaxed = ask[np.newaxis].copy()
        relaxed[0, column] = easy
        if compiled.room_on(machines, relaxed, 0) >= least:
            yield name


def in_stage(refusal: Refusal, stage: Stage) -> Refusal:
    """Return a refusal that says which part of the job's plan it is about."""
    what = "holds it to" if stage.types else "keeps it from"
    types = "/".join(sorted(stage.types or stage.spared))
    if not types:
        return refusal
    until = "" if stage.timeout_s == inf else f" for {stage.timeout_s:g} s"
    return replace(refusal, reason=f"{refusal.reason} Its plan {what} {types}{until}.")


def behind(head: JobId, *, reserved_at_s: float | None = None) -> Refusal:
    """Return the refusal of a job that must not pass the head of the queue."""
    if reserved_at_s is None:
        return Refusal(
            Tier.ORDER,
            f"Job {head} is ahead in a strict queue and does not fit yet.",
            f"It is its turn after job {head} has started.",
            head,
        )
    return Refusal(
        Tier.ORDER,
        f"Starting it now could delay job {head}, which has a reservation for "
        f"{reserved_at_s:g} s.",
        "It starts after that job, or earlier if it is guessed to end before then or finds a "
        "place that the other does not need.",
        head,
    )


def not_yet_considered() -> Refusal:
    """Return the refusal of a job that arrived after the last decision."""
    return Refusal(
        Tier.ORDER, "No decision has been made since it was submitted.", "Ask again."
    )


def covers(ledger: "Ledger", request: Request, placement: Placement, types: TypeRule) -> bool:
    """Return whether a placement places what was asked: counts, GPUs, togetherness, types."""
    if any(not 0 <= spot.task < len(request.tasks) for spot in placement.spots):
        return False
    return all(
        _covers_task(
            ledger, task, types, [spot for spot in placement.spots if spot.task == number]
        )
        for number, task in enumerate(request.tasks)
    )


def _covers_task(ledger: "Ledger", task: Task, types: TypeRule, spots: Sequence[Spot]) -> bool:
    placed = sum(spot.instances for spot in spots)
    if not task.least <= placed <= task.instances or any(spot.instances < 1 for spot in spots):
        return False
    if task.same_machine and len({spot.machine for spot in spots}) > 1:
        return False
    return all(_names_its_gpus(ledger, task.demand, types, spot) for spot in spots)


def _names_its_gpus(ledger: "Ledger", demand: Demand, types: TypeRule, spot: Spot) -> bool:
    """Return whether a spot names as many GPUs of its machine as each instance uses."""
    if not ledger.knows(spot.machine):
        return False
    machine = ledger.machine(ledger.number(spot.machine))
    if demand.gpus == 0:
        return not spot.gpus
    allowed = types.binding(demand)
    if allowed and machine.gpu_type not in allowed | {ledger.wildcard}:
        return False
    if machine.pooled:
        return not spot.gpus
    in_range = all(0 <= gpu < machine.gpus for gpu in spot.gpus)
    return in_range and len(set(spot.gpus)) == len(spot.gpus) == demand.gpus
