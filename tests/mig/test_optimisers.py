import sys

import pytest
from hypothesis import given, settings

from interlane.mig.check import faults
from interlane.mig.demand import GpuOffer, Service
from interlane.mig.optimise import OPTIMISERS, optimise
from interlane.mig.plan import Effort, StopReason
from interlane.model import InvalidInput
from interlane.testing.mig import asked, cheapest_by_trying, small_demands

Demand = tuple[list[Service], list[GpuOffer], dict[tuple[str, str, str], float]]


@pytest.mark.parametrize("name", ["columns", "program"])
@given(demand=small_demands())
def test_exact_optimisers_agree_with_trying_everything(name: str, demand: Demand) -> None:
    problem, terms = asked(*demand)

    outcome = optimise(problem, name)

    assert faults(outcome.plan, terms) == []
    assert outcome.cost == pytest.approx(cheapest_by_trying(*demand))
    assert outcome.is_optimal
    assert outcome.stopped is StopReason.OPTIMAL


@pytest.mark.parametrize("name", OPTIMISERS)
@given(demand=small_demands(gpus=("A100-80GB",), services=2))
@settings(max_examples=30)
def test_every_optimiser_gives_a_valid_plan_and_a_bound_that_holds(
    name: str, demand: Demand
) -> None:
    problem, terms = asked(*demand)

    outcome = optimise(problem, name, Effort(time_limit_s=5.0))

    assert faults(outcome.plan, terms) == []
    assert outcome.lower_bound <= cheapest_by_trying(*demand) + 1e-6 <= outcome.cost + 2e-6
    assert outcome.cost == outcome.plan.cost(problem.prices)
    assert (outcome.stopped is StopReason.OPTIMAL) == outcome.is_optimal


@pytest.mark.parametrize("name", ["columns", "program"])
@given(demand=small_demands(gpus=("A100-80GB",), services=2))
@settings(max_examples=30)
def test_with_as_few_gpus_as_suffice_a_plan_is_found_and_with_fewer_refused(
    name: str, demand: Demand
) -> None:
    services, _, rates = demand
    least = optimise(asked(services, [GpuOffer("A100-80GB")], rates)[0]).cost

    problem, terms = asked(services, [GpuOffer("A100-80GB", limit=int(least))], rates)
    outcome = optimise(problem, name)

    assert (outcome.cost, faults(outcome.plan, terms)) == (least, [])
    fewer, _ = asked(services, [GpuOffer("A100-80GB", limit=int(least) - 1)], rates)
    with pytest.raises(InvalidInput, match="within the limit of"):
        optimise(fewer, name)


def test_without_the_solver_the_greedy_plan_is_still_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, terms = asked(
        [Service("a", "a", 30, 100.0)],
        [GpuOffer("A100-80GB")],
        {("a", "A100-80GB", "1g.10gb"): 9},
    )
    monkeypatch.setitem(sys.modules, "highspy", None)

    assert faults(optimise(problem, "greedy").plan, terms) == []
    with pytest.raises(InvalidInput, match=r"pip install 'interlane\[mig\]', or take"):
        optimise(problem, "program")
