"""What heuristic searches share: how a cover becomes an outcome with its bound."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from interlane.mig.covering import Cover, Covering, covering_of, plan_of
from interlane.mig.demand import Problem
from interlane.mig.greedy import greedy_plan, no_room
from interlane.mig.plan import TOLERANCE, Effort, SolvedPlan, StopReason
from interlane.mig.pricing import simple_bound
from interlane.mig.survive import surviving_plan
from interlane.model import InvalidInput

SURVIVING_SHARE = 0.3
"""Share of the time that is left for each of the plans of which one survives a GPU's loss."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search came to."""

    cover: Cover | None
    stopped: StopReason


Search = Callable[[Covering, Effort, float], SearchResult]
"""Takes an effort, and a cost that is good enough to stop."""


def outcome_of(name: str, problem: Problem, effort: Effort, search: Search) -> SolvedPlan:
    """Return the outcome of a search, with a bound that needs no solver."""
    begin_s = effort.clock()
    covering = covering_of(problem)
    bound = simple_bound(covering)
    stops: list[StopReason] = []

    def left(share: float) -> Effort:
        if effort.time_limit_s is None:
            return effort
        left_s = effort.time_limit_s - (effort.clock() - begin_s)
        return replace(effort, time_limit_s=max(share * left_s, 0.0))

    def cover_of(asked: Covering) -> Cover | None:
        found = search(asked, left(SURVIVING_SHARE if asked.survives else 1.0), enough)
        stops.append(found.stopped)
        return found.cover

    enough = bound - covering.constant - pinned_cost(covering) + TOLERANCE
    if covering.survives:
        # Needs that grow until a plan survives may overshoot; then the greedy plan is cheaper.
        plans = (surviving_plan(problem, covering, cover_of), greedy_plan(problem, covering))
        found = [plan for plan in plans if plan is not None]
        plan = min(found, key=lambda one: one.cost(problem.prices), default=None)
    else:
        cover = cover_of(covering)
        plan = None if cover is None else plan_of(problem, covering, cover)
    if plan is None:
        raise InvalidInput(no_room(problem))
    cost = plan.cost(problem.prices)
    stopped = StopReason.OPTIMAL if cost - bound < TOLERANCE else stops[-1]
    seconds = effort.clock() - begin_s
    return SolvedPlan(name, plan, cost, bound, stopped, seconds, problem.notes)


def pinned_cost(covering: Covering) -> float:
    """Return what GPUs cost that are there in any case."""
    price = {one.group: one.price for one in covering.set_ups}
    return sum(
        group.least * price[number]
        for number, group in enumerate(covering.groups)
        if group.pinned
    )
