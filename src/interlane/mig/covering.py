"""The problem as optimisers see it: cover needs with blocks, and blocks come in set-ups.

A *block* is a kind of place for one instance: a profile of a GPU model, or the share of one
service in a GPU shared whole.  A *set-up* is a way to use one GPU: it costs a price and
supplies some blocks of each kind.  A block gives each service a throughput of its own, 0 where
it cannot serve.  Choose how many GPUs take each set-up and which service gets each block.

That is configurable machine scheduling: jobs, configurations, blocks and ``f``.  Blocks of one
kind are interchangeable, because the instances of a GPU do not disturb one another; so a
solution is how often each set-up is used and how many blocks of each kind each service gets,
and ``plan_of`` can put them on GPUs in any order.

Set-ups belong to *groups*: the GPUs of one model (at most so many), or the GPUs that are
pinned alike (exactly so many, each with a set-up that leaves the pinned instances in place).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.mig.demand import GpuOffer, Problem, SharedGpu
from interlane.mig.layouts import (
    Configuration,
    Layout,
    Rules,
    SlicePlace,
    broken_rule,
    configurations_of,
    maximal_layouts,
    undominated,
    without_dominated,
)
from interlane.mig.plan import GpuPlan, Instance, Member, PartitionPlan
from interlane.mig.profiles import GpuModel, gpu_model

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

ENOUGH: Final = 1e-9
"""Share of a need by which sums of floating-point numbers may fall short."""


@dataclass(frozen=True, slots=True)
class Block:
    """A kind of place for one instance."""

    gpu: str
    """GPU model."""
    profile: str
    """Profile; or, of a GPU shared whole, the service whose share this is."""
    shared: str = ""
    """Name of the shared GPU, if it is a share of one."""


@dataclass(frozen=True, slots=True)
class SetUp:
    """A way to use one GPU."""

    group: int
    gpu: str
    """GPU model."""
    price: float
    supply: tuple[int, ...]
    """Blocks of each kind."""
    layout: Layout = ()
    """Where its blocks stand; on a pinned GPU, beside what is pinned."""
    shared: SharedGpu | None = None


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """GPUs among which set-ups are counted together."""

    gpu: str
    least: int = 0
    most: int | None = None
    pinned: tuple[GpuPlan, ...] = ()
    """The GPUs themselves, where they are pinned; then ``least`` and ``most`` are their
    number."""


@dataclass(frozen=True, slots=True)
class Covering:
    """A problem in numbers; rows are services, columns are blocks."""

    blocks: tuple[Block, ...]
    set_ups: tuple[SetUp, ...]
    groups: tuple[GpuGroup, ...]
    supply: Whole
    """Set-ups by blocks."""
    prices: Floats
    """Of each set-up."""
    gives: Floats
    """Services by blocks: the throughput of one block, 0 where it cannot serve."""
    needs: Floats
    """Throughput that each service still needs, beside what is pinned."""
    least: Whole
    """Instances that each service still needs at least."""
    survives: bool
    """Whether each need must be met without any one GPU."""
    constant: float
    """Cost beside that of set-ups: spare GPUs."""

    @property
    def services(self) -> int:
        """How many there are."""
        return len(self.needs)


@dataclass(frozen=True, slots=True)
class Cover:
    """A solution: how often each set-up is used, and which blocks each service gets."""

    used: Whole
    """GPUs of each set-up."""
    gets: Whole
    """Services by blocks."""


def covering_of(problem: Problem) -> Covering:
    """Return a problem in numbers."""
    pins = _alike(problem)
    blocks = tuple(_blocks(problem))
    at = {block: number for number, block in enumerate(blocks)}
    groups = [_group(offer, problem) for offer in problem.offers]
    set_ups = [
        set_up
        for number, offer in enumerate(problem.offers)
        for set_up in _set_ups(problem, offer, number, at)
    ]
    for layout_and_model, gpus in pins.items():
        set_ups += _pinned_set_ups(problem, layout_and_model, len(groups), at)
        groups.append(GpuGroup(gpus[0].model, len(gpus), len(gpus), gpus))
    needs, least = _left_to_serve(problem)
    return Covering(
        blocks,
        tuple(set_ups),
        tuple(groups),
        np.array([set_up.supply for set_up in set_ups], dtype=np.int64),
        np.array([set_up.price for set_up in set_ups]),
        _gives(problem, blocks),
        needs,
        least,
        problem.survive_gpu_loss,
        problem.spare_cost,
    )


def _blocks(problem: Problem) -> Iterator[Block]:
    for offer in problem.offers:
        for profile in gpu_model(offer.model).of_kinds(problem.rules.kinds):
            yield Block(offer.model, profile.name)
    for one in problem.shared:
        for member in one.members:
            yield Block(one.gpu, member.service, one.name)


def _gives(problem: Problem, blocks: Sequence[Block]) -> Floats:
    gives = np.zeros((len(problem.services), len(blocks)))
    members = {
        (one.name, member.service): member.throughput_per_s
        for one in problem.shared
        for member in one.members
    }
    for row, service in enumerate(problem.services):
        for column, block in enumerate(blocks):
            if block.shared:
                mine = block.profile == service.name
                gives[row, column] = members[block.shared, block.profile] if mine else 0.0
            else:
                best = problem.serving.get((service.name, block.gpu, block.profile))
                gives[row, column] = 0.0 if best is None else best.throughput_per_s
    return gives


def _group(offer: GpuOffer, problem: Problem) -> GpuGroup:
    if offer.limit is None:
        return GpuGroup(offer.model)
    held = sum(gpu.model == offer.model for gpu in problem.pinned)
    return GpuGroup(offer.model, most=offer.limit - offer.spare - held)


def _set_ups(
    problem: Problem, offer: GpuOffer, group: int, at: Mapping[Block, int]
) -> Iterator[SetUp]:
    for one in undominated(offer.model, problem.rules):
        yield _of_configuration(one, offer.model, offer.price, group, at)
    for shared in problem.shared:
        if shared.gpu == offer.model:
            supply = [0] * len(at)
            for member in shared.members:
                supply[at[Block(shared.gpu, member.service, shared.name)]] = 1
            yield SetUp(group, offer.model, offer.price, tuple(supply), shared=shared)


def _of_configuration(
    one: Configuration, gpu: str, price: float, group: int, at: Mapping[Block, int]
) -> SetUp:
    supply = [0] * len(at)
    for profile, times in one.counts.items():
        supply[at[Block(gpu, profile)]] = times
    return SetUp(group, gpu, price, tuple(supply), one.verifier)


# -- pinned GPUs ----------------------------------------------------------------------

_Pins = tuple[str, Layout]


def _alike(problem: Problem) -> dict[_Pins, tuple[GpuPlan, ...]]:
    """Return the pinned GPUs by model and pinned layout."""
    found: dict[_Pins, tuple[GpuPlan, ...]] = {}
    for gpu in problem.pinned:
        pins = (gpu.model, gpu.layout)
        found[pins] = (*found.get(pins, ()), gpu)
    return found


def _pinned_set_ups(
    problem: Problem, pins: _Pins, group: int, at: Mapping[Block, int]
) -> Iterator[SetUp]:
    """Yield what else a pinned GPU can hold; perhaps nothing."""
    model, pinned = pins
    gpu, kept = gpu_model(model), frozenset(pinned)
    rest = {
        tuple(slot for slot in layout if slot not in kept and Block(model, slot.profile) in at)
        for layout in maximal_layouts(model, _rules_around(problem.rules, gpu, pinned))
        if kept <= frozenset(layout)
    }
    for one in without_dominated(configurations_of(gpu, sorted(rest))):
        yield _of_configuration(one, model, problem.prices[model], group, at)


def _rules_around(rules: Rules, gpu: GpuModel, pinned: Layout) -> Rules:
    """Return the rules, with what is pinned allowed: it is there, whatever we would do."""
    kinds = rules.kinds | {gpu.profile(slot.profile).kind for slot in pinned}
    wider = Rules(kinds, rules.forbid_4g3g)
    if broken_rule(gpu, pinned, wider) is None:
        return wider
    return Rules(kinds, forbid_4g3g=False)


def _left_to_serve(problem: Problem) -> tuple[Floats, Whole]:
    """Return what each service needs beside what its pinned instances give."""
    given, counts = PartitionPlan(problem.pinned).throughputs(), dict[str, int]()
    for _, instance in PartitionPlan(problem.pinned).instances:
        serves = instance.throughput_per_s > 0
        counts[instance.service] = counts.get(instance.service, 0) + serves
    needs = [one.rate_per_s - given.get(one.name, 0.0) for one in problem.services]
    least = [one.min_replicas - counts.get(one.name, 0) for one in problem.services]
    for row, service in enumerate(problem.services):
        if needs[row] <= ENOUGH * service.rate_per_s:
            needs[row] = 0.0
    return np.array(needs), np.maximum(np.array(least, dtype=np.int64), 0)


# -- from numbers back to GPUs --------------------------------------------------------


def plan_of(problem: Problem, covering: Covering, cover: Cover) -> PartitionPlan:
    """Put every block of a solution on a GPU; what nobody gets is left out."""
    filler = _Filler(problem, covering, cover)
    pinned = {number: iter(group.pinned) for number, group in enumerate(covering.groups)}
    names = free_names(gpu.id for gpu in problem.pinned)
    held: list[GpuPlan] = []
    loose: list[GpuPlan] = []
    for set_up, times in zip(covering.set_ups, cover.used.tolist(), strict=True):
        fill = filler.of(set_up)
        for _ in range(times):
            gpu = next(pinned[set_up.group], None)
            instances, members = fill()
            if gpu is not None:
                together = sorted((*gpu.instances, *instances), key=lambda one: one.start)
                held.append(GpuPlan(gpu.id, gpu.model, tuple(together)))
            elif instances or members:
                loose.append(GpuPlan(next(names), set_up.gpu, instances, members))
    return PartitionPlan((*held, *loose, *spares(problem)))


def free_names(taken: Iterable[str]) -> Iterator[str]:
    """Yield ``gpu-0``, ``gpu-1``, ... without the names that are taken."""
    gone = frozenset(taken)
    return (name for number in count() if (name := f"gpu-{number}") not in gone)


def spares(problem: Problem) -> Iterator[GpuPlan]:
    """Yield the GPUs kept empty."""
    models = (offer.model for offer in problem.offers for _ in range(offer.spare))
    return (GpuPlan(f"spare-{number}", model) for number, model in enumerate(models))


_Filling = tuple[tuple[Instance, ...], tuple[Member, ...]]


class _Filler:
    """Hands the blocks of a solution out, GPU by GPU."""

    def __init__(self, problem: Problem, covering: Covering, cover: Cover) -> None:
        # Equal instances are made once: large plans hold thousands of them.
        self._instance = cache(partial(instance_of, problem))
        self._waiting = {
            block: iter(_getting(problem, cover.gets[:, column]))
            for column, block in enumerate(covering.blocks)
        }

    def of(self, set_up: SetUp) -> Callable[[], _Filling]:
        """Return what fills one GPU of a set-up with whatever still waits for its blocks."""
        if set_up.shared is not None:
            return partial(self._members, set_up.shared)
        places = [
            (slot, self._waiting[Block(set_up.gpu, slot.profile)]) for slot in set_up.layout
        ]
        return partial(self._instances, set_up.gpu, places)

    def _instances(
        self, gpu: str, places: Sequence[tuple[SlicePlace, Iterator[str]]]
    ) -> _Filling:
        instances = tuple(
            self._instance(service, gpu, slot.profile, slot.start)
            for slot, waiting in places
            if (service := next(waiting, "")) != ""
        )
        return instances, ()

    def _members(self, shared: SharedGpu) -> _Filling:
        members = tuple(
            member
            for member in shared.members
            if next(self._waiting[Block(shared.gpu, member.service, shared.name)], "")
        )
        return (), members


def _getting(problem: Problem, counts: Whole) -> Iterator[str]:
    """Yield the services that get a block, each as often as it gets one."""
    for service, times in zip(problem.services, counts.tolist(), strict=True):
        yield from (service.name for _ in range(times))


def instance_of(problem: Problem, service: str, gpu: str, profile: str, start: int) -> Instance:
    """Return an instance that serves a service as well as its profile can."""
    best = problem.serving[service, gpu, profile]
    return Instance(
        profile,
        start,
        service,
        best.batch,
        best.processes,
        best.throughput_per_s,
        best.latency_ms,
    )
