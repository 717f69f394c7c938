"""Patterns near the cheapest: other ways to serve one service, in the order of their price."""

from collections.abc import Iterator, Sequence
from math import inf

from interlane.mig.covering import Floats
from interlane.mig.knapsack import Pattern, ServiceNeed, blocks_for, cheapest


def within(
    asks: Sequence[ServiceNeed], prices: Floats, most: float, limit: int
) -> tuple[set[Pattern], bool]:
    """Return patterns that cost at most ``most``, and whether these are all that matter.

    A pattern from which a block can be taken away never matters, because the smaller one
    serves as well and leaves more to others.
    """
    found: set[Pattern] = set()
    for ask in asks:
        for pattern in _walk(ask, prices, most):
            if _is_minimal(pattern, asks):
                found.add(pattern)
            if len(found) >= limit:
                return found, False
    return found, True


def nearest(
    asks: Sequence[ServiceNeed], prices: Floats, slack: float, limit: int
) -> tuple[set[Pattern], bool]:
    """Return about ``limit`` patterns, none more than ``slack`` above the cheapest.

    The second answer tells whether these are all that are within the slack.
    """
    least = cheapest(asks, prices).bound
    found, complete = within(asks, prices, least + slack, limit)
    narrow = slack
    # Too many: narrow the slack until the nearest ones fit.
    while not complete and narrow > slack / 1024:
        narrow /= 2
        found, enough = within(asks, prices, least + narrow, limit)
        if enough:
            break
    return found, complete


def _is_minimal(pattern: Pattern, asks: Sequence[ServiceNeed]) -> bool:
    for block, count in enumerate(pattern):
        if count:
            fewer = (*pattern[:block], count - 1, *pattern[block + 1 :])
            if any(ask.is_met(fewer) for ask in asks):
                return False
    return True


def _walk(ask: ServiceNeed, prices: Floats, most: float) -> Iterator[Pattern]:
    """Yield every pattern of an ask that costs at most ``most``, with none added in vain."""
    price = [float(prices[block]) for block in ask.blocks]
    order = sorted(range(len(price)), key=lambda one: price[one] / ask.gives[one])
    ratio = [price[one] / ask.gives[one] for one in order] + [inf]
    counts = [0] * len(order)
    enough = ask.short_by

    def walk(at: int, left: float, short: int, cost: float) -> Iterator[Pattern]:
        if left <= enough and short <= 0:
            yield ask.pattern(counts)
            return
        if at == len(order):
            return
        block = order[at]
        top = max(blocks_for(left, ask.gives[block]), short)
        for count in range(top, -1, -1):
            rest, spent = left - count * ask.gives[block], cost + count * price[block]
            if spent + (rest * ratio[at + 1] if rest > enough else 0.0) > most + 1e-9:
                if rest > enough and short <= 0:
                    break
                continue
            counts[block] = count
            yield from walk(at + 1, rest, short - count, spent)
        counts[block] = 0

    yield from walk(0, ask.need, ask.least, 0.0)
