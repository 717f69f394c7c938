"""Makers of MIG plans and transitions that are wrong, each in one way.

Checker and verifier must reject what they make; whoever shows it as good shows a fault.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from interlane.mig.demand import Problem
from interlane.mig.greedy import Greedy
from interlane.mig.plan import Effort, PartitionPlan, SolvedPlan
from interlane.mig.transition.steps import Action, StepKind, Transition, TransitionStep, Verb
from interlane.usecases.mig_transition import JOINT, METHODS, Made, Maker

_RIGHT: Final = METHODS[JOINT]


class LosesAGpu:
    """An optimiser that forgets the last GPU of its plan."""

    def solve(self, problem: Problem, effort: Effort) -> SolvedPlan:
        """Return too little."""
        outcome = Greedy().solve(problem, effort)
        return replace(outcome, plan=PartitionPlan(outcome.plan.gpus[:-1]))


def restarts_a_service(
    problem: Problem,
    there: PartitionPlan,
    floors: Mapping[str, float],
    slack: int,
    effort: Effort,
) -> Made:
    """Make a way that first stops all that a service has, and then starts it again."""
    way, found = _RIGHT(problem, there, floors, slack, effort)
    return replace(way, actions=(*_restart(there), *_later(way, there))), found


def restarts_and_lies_about_floors(
    problem: Problem,
    there: PartitionPlan,
    floors: Mapping[str, float],
    slack: int,
    effort: Effort,
) -> Made:
    """Do the same, and say that nobody needs anything."""
    way, found = restarts_a_service(problem, there, floors, slack, effort)
    return replace(way, floors=dict.fromkeys(floors, 0.0)), found


def stops_early(
    problem: Problem,
    there: PartitionPlan,
    floors: Mapping[str, float],
    slack: int,
    effort: Effort,
) -> Made:
    """Make a way without its last action."""
    way, found = _RIGHT(problem, there, floors, slack, effort)
    return replace(way, actions=way.actions[:-1]), found


def cuts_nothing(
    problem: Problem,
    there: PartitionPlan,
    floors: Mapping[str, float],
    slack: int,
    effort: Effort,
) -> Made:
    """Make a way that starts services in slots that nobody has made."""
    way, found = _RIGHT(problem, there, floors, slack, effort)
    uncut = tuple(
        replace(action, steps=()) if action.kind is StepKind.REPARTITION else action
        for action in way.actions
    )
    return replace(way, actions=uncut), found


def aims_too_low(
    problem: Problem,
    there: PartitionPlan,
    floors: Mapping[str, float],
    slack: int,
    effort: Effort,
) -> Made:
    """Make a way that stays where it is, whatever is asked for."""
    _, found = _RIGHT(problem, there, floors, slack, effort)
    return Transition(there, there, floors, (), ()), found


MAKERS: Final[Mapping[str, Maker]] = {
    maker.__name__: maker
    for maker in (
        restarts_a_service,
        restarts_and_lies_about_floors,
        stops_early,
        cuts_nothing,
        aims_too_low,
    )
}
"""All wrong makers of transitions."""


def _restart(there: PartitionPlan) -> list[Action]:
    """Return the end of all instances of one service, and their new beginning."""
    name = next(one.service for _, one in there.instances if one.service)
    held = [(gpu, one) for gpu, one in there.instances if one.service == name]
    return [
        Action(kind, (TransitionStep(verb, gpu.id, gpu.model, one),))
        for kind, verb in ((StepKind.DELETE, Verb.DRAIN), (StepKind.CREATE, Verb.START))
        for gpu, one in held
    ]


def _later(way: Transition, there: PartitionPlan) -> list[Action]:
    """Return the actions of a way as they are numbered behind a restart."""
    before = len(_restart(there))
    return [
        replace(action, after=tuple(other + before for other in action.after))
        for action in way.actions
    ]
