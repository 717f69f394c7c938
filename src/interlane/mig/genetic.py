"""The slow algorithm of MIG-serving: a genetic algorithm whose crossovers are tree searches.

An individual is a deployment.  Its *mutation* swaps what slots of the same kind on different
GPUs hold: that costs nothing, and changes which services the next erasure hits.  Its
*crossover* erases some GPUs and lets ``tree_search`` fill the gap; where that takes fewer GPUs,
or leaves more room on as many, the child takes its parent's place.  The best deployment is
always kept, so it never worsens.

The gap is a problem of a few GPUs, small enough for a tree search to solve well; the art is in
what to erase.  GPUs with empty slots are erased more often, since there is most to gain.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.mig import compiled
from interlane.mig.covering import Covering, Whole
from interlane.mig.demand import Problem
from interlane.mig.deployment import Board, Deployment, Watch
from interlane.mig.plan import Effort, SolvedPlan, StopReason
from interlane.mig.searching import SearchResult, outcome_of
from interlane.mig.tree_search import Memory, Tree, TreeShape

FEWEST_ERASED: Final = 2
MOST_ERASED: Final = 12

RELATED: Final = 0.75
"""Chance that GPUs of the same few services are erased: only then can these be served anew."""


@dataclass(frozen=True, slots=True)
class Breeding:
    """How a population is bred."""

    population: int = 4
    trials: int = 60
    """Trials of the tree search that fills a gap."""
    shape: TreeShape = TreeShape(roll_outs=4)  # noqa: RUF009 - frozen
    """Of that search."""
    swaps: int = 6
    """Of one mutation."""
    rounds: int = 5_000
    patience: int = 5
    """Rounds without a better deployment after which it stops, and ..."""
    patience_a_gpu: int = 8
    """... as many more for each GPU."""


BREEDING: Final = Breeding()
"""The usual way."""


@dataclass(frozen=True, slots=True)
class Genetic:
    """A genetic algorithm: erase some GPUs, fill the gap by tree search, swap, repeat."""

    breeding: Breeding = BREEDING

    def solve(self, problem: Problem, effort: Effort) -> SolvedPlan:
        """Return the best plan of all generations, which begin with random roll-outs."""
        return outcome_of("genetic", problem, effort, self._found)

    def _found(self, covering: Covering, effort: Effort, enough: float) -> SearchResult:
        population = Population(Board(covering), self.breeding, effort.seed)
        return population.found((), Watch(effort), enough)


class Population:
    """Deployments that get better."""

    def __init__(self, board: Board, breeding: Breeding, seed: int) -> None:
        self._board = board
        self._breeding = breeding
        self._rng = np.random.default_rng(seed)
        self._memory = Memory(board)
        self._members: list[Deployment] = []
        self._empty = board.deployment(
            np.zeros(0, dtype=np.int64), np.zeros((0, board.width), dtype=np.int64)
        )

    @property
    def best(self) -> Deployment:
        """The best deployment so far."""
        return min(self._members, key=_rank)

    def found(self, start: Iterable[Deployment], watch: Watch, enough: float) -> SearchResult:
        """Begin with some deployments, breed, and return the best one."""
        self._members = list(start)
        stopped = self._begin(watch) or self._breed(watch, enough)
        best = self.best
        return SearchResult(self._board.cover(best) if best.serves else None, stopped)

    def _begin(self, watch: Watch) -> StopReason | None:
        """Add random deployments; at least one in any case."""
        shape, board = TreeShape(roll_outs=1), self._board
        while len(self._members) < self._breeding.population:
            tree = Tree(board, self._rng, shape, board.all_left, board.all_free, self._memory)
            self._members.append(self._filled(self._empty, tree))
            if watch.is_over:
                return StopReason.TIME
        return None

    def _filled(self, kept: Deployment, tree: Tree) -> Deployment:
        """Return a deployment with what one more trial of a tree adds."""
        tree.try_once()
        assert tree.best is not None
        return self._board.deployment(
            np.concatenate([kept.set_ups, tree.best.set_ups]),
            np.concatenate([kept.given, tree.best.given]),
        )

    def _breed(self, watch: Watch, enough: float) -> StopReason:
        idle = 0
        for _ in range(self._breeding.rounds):
            before = _rank(self.best)
            if self.best.serves and self.best.cost <= enough:
                return StopReason.FINISHED
            for number in range(len(self._members)):
                self._members[number] = self._better(self._members[number], watch)
                if watch.is_over:
                    return StopReason.TIME
            self._replace_worst()
            idle = 0 if _rank(self.best) < before else idle + 1
            patience = self._breeding.patience
            if idle > patience + self._breeding.patience_a_gpu * len(self.best.set_ups):
                return StopReason.FINISHED
        return StopReason.ROUNDS

    def _replace_worst(self) -> None:
        """Let the best take the place of the worst, if that costs more."""
        worst = max(range(len(self._members)), key=lambda at: _rank(self._members[at]))
        if self._members[worst].cost > self.best.cost:
            self._members[worst] = self.best

    def _better(self, parent: Deployment, watch: Watch) -> Deployment:
        """Return a child, or its parent if that is better."""
        child = self._crossed(self._mutated(parent), watch)
        return child if _rank(child) <= _rank(parent) else parent

    def _mutated(self, parent: Deployment) -> Deployment:
        given = parent.given.copy()
        rng = self._rng.integers(1 << 63, size=1, dtype=np.uint64)
        compiled.swap(self._board.tables, parent.set_ups, given, self._breeding.swaps, rng)
        return self._board.deployment(parent.set_ups, given)

    def _crossed(self, parent: Deployment, watch: Watch) -> Deployment:
        """Erase some GPUs and fill the gap."""
        erased = self._erased(parent)
        stays = np.ones(len(parent.set_ups), dtype=bool)
        stays[erased] = False
        kept = self._board.deployment(parent.set_ups[stays], parent.given[stays])
        free = self._board.free_beside(kept.set_ups)
        tree = Tree(self._board, self._rng, self._breeding.shape, kept.left, free, self._memory)
        for _ in range(self._breeding.trials - 1):
            tree.try_once()
            if watch.is_over:
                break
        return self._filled(kept, tree)

    def _erased(self, parent: Deployment) -> Whole:
        """Choose GPUs: roomy ones, or, more often, such as serve a few services."""
        room = compiled.room(self._board.tables, parent.set_ups, parent.given)
        weight = room + 0.1 * room.mean() + 1e-3
        if self._rng.random() < RELATED:
            chosen = self._rng.permutation(len(parent.left))[: self._rng.integers(1, 4)]
            weight *= np.isin(parent.given, chosen).any(axis=1) + 1e-3
        count = int(self._rng.integers(FEWEST_ERASED, MOST_ERASED + 1))
        # The largest of u^(1/w) are a draw by weight without replacement.
        keys = np.log(self._rng.random(len(weight))) / weight
        return np.argsort(-keys)[:count]


def _rank(one: Deployment) -> tuple[float, float]:
    return (one.cost if one.serves else float("inf"), one.value)
