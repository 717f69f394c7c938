"""A strategy and a naive twin for configurable machine scheduling."""

from heapq import heappop, heappush

from hypothesis import strategies as st

from interlane.mig.cms.instance import CmsInstance, cms_instance


@st.composite
def small_instances(draw: st.DrawFn, *, with_costs: bool = False) -> CmsInstance:
    """Draw a few jobs, kinds of blocks and configurations, in whole numbers."""
    jobs, blocks = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    count = draw(st.integers(1, 3))
    rows = st.lists(st.integers(0, 3), min_size=blocks, max_size=blocks)
    configurations = [draw(rows.filter(lambda row: 0 < sum(row) <= 4)) for _ in range(count)]
    # Every kind of block comes in some configuration, and the first serves everybody.
    configurations.append([1] * blocks)
    amounts = [
        [
            draw(st.integers(1, 6)),
            *draw(st.lists(st.integers(0, 6), min_size=blocks - 1, max_size=blocks - 1)),
        ]
        for _ in range(jobs)
    ]
    demands = draw(st.lists(st.integers(1, 12), min_size=jobs, max_size=jobs))
    prices = st.sampled_from([1.0, 2.0, 3.0])
    costs = [draw(prices) for _ in configurations] if with_costs else None
    return cms_instance(amounts, demands, configurations, costs)


def cheapest_by_trying(instance: CmsInstance) -> float:
    """Return the least cost by trying everything: machines added one by one, cheapest first."""
    steps = {
        (float(cost), gain)
        for cost, counts in zip(instance.costs, instance.counts.tolist(), strict=True)
        for gain in _gains(instance, counts)
    }
    start = tuple(instance.demands.tolist())
    heap, seen = [(0.0, start)], set[object]()
    while heap:
        cost, missing = heappop(heap)
        if not any(missing):
            return cost
        if missing in seen:
            continue
        seen.add(missing)
        for price, gain in steps:
            left = tuple(max(d - g, 0.0) for d, g in zip(missing, gain, strict=True))
            if left != missing and left not in seen:
                heappush(heap, (cost + price, left))
    raise AssertionError("nothing serves these jobs")


def _gains(instance: CmsInstance, counts: list[int]) -> set[tuple[float, ...]]:
    """Return what one machine can give the jobs, block after block to anybody."""
    found = {(0.0,) * instance.jobs}
    for block, count in enumerate(counts):
        for _ in range(count):
            found = {
                (*gain[:job], gain[job] + float(instance.amounts[job, block]), *gain[job + 1 :])
                for gain in found
                for job in range(instance.jobs)
            }
    capped = {
        tuple(min(g, d) for g, d in zip(gain, instance.demands.tolist(), strict=True))
        for gain in found
    }
    return {one for one in capped if not any(_beats(other, one) for other in capped)}


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))
