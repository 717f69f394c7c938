from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.mig.knapsack import ServiceNeed, cheapest
from interlane.mig.patterns import within

Kinds = list[tuple[int, float]]
"""Throughput and price."""

# Prices almost in proportion to throughput must be common: there searches go astray.
KINDS = st.lists(
    st.integers(1, 40).flatmap(
        lambda gives: st.tuples(
            st.just(gives),
            st.floats(0.0, 8.0) | st.floats(0.98, 1.02).map(lambda each: each * gives / 5),
        )
    ),
    min_size=1,
    max_size=5,
)


def ask_of(kinds: Kinds, need: int, least: int) -> ServiceNeed:
    gives = tuple(float(given) for given, _ in kinds)
    return ServiceNeed(tuple(range(len(kinds))), gives, float(need), least, len(kinds))


def least_cost(kinds: Kinds, need: int, least: int) -> float:
    """Return the least cost by dynamic programming over throughput and blocks."""
    costs = {(need, least): 0.0}
    best = inf
    for _ in range(need + least + 1):
        following: dict[tuple[int, int], float] = {}
        for (left, short), cost in costs.items():
            if left <= 0 and short <= 0:
                best = min(best, cost)
                continue
            for gives, price in kinds:
                state = max(left - gives, 0), max(short - 1, 0)
                following[state] = min(following.get(state, inf), cost + price)
        costs = following
    return best


@given(kinds=KINDS, need=st.integers(0, 90), least=st.sampled_from([0, 1, 1, 2, 5]))
def test_the_cheapest_pattern_is_as_cheap_as_any(kinds: Kinds, need: int, least: int) -> None:
    ask, prices = ask_of(kinds, need, least), np.array([price for _, price in kinds])

    found = cheapest([ask], prices)

    assert ask.is_met(found.pattern)
    assert found.cost == pytest.approx(float(prices @ found.pattern))
    expected = least_cost(kinds, need, least)
    assert found.cost == pytest.approx(expected, abs=1e-6)
    assert expected - 1e-5 <= found.bound <= expected + 1e-6


def test_a_large_need_is_as_quick_as_a_small_one() -> None:
    # All blocks cost a fifth of what they give: nothing but the last few matters.
    kinds = [(7, 1.4001), (14, 2.8), (21, 4.2002), (28, 5.6001), (49, 9.8003)]
    prices = np.array([price for _, price in kinds])

    found = cheapest([ask_of(kinds, 100_003, 1)], prices)

    # 100,003 = 7,143 x 14 + 1, so that one block more than 7,143 is needed.
    assert found.cost == pytest.approx(7_143 * 2.8 + 1.4001)
    assert found.bound == pytest.approx(found.cost)


@given(kinds=KINDS, need=st.integers(1, 25), slack=st.floats(0, 1.5))
def test_patterns_near_the_cheapest_leave_none_out(
    kinds: Kinds, need: int, slack: float
) -> None:
    ask = ask_of(kinds, need, 1)
    prices = np.array([price + 0.05 for _, price in kinds])
    most = cheapest([ask], prices).cost + slack

    found, complete = within([ask], prices, most, limit=10**6)

    assert complete
    assert all(ask.is_met(one) and prices @ one <= most + 1e-6 for one in found)
    assert {one for one in minimal(ask) if prices @ one <= most - 1e-6} <= found


def minimal(ask: ServiceNeed) -> set[tuple[int, ...]]:
    """Return all patterns from which no block can be taken away."""
    open_patterns, found = {(0,) * ask.width}, set()
    while open_patterns:
        pattern = open_patterns.pop()
        for block in range(ask.width):
            more = (*pattern[:block], pattern[block] + 1, *pattern[block + 1 :])
            if not ask.is_met(more):
                open_patterns.add(more)
            elif not any(ask.is_met(less) for less in fewer(more)):
                found.add(more)
    return found


def fewer(pattern: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [
        (*pattern[:at], count - 1, *pattern[at + 1 :])
        for at, count in enumerate(pattern)
        if count
    ]
