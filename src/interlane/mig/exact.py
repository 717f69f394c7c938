"""Column generation: the fewest GPUs, with a proof.

A *pattern* is how many blocks of each kind one service gets, enough to serve it.  The master
program chooses how often each set-up is used and a pattern for each service, such that no more
blocks are got than supplied:

    min   price . y
    s.t.  supply' y - sum of patterns chosen >= 0        one row per block
          one pattern a service                          one row per service
          the GPUs of a group                            one row per limited or pinned group

There are far too many patterns to write down, so the program begins with a few.  Its duals
are prices of blocks; under these, ``knapsack`` finds each service's cheapest pattern, and one
that is cheaper than what the service pays joins the program.  When none does, the linear
program is solved over all patterns, though hardly any were written down.  Its value, rounded up
to a cost that can occur, is the bound.

The program is then solved in whole numbers over the patterns it has.  That nearly always meets
the bound: a vertex of the linear program uses hardly more columns than it has rows, so at most
a handful of services are split between patterns however many there are.  If it does not, then
patterns near the cheapest join.  A plan that is one step better than the best can only use
patterns whose price exceeds the cheapest by no more than what lies between that step and the
bound; once all of these are in and nothing better was found, there is nothing better.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.mig.covering import Cover, Covering, Floats, Whole, covering_of, plan_of
from interlane.mig.demand import Problem
from interlane.mig.greedy import greedy_cover, greedy_plan, no_room
from interlane.mig.knapsack import Pattern, ServiceNeed, blocks_for, cheapest
from interlane.mig.patterns import nearest
from interlane.mig.plan import TOLERANCE, Effort, PartitionPlan, SolvedPlan, StopReason
from interlane.mig.pricing import (
    asks_of,
    bound_from,
    bound_of_survivors,
    cost_step,
    fair_prices,
    not_surviving,
    rounded_up,
    simple_bound,
)
from interlane.mig.solver import ENDLESS, Column, LinearProgram, Solved
from interlane.mig.survive import surviving_plan
from interlane.model import InvalidInput

FIRST: Final = 20
"""Patterns a service that join where the first ones do not meet the bound; then four times as
many, and so on."""

MOST_PATTERNS: Final = 5_000
"""Where a round would let more than these join, the search ends without a proof."""

_IMPROVES: Final = 1e-7
"""By how much a pattern must be cheaper to join."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Column generation: proven optimal, or the best plan in time with its honest gap."""

    def solve(self, problem: Problem, effort: Effort) -> SolvedPlan:
        """Return the best plan that was found, and the bound."""
        watch = _Watch(effort, effort.clock())
        covering = covering_of(problem)
        found = (_surviving if covering.survives else _plain)(problem, covering, watch)
        if found.plan is None:
            raise InvalidInput(no_room(problem, exists=not found.is_impossible))
        cost = found.plan.cost(problem.prices)
        bound = min(found.bound, cost)
        stopped = StopReason.OPTIMAL if cost - bound < TOLERANCE else found.stopped
        seconds = effort.clock() - watch.begin_s
        return SolvedPlan("columns", found.plan, cost, bound, stopped, seconds, problem.notes)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a search came to."""

    plan: PartitionPlan | None
    bound: float
    stopped: StopReason
    is_impossible: bool


def _plain(problem: Problem, covering: Covering, watch: "_Watch") -> _Found:
    search = _Search(covering, watch)
    cover = search.run()
    plan = None if cover is None else plan_of(problem, covering, cover)
    return _Found(plan, search.bound, search.stopped, search.is_impossible)


def _surviving(problem: Problem, covering: Covering, watch: "_Watch") -> _Found:
    """Solve for plans that survive; needs grow, so only the first search gives a bound."""
    searches: list[_Search] = []

    def solve(asked: Covering) -> Cover | None:
        searches.append(_Search(asked, watch))
        return searches[-1].run()

    plan = surviving_plan(problem, covering, solve)
    basic = _Search(not_surviving(covering), watch)
    basic.run()
    bound = max(searches[0].bound, bound_of_survivors(covering, basic.bound))
    stopped = StopReason.TIME if watch.is_over else StopReason.FINISHED
    other = greedy_plan(problem, covering)
    if other is not None and (
        plan is None or other.cost(problem.prices) < plan.cost(problem.prices)
    ):
        plan = other
    return _Found(plan, bound, stopped, searches[0].is_impossible)


@dataclass(frozen=True, slots=True)
class _Watch:
    """Tells how much time is left."""

    effort: Effort
    begin_s: float

    @property
    def left_s(self) -> float | None:
        """Seconds that are left; None for as long as it takes."""
        if self.effort.time_limit_s is None:
            return None
        return self.effort.time_limit_s - (self.effort.clock() - self.begin_s)

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.left_s is not None and self.left_s <= 0


class _Search:
    """One run: the patterns so far, the best cover and the best bound."""

    def __init__(self, covering: Covering, watch: _Watch) -> None:
        self._covering = covering
        self._watch = watch
        self._asks = asks_of(covering)
        self._step = cost_step(covering)
        # Per service, in the order in which they joined.
        self._patterns: list[dict[Pattern, None]] = [{} for _ in self._asks]
        self._best: Cover | None = None
        self._floor = simple_bound(covering)
        # The block prices with the best bound, and that bound.
        self._prices: Floats = np.zeros(len(covering.blocks))
        self._priced_floor = 0.0
        self.is_impossible = False
        self.stopped = StopReason.TIME

    @property
    def bound(self) -> float:
        """What no plan undercuts, rounded up to a cost that can occur."""
        return rounded_up(self._covering, self._floor)

    @property
    def cost(self) -> float:
        """What the best cover costs."""
        if self._best is None:
            return ENDLESS
        return self._covering.constant + float(self._covering.prices @ self._best.used)

    @property
    def _is_over(self) -> bool:
        proven = self.cost - self.bound < TOLERANCE
        return proven or self.is_impossible or self._watch.is_over

    def run(self) -> Cover | None:
        """Return the best cover that was found."""
        self._best = greedy_cover(self._covering)
        self._begin()
        if not self._is_over:
            self._generate()
        if not self._is_over:
            self._choose()
        limit, incomplete = FIRST, 1
        while incomplete and not self._is_over:
            incomplete = self._widen(limit)
            limit *= 4
            if incomplete * limit > MOST_PATTERNS and not self._is_over:
                self.stopped = StopReason.PATTERNS
                break
        return self._best

    # -- the linear program -----------------------------------------------------------

    def _begin(self) -> None:
        """Begin with patterns of one kind of block, and with those of the greedy plan."""
        for row, asks in enumerate(self._asks):
            for ask in asks:
                for pattern in _singles(ask):
                    self._join(row, pattern)
            if self._best is not None:
                self._join(row, tuple(self._best.gets[row].tolist()))

    def _join(self, row: int, pattern: Pattern) -> bool:
        is_new = pattern not in self._patterns[row]
        self._patterns[row][pattern] = None
        return is_new

    def _listed(self) -> list[tuple[int, Pattern]]:
        return [(row, one) for row, found in enumerate(self._patterns) for one in found]

    def _generate(self) -> None:
        """Let patterns join until none would lower the linear program."""
        master = _Master(self._covering, self._listed(), with_gaps=self._best is None)
        while not self._watch.is_over:
            solved = master.run(self._watch.left_s)
            if solved.values is None or solved.is_timeout:
                return
            prices, paid = master.duals(solved)
            fair = fair_prices(self._covering, prices)
            priced = [cheapest(asks, fair) for asks in self._asks]
            self._note(fair, bound_from(self._covering, priced, fair))
            new = [
                (row, one.pattern)
                for row, one in enumerate(priced)
                if one.cost < paid[row] - _IMPROVES and self._join(row, one.pattern)
            ]
            if not new:
                # Even with parts of GPUs, the GPUs that there are do not suffice.
                self.is_impossible = master.has_gaps(solved)
                return
            master.add(new)

    def _note(self, fair: Floats, bound: float) -> None:
        if bound >= self._priced_floor:
            self._prices, self._priced_floor = fair, bound
        self._floor = max(self._floor, bound)

    # -- whole numbers ----------------------------------------------------------------

    def _choose(self, most: float | None = None) -> Solved:
        """Choose among the patterns in whole numbers; keep what is better than the best."""
        master = _Master(self._covering, self._listed(), most=most)
        master.make_whole()
        if most is None and self._best is not None:
            master.start_from(self._best)
        solved = master.run(
            self._watch.left_s,
            gap=TOLERANCE if self._step is None else 0.999 * self._step,
            enough=self.bound - self._covering.constant + TOLERANCE,
        )
        if solved.values is not None:
            cover = master.cover(solved.values)
            if self._covering.prices @ cover.used < self.cost - self._covering.constant:
                self._best = cover
        return solved

    def _widen(self, limit: int) -> int:
        """Let patterns near the cheapest join; return how many services have more of them."""
        better = self.cost - (self._step or TOLERANCE)
        slack = better - self._priced_floor + TOLERANCE
        incomplete = 0
        for row, asks in enumerate(self._asks):
            found, is_all = nearest(asks, self._prices, slack, limit)
            incomplete += not is_all
            for pattern in sorted(found):
                self._join(row, pattern)
            if self._watch.is_over:
                return incomplete
        most = None if self._best is None else better - self._covering.constant + TOLERANCE
        solved = self._choose(most)
        if not incomplete and not solved.is_timeout:
            # Every pattern that a better plan could use was there.
            self._floor = max(self._floor, self.cost)
            self.is_impossible = self._best is None
        return incomplete


def _singles(ask: ServiceNeed) -> Iterator[Pattern]:
    """Yield the patterns of one kind of block; the empty one if nothing is needed."""
    if ask.need <= 0 and ask.least <= 0:
        yield (0,) * ask.width
        return
    for block, gives in zip(ask.blocks, ask.gives, strict=True):
        pattern = [0] * ask.width
        pattern[block] = max(blocks_for(ask.need, gives), ask.least)
        yield tuple(pattern)


class _Master:
    """The master program over some patterns."""

    def __init__(
        self,
        covering: Covering,
        listed: Iterable[tuple[int, Pattern]],
        *,
        with_gaps: bool = False,
        most: float | None = None,
    ) -> None:
        """Take patterns by service; with gaps, blocks may be missing at a forbidding price."""
        self._covering = covering
        self._blocks = len(covering.blocks)
        counted = [n for n, group in enumerate(covering.groups) if group.most is not None]
        rows = [(0.0, ENDLESS)] * self._blocks + [(1.0, ENDLESS)] * covering.services
        rows += [
            (float(group.least), float(group.most or 0))
            for group in (covering.groups[n] for n in counted)
        ]
        self._cost_row = None if most is None else len(rows)
        rows += [] if most is None else [(0.0, most)]
        self._group_row = {
            group: self._blocks + covering.services + at for at, group in enumerate(counted)
        }
        self._program = LinearProgram(rows)
        self._program.add(self._set_ups())
        self._gaps = self._blocks if with_gaps else 0
        dear = 1e3 * float(covering.prices.max())
        self._program.add(Column(dear, [(block, 1.0)]) for block in range(self._gaps))
        self._patterns: list[tuple[int, Pattern]] = []
        self.add(listed)

    def _set_ups(self) -> Iterator[Column]:
        for set_up in self._covering.set_ups:
            entries = [(block, float(n)) for block, n in enumerate(set_up.supply) if n]
            if set_up.group in self._group_row:
                entries.append((self._group_row[set_up.group], 1.0))
            if self._cost_row is not None:
                entries.append((self._cost_row, set_up.price))
            yield Column(set_up.price, entries)

    def add(self, listed: Iterable[tuple[int, Pattern]]) -> None:
        """Let patterns join."""
        new = list(listed)
        self._patterns += new
        self._program.add(
            Column(
                0.0,
                [
                    *((block, -float(count)) for block, count in enumerate(pattern) if count),
                    (self._blocks + row, 1.0),
                ],
            )
            for row, pattern in new
        )

    def make_whole(self) -> None:
        """Allow whole numbers only."""
        self._program.make_whole()

    def start_from(self, cover: Cover) -> None:
        """Begin with a cover whose patterns are all there."""
        chosen = [tuple(gets) for gets in cover.gets.tolist()]
        picked = [float(chosen[row] == pattern) for row, pattern in self._patterns]
        self._program.start_from(np.concatenate([cover.used.astype(float), picked]))

    def run(
        self, time_limit_s: float | None, *, gap: float = 0.0, enough: float | None = None
    ) -> Solved:
        """Solve."""
        return self._program.run(time_limit_s, gap=gap, enough=enough)

    def duals(self, solved: Solved) -> tuple[Floats, Floats]:
        """Return the price of each block, and what each service pays for its pattern."""
        ends = self._blocks + self._covering.services
        return np.maximum(solved.duals[: self._blocks], 0.0), solved.duals[self._blocks : ends]

    def has_gaps(self, solved: Solved) -> bool:
        """Tell whether blocks are missing."""
        first = len(self._covering.set_ups)
        assert solved.values is not None
        return bool(solved.values[first : first + self._gaps].sum() > TOLERANCE)

    def cover(self, values: Floats) -> Cover:
        """Return a solution in whole numbers as a cover."""
        count = len(self._covering.set_ups)
        used: Whole = np.rint(values[:count]).astype(np.int64)
        gets: Whole = np.zeros(self._covering.gives.shape, dtype=np.int64)
        for (row, pattern), value in zip(
            self._patterns, values[count + self._gaps :], strict=True
        ):
            if value > 0.5:
                gets[row] = pattern
        return Cover(used, gets)
