"""Name the GPUs of a plan after those that are there, so that much stays as it is.

This only chooses which GPU of the plan stands for which that is there; ``transition`` chooses
the plan itself with what is there in mind, and keeps far more.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from interlane.mig.covering import free_names
from interlane.mig.plan import GpuPlan, Plan

_Content = tuple[str, frozenset[tuple[str, int, str]]]
"""GPU model, and (profile, start, service) of its instances."""


@dataclass(frozen=True, slots=True)
class Matched:
    """A plan under the names of GPUs that are there, and how many instances stay."""

    plan: Plan
    kept: int
    """Instances that stay where they are and serve what they serve."""
    running: int
    """Instances that there are now."""


def matched(plan: Plan, current: Plan) -> Matched:
    """Return the plan with its GPUs named after those most like them; greedy."""
    theirs, ours = _by_content(current.gpus), _by_content(plan.gpus)
    pairs = sorted(
        (
            (-len(new[1] & old[1]), number, other, old, new)
            for number, old in enumerate(theirs)
            for other, new in enumerate(ours)
            if old[0] == new[0]
        ),
        key=lambda pair: pair[:3],
    )
    named: list[GpuPlan] = []
    kept = 0
    for overlap, _, _, old, new in pairs:
        while theirs[old] and ours[new]:
            named.append(replace(ours[new].pop(), id=theirs[old].pop().id))
            kept -= overlap
    names = free_names(gpu.id for gpu in current.gpus)
    named += [replace(gpu, id=next(names)) for gpus in ours.values() for gpu in gpus]
    order = {gpu.id: number for number, gpu in enumerate(current.gpus)}
    named.sort(key=lambda gpu: order.get(gpu.id, len(order)))
    running = sum(len(gpu.instances) for gpu in current.gpus)
    return Matched(Plan(tuple(named)), kept, running)


def _by_content(gpus: Iterable[GpuPlan]) -> dict[_Content, list[GpuPlan]]:
    found: dict[_Content, list[GpuPlan]] = {}
    for gpu in gpus:
        held = frozenset((one.profile, one.start, one.service) for one in gpu.instances)
        found.setdefault((gpu.model, held), []).append(gpu)
    return {content: alike[::-1] for content, alike in found.items()}
