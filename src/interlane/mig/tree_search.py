"""Monte Carlo tree search: which GPU to add next, by what came of it in trials.

A node is what every service still misses, an edge is one filled GPU.  There are far too many
ways to fill a GPU, so a node's children are the best few for a few services drawn from those
that are not served yet.  From a new node a *roll-out* adds GPUs by randomised greed until all
is served; GPUs of the best deployment so far are remembered and tried again.  The value is what
the GPUs to completion cost, less what of them is still empty, and less a little of what is
given beyond need: of two plans of equal cost, the one with more room may yet lose a GPU.

It answers for a whole problem (optimiser ``mcts``) and, as the crossover of ``genetic``, for
the gap that is left when some GPUs of a deployment are erased.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, log, sqrt
from typing import Final

import numpy as np

from interlane.mig import compiled
from interlane.mig.compiled import FULL, NOBODY, OVER, Memo
from interlane.mig.covering import Covering, Floats, Whole
from interlane.mig.demand import Problem
from interlane.mig.deployment import Board, Watch
from interlane.mig.plan import Effort, SolvedPlan, StopReason
from interlane.mig.searching import SearchResult, outcome_of

CURIOSITY: Final = 0.7
"""Weight of what was tried seldom, in GPUs."""

_NOTHING: Final[Floats] = np.zeros(0)

REMEMBERED: Final = 64
"""GPUs that a memo holds."""


@dataclass(frozen=True, slots=True)
class TreeShape:
    """How wide a tree is and how much is rolled out."""

    drawn: int = 3
    """Services for which a node's children are made."""
    children: int = 4
    """Children for each of these."""
    roll_outs: int = 8
    """Random completions of each new node."""


SHAPE: Final = TreeShape()
"""The usual one."""


@dataclass(frozen=True, slots=True)
class TreeSearch:
    """Monte Carlo tree search over the GPUs to add, with randomised greedy roll-outs."""

    shape: TreeShape = SHAPE
    trials_a_gpu: int = 30
    """Trials before the search settles for the next GPU."""

    def solve(self, problem: Problem, effort: Effort) -> SolvedPlan:
        """Return the best plan of all trials."""
        return outcome_of("mcts", problem, effort, self._found)

    def _found(self, covering: Covering, effort: Effort, enough: float) -> SearchResult:
        board = Board(covering)
        watch = Watch(effort)
        rng, memory = np.random.default_rng(effort.seed), Memory(board)
        tree = Tree(board, rng, self.shape, board.all_left, board.all_free, memory)
        stopped = tree.grow(self.trials_a_gpu, watch, enough)
        best = tree.best
        if best is None or not best.serves:
            return SearchResult(None, stopped)
        return SearchResult(board.cover(board.deployment(best.set_ups, best.given)), stopped)


@dataclass(frozen=True, slots=True)
class Edge:
    """One filled GPU."""

    set_up: int
    given: tuple[int, ...]


@dataclass(slots=True)
class _Node:
    """What every service still misses, and what came of it."""

    left: Floats
    free: Whole
    over: float = 0.0
    """What the GPUs up to here give beyond need."""
    edges: list[Edge] = field(default_factory=list)
    children: list["_Node | None"] = field(default_factory=list)
    visits: int = 0
    total: float = 0.0
    best: float = inf


@dataclass(frozen=True, slots=True)
class GapFilling:
    """GPUs that fill a gap."""

    set_ups: Whole
    given: Whole
    value: float
    serves: bool
    """Whether the gap is filled."""


class Tree:
    """A search from one state: what every service misses, and the GPUs that may be used."""

    def __init__(
        self,
        board: Board,
        rng: np.random.Generator,
        shape: "TreeShape",
        left: Floats,
        free: Whole,
        memory: "Memory",
    ) -> None:
        self._board = board
        self._rng = rng
        self._shape = shape
        self._memory = memory
        self._random_state = rng.integers(1 << 63, size=1, dtype=np.uint64)
        self._root = _Node(left.copy(), free.copy())
        self._settled: list[Edge] = []
        self._room = 16
        self.best: GapFilling | None = None

    def grow(self, trials_a_gpu: int, watch: Watch, enough: float) -> StopReason:
        """Search until the root has moved to the end, the cost is enough, or time is up.

        After so many trials the root moves on by the GPU of which the best came.
        """
        while self._root.left.any():
            for _ in range(trials_a_gpu):
                if self.try_once() and self._cost_of_best <= enough:
                    return StopReason.FINISHED
                if watch.is_over:
                    return StopReason.TIME
            following = self._best_child()
            if following is None:
                break
            self._settled.append(following[0])
            self._root = following[1]
        return StopReason.ROUNDS

    @property
    def _cost_of_best(self) -> float:
        if self.best is None or not self.best.serves:
            return inf
        return float(self._board.tables.price[self.best.set_ups].sum())

    def try_once(self) -> bool:
        """Walk down, add a node, roll out from it; tell whether that was better than ever."""
        node, way, edges = self._root, [self._root], list(self._settled)
        while node.edges:
            at = self._choice(node)
            edges.append(node.edges[at])
            child = node.children[at]
            is_new = child is None
            if child is None:
                child = node.children[at] = self._step(node, node.edges[at])
            node = child
            way.append(child)
            if is_new:
                break
        if node.visits and not node.edges and node.left.any():
            node.edges = list(self._proposals(node))
            node.children = [None] * len(node.edges)
        filling, mean = self._rolled_out(node, edges)
        for passed in way:
            passed.visits += 1
            passed.total += mean
            passed.best = min(passed.best, filling.value)
        if self.best is not None and filling.value >= self.best.value:
            return False
        self.best = filling
        self._memory.keep(filling.set_ups, filling.given)
        return True

    def _choice(self, node: _Node) -> int:
        """Return the child to visit: one never visited, or the most promising."""
        for at, child in enumerate(node.children):
            if child is None:
                return at
        curiosity = CURIOSITY * self._board.least_price * sqrt(log(node.visits + 1))

        def promise(at: int) -> float:
            child = node.children[at]
            assert child is not None
            # A single player may aim at the best that came of a child, not only at the mean.
            expected = (child.best + child.total / child.visits) / 2
            return expected - curiosity / sqrt(child.visits)

        return min(range(len(node.edges)), key=promise)

    def _best_child(self) -> tuple[Edge, _Node] | None:
        found = [
            (child.best, at)
            for at, child in enumerate(self._root.children)
            if child is not None and child.visits
        ]
        if not found:
            return None
        at = min(found)[1]
        child = self._root.children[at]
        assert child is not None
        return self._root.edges[at], child

    def _step(self, node: _Node, edge: Edge) -> _Node:
        left, free = node.left.copy(), node.free.copy()
        given = np.array(edge.given)
        over = compiled.take(self._board.tables, edge.set_up, given, left, free)
        return _Node(left, free, node.over + over)

    def _proposals(self, node: _Node) -> Iterator[Edge]:
        """Yield the best ways to fill a GPU for a few services that are not served yet."""
        tables = self._board.tables
        count = len(tables.price)
        set_ups = np.empty(count, dtype=np.int64)
        given = np.empty((count, self._board.width), dtype=np.int64)
        values = np.empty(count)
        seen: dict[Edge, None] = {}
        open_now = np.flatnonzero(node.left)
        for service in self._rng.permutation(open_now)[: self._shape.drawn].tolist():
            weight = tables.worth.copy()
            weight[service] *= 1.0 + self._rng.random()
            found = compiled.candidates(
                tables, weight, node.left, node.free, set_ups, given, values
            )
            order = np.argsort(-values[:found], kind="stable")[: self._shape.children]
            for at in order.tolist():
                seen[Edge(int(set_ups[at]), tuple(given[at].tolist()))] = None
        return iter(seen)

    def _rolled_out(self, node: _Node, edges: list[Edge]) -> tuple[GapFilling, float]:
        """Return the best of some random completions, and the mean of their values."""
        tables, dear = self._board.tables, self._board.dear
        while True:
            set_ups = np.empty(self._room, dtype=np.int64)
            given = np.empty((self._room, self._board.width), dtype=np.int64)
            count, value, mean, serves = compiled.best_roll_out(
                tables,
                self._memory.memo,
                self._shape.roll_outs,
                dear,
                self._random_state,
                node.left,
                node.free,
                set_ups,
                given,
            )
            if count != FULL:
                break
            self._room *= 2
        chosen = np.array([edge.set_up for edge in edges], dtype=np.int64)
        filled = np.array([edge.given for edge in edges], dtype=np.int64)
        filled = filled.reshape(-1, self._board.width)
        before = -OVER * node.over + compiled.value_after(
            tables, chosen, filled, len(chosen), _NOTHING, dear
        )
        filling = GapFilling(
            np.concatenate([chosen, set_ups[:count]]),
            np.concatenate([filled, given[:count]]),
            before + value,
            serves,
        )
        return filling, before + mean


class Memory:
    """The GPUs of the best deployments so far, the newest instead of the oldest."""

    def __init__(self, board: Board) -> None:
        self._set_ups: Whole = np.full(REMEMBERED, NOBODY, dtype=np.int64)
        self._given: Whole = np.full((REMEMBERED, board.width), NOBODY, dtype=np.int64)
        self._known: dict[tuple[int, ...], None] = {}
        self._count = 0

    @property
    def memo(self) -> Memo:
        """What is remembered."""
        return Memo(self._set_ups, self._given, min(self._count, REMEMBERED))

    def keep(self, set_ups: Whole, fillings: Whole) -> None:
        """Remember GPUs that are not known yet."""
        for set_up, given in zip(set_ups.tolist(), fillings.tolist(), strict=True):
            key = (set_up, *given)
            if key not in self._known:
                at = self._count % REMEMBERED
                self._known[key] = None
                self._set_ups[at], self._given[at] = set_up, given
                self._count += 1
