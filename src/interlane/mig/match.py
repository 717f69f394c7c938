"""Name the GPUs of a plan after those that are there, so that much stays as it is.

This only chooses which GPU of the plan stands for which that is there; ``transition`` chooses
the plan itself with what is there in mind, and keeps far more.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from interlane.mig.covering import free_names
from interlane.mig.plan import GpuPlan, PartitionPlan

_Content = tuple[str, frozenset[tuple[str, int, str]]]
"""GPU model, and (profile, start, service) of its instances."""


@dataclass(frozen=True, slots=True)
class Matched:
    """A plan under the names of GPUs that are there, and how many instances stay."""

    plan: PartitionPlan
    kept: int
    """Instances that stay where they are and serve what they serve."""
    running: int
    """Instances that there are now."""


def matched(
    plan: PartitionPlan, current: PartitionPlan, pinned: Collection[str] = ()
) -> Matched:
    """Return the plan with its GPUs named after those most like them; greedy.

    Pinned GPUs keep the names that they have.
    """
    held = [gpu for gpu in plan.gpus if gpu.id in pinned]
    theirs = _by_content(gpu for gpu in current.gpus if gpu.id not in pinned)
    ours = _by_content(gpu for gpu in plan.gpus if gpu.id not in pinned)
    pairs = sorted(
        (
            (-len(new[1] & old[1]), number, other, old, new)
            for number, old in enumerate(theirs)
            for other, new in enumerate(ours)
            if old[0] == new[0]
        ),
        key=lambda pair: pair[:3],
    )
    named = [*held]
    there = {gpu.id: gpu for gpu in current.gpus}
    kept = sum(_common(gpu, there[gpu.id]) for gpu in held if gpu.id in there)
    for overlap, _, _, old, new in pairs:
        while theirs[old] and ours[new]:
            named.append(replace(ours[new].pop(), id=theirs[old].pop().id))
            kept -= overlap
    names = free_names([*there, *pinned])
    named += [replace(gpu, id=next(names)) for gpus in ours.values() for gpu in gpus]
    order = {gpu.id: number for number, gpu in enumerate(current.gpus)}
    named.sort(key=lambda gpu: order.get(gpu.id, len(order)))
    running = sum(len(gpu.instances) for gpu in current.gpus)
    return Matched(PartitionPlan(tuple(named)), kept, running)


def _common(one: GpuPlan, other: GpuPlan) -> int:
    """Count the instances that two GPUs have in common."""
    if one.model != other.model:
        return 0
    return len(_held(one) & _held(other))


def _held(gpu: GpuPlan) -> frozenset[tuple[str, int, str]]:
    return frozenset((one.profile, one.start, one.service) for one in gpu.instances)


def _by_content(gpus: Iterable[GpuPlan]) -> dict[_Content, list[GpuPlan]]:
    found: dict[_Content, list[GpuPlan]] = {}
    for gpu in gpus:
        found.setdefault((gpu.model, _held(gpu)), []).append(gpu)
    return {content: alike[::-1] for content, alike in found.items()}
