"""Optimisers by name: each takes a problem and an effort, and returns a plan with its bound.

An optimiser is any object with ``solve``.  It must return a plan that ``check`` finds nothing
wrong with, a lower bound that holds, and the reason why it stopped; or raise ``InvalidInput``
where it can give no plan at all.  Modules are imported when they are asked for.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final, Protocol

from interlane.mig.demand import Problem
from interlane.mig.plan import Effort, SolvedPlan
from interlane.model import UnknownName

DEFAULT: Final = "columns"


class Optimiser(Protocol):
    """Plans."""

    def solve(self, problem: Problem, effort: Effort) -> SolvedPlan:
        """Return a plan that serves every service, and how good it is."""
        ...


_WHERE: Final = {
    "columns": ("interlane.mig.exact", "Columns"),
    "program": ("interlane.mig.program", "WholeProgram"),
    "greedy": ("interlane.mig.greedy", "Greedy"),
    "mcts": ("interlane.mig.tree_search", "TreeSearch"),
    "genetic": ("interlane.mig.genetic", "Genetic"),
    "two-phase": ("interlane.mig.pipeline", "TwoPhase"),
    "lp-rounding": ("interlane.mig.cms.planner", "LpRounding"),
    "log-greedy": ("interlane.mig.cms.planner", "LogGreedy"),
    "ptas": ("interlane.mig.cms.planner", "Scheme"),
    "whole": ("interlane.mig.baselines", "WholeGpus"),
    "smallest": ("interlane.mig.baselines", "SmallestSlices"),
    "fixed-mix": ("interlane.mig.baselines", "FixedMix"),
}
"""Name -> module and the class of the optimiser; its defaults are what the name stands for."""


class _Catalogue(Mapping[str, Optimiser]):
    """Loads an optimiser on first use."""

    def __getitem__(self, name: str) -> Optimiser:
        if name not in _WHERE:
            raise UnknownName("optimiser", name, _WHERE)
        module, attribute = _WHERE[name]
        made: Optimiser = getattr(import_module(module), attribute)()
        return made

    def __contains__(self, name: object) -> bool:
        return name in _WHERE

    def __iter__(self) -> Iterator[str]:
        return iter(_WHERE)

    def __len__(self) -> int:
        return len(_WHERE)


OPTIMISERS: Final[Mapping[str, Optimiser]] = _Catalogue()
"""All optimisers, with their defaults."""


def optimise(problem: Problem, name: str = DEFAULT, effort: Effort | None = None) -> SolvedPlan:
    """Solve a problem with the optimiser of this name."""
    return OPTIMISERS[name].solve(problem, effort or Effort())
