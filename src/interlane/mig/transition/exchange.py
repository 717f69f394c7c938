"""Exchange-and-compact, the controller of MIG-serving, as the baseline.

The new plan is made without regard to what runs.  *Exchange*: of each service, instances of
sizes that the plan has no more of are paired with those that it has too few of; every new one
is started first, on free units or on a borrowed GPU, and then its partners go, which together
give no more than it does.  What has no partner is started before, and drained after, the rest.
*Compact*: now the right instances run in the wrong places, so GPU by GPU they move to where the
plan wants them, and what was borrowed is returned.

It keeps every service at its floor as well, but it moves far more than need be.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from interlane.mig.covering import free_names
from interlane.mig.demand import Problem
from interlane.mig.layouts import SlicePlace, broken_rule
from interlane.mig.match import matched
from interlane.mig.plan import GpuPlan, Instance, PartitionPlan
from interlane.mig.profiles import gpu_model
from interlane.mig.transition.order import PlannedAction, PlayedWay, played, way_of
from interlane.mig.transition.steps import StepKind, Transition


def exchange_and_compact(
    current: PartitionPlan, plan: PartitionPlan, floors: Mapping[str, float], problem: Problem
) -> Transition:
    """Return the way of exchange-and-compact from what runs now to a plan."""
    exchange = _Exchange(current)
    for service in _services(current, plan):
        exchange.exchange(service, current, plan)
    there = exchange.state()
    borrowed = exchange.borrowed
    compact = played(there, matched(plan, there).plan, floors, problem)
    left = {gpu.id for gpu in compact.reached.gpus if gpu.instances}
    joined = PlayedWay(
        (*exchange.log, *compact.log),
        {**exchange.models, **compact.models},
        compact.reached,
        tuple(name for name in (*borrowed, *compact.borrowed) if name not in left),
    )
    return way_of(current, joined, floors)


def _services(current: PartitionPlan, plan: PartitionPlan) -> list[str]:
    names = (one.service for both in (current, plan) for _, one in both.instances)
    return [name for name in dict.fromkeys(names) if name]


@dataclass(frozen=True, slots=True)
class _Leaving:
    gpu: str
    instance: Instance


class _Exchange:
    """What is where during the first phase."""

    def __init__(self, current: PartitionPlan) -> None:
        self.models = {gpu.id: gpu.model for gpu in current.gpus}
        self._held = {gpu.id: {one.slot: one for one in gpu.instances} for gpu in current.gpus}
        self.log: list[PlannedAction] = []
        self.borrowed: list[str] = []

    def state(self) -> PartitionPlan:
        """Return what is there."""
        return PartitionPlan(
            tuple(
                GpuPlan(name, self.models[name], tuple(held[slot] for slot in sorted(held)))
                for name, held in self._held.items()
            )
        )

    def exchange(self, service: str, current: PartitionPlan, plan: PartitionPlan) -> None:
        """Bring one service to the sizes that the plan has of it."""
        coming, leaving = _difference(service, current, plan)
        coming.sort(key=lambda pair: -pair[1].throughput_per_s)
        leaving.sort(key=lambda one: -one.instance.throughput_per_s)
        for model, new in coming:
            self._create(model, new)
            left = new.throughput_per_s
            for one in [*leaving]:
                if one.instance.throughput_per_s <= left:
                    left -= one.instance.throughput_per_s
                    leaving.remove(one)
                    self._delete(one)
        for one in leaving:
            self._delete(one)

    def _delete(self, one: _Leaving) -> None:
        slot = one.instance.slot
        self._held[one.gpu][slot] = Instance(slot.profile, slot.start)
        self.log.append(PlannedAction(StepKind.DELETE, one.gpu, one.instance))

    def _create(self, model: str, new: Instance) -> None:
        """Start an instance in the first slot that has its units free."""
        gpu, slot = self._room(model, new.profile)
        held = self._held[gpu]
        if slot not in held:
            gone = [
                idle
                for idle, one in held.items()
                if not one.service and not _fit(model, idle, slot)
            ]
            for idle in gone:
                del held[idle]
            self.log.append(
                PlannedAction(
                    StepKind.REPARTITION, gpu, destroyed=tuple(sorted(gone)), made=(slot,)
                )
            )
        held[slot] = replace(new, start=slot.start)
        self.log.append(PlannedAction(StepKind.CREATE, gpu, held[slot]))

    def _room(self, model: str, profile: str) -> tuple[str, SlicePlace]:
        starts = gpu_model(model).profile(profile).starts
        for name, held in self._held.items():
            busy = [slot for slot, one in held.items() if one.service]
            if self.models[name] == model:
                for start in starts:
                    slot = SlicePlace(start, profile)
                    if all(_fit(model, slot, other) for other in busy):
                        return name, slot
        name = next(free_names(self._held))
        self._held[name], self.models[name] = {}, model
        self.borrowed.append(name)
        return name, SlicePlace(starts[0], profile)


def _fit(model: str, one: SlicePlace, other: SlicePlace) -> bool:
    return broken_rule(gpu_model(model), (one, other)) is None


def _difference(
    service: str, current: PartitionPlan, plan: PartitionPlan
) -> tuple[list[tuple[str, Instance]], list[_Leaving]]:
    """Return what a service has too few of (by GPU model), and what it has too many of."""
    leaving = [
        _Leaving(gpu.id, one) for gpu, one in current.instances if one.service == service
    ]
    models = {gpu.id: gpu.model for gpu in current.gpus}
    coming: list[tuple[str, Instance]] = []
    for gpu, one in plan.instances:
        if one.service != service:
            continue
        for old in leaving:
            if (models[old.gpu], _figures(old.instance)) == (gpu.model, _figures(one)):
                leaving.remove(old)
                break
        else:
            coming.append((gpu.model, one))
    return coming, leaving


def _figures(one: Instance) -> tuple[object, ...]:
    return one.profile, one.batch, one.processes, one.throughput_per_s
