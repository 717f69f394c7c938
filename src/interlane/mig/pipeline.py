"""The two-phase pipeline of MIG-serving: greedy, then the genetic algorithm on its plan."""

from dataclasses import dataclass

from interlane.mig.covering import Covering
from interlane.mig.demand import Problem
from interlane.mig.deployment import Board, Watch
from interlane.mig.genetic import BREEDING, Breeding, Population
from interlane.mig.greedy import greedy_cover
from interlane.mig.plan import Effort, SolvedPlan
from interlane.mig.searching import SearchResult, outcome_of


@dataclass(frozen=True, slots=True)
class TwoPhase:
    """MIG-serving's pipeline: the greedy plan, then bred by the genetic algorithm."""

    breeding: Breeding = BREEDING

    def solve(self, problem: Problem, effort: Effort) -> SolvedPlan:
        """Return the best plan of both phases; never one that is worse than greedy's."""
        return outcome_of("two-phase", problem, effort, self._found)

    def _found(self, covering: Covering, effort: Effort, enough: float) -> SearchResult:
        watch = Watch(effort)
        board = Board(covering)
        first = greedy_cover(covering)
        start = () if first is None else (board.from_cover(first),)
        return Population(board, self.breeding, effort.seed).found(start, watch, enough)
