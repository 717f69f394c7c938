import pytest
from hypothesis import given, settings

from interlane.mig.check import faults
from interlane.mig.demand import GpuOffer, Service
from interlane.mig.optimise import OPTIMISERS, optimise
from interlane.mig.plan import Effort, Stop
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
    assert outcome.stopped is Stop.OPTIMAL


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
    assert (outcome.stopped is Stop.OPTIMAL) == outcome.is_optimal
