"""The cheapest blocks that meet one service's need, when every block has a price.

With prices on blocks, services no longer compete, and each one's cheapest cover is found
alone: a depth-first search over block kinds, best value first, cut by the fractional cost of
what is still missing.  It is exact, and quick because the first path is nearly the best.

Prices that no set-up can undercut (``fair_prices``) make the sum of these costs a lower bound
on any plan: whoever uses a GPU pays at least what its blocks are worth.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, gcd, inf

import numpy as np

from interlane.mig.covering import ENOUGH, Covering, Floats
from interlane.mig.profiles import gpu_model

Pattern = tuple[int, ...]
"""Blocks of each kind that one service gets."""

_EQUAL = 1e-12

MOST_STEPS = 200_000
"""Steps after which a search settles for what it has; hardly any takes a thousand."""


@dataclass(frozen=True, slots=True)
class Ask:
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


def asks_of(covering: Covering) -> list[tuple[Ask, ...]]:
    """Return, for each service, the asks of which it is enough to meet one.

    There is one, unless the service must do without any one GPU: then losing its largest
    instance must leave enough, so for each largest instance that it might have there is an
    ask that uses nothing larger and needs that much more.
    """
    return [
        tuple(_asks(gives, float(need), int(least), survives=covering.survives))
        for gives, need, least in zip(
            covering.gives, covering.needs, covering.least, strict=True
        )
    ]


def _asks(gives: Floats, need: float, least: int, *, survives: bool) -> Iterator[Ask]:
    able = np.flatnonzero(gives > 0).tolist()
    if not survives or need <= 0:
        yield Ask(tuple(able), tuple(gives[able].tolist()), need, least, len(gives))
        return
    for largest in sorted({float(gives[block]) for block in able}):
        small = [block for block in able if gives[block] <= largest]
        yield Ask(
            tuple(small),
            tuple(gives[small].tolist()),
            need + largest,
            max(least, 2),
            len(gives),
        )


@dataclass(frozen=True, slots=True)
class Priced:
    """The cheapest pattern that was found, and a cost that none undercuts."""

    cost: float
    pattern: Pattern
    bound: float
    """Equal to ``cost`` unless the search was cut short."""


def cheapest(asks: Sequence[Ask], prices: Floats) -> Priced:
    """Return the cheapest way to meet one of some asks."""
    found = [priced for ask in asks if (priced := _Search(ask, prices).run()) is not None]
    best = min(found, key=lambda priced: priced.cost)
    return Priced(best.cost, best.pattern, min(priced.bound for priced in found))


class _Search:
    """Depth-first search for the cheapest cover of one ask.

    A kind of block that costs no less and gives no more than another is not looked at.
    """

    def __init__(self, ask: Ask, prices: Floats) -> None:
        kinds = _worth_looking_at(
            [
                (float(prices[block]), gives, block)
                for block, gives in zip(ask.blocks, ask.gives, strict=True)
            ]
        )
        self._ask = ask
        self._blocks = [block for _, _, block in kinds]
        self._price = [price for price, _, _ in kinds]
        self._gives = [gives for _, gives, _ in kinds]
        # Cheapest price of a unit of throughput, and of a block, from here on.
        self._ratio = [price / gives for price, gives, _ in kinds] + [inf]
        self._block = [min(self._price[at:]) for at in range(len(kinds))] + [inf]
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
        pattern = [0] * ask.width
        for block, count in zip(self._blocks, self._found, strict=False):
            pattern[block] = count
        root = max(ask.need * self._ratio[0] if ask.need > 0 else 0.0, 0.0)
        return Priced(self._best, tuple(pattern), self._best if self._steps > 0 else root)

    def _walk(self, at: int, left: float, short: int, cost: float, counts: list[int]) -> None:
        if left <= self._enough and short <= 0:
            if cost < self._best - _EQUAL:
                self._best, self._found = cost, counts
            return
        if at == len(self._blocks) or self._steps <= 0:
            return
        self._steps -= 1
        gives, price = self._gives[at], self._price[at]
        top = max(blocks_for(left, gives), short)
        if at == len(self._blocks) - 1:
            rest, lacking = left - top * gives, short - top
            self._walk(at + 1, rest, lacking, cost + top * price, [*counts, top])
            return
        ratio, block = self._ratio[at + 1], self._block[at + 1]
        for count in range(top, -1, -1):
            rest, lacking = left - count * gives, short - count
            spent = cost + count * price
            by_rate = rest * ratio if rest > 0 else 0.0
            by_count = lacking * block if lacking > 0 else 0.0
            if spent + max(by_rate, by_count) >= self._best - _EQUAL:
                if rest > 0 and short <= 0:
                    break  # with fewer of this block, what is missing only costs more
                continue
            self._walk(at + 1, rest, lacking, spent, [*counts, count])


_Kind = tuple[float, float, int]
"""Price, throughput, block."""


def _worth_looking_at(kinds: list[_Kind]) -> list[_Kind]:
    """Return the kinds that no other beats, best value first."""
    kept: list[_Kind] = []
    # From cheap to dear, of equals the better first: each must give more than all before.
    for kind in sorted(kinds, key=lambda one: (one[0], -one[1], one[2])):
        if not kept or kind[1] > kept[-1][1]:
            kept.append(kind)
    return sorted(kept, key=lambda one: (one[0] / one[1], -one[1]))


def blocks_for(left: float, gives: float) -> int:
    """Return how many blocks give what is left."""
    return max(0, ceil(left / gives * (1 - ENOUGH)))


# -- bounds ---------------------------------------------------------------------------


def fair_prices(covering: Covering, prices: Floats) -> Floats:
    """Return block prices scaled so that no endless GPU supplies more than it costs."""
    endless = np.array([covering.groups[one.group].most is None for one in covering.set_ups])
    paid = np.maximum(prices, 0.0)
    over = covering.supply[endless] @ paid / covering.prices[endless]
    return paid / max(1.0, float(over.max(initial=0.0)))


def bound_by(covering: Covering, asks: Sequence[Sequence[Ask]], prices: Floats) -> float:
    """Return a lower bound on the cost of any plan, from any block prices at all."""
    fair = fair_prices(covering, prices)
    return bound_from(covering, [cheapest(one, fair) for one in asks], fair)


def bound_from(covering: Covering, priced: Iterable[Priced], fair: Floats) -> float:
    """Return the bound that fair prices give, from each service's cheapest pattern.

    GPUs of which there are only so many may supply more than they cost, each at most by the
    profit of its best set-up; pinned GPUs are paid for in any case.
    """
    bound = covering.constant + sum(one.bound for one in priced)
    loss = covering.prices - covering.supply @ fair
    for number, group in enumerate(covering.groups):
        if group.most is not None:
            mine = [one.group == number for one in covering.set_ups]
            least = float(loss[mine].min(initial=inf if group.pinned else 0.0))
            bound += group.most * least
    return bound


def simple_prices(covering: Covering) -> Iterator[Floats]:
    """Yield block prices that need no solver: by compute slices, by size, by equal shares."""
    price = {one.gpu: one.price for one in covering.set_ups}
    by_compute, by_size = [], []
    for block in covering.blocks:
        if block.shared:
            sharers = sum(other.shared == block.shared for other in covering.blocks)
            share = price[block.gpu] / sharers
            by_compute.append(share)
            by_size.append(share)
            continue
        gpu = gpu_model(block.gpu)
        profile = gpu.profile(block.profile)
        by_compute.append(price[block.gpu] * profile.compute_slices / gpu.compute_slices)
        by_size.append(price[block.gpu] * profile.size / gpu.grid)
    yield np.array(by_compute)
    yield np.array(by_size)


def simple_bound(covering: Covering) -> float:
    """Return a lower bound that needs no solver, rounded up to a cost that can occur."""
    best = _best_simple(covering)
    if covering.survives:
        best = max(best, bound_of_survivors(covering, _best_simple(not_surviving(covering))))
    return rounded_up(covering, best)


def _best_simple(covering: Covering) -> float:
    asks = asks_of(covering)
    return max(bound_by(covering, asks, prices) for prices in simple_prices(covering))


def not_surviving(covering: Covering) -> Covering:
    """Return the same problem with no GPU to lose."""
    return replace(covering, survives=False)


def bound_of_survivors(covering: Covering, bound: float) -> float:
    """Return the bound on plans that survive, from the bound on plans that need not.

    Whichever GPU is lost, the rest serves everybody.
    """
    return rounded_up(covering, bound) + float(covering.prices.min())


def rounded_up(covering: Covering, bound: float) -> float:
    """Round a bound up to the next cost that GPUs can add up to."""
    step = cost_step(covering)
    if step is None:
        return bound
    above = (bound - covering.constant) / step
    return covering.constant + step * ceil(above - 1e-6)


def cost_step(covering: Covering) -> float | None:
    """Return what all costs are a multiple of, or None if that is too fine to use."""
    parts = [round(price * 10_000) for price in covering.prices.tolist()]
    exact = np.allclose(covering.prices * 10_000, parts, rtol=0, atol=1e-6)
    step = gcd(*parts) / 10_000 if exact else 0.0
    return step if step >= 1e-3 * float(covering.prices.min()) else None
