"""Builders, strategies and a naive twin for the MIG planner."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import product

from hypothesis import strategies as st

from interlane.mig.check import PlanTerms
from interlane.mig.demand import GpuOffer, LatencyRule, Problem, Service, problem_of
from interlane.mig.layouts import Rules, maximal_layouts
from interlane.mig.profiles import ProfileKind, gpu_model
from interlane.mig.table import Measurement, PerformanceTable

Rates = Mapping[tuple[str, str, str], float]
"""(service, GPU model, profile) -> requests a second; what is missing cannot serve."""


def table_of(rates: Rates) -> PerformanceTable:
    """Return a table with one row per rate: batch 1, one process, 10 ms."""
    return PerformanceTable(
        Measurement(service, gpu, profile, 1, 1, rate, 10.0)
        for (service, gpu, profile), rate in rates.items()
        if rate > 0
    )


def asked(
    services: Sequence[Service],
    offers: Sequence[GpuOffer],
    rates: Rates,
    *,
    rules: Rules | None = None,
    survive_gpu_loss: bool = False,
) -> tuple[Problem, PlanTerms]:
    """Return a problem, and its terms for the checker."""
    rules = rules or Rules()
    table = table_of(rates)
    problem = problem_of(
        services, offers, table, rules=rules, survive_gpu_loss=survive_gpu_loss
    )
    terms = PlanTerms(
        services,
        offers,
        list(table),
        LatencyRule(),
        forbid_4g3g=rules.forbid_4g3g,
        survive_gpu_loss=survive_gpu_loss,
    )
    return problem, terms


@st.composite
def small_demands(
    draw: st.DrawFn, gpus: Sequence[str] = ("A30-24GB", "A100-80GB"), services: int = 3
) -> tuple[list[Service], list[GpuOffer], dict[tuple[str, str, str], float]]:
    """Draw a few services that a handful of GPUs can serve; some profiles cannot."""
    models = draw(st.lists(st.sampled_from(gpus), min_size=1, max_size=2, unique=True))
    prices = st.sampled_from([1.0, 1.0, 1.0, 0.5, 0.35, 2.0])
    offers = [GpuOffer(model, draw(prices) if len(models) > 1 else 1.0) for model in models]
    wanted, rates = [], dict[tuple[str, str, str], float]()
    for number in range(draw(st.integers(1, services))):
        name = f"s{number}"
        wanted.append(
            Service(
                name, name, draw(st.integers(1, 18)), 100.0, draw(st.sampled_from([1, 1, 2, 3]))
            )
        )
        for model in models:
            for profile in gpu_model(model).of_kinds({ProfileKind.BASE}):
                least = profile.compute_slices if profile == gpu_model(model).whole else 0
                rates[name, model, profile.name] = draw(
                    st.integers(least, 2 * profile.compute_slices + 2)
                )
    return wanted, offers, rates


def cheapest_by_trying(
    services: Sequence[Service], offers: Sequence[GpuOffer], rates: Rates
) -> float:
    """Return the least cost by trying everything: GPUs added one by one, cheapest total first.

    A state is what every service still misses, in throughput and in replicas.  One GPU takes
    from it what any legal layout with any assignment gives.
    """
    start = tuple((service.rate_per_s, service.min_replicas) for service in services)
    steps = {
        (offer.price, gain) for offer in offers for gain in _gains(services, offer.model, rates)
    }
    heap, seen = [(0.0, start)], set[object]()
    while heap:
        cost, missing = heappop(heap)
        if all(rate <= 0 and replicas <= 0 for rate, replicas in missing):
            return cost
        if missing in seen:
            continue
        seen.add(missing)
        for price, gain in steps:
            left = tuple(
                (max(rate - more, 0), max(replicas - count, 0))
                for (rate, replicas), (more, count) in zip(missing, gain, strict=True)
            )
            if left not in seen:
                heappush(heap, (round(cost + price, 6), left))
    raise AssertionError("nothing serves these services")


_Gain = tuple[tuple[float, int], ...]
"""Throughput and replicas for each service."""


def _gains(services: Sequence[Service], gpu: str, rates: Rates) -> Iterator[_Gain]:
    found: set[_Gain] = set()
    for layout in {tuple(sorted(slot.profile for slot in one)) for one in maximal_layouts(gpu)}:
        partial: set[_Gain] = {tuple((0.0, 0) for _ in services)}
        for profile in layout:
            partial = {
                tuple(
                    (rate + more, count + 1) if at == chosen else (rate, count)
                    for at, (rate, count) in enumerate(gain)
                )
                for gain, chosen in product(partial, range(len(services)))
                if (more := rates.get((services[chosen].name, gpu, profile), 0.0)) > 0
            } | partial
        found |= partial
    return iter(_undominated(found))


def _undominated(gains: set[_Gain]) -> list[_Gain]:
    def beats(one: _Gain, other: _Gain) -> bool:
        return one != other and all(
            a >= b and m >= n for (a, m), (b, n) in zip(one, other, strict=True)
        )

    return [one for one in gains if not any(beats(other, one) for other in gains)]


@st.composite
def small_changes(
    draw: st.DrawFn, services: int = 3, gpus: Sequence[str] = ("A30-24GB", "A100-80GB")
) -> tuple[Problem, Problem, PlanTerms]:
    """Draw what was asked for, what is asked for now, and the terms of that."""
    wanted, offers, rates = draw(small_demands(gpus=gpus, services=services))
    factors = st.sampled_from([0.2, 0.5, 1.0, 1.0, 1.5, 3.0])
    now = [
        replace(service, rate_per_s=service.rate_per_s * draw(factors)) for service in wanted
    ]
    before, _ = asked(wanted, offers, rates)
    after, terms = asked(now, offers, rates)
    return before, after, terms
