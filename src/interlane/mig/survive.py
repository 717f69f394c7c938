"""Plans that meet every target without any one GPU.

Two events bound the cost from below.  Losing a GPU takes at least one instance from whoever it
served, so each service must do without its largest one (``pricing.asks_of``).  And what is
left after any loss serves everybody, so it costs no less than the best plan that need not
survive: the whole costs at least one GPU more.

Neither is enough, because a GPU may hold several instances of a service.  So instances are
spread, each to the GPU that has least of its service; where a service would still miss
something, its need grows, and the plan is made anew.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from interlane.mig.covering import (
    ENOUGH,
    Block,
    Cover,
    Covering,
    SetUp,
    free_names,
    instance_of,
    spares,
)
from interlane.mig.demand import Problem
from interlane.mig.plan import GpuPlan, Instance, Member, PartitionPlan

MOST_ROUNDS = 30
"""Rounds of growing needs; hardly any plan takes five."""


def surviving_plan(
    problem: Problem, covering: Covering, solve: Callable[[Covering], Cover | None]
) -> PartitionPlan | None:
    """Return a plan that survives, of covers that ``solve`` finds; None if it finds none."""
    needs = covering.needs
    for _ in range(MOST_ROUNDS):
        cover = solve(replace(covering, needs=needs))
        if cover is None:
            return None
        plan = spread_plan(problem, covering, cover)
        short = _shortfalls(problem, plan)
        if not any(short):
            return plan
        needs = needs + np.array(short)
    return None


def _shortfalls(problem: Problem, plan: PartitionPlan) -> list[float]:
    """Return by how much each need must grow; 0 where any one GPU may be lost.

    It grows by what is missing without the GPU that the service relies on most; and at least
    by what that GPU holds beside the one instance that is counted as lost already, since less
    would hardly ever bring another instance.
    """
    worst: dict[str, float] = {}
    largest: dict[str, float] = {}
    for gpu in plan.gpus:
        for name, amount in gpu.throughputs().items():
            worst[name] = max(worst.get(name, 0.0), amount)
        serving: tuple[Instance | Member, ...] = (*gpu.instances, *gpu.members)
        for one in serving:
            largest[one.service] = max(largest.get(one.service, 0.0), one.throughput_per_s)
    given = plan.throughputs()
    short = []
    for service in problem.services:
        name, lost = service.name, worst.get(service.name, 0.0)
        missing = service.rate_per_s - (given.get(name, 0.0) - lost)
        is_short = missing > ENOUGH * service.rate_per_s
        short.append(max(missing, lost - largest.get(name, 0.0)) if is_short else 0.0)
    return short


def spread_plan(problem: Problem, covering: Covering, cover: Cover) -> PartitionPlan:
    """Put every block of a solution on a GPU, those of one service far from each other."""
    spread = _Spread(problem, covering, cover)
    # Large instances first: they weigh most, and few GPUs have room for them.
    rows, blocks = np.nonzero(cover.gets)
    order = sorted(
        zip(rows.tolist(), blocks.tolist(), strict=True),
        key=lambda pair: (-float(covering.gives[pair]), pair),
    )
    for row, block in order:
        for _ in range(int(cover.gets[row, block])):
            spread.put(row, block)
    return spread.plan()


class _Spread:
    """GPUs with free blocks, and what each holds of every service."""

    def __init__(self, problem: Problem, covering: Covering, cover: Cover) -> None:
        self._problem = problem
        self._covering = covering
        pinned = {number: iter(group.pinned) for number, group in enumerate(covering.groups)}
        self._set_ups: list[SetUp] = []
        self._held: list[GpuPlan | None] = []
        for set_up, times in zip(covering.set_ups, cover.used.tolist(), strict=True):
            for _ in range(times):
                self._set_ups.append(set_up)
                self._held.append(next(pinned[set_up.group], None))
        self._free = np.array([one.supply for one in self._set_ups], dtype=np.int64)
        self._amounts = np.zeros((len(self._set_ups), covering.services))
        names = {service.name: row for row, service in enumerate(problem.services)}
        for at, gpu in enumerate(self._held):
            for name, amount in gpu.throughputs().items() if gpu is not None else ():
                self._amounts[at, names[name]] = amount
        self._got: list[list[tuple[int, int]]] = [[] for _ in self._set_ups]

    def put(self, row: int, block: int) -> None:
        """Give a service a block on the GPU that has least of it; of equals, the fullest."""
        open_at = np.flatnonzero(self._free[:, block] > 0)
        busy = self._free[open_at].sum(axis=1)
        order = np.lexsort((open_at, busy, self._amounts[open_at, row]))
        at = int(open_at[order[0]])
        self._free[at, block] -= 1
        self._amounts[at, row] += self._covering.gives[row, block]
        self._got[at].append((row, block))

    def plan(self) -> PartitionPlan:
        """Return the GPUs; those that hold nothing are left out."""
        held = [gpu.id for gpu in self._held if gpu is not None]
        names = free_names(held)
        gpus = []
        for at, set_up in enumerate(self._set_ups):
            pinned = self._held[at]
            if pinned is not None or self._got[at]:
                name = next(names) if pinned is None else pinned.id
                gpus.append(self._gpu(name, at, set_up, pinned))
        return PartitionPlan((*gpus, *spares(self._problem)))

    def _gpu(self, name: str, at: int, set_up: SetUp, pinned: GpuPlan | None) -> GpuPlan:
        services, blocks = self._problem.services, self._covering.blocks
        got = [(services[row].name, blocks[block]) for row, block in self._got[at]]
        if set_up.shared is not None:
            names = {service for service, _ in got}
            members: tuple[Member, ...] = tuple(
                member for member in set_up.shared.members if member.service in names
            )
            return GpuPlan(name, set_up.gpu, members=members)
        instances = list(pinned.instances) if pinned is not None else []
        instances += self._placed(set_up, got)
        return GpuPlan(name, set_up.gpu, tuple(sorted(instances, key=lambda one: one.start)))

    def _placed(self, set_up: SetUp, got: list[tuple[str, Block]]) -> list[Instance]:
        starts: dict[str, list[int]] = {}
        for slot in set_up.layout:
            starts.setdefault(slot.profile, []).append(slot.start)
        return [
            instance_of(
                self._problem, service, set_up.gpu, block.profile, starts[block.profile].pop(0)
            )
            for service, block in got
        ]
