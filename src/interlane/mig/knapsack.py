"""The cheapest blocks that meet one service's need, when every block has a price.

A covering knapsack: so many blocks of each kind that they give what is needed, at the least
cost.  Needs are large (hundreds of blocks) and kinds are few.  Blocks are often priced almost
in proportion to what they give, so that countless patterns cost nearly the same and a search
through them would not end.  So it is solved around the kind of the best value, as Gomory did.

Let ``best`` be the kind with the lowest price for what it gives, ``rate`` that price.  Whatever
else a pattern holds, ``best`` fills the rest, as often as needed.  What a pattern costs beyond
``rate * need`` is its *waste*: each other block's price above ``rate``, and what is given in
excess.  The excess depends on the others only by what they give modulo one block of ``best``, a
place on a circle.  So other blocks are added one at a time, least waste first, and a label is
kept only if no other label reaches its place on the circle for less: one that wastes ``w`` at a
place ``ahead`` of ours can stand in for us at ``w + rate * ahead``.  A handful of labels is
enough, whatever the need.

The circle forgets that ``best`` cannot be used a negative number of times, nor does it know of
a least number of blocks.  Its cost is a lower bound in any case.  Where its pattern breaks one
of these, needs are small, and a depth-first search finds the pattern.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, inf
from typing import Final

from interlane.mig.covering import ENOUGH, Floats

Pattern = tuple[int, ...]
"""Blocks of each kind that one service gets."""

MOST_LABELS: Final = 500
MOST_STEPS: Final = 20_000
"""Where a search settles for what it has; hardly any needs 20 labels or 1,000 steps."""

_EQUAL: Final = 1e-12


@dataclass(frozen=True, slots=True)
class ServiceNeed:
    """What one service needs, with the blocks that can serve it."""

    blocks: tuple[int, ...]
    gives: tuple[float, ...]
    """Throughput of one block, as ``blocks``; all above 0."""
    need: float
    least: int
    """Blocks that it needs at least."""
    width: int
    """Kinds of blocks that there are."""

    @property
    def short_by(self) -> float:
        """What may be missing, since sums of floating-point numbers are not exact."""
        return ENOUGH * self.need

    def pattern(self, counts: Sequence[int]) -> Pattern:
        """Return counts of its own blocks as counts of all blocks."""
        whole = [0] * self.width
        for block, count in zip(self.blocks, counts, strict=True):
            whole[block] = count
        return tuple(whole)

    def is_met(self, pattern: Pattern) -> bool:
        """Tell whether a pattern meets the need."""
        given = sum(
            pattern[block] * each for block, each in zip(self.blocks, self.gives, strict=True)
        )
        return given >= self.need - self.short_by and sum(pattern) >= self.least


def blocks_for(left: float, gives: float) -> int:
    """Return how many blocks give what is left."""
    return max(0, ceil(left / gives * (1 - ENOUGH)))


@dataclass(frozen=True, slots=True)
class Priced:
    """The cheapest pattern that was found, and a cost that none undercuts."""

    cost: float
    pattern: Pattern
    bound: float
    """Equal to ``cost``, but for rounding, unless the search was cut short."""


def cheapest(asks: Sequence[ServiceNeed], prices: Floats) -> Priced:
    """Return the cheapest way to meet one of some asks."""
    found = [priced for ask in asks if (priced := _cheapest(ask, prices)) is not None]
    best = min(found, key=lambda priced: priced.cost)
    return Priced(best.cost, best.pattern, min(priced.bound for priced in found))


def _cheapest(ask: ServiceNeed, prices: Floats) -> Priced | None:
    kinds = _worth_looking_at(ask, prices)
    if ask.need <= 0 or not kinds:
        return _Search(ask, kinds).run()
    circled = _circle(ask, kinds)
    if circled.pattern is not None:
        return Priced(circled.cost, circled.pattern, circled.bound)
    searched = _Search(ask, kinds).run()
    if searched is None:
        return None
    bound = max(searched.bound, min(circled.bound, searched.cost))
    return Priced(searched.cost, searched.pattern, bound)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of block."""

    price: float
    gives: float
    block: int

    @property
    def ratio(self) -> float:
        """Price of a unit of throughput."""
        return self.price / self.gives


def _worth_looking_at(ask: ServiceNeed, prices: Floats) -> list[_Kind]:
    """Return the kinds that no other beats in price and throughput, best value first."""
    kinds = [
        _Kind(float(prices[block]), gives, block)
        for block, gives in zip(ask.blocks, ask.gives, strict=True)
    ]
    kept: list[_Kind] = []
    # From cheap to dear, of equals the better first: each must give more than all before.
    for kind in sorted(kinds, key=lambda one: (one.price, -one.gives, one.block)):
        if not kept or kind.gives > kept[-1].gives:
            kept.append(kind)
    return sorted(kept, key=lambda one: (one.ratio, -one.gives))


def _pattern(ask: ServiceNeed, kinds: Sequence[_Kind], counts: Sequence[int]) -> Pattern:
    pattern = [0] * ask.width
    for kind, count in zip(kinds, counts, strict=False):
        pattern[kind.block] = count
    return tuple(pattern)


# -- around the circle ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Circled:
    """What the circle came to; no pattern if the one it found cannot be."""

    cost: float
    pattern: Pattern | None
    bound: float


def _circle(ask: ServiceNeed, kinds: Sequence[_Kind]) -> _Circled:
    best, others = kinds[0], kinds[1:]
    rate = best.ratio
    waste_each = [kind.price - rate * kind.gives for kind in others]
    alike = 1e-9 * best.price
    labels: list[tuple[float, float]] = []  # waste and place of those kept
    heap: list[tuple[float, tuple[int, ...]]] = [(0.0, (0,) * len(others))]
    least, found = inf, heap[0][1]
    beyond = inf  # waste that patterns not looked at have at least
    while heap:
        waste, counts = heappop(heap)
        if waste >= least:
            break
        place = (_given(counts, others) - ask.need) % best.gives
        if best.gives - place <= ask.short_by:
            place = 0.0  # exactly enough, but for rounding
        if any(w + rate * ((at - place) % best.gives) <= waste + alike for w, at in labels):
            continue
        if len(labels) == MOST_LABELS:
            beyond = waste
            break
        labels.append((waste, place))
        if waste + rate * place < least:
            least, found = waste + rate * place, counts
        for at, more in enumerate(waste_each):
            if waste + more < least:
                longer = (*counts[:at], counts[at] + 1, *counts[at + 1 :])
                heappush(heap, (waste + more, longer))
    bound = rate * ask.need + min(least, beyond) - alike * len(labels)
    return _unrolled(ask, kinds, found, bound)


def _given(counts: Sequence[int], kinds: Sequence[_Kind]) -> float:
    return sum(count * kind.gives for count, kind in zip(counts, kinds, strict=True))


def _unrolled(
    ask: ServiceNeed, kinds: Sequence[_Kind], found: tuple[int, ...], bound: float
) -> _Circled:
    """Return what the circle found as a pattern, if it can be one."""
    left = ask.need - _given(found, kinds[1:])
    counts = (blocks_for(left, kinds[0].gives), *found)
    cost = sum(count * kind.price for count, kind in zip(counts, kinds, strict=True))
    if left <= ask.short_by - kinds[0].gives or sum(counts) < ask.least:
        return _Circled(cost, None, bound)
    return _Circled(cost, _pattern(ask, kinds, counts), min(bound, cost))


# -- depth first ----------------------------------------------------------------------


class _Search:
    """Depth-first search for the cheapest cover of one ask."""

    def __init__(self, ask: ServiceNeed, kinds: Sequence[_Kind]) -> None:
        self._ask = ask
        self._kinds = kinds
        # Cheapest price of a unit of throughput, and of a block, from here on.
        self._ratio = [kind.ratio for kind in kinds] + [inf]
        self._block = [min(kind.price for kind in kinds[at:]) for at in range(len(kinds))]
        self._enough = ask.short_by
        self._best: float = inf
        self._found: list[int] | None = None
        self._steps = MOST_STEPS

    def run(self) -> Priced | None:
        """Return the cheapest cover, or None if there is none."""
        ask = self._ask
        self._walk(0, ask.need, ask.least, 0.0, [])
        if self._found is None:
            return None
        bound = self._best if self._steps > 0 else ask.need * self._ratio[0]
        return Priced(self._best, _pattern(ask, self._kinds, self._found), bound)

    def _walk(self, at: int, left: float, short: int, cost: float, counts: list[int]) -> None:
        if left <= self._enough and short <= 0:
            if cost < self._best:
                self._best, self._found = cost, counts
            return
        if at == len(self._kinds) or self._steps <= 0:
            return
        self._steps -= 1
        kind = self._kinds[at]
        top = max(blocks_for(left, kind.gives), short)
        if at == len(self._kinds) - 1:
            rest, lacking = left - top * kind.gives, short - top
            self._walk(at + 1, rest, lacking, cost + top * kind.price, [*counts, top])
            return
        for count in range(top, -1, -1):
            rest, lacking = left - count * kind.gives, short - count
            spent = cost + count * kind.price
            by_rate = rest * self._ratio[at + 1] if rest > 0 else 0.0
            by_count = lacking * self._block[at + 1] if lacking > 0 else 0.0
            if spent + max(by_rate, by_count) >= self._best - _EQUAL:
                if rest > 0 and short <= 0:
                    break  # with fewer of this block, what is missing only costs more
                continue
            self._walk(at + 1, rest, lacking, spent, [*counts, count])
