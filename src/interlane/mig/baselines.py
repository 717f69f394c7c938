"""What clusters do without a planner: one way to cut every GPU, and services side by side.

* ``whole``      no cutting: a GPU serves one service
* ``smallest``   every GPU is cut into its smallest slices, which any service may take
* ``fixed-mix``  every GPU is cut into one mixture (4g+2g+1g), and serves one service

A service that the cut cannot serve within its target gets whole GPUs, and the outcome notes
it.  Baselines answer for one GPU model without pinned or shared GPUs, as papers compare them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import ceil

from interlane.mig.covering import ENOUGH, covering_of, free_names, instance_of, spares
from interlane.mig.demand import Problem, Service
from interlane.mig.layouts import Layout, SlicePlace, multisets
from interlane.mig.plan import (
    TOLERANCE,
    Effort,
    GpuPlan,
    Instance,
    PartitionPlan,
    SolvedPlan,
    StopReason,
)
from interlane.mig.pricing import simple_bound
from interlane.mig.profiles import BASE_ONLY, GpuModel, gpu_model
from interlane.model import InvalidInput

_Gpus = Iterator[tuple[Instance, ...]]


@dataclass(frozen=True, slots=True)
class WholeGpus:
    """Whole GPUs, each for one service: what clusters without MIG do."""

    def solve(self, problem: Problem, effort: Effort) -> SolvedPlan:
        """Return the plan of whole GPUs."""
        return _outcome("whole", problem, effort, _one_service_each, _whole)


@dataclass(frozen=True, slots=True)
class SmallestSlices:
    """Every GPU cut into its smallest slices (7x1g), which any service may take."""

    def solve(self, problem: Problem, effort: Effort) -> SolvedPlan:
        """Return the plan of smallest slices."""
        return _outcome("smallest", problem, effort, _side_by_side, _smallest)


@dataclass(frozen=True, slots=True)
class FixedMix:
    """Every GPU cut into the same mixture (4g+2g+1g), each for one service."""

    def solve(self, problem: Problem, effort: Effort) -> SolvedPlan:
        """Return the plan of the mixture."""
        return _outcome("fixed-mix", problem, effort, _one_service_each, _mix)


def _whole(gpu: GpuModel) -> Layout:
    return (SlicePlace(0, gpu.whole.name),)


def _smallest(gpu: GpuModel) -> Layout:
    return tuple(SlicePlace(start, gpu.smallest.name) for start in gpu.smallest.starts)


def _mix(gpu: GpuModel) -> Layout:
    """Return the layout of most sizes: 4g+2g+1g, or 2g+1g+1g where there are four parts."""
    usable = [one for one in multisets(gpu.name) if gpu.whole.name not in one.counts]

    def variety(layout: Layout) -> tuple[int, int]:
        sizes = [gpu.profile(slot.profile).compute_slices for slot in layout]
        return len({*sizes}), sum(size * size for size in sizes)

    filling = [
        one.verifier
        for one in usable
        if sum(gpu.profile(slot.profile).compute_slices for slot in one.verifier)
        == gpu.compute_slices
    ]
    return max(filling, key=variety)


def _outcome(
    name: str,
    problem: Problem,
    effort: Effort,
    fill: Callable[[Problem, str, Layout], _Gpus],
    layout_of: Callable[[GpuModel], Layout],
) -> SolvedPlan:
    begin_s = effort.clock()
    model = _only_model(name, problem)
    layout = layout_of(gpu_model(model))
    names = free_names(())
    gpus = [GpuPlan(next(names), model, held) for held in fill(problem, model, layout)]
    plan = PartitionPlan((*gpus, *spares(problem)))
    limit = problem.offers[0].limit
    if limit is not None and len(plan.gpus) > limit:
        raise InvalidInput(
            f"Baseline {name} needs {len(plan.gpus)} {model}, and there are {limit}; "
            "raise the limit or take another optimiser."
        )
    cost, bound = plan.cost(problem.prices), simple_bound(covering_of(problem))
    stopped = StopReason.OPTIMAL if cost - bound < TOLERANCE else StopReason.FINISHED
    notes = _notes(problem, model, layout)
    return SolvedPlan(name, plan, cost, bound, stopped, effort.clock() - begin_s, notes)


def _only_model(name: str, problem: Problem) -> str:
    if len(problem.offers) > 1 or problem.pinned or problem.survive_gpu_loss:
        raise InvalidInput(
            f"Baseline {name} plans for one GPU model, with nothing pinned and no GPU to lose; "
            "take columns or greedy."
        )
    if not problem.rules.kinds >= BASE_ONLY:
        raise InvalidInput(f"Baseline {name} needs the base profiles; allow them.")
    return problem.offers[0].model


def _serving(
    problem: Problem, service: Service, model: str, slot: SlicePlace
) -> Instance | None:
    if (service.name, model, slot.profile) not in problem.serving:
        return None
    return instance_of(problem, service.name, model, slot.profile, slot.start)


def _one_service_each(problem: Problem, model: str, layout: Layout) -> _Gpus:
    """Yield GPUs of one layout, each for one service."""
    for service in problem.services:
        held = tuple(
            instance
            for slot in layout
            if (instance := _serving(problem, service, model, slot)) is not None
        )
        yield from _alone(problem, service, model, held)


def _alone(problem: Problem, service: Service, model: str, held: tuple[Instance, ...]) -> _Gpus:
    """Yield as many GPUs as a service needs when each holds the same, whole ones if nothing."""
    if not held:
        whole = _serving(problem, service, model, *_whole(gpu_model(model)))
        if whole is None:
            raise InvalidInput(
                f"Service {service.name} is not served by a whole {model} within its "
                "latency_ms; baselines know nothing else, so take columns or greedy."
            )
        held = (whole,)
    rate = sum(instance.throughput_per_s for instance in held)
    needed = ceil(service.rate_per_s / rate * (1 - ENOUGH))
    for _ in range(max(needed, ceil(service.min_replicas / len(held)))):
        yield held


def _side_by_side(problem: Problem, model: str, layout: Layout) -> _Gpus:
    """Yield GPUs of equal slices, which services take one after another."""
    able = [one for one in problem.services if _serving(problem, one, model, layout[0])]
    waiting = chain.from_iterable(
        [service] * _slices(problem, service, model, layout[0]) for service in able
    )
    while held := tuple(
        instance_of(problem, service.name, model, slot.profile, slot.start)
        for slot, service in zip(layout, waiting, strict=False)
    ):
        yield held
    for service in problem.services:
        if service not in able:
            yield from _alone(problem, service, model, ())


def _slices(problem: Problem, service: Service, model: str, slot: SlicePlace) -> int:
    given = problem.serving[service.name, model, slot.profile].throughput_per_s
    return max(ceil(service.rate_per_s / given * (1 - ENOUGH)), service.min_replicas)


def _notes(problem: Problem, model: str, layout: Layout) -> tuple[str, ...]:
    """Return which services the cut cannot serve."""
    unable = [
        service.name
        for service in problem.services
        if not any(_serving(problem, service, model, slot) for slot in layout)
    ]
    if not unable:
        return problem.notes
    return (*problem.notes, f"On whole GPUs, since the cut is too slow: {', '.join(unable)}.")
