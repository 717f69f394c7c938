import pytest
from hypothesis import given, settings

from interlane.mig.check import faults
from interlane.mig.cms.instance import faults as schedule_faults
from interlane.mig.cms.planner import cms_of, cover_of
from interlane.mig.cms.rounding import lp_rounding
from interlane.mig.covering import covering_of
from interlane.mig.demand import GpuOffer, Service, problem_of
from interlane.mig.optimise import optimise
from interlane.mig.plan import Effort, GpuPlan, Instance
from interlane.mig.tables import synthetic
from interlane.model import InvalidInput
from interlane.testing.mig import asked, cheapest_by_trying, small_demands

Demand = tuple[list[Service], list[GpuOffer], dict[tuple[str, str, str], float]]

NAMES = ("lp-rounding", "log-greedy", "ptas")
A100 = "A100-80GB"
VISION = Service("vision", "synth-resnet", 90_000.0, 80.0)


@pytest.mark.parametrize("name", NAMES)
@given(demand=small_demands())
@settings(max_examples=20)
def test_plans_hold_for_replicas_prices_and_mixed_gpus(name: str, demand: Demand) -> None:
    problem, terms = asked(*demand)

    outcome = optimise(problem, name, Effort(5.0))

    assert faults(outcome.plan, terms) == []
    assert outcome.lower_bound <= cheapest_by_trying(*demand) + 1e-6 <= outcome.cost + 2e-6


@given(demand=small_demands())
@settings(max_examples=20)
def test_a_schedule_is_a_cover_that_takes_no_more_than_there_is(demand: Demand) -> None:
    covering = covering_of(asked(*demand)[0])
    instance = cms_of(covering)
    schedule = lp_rounding(instance).schedule

    cover = cover_of(covering, schedule)

    assert list(schedule_faults(instance, schedule)) == []
    assert (cover.gets.sum(axis=0) <= cover.used @ covering.supply).all()
    assert ((covering.gives * cover.gets).sum(axis=1) >= covering.needs * (1 - 1e-6)).all()


@pytest.mark.parametrize("name", NAMES)
def test_too_few_gpus_are_named_in_a_sentence(name: str) -> None:
    table = synthetic.table_of(synthetic.FAMILIES.values(), [A100])
    problem = problem_of([VISION], [GpuOffer(A100, limit=2)], table)

    with pytest.raises(InvalidInput, match=r"within the limit of 2 A100-80GB; raise a limit"):
        optimise(problem, name)


@pytest.mark.parametrize("name", NAMES)
def test_what_has_no_counterpart_is_refused_with_who_can(name: str) -> None:
    table = synthetic.table_of(synthetic.FAMILIES.values(), [A100])
    pinned = [GpuPlan("g", A100, (Instance("3g.40gb", 4, "vision", 8, 1, 200.0, 40.0),))]
    problem = problem_of([VISION], [GpuOffer(A100)], table, pinned=pinned)

    with pytest.raises(InvalidInput, match=r"nothing pinned .* take columns, greedy or two-p"):
        optimise(problem, name)
