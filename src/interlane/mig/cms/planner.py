"""MIG plans by the algorithms of configurable machine scheduling.

GPUs are machines, set-ups are configurations, and what a block gives a service is measured in
shares of its need.  Pinned GPUs and the loss of a GPU have no counterpart there, so such
problems are refused; limits are checked at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from interlane.mig.cms.greedy import log_greedy
from interlane.mig.cms.instance import CmsInstance, Schedule, Solution, without_surplus
from interlane.mig.cms.ptas import ptas
from interlane.mig.cms.rounding import lp_rounding
from interlane.mig.covering import Cover, Covering, covering_of, plan_of
from interlane.mig.demand import Problem
from interlane.mig.greedy import no_room, shares_of
from interlane.mig.plan import TOLERANCE, Effort, SolvedPlan, StopReason
from interlane.mig.pricing import rounded_up, simple_bound
from interlane.model import InvalidInput

Algorithm = Callable[[CmsInstance, float | None], Solution]
"""Takes an instance and a time limit."""


@dataclass(frozen=True, slots=True)
class LogGreedy:
    """Greedy covering of configurable machines: within a logarithm of the optimum."""

    def solve(self, problem: Problem, effort: Effort) -> SolvedPlan:
        """Return its plan."""
        return _outcome("log-greedy", problem, effort, lambda one, _: log_greedy(one))


@dataclass(frozen=True, slots=True)
class LpRounding:
    """Rounding of the linear program: within twice its value and two GPUs a profile."""

    def solve(self, problem: Problem, effort: Effort) -> SolvedPlan:
        """Return its plan."""
        return _outcome("lp-rounding", problem, effort, lambda one, _: lp_rounding(one))


@dataclass(frozen=True, slots=True)
class Scheme:
    """The approximation scheme of configurable machines: within 1 + eps of the optimum."""

    eps: float = 0.1

    def solve(self, problem: Problem, effort: Effort) -> SolvedPlan:
        """Return its plan."""
        return _outcome("ptas", problem, effort, lambda one, limit: ptas(one, self.eps, limit))


def cms_of(covering: Covering) -> CmsInstance:
    """Return the instance of a covering without pinned GPUs.

    A service that needs ``k`` instances gets at most ``1/k`` of its need from each, so that
    schedules keep to that too; some that would do are lost.
    """
    return CmsInstance(
        shares_of(covering), np.ones(covering.services), covering.supply, covering.prices
    )


def cover_of(covering: Covering, schedule: Schedule) -> Cover:
    """Return a schedule as a cover."""
    gets = without_surplus(cms_of(covering), schedule.gets)
    return Cover(schedule.used, gets)


def _outcome(name: str, problem: Problem, effort: Effort, algorithm: Algorithm) -> SolvedPlan:
    if problem.pinned or problem.survive_gpu_loss:
        raise InvalidInput(
            f"Optimiser {name} plans with nothing pinned and no GPU to lose; "
            "take columns, greedy or two-phase."
        )
    begin_s = effort.clock()
    covering = covering_of(problem)
    instance = cms_of(covering)
    solution = algorithm(instance, effort.time_limit_s)
    _check_limits(problem, covering, solution.schedule)
    plan = plan_of(problem, covering, cover_of(covering, solution.schedule))
    cost = plan.cost(problem.prices)
    bound = simple_bound(covering)
    if covering.least.max() <= 1:
        # With more replicas the instance is narrower than the problem, and so is its bound.
        bound = max(bound, rounded_up(covering, solution.lower_bound + covering.constant))
    bound = min(bound, cost)
    stopped = StopReason.TIME if solution.is_cut_short else StopReason.FINISHED
    if cost - bound < TOLERANCE:
        stopped = StopReason.OPTIMAL
    return SolvedPlan(name, plan, cost, bound, stopped, effort.clock() - begin_s, problem.notes)


def _check_limits(problem: Problem, covering: Covering, schedule: Schedule) -> None:
    group = np.array([one.group for one in covering.set_ups])
    for number, one in enumerate(covering.groups):
        if one.most is not None and schedule.used[group == number].sum() > one.most:
            raise InvalidInput(no_room(problem))
