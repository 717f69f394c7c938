"""Where to go: a plan for the new demand that leaves the most instances where they are.

GPUs with the same content are one group.  For each group the program chooses how many of its
GPUs take each layout, and how many of each of its instances stay; an instance can stay on a GPU
whose layout has its slot.  What the layouts offer beyond that is free for new instances:

    max   kept
    s.t.  new + kept instances of a service meet its rate        one row per service
          new instances of a profile fit its free slots           one row per profile
          kept instances stand in slots of chosen layouts         one row an instance
          GPUs of a group, of a model, and what all may cost      one row each

All GPUs together may cost as much as the cheapest plan of all, and a few GPUs more (``slack``):
one GPU of slack lets far more instances stay, and makes the program easy.  It begins from the
cheapest plan with its GPUs matched to those that are there, so there is always an answer.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from interlane.mig.covering import ENOUGH, Floats, free_names, instance_of, spares
from interlane.mig.demand import Problem
from interlane.mig.layouts import Layout, SlicePlace, broken_rule, maximal_layouts, undominated
from interlane.mig.match import matched
from interlane.mig.optimise import optimise
from interlane.mig.plan import (
    TOLERANCE,
    Effort,
    GpuPlan,
    Instance,
    PartitionPlan,
    SolvedPlan,
    StopReason,
)
from interlane.mig.profiles import gpu_model
from interlane.mig.solver import ENDLESS, Column, LinearProgram
from interlane.mig.transition.present import may_stay
from interlane.model import InvalidInput

LIMIT_S: Final = 20.0
"""Seconds for the program, unless the effort says less."""

GAP: Final = 0.005
"""Share of the running instances within which the program may stop."""


@dataclass(frozen=True, slots=True)
class Joint:
    """A plan on the GPUs that are there, and how much of what runs stays."""

    plan: PartitionPlan
    kept: int
    """Instances that stay where they are and serve what they serve."""
    running: int
    most_kept: int
    """Proven: no plan within the cost keeps more."""
    optimum: SolvedPlan
    """The cheapest plan, regardless of what is there."""
    stopped: StopReason


@dataclass(frozen=True, slots=True)
class _Group:
    """GPUs with the same content."""

    model: str
    gpus: tuple[GpuPlan, ...]
    staying: tuple[Instance, ...]
    """Instances that may stay."""
    layouts: tuple[Layout, ...]
    held: frozenset[SlicePlace] = frozenset()
    """Slots in which instances must stay, so that every GPU of the group is used."""
    is_frozen: bool = False
    """Whether nothing may join what stays."""


def joint_plan(
    problem: Problem,
    current: PartitionPlan,
    *,
    slack: int = 1,
    effort: Effort | None = None,
    frozen: Collection[str] = (),
) -> Joint:
    """Return the plan that keeps most; GPUs that are frozen stay exactly as they are."""
    effort = effort or Effort()
    if problem.shared:
        raise InvalidInput(
            "The demand offers GPUs shared whole; transitions move MIG instances only, "
            "so leave shared out."
        )
    begin_s = effort.clock()
    optimum = optimise(problem, effort=effort)
    # Names matter where something is pinned.
    apart = optimum.plan if problem.pinned else matched(optimum.plan, current).plan
    if problem.survive_gpu_loss and frozen:
        raise InvalidInput(
            "No plan that survives the loss of a GPU is made around "
            f"{', '.join(sorted(frozen))}, which cannot be changed; mend it, or plan anew."
        )
    if problem.survive_gpu_loss:
        # Spreading is no part of the program, so the cheapest plan is taken as it is.
        return _apart(apart, problem, current, optimum)
    left_s = LIMIT_S
    if effort.time_limit_s is not None:
        left_s = min(LIMIT_S, effort.time_limit_s - (effort.clock() - begin_s))
    dearest = max(problem.prices.values())

    def at_most(more: int) -> Joint | None:
        search = _Search(problem, current, optimum.cost + more * dearest, frozen)
        return search.run(apart, left_s, optimum)

    for more in range(slack, slack + len({*frozen}) + 2):
        found = at_most(more)
        if found is not None:
            break
        if not frozen:
            return _apart(apart, problem, current, optimum)
    else:
        raise InvalidInput(
            f"No plan meets the demand while {', '.join(sorted(frozen))} cannot be changed; "
            "offer more GPUs."
        )
    # Where everything can stay, further GPUs buy nothing.
    all_stay = sum(may_stay(one, gpu, problem) for gpu, one in current.instances)
    for fewer in range(slack if found.kept == all_stay else 0):
        thrifty = at_most(fewer)
        if thrifty is not None and thrifty.kept == found.kept:
            return thrifty
    return found


def _running(current: PartitionPlan) -> int:
    return sum(bool(one.service) for _, one in current.instances)


def kept_of(plan: PartitionPlan, current: PartitionPlan) -> int:
    """Count the instances of a plan that run now, in the same place, for the same service."""
    there = {(gpu.id, one.slot, one.service) for gpu, one in current.instances if one.service}
    return sum((gpu.id, one.slot, one.service) in there for gpu, one in plan.instances)


def _apart(
    plan: PartitionPlan, problem: Problem, current: PartitionPlan, optimum: SolvedPlan
) -> Joint:
    running = _running(current)
    return Joint(plan, kept_of(plan, current), running, running, optimum, optimum.stopped)


class _Search:
    """The program: its columns in groups, and the way back from numbers to GPUs."""

    def __init__(
        self, problem: Problem, current: PartitionPlan, cost: float, frozen: Collection[str]
    ) -> None:
        self._problem = problem
        self._current = current
        self._frozen = frozen
        self._groups = list(_groups(problem, current, {*frozen}))
        self._fresh = [
            _Group(offer.model, (), (), _fresh_layouts(offer.model, problem))
            for offer in problem.offers
        ]
        self._all = [*self._groups, *self._fresh]
        self._blocks = [
            (offer.model, profile.name)
            for offer in problem.offers
            for profile in gpu_model(offer.model).profiles
        ]
        self._at = {block: number for number, block in enumerate(self._blocks)}
        self._new = [
            (row, block)
            for row, service in enumerate(problem.services)
            for block in self._blocks
            if (service.name, *block) in problem.serving
        ]
        self._program = self._made(cost - problem.spare_cost)

    # -- the program ------------------------------------------------------------------

    def _made(self, cost: float) -> LinearProgram:
        services = self._problem.services
        # Shares of a rate, not rates: services differ by orders of magnitude.
        rows: list[tuple[float, float]] = [(1.0 - ENOUGH, ENDLESS)] * len(services)
        rows += [(float(service.min_replicas), ENDLESS) for service in services]
        self._block_row = len(rows)
        rows += [(0.0, ENDLESS)] * len(self._blocks)
        self._cost_row = len(rows)
        rows.append((0.0, cost + TOLERANCE))
        self._model_row = {
            offer.model: len(rows) + at for at, offer in enumerate(self._problem.offers)
        }
        rows += [
            (0.0, ENDLESS if offer.limit is None else float(offer.limit - offer.spare))
            for offer in self._problem.offers
        ]
        self._group_row = len(rows)
        rows += [
            (float(len(one.gpus)) if one.held else 0.0, float(len(one.gpus)))
            for one in self._groups
        ]
        self._stay_row: dict[tuple[int, SlicePlace], int] = {}
        for number, group in enumerate(self._groups):
            for one in group.staying:
                self._stay_row[number, one.slot] = len(rows)
                rows.append((0.0, 0.0 if one.slot in group.held else ENDLESS))
        program = LinearProgram(rows)
        program.add(self._columns())
        program.make_whole()
        return program

    def _columns(self) -> Iterator[Column]:
        yield from self._layout_columns()
        yield from self._stay_columns()
        yield from self._new_columns()

    def _layout_columns(self) -> Iterator[Column]:
        prices = self._problem.prices
        for number, group in enumerate(self._all):
            for layout in group.layouts:
                counts: dict[int, float] = {}
                for slot in layout:
                    row = self._block_row + self._at[group.model, slot.profile]
                    counts[row] = counts.get(row, 0.0) + 1.0
                entries = [*counts.items(), (self._cost_row, prices[group.model])]
                entries.append((self._model_row[group.model], 1.0))
                if group.gpus:
                    entries.append((self._group_row + number, 1.0))
                for slot in layout:
                    if (number, slot) in self._stay_row:
                        entries.append((self._stay_row[number, slot], 1.0))
                yield Column(0.0, entries, float(len(group.gpus)) if group.gpus else ENDLESS)

    def _stay_columns(self) -> Iterator[Column]:
        services = {service.name: row for row, service in enumerate(self._problem.services)}
        for number, group in enumerate(self._groups):
            for one in group.staying:
                entries = [(self._stay_row[number, one.slot], -1.0)]
                if one.service in services:
                    row = services[one.service]
                    rate = self._problem.services[row].rate_per_s
                    entries.append((row, one.throughput_per_s / rate))
                    entries.append((len(services) + row, 1.0))
                entries.append((self._block_row + self._at[group.model, one.profile], -1.0))
                yield Column(-1.0 if one.service else 0.0, entries, float(len(group.gpus)))

    def _new_columns(self) -> Iterator[Column]:
        services = self._problem.services
        for row, block in self._new:
            given = self._problem.serving[services[row].name, *block].throughput_per_s
            yield Column(
                0.0,
                [
                    (row, given / services[row].rate_per_s),
                    (len(services) + row, 1.0),
                    (self._block_row + self._at[block], -1.0),
                ],
            )

    # -- running it -------------------------------------------------------------------

    def run(self, begin: PartitionPlan, limit_s: float, optimum: SolvedPlan) -> Joint | None:
        """Return what it came to; None if no plan was found."""
        running = _running(self._current)
        start = self._values_of(begin)
        if start is not None:
            self._program.start_from(start)
        solved = self._program.run(limit_s, gap=max(0.999, GAP * running))
        if solved.values is None:
            return None
        plan = self._plan(np.rint(solved.values).astype(np.int64).tolist())
        kept = kept_of(plan, self._current)
        # Before the first bound is found it is minus infinity.
        most = int(min(float(running), max(0.0, -solved.bound) + TOLERANCE))
        if kept >= most:
            stopped = StopReason.OPTIMAL
        else:
            stopped = StopReason.TIME if solved.is_timeout else StopReason.FINISHED
        return Joint(plan, kept, running, max(most, kept), optimum, stopped)

    def _values_of(self, plan: PartitionPlan) -> Floats | None:
        """Return a plan on these GPUs as values of the columns; None if it does not fit."""
        planned = {gpu.id: gpu for gpu in plan.gpus if gpu.instances}
        used: dict[tuple[int, int], int] = {}
        stays: dict[tuple[int, SlicePlace], int] = {}
        new: dict[tuple[str, str, str], int] = {}
        groups = [
            *((n, gpu.id) for n, group in enumerate(self._groups) for gpu in group.gpus),
        ]
        known = {name for _, name in groups}
        fresh = {group.model: len(self._groups) + n for n, group in enumerate(self._fresh)}
        groups += [
            (fresh[gpu.model], name) for name, gpu in planned.items() if name not in known
        ]
        for number, name in groups:
            group = self._all[number]
            instances = planned[name].instances if name in planned else ()
            if not instances and not group.held:
                continue
            staying = {(one.slot, one.service) for one in group.staying}
            stay = [one for one in instances if (one.slot, one.service) in staying]
            layout = _layout_for(group, stay, instances)
            if layout is None:
                return None
            used[number, layout] = used.get((number, layout), 0) + 1
            for one in instances:
                if one in stay:
                    stays[number, one.slot] = stays.get((number, one.slot), 0) + 1
                else:
                    key = (one.service, group.model, one.profile)
                    new[key] = new.get(key, 0) + 1
        values = [
            used.get((number, at), 0)
            for number, group in enumerate(self._all)
            for at in range(len(group.layouts))
        ]
        values += [stays.get(key, 0) for key in self._stay_row]
        services = self._problem.services
        values += [new.get((services[row].name, *block), 0) for row, block in self._new]
        return np.array(values, dtype=np.float64)

    # -- from numbers back to GPUs ----------------------------------------------------

    def _plan(self, values: Sequence[int]) -> PartitionPlan:
        numbers = iter(values)
        used = [[next(numbers) for _ in group.layouts] for group in self._all]
        stays = {key: next(numbers) for key in self._stay_row}
        new = {key: next(numbers) for key in self._new}
        kept, free = self._laid(used, stays)
        return self._filled(kept, free, self._trimmed(new, kept))

    def _laid(
        self, used: list[list[int]], stays: dict[tuple[int, SlicePlace], int]
    ) -> tuple[dict[GpuPlan, list[Instance]], list[tuple[GpuPlan, SlicePlace]]]:
        """Return what stays on each GPU that is used, and the slots that are free."""
        kept: dict[GpuPlan, list[Instance]] = {}
        free: list[tuple[GpuPlan, SlicePlace]] = []
        idle = [
            gpu
            for number, group in enumerate(self._groups)
            if not group.is_frozen
            for gpu in group.gpus[sum(used[number]) :]
        ]
        names = free_names([*self._frozen, *(gpu.id for gpu in self._current.gpus)])
        for number, group in enumerate(self._all):
            gpus = iter(group.gpus)
            for layout, times in zip(group.layouts, used[number], strict=True):
                for _ in range(times):
                    gpu = next(gpus) if group.gpus else _taken(idle, group.model, names)
                    kept[gpu] = []
                    for slot in layout:
                        if stays.get((number, slot), 0) > 0:
                            stays[number, slot] -= 1
                            kept[gpu].append(
                                next(one for one in group.staying if one.slot == slot)
                            )
                        else:
                            free.append((gpu, slot))
        return kept, free

    def _trimmed(
        self, new: dict[tuple[int, tuple[str, str]], int], kept: dict[GpuPlan, list[Instance]]
    ) -> dict[tuple[int, tuple[str, str]], int]:
        """Leave out new instances that nobody needs; the program does not mind them."""
        services, serving = self._problem.services, self._problem.serving
        trimmed = dict(new)
        for row, service in enumerate(services):
            mine = [
                one for held in kept.values() for one in held if one.service == service.name
            ]
            blocks = sorted(
                (block for at, block in new if at == row and new[at, block]),
                key=lambda block: serving[service.name, *block].throughput_per_s,
            )
            gives = {block: serving[service.name, *block].throughput_per_s for block in blocks}
            given = sum(one.throughput_per_s for one in mine)
            given += sum(trimmed[row, block] * gives[block] for block in blocks)
            count = len(mine) + sum(trimmed[row, block] for block in blocks)
            for block in blocks:
                while (
                    trimmed[row, block]
                    and count > service.min_replicas
                    and given - gives[block] >= service.rate_per_s
                ):
                    trimmed[row, block] -= 1
                    count -= 1
                    given -= gives[block]
        return trimmed

    def _filled(
        self,
        kept: dict[GpuPlan, list[Instance]],
        free: list[tuple[GpuPlan, SlicePlace]],
        new: dict[tuple[int, tuple[str, str]], int],
    ) -> PartitionPlan:
        """Hand the free slots out, those first that nothing running stands in."""
        waiting: dict[tuple[str, str], list[str]] = {}
        for (row, block), times in new.items():
            waiting.setdefault(block, []).extend([self._problem.services[row].name] * times)
        free.sort(key=lambda place: _in_the_way(*place))
        for gpu, slot in free:
            services = waiting.get((gpu.model, slot.profile))
            if services:
                kept[gpu].append(
                    instance_of(
                        self._problem, services.pop(), gpu.model, slot.profile, slot.start
                    )
                )
        order = {gpu.id: number for number, gpu in enumerate(self._current.gpus)}
        gpus = [
            replace(gpu, instances=tuple(sorted(held, key=lambda one: one.start)))
            for gpu, held in kept.items()
            if held
        ]
        gpus.sort(key=lambda gpu: order.get(gpu.id, len(order)))
        taken = {gpu.id for gpu in gpus}
        return PartitionPlan(
            (*gpus, *(one for one in spares(self._problem) if one.id not in taken))
        )


def _taken(idle: list[GpuPlan], model: str, names: Iterator[str]) -> GpuPlan:
    """Return a GPU that is there and not used otherwise; a new one if there is none."""
    for gpu in idle:
        if gpu.model == model:
            idle.remove(gpu)
            return gpu
    return GpuPlan(next(names), model)


def _in_the_way(gpu: GpuPlan, slot: SlicePlace) -> int:
    events = gpu_model(gpu.model)
    return sum(
        bool(one.service) and broken_rule(events, (one.slot, slot)) is not None
        for one in gpu.instances
    )


# -- groups ---------------------------------------------------------------------------


def _groups(problem: Problem, current: PartitionPlan, frozen: set[str]) -> Iterator[_Group]:
    pins = {gpu.id: frozenset(one.slot for one in gpu.instances) for gpu in problem.pinned}
    alike: dict[object, list[GpuPlan]] = {}
    for gpu in current.gpus:
        content = frozenset((one.slot, one.service) for one in gpu.instances)
        alone = gpu.id if gpu.id in frozen else ""
        key = (gpu.model, content, pins.get(gpu.id, frozenset()), alone)
        alike.setdefault(key, []).append(gpu)
    for gpus in alike.values():
        first = gpus[0]
        pinned = pins.get(first.id, frozenset[SlicePlace]())
        if first.id in frozen:
            yield _frozen_group(first)
            continue
        staying = tuple(
            one
            for one in first.instances
            if one.slot in pinned or (one.service and may_stay(one, first, problem))
        )
        layouts = tuple(_useful(first.model, staying, pinned, problem))
        yield _Group(first.model, tuple(gpus), staying, layouts, pinned)


def _frozen_group(gpu: GpuPlan) -> _Group:
    busy = tuple(one for one in gpu.instances if one.service)
    layout = tuple(sorted(one.slot for one in busy))
    return _Group(gpu.model, (gpu,), busy, (layout,), frozenset(layout), is_frozen=True)


def _useful(
    model: str, staying: Sequence[Instance], pinned: frozenset[SlicePlace], problem: Problem
) -> Iterator[Layout]:
    """Yield the layouts worth choosing: none offers the same slots to stay in, and more."""
    slots = {one.slot for one in staying}
    found = [one for one in maximal_layouts(model, problem.rules) if pinned <= {*one}]
    if pinned and not found:
        # What is pinned breaks the rules of the demand, so nothing joins it.
        yield tuple(sorted(pinned))
        return
    if not slots:
        yield from (one.verifier for one in undominated(model, problem.rules))
        return
    worth: list[tuple[frozenset[SlicePlace], dict[str, int], Layout]] = []
    for layout in found:
        counts: dict[str, int] = {}
        for slot in layout:
            counts[slot.profile] = counts.get(slot.profile, 0) + 1
        worth.append((frozenset(slots & {*layout}), counts, layout))
    for number, (stay, counts, layout) in enumerate(worth):
        if not any(
            other != number
            and stay <= theirs
            and all(more.get(name, 0) >= count for name, count in counts.items())
            and (theirs != stay or more != counts or other < number)
            for other, (theirs, more, _) in enumerate(worth)
        ):
            yield layout


def _fresh_layouts(model: str, problem: Problem) -> tuple[Layout, ...]:
    return tuple(one.verifier for one in undominated(model, problem.rules))


def _layout_for(
    group: _Group, stay: Sequence[Instance], instances: Sequence[Instance]
) -> int | None:
    """Return the layout that has the slots that stay, and room for all instances."""
    slots = {one.slot for one in stay}
    for number, layout in enumerate(group.layouts):
        left = [slot.profile for slot in layout]
        if slots <= {*layout}:
            for one in instances:
                if one.profile not in left:
                    break
                left.remove(one.profile)
            else:
                return number
    return None
