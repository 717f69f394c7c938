"""What placers that look ahead expect: the typical demands of a workload."""

from collections.abc import Iterable
from dataclasses import replace

from interlane.metrics.kinds import typical_kinds
from interlane.model import Request, Task
from interlane.policy.base import TypeRule, TypicalDemand


def typical_demands(
    counts: Iterable[tuple[Request, int]], types: TypeRule = TypeRule.EXACT
) -> tuple[TypicalDemand, ...]:
    """Return the kinds of instances that make up 95 % of the workload, with their shares.

    ``counts`` says how many jobs make each request; GPU types that do not bind under the
    type rule do not tell kinds apart.
    """
    bound = ((_bound(request, types), jobs) for request, jobs in counts)
    return tuple(TypicalDemand(demand, weight) for demand, weight in typical_kinds(bound))


def _bound(request: Request, types: TypeRule) -> Request:
    if types is TypeRule.EXACT:
        return request
    return Request(tuple(_bound_task(task, types) for task in request.tasks))


def _bound_task(task: Task, types: TypeRule) -> Task:
    return replace(task, demand=replace(task.demand, gpu_types=types.binding(task.demand)))
