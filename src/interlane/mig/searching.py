"""What heuristic searches share: how a cover becomes an outcome with its bound."""

from collections.abc import Callable
from dataclasses import dataclass

from interlane.mig.covering import Cover, Covering, covering_of, plan_of
from interlane.mig.demand import Problem
from interlane.mig.greedy import no_room
from interlane.mig.plan import TOLERANCE, Effort, Outcome, Stop
from interlane.mig.pricing import simple_bound
from interlane.mig.survive import surviving_plan
from interlane.model import InvalidInput

SURVIVING_SHARE = 0.3
"""Share of the time for each of the plans of which one will survive the loss of a GPU."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to."""

    cover: Cover | None
    stopped: Stop


Search = Callable[[Covering, Effort, float], Found]
"""Takes an effort, and a cost that is good enough to stop."""


def outcome_of(name: str, problem: Problem, effort: Effort, search: Search) -> Outcome:
    """Return the outcome of a search, with a bound that needs no solver."""
    begin_s = effort.clock()
    covering = covering_of(problem)
    bound = simple_bound(covering)
    stops: list[Stop] = []

    def cover_of(asked: Covering) -> Cover | None:
        found = search(asked, effort, enough)
        stops.append(found.stopped)
        return found.cover

    enough = bound - covering.constant - pinned_cost(covering) + TOLERANCE
    if covering.survives:
        plan = surviving_plan(problem, covering, cover_of)
    else:
        cover = cover_of(covering)
        plan = None if cover is None else plan_of(problem, covering, cover)
    if plan is None:
        raise InvalidInput(no_room(problem))
    cost = plan.cost(problem.prices)
    stopped = Stop.OPTIMAL if cost - bound < TOLERANCE else stops[-1]
    seconds = effort.clock() - begin_s
    return Outcome(name, plan, cost, bound, stopped, seconds, problem.notes)


def pinned_cost(covering: Covering) -> float:
    """Return what GPUs cost that are there in any case."""
    price = {one.group: one.price for one in covering.set_ups}
    return sum(
        group.least * price[number]
        for number, group in enumerate(covering.groups)
        if group.pinned
    )
