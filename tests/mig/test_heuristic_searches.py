from collections.abc import Callable
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlane.mig import compiled
from interlane.mig.check import PlanTerms, faults
from interlane.mig.covering import covering_of
from interlane.mig.demand import GpuOffer, LatencyRule, Problem, Service, problem_of
from interlane.mig.deployment import Board, Deployment, Watch
from interlane.mig.genetic import Breeding, Genetic, Population
from interlane.mig.greedy import greedy_cover
from interlane.mig.optimise import optimise
from interlane.mig.pipeline import TwoPhase
from interlane.mig.plan import Effort, GpuPlan, Instance, StopReason
from interlane.mig.tables import synthetic
from interlane.mig.tree_search import TreeSearch, TreeShape
from interlane.model import InvalidInput
from interlane.testing.mig import asked, small_demands

Demand = tuple[list[Service], list[GpuOffer], dict[tuple[str, str, str], float]]

SEARCHES = ("mcts", "genetic", "two-phase")
BRIEF = Breeding(population=3, trials=8, shape=TreeShape(roll_outs=2), rounds=4)
A100 = "A100-80GB"


def drawn(services: int = 16, seed: int = 3, each: float = 250.0) -> tuple[Problem, PlanTerms]:
    """A demand of synthetic models with targets of all kinds; 10 GPUs, by the bound 9."""
    rng = np.random.default_rng(seed)
    families = synthetic.drawn(services, seed)
    table = synthetic.table_of(families, [A100])
    wanted = [
        Service(f"s{at}", family.name, rng.lognormal(0, 0.8) * each, rng.uniform(60, 400))
        for at, family in enumerate(families)
    ]
    offers = [GpuOffer(A100)]
    problem = problem_of(wanted, offers, table)
    return problem, PlanTerms(wanted, offers, tuple(table), LatencyRule())


def ticking(step_s: float = 1.0) -> Callable[[], float]:
    """A clock that moves on whenever somebody looks."""
    ticks = count()
    return lambda: next(ticks) * step_s


@pytest.mark.parametrize("name", SEARCHES)
def test_the_same_seed_gives_the_same_plan(name: str) -> None:
    problem, _ = drawn()
    efforts = [Effort(10.0, seed, ticking(0.02)) for seed in (3, 3)]

    one, other = (optimise(problem, name, effort) for effort in efforts)

    assert one.plan == other.plan
    assert one.stopped is other.stopped


@pytest.mark.parametrize("name", SEARCHES)
def test_time_that_is_up_leaves_a_whole_plan_with_an_honest_gap(name: str) -> None:
    problem, terms = drawn()

    outcome = optimise(problem, name, Effort(2.0, 0, ticking()))

    assert faults(outcome.plan, terms) == []
    assert outcome.stopped is StopReason.TIME
    optimum = optimise(problem, "columns").cost
    assert outcome.lower_bound <= optimum <= outcome.cost
    assert outcome.gap == outcome.cost - outcome.lower_bound > 0


@given(demand=small_demands(services=3), seed=st.integers(0, 5))
@settings(max_examples=25)
def test_two_phases_are_never_worse_than_greedy_alone(demand: Demand, seed: int) -> None:
    problem, terms = asked(*demand)

    outcome = TwoPhase(BRIEF).solve(problem, Effort(seed=seed))

    assert faults(outcome.plan, terms) == []
    assert outcome.cost <= optimise(problem, "greedy").cost + 1e-9


@given(seed=st.integers(0, 1000))
@settings(max_examples=10)
def test_a_population_never_loses_its_best(seed: int) -> None:
    board = Board(covering_of(drawn()[0]))
    first = greedy_cover(covering_of(drawn()[0]))
    assert first is not None
    costs: list[float] = []
    for rounds in (0, 1, 3):
        breeding = Breeding(population=3, trials=6, rounds=rounds)
        population = Population(board, breeding, seed)
        population.found([board.from_cover(first)], Watch(Effort()), enough=0.0)
        costs.append(population.best.value)

    assert costs == sorted(costs, reverse=True)


def test_breeding_saves_gpus_that_greedy_wastes() -> None:
    problem, terms = drawn()
    greedy = optimise(problem, "greedy")

    outcome = optimise(problem, "two-phase", Effort(20.0, 1, ticking(0.02)))

    assert faults(outcome.plan, terms) == []
    assert outcome.cost < greedy.cost
    assert outcome.cost == optimise(problem, "columns").cost


def random_deployment(board: Board, seed: int) -> Deployment:
    population = Population(board, Breeding(population=1, rounds=0), seed)
    population.found((), Watch(Effort()), enough=0.0)
    return population.best


@given(seed=st.integers(0, 1000))
@settings(max_examples=20)
def test_a_mutation_moves_services_and_changes_nothing_else(seed: int) -> None:
    board = Board(covering_of(drawn()[0]))
    before = random_deployment(board, seed)
    given_before = before.given.copy()

    swapped = before.given.copy()
    compiled.swap(board.tables, before.set_ups, swapped, 40, np.array([seed], dtype=np.uint64))

    assert (before.given == given_before).all()
    assert (swapped != given_before).any()
    after = Deployment(before.set_ups, swapped, before.left, before.cost, before.value)
    assert (board.cover(after).gets == board.cover(before).gets).all()
    kinds = board.tables.slots[before.set_ups]
    assert (swapped[kinds == compiled.NOBODY] == compiled.NOBODY).all()


@given(seed=st.integers(0, 1000))
@settings(max_examples=20)
def test_no_slot_of_a_deployment_is_in_vain(seed: int) -> None:
    board = Board(covering_of(drawn()[0]))
    one = random_deployment(board, seed)
    shares = compiled.served(board.tables, one.set_ups, one.given)

    assert one.serves
    for gpu, row in enumerate(one.given.tolist()):
        assert set(row) != {compiled.NOBODY}
        for at, service in enumerate(row):
            if service != compiled.NOBODY:
                block = board.tables.slots[one.set_ups[gpu], at]
                assert shares[service] - board.tables.share[service, block] < 1.0


@given(seed=st.integers(0, 1000))
@settings(max_examples=10)
def test_a_cover_and_its_deployment_are_the_same(seed: int) -> None:
    board = Board(covering_of(drawn()[0]))
    one = random_deployment(board, seed)

    again = board.from_cover(board.cover(one))

    assert again.cost == one.cost
    assert (board.cover(again).used == board.cover(one).used).all()
    assert (board.cover(again).gets == board.cover(one).gets).all()


# -- what services files may ask beside plain targets ---------------------------------

CONSTRAINED = [TreeSearch(trials_a_gpu=6), Genetic(BRIEF), TwoPhase(BRIEF)]


@pytest.mark.parametrize("search", CONSTRAINED, ids=SEARCHES)
@given(demand=small_demands(services=3))
@settings(max_examples=8)
def test_plans_survive_the_loss_of_a_gpu_if_asked(
    search: TreeSearch | Genetic | TwoPhase, demand: Demand
) -> None:
    problem, terms = asked(*demand, survive_gpu_loss=True)

    assert faults(search.solve(problem, Effort()).plan, terms) == []


@given(demand=small_demands(services=2))
@settings(max_examples=8)
def test_two_phases_are_never_worse_than_greedy_when_a_gpu_may_be_lost(demand: Demand) -> None:
    problem, _ = asked(*demand, survive_gpu_loss=True)

    outcome = TwoPhase(BRIEF).solve(problem, Effort())

    assert outcome.cost <= optimise(problem, "greedy").cost + 1e-9


@pytest.mark.parametrize("name", SEARCHES)
def test_all_attempts_to_survive_share_one_time_limit(name: str) -> None:
    plain, terms = drawn()
    problem = replace(plain, survive_gpu_loss=True)

    outcome = optimise(problem, name, Effort(10.0, 0, ticking(0.05)))

    assert faults(outcome.plan, replace(terms, survive_gpu_loss=True)) == []
    # A search looks at the clock a few times more before it sees that time is up.
    assert outcome.seconds <= 12.0


@pytest.mark.parametrize("search", CONSTRAINED, ids=SEARCHES)
def test_pinned_instances_stay_and_the_room_beside_them_is_used(
    search: TreeSearch | Genetic | TwoPhase,
) -> None:
    table = synthetic.table_of(synthetic.FAMILIES.values(), [A100])
    services = [
        Service("search", "synth-encoder", 900.0, 60.0),
        Service("vision", "synth-resnet", 3000.0, 80.0),
    ]
    offers = [GpuOffer(A100, limit=6, spare=1)]
    pinned = [
        GpuPlan("rack1-gpu3", A100, (Instance("3g.40gb", 4, "search", 8, 1, 200.0, 40.0),))
    ]
    problem = problem_of(services, offers, table, pinned=pinned)
    terms = PlanTerms(services, offers, tuple(table), LatencyRule(), pinned=pinned)

    outcome = search.solve(problem, Effort())

    assert faults(outcome.plan, terms) == []
    held = next(gpu for gpu in outcome.plan.gpus if gpu.id == "rack1-gpu3")
    assert len(held.instances) > 1
    assert outcome.cost == optimise(problem, "columns").cost


@pytest.mark.parametrize("search", CONSTRAINED, ids=SEARCHES)
def test_too_few_gpus_are_named_in_a_sentence(
    search: TreeSearch | Genetic | TwoPhase,
) -> None:
    table = synthetic.table_of(synthetic.FAMILIES.values(), [A100])
    services = [Service("vision", "synth-resnet", 90_000.0, 80.0)]
    problem = problem_of(services, [GpuOffer(A100, limit=2)], table)

    with pytest.raises(InvalidInput, match=r"within the limit of 2 A100-80GB; raise a limit"):
        search.solve(problem, Effort())
