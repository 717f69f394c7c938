"""Lower bounds on the cost of any plan, from prices of blocks.

With prices on blocks, services no longer compete, and each one's cheapest pattern is found
alone (``knapsack``).  If no set-up supplies more than it costs, then whoever uses a GPU pays at
least what its blocks are worth, and the sum of the cheapest patterns is a bound.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil, gcd, inf

import numpy as np

from interlane.mig.covering import Covering, Floats
from interlane.mig.knapsack import Priced, ServiceNeed, cheapest
from interlane.mig.profiles import gpu_model


def asks_of(covering: Covering) -> list[tuple[ServiceNeed, ...]]:
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


def _asks(gives: Floats, need: float, least: int, *, survives: bool) -> Iterator[ServiceNeed]:
    able = np.flatnonzero(gives > 0).tolist()
    if not survives or need <= 0:
        yield ServiceNeed(tuple(able), tuple(gives[able].tolist()), need, least, len(gives))
        return
    for largest in sorted({float(gives[block]) for block in able}):
        small = [block for block in able if gives[block] <= largest]
        yield ServiceNeed(
            tuple(small),
            tuple(gives[small].tolist()),
            need + largest,
            max(least, 2),
            len(gives),
        )


def fair_prices(covering: Covering, prices: Floats) -> Floats:
    """Return block prices scaled so that no endless GPU supplies more than it costs."""
    endless = np.array([covering.groups[one.group].most is None for one in covering.set_ups])
    paid = np.maximum(prices, 0.0)
    over = covering.supply[endless] @ paid / covering.prices[endless]
    return paid / max(1.0, float(over.max(initial=0.0)))


def bound_by(
    covering: Covering, asks: Sequence[Sequence[ServiceNeed]], prices: Floats
) -> float:
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
    """Return the problem that is left when a GPU is lost: throughput alone counts then."""
    return replace(covering, survives=False, least=np.zeros_like(covering.least))


def bound_of_survivors(covering: Covering, bound: float) -> float:
    """Return the bound on plans that survive, from the bound on what is left after a loss.

    Whichever GPU is lost, the rest serves everybody.  Nothing follows where GPUs are pinned,
    since a pinned one may be the one that is lost.
    """
    if any(group.pinned for group in covering.groups):
        return 0.0
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
