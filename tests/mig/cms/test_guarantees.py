"""What each algorithm promises, on random small instances against trying everything."""

from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlane.mig.cms.greedy import log_greedy
from interlane.mig.cms.instance import CmsInstance, Solution, cms_instance, faults, up_to
from interlane.mig.cms.programs import BlockProgram
from interlane.mig.cms.ptas import additive_machines, ptas
from interlane.mig.cms.rounding import lp_rounding
from interlane.model import InvalidInput
from interlane.testing.cms import cheapest_by_trying, small_instances

EITHER = st.one_of(small_instances(), small_instances(with_costs=True))


def holds(instance: CmsInstance, solution: Solution, optimum: float) -> bool:
    """Whether a solution serves, and its bound and proof are true."""
    assert list(faults(instance, solution.schedule)) == []
    assert solution.cost == pytest.approx(solution.schedule.cost(instance))
    assert solution.lower_bound <= optimum + 1e-6
    assert optimum <= solution.cost + 1e-6
    return not solution.is_optimal or solution.cost == pytest.approx(optimum)


@given(instance=EITHER)
def test_greedy_covering_is_within_its_logarithm(instance: CmsInstance) -> None:
    optimum = cheapest_by_trying(instance)

    solution = log_greedy(instance)

    assert holds(instance, solution, optimum)
    dearest = float(instance.costs.max())
    assert solution.cost <= 4 * optimum * log(2 * instance.jobs) + 2 * dearest


@given(instance=EITHER)
def test_rounding_is_within_twice_the_program_and_two_machines_a_block(
    instance: CmsInstance,
) -> None:
    optimum = cheapest_by_trying(instance)

    solution = lp_rounding(instance)

    assert holds(instance, solution, optimum)
    value = BlockProgram(instance).relaxed().value
    assert value <= optimum + 1e-6
    assert solution.at_most == pytest.approx(
        2 * value + 2 * instance.blocks * instance.costs.max()
    )
    assert solution.cost <= 2 * value + 2 * instance.blocks * instance.costs.max() + 1e-6


@given(instance=EITHER, eps=st.sampled_from([0.5, 1.0, 3.0, 10.0]))
@settings(max_examples=40)
def test_rounding_with_eps_is_within_two_and_eps_of_the_optimum(
    instance: CmsInstance, eps: float
) -> None:
    optimum = cheapest_by_trying(instance)

    solution = lp_rounding(instance, eps)

    assert holds(instance, solution, optimum)
    assert solution.cost <= (2 + eps) * optimum + 1e-6


@given(instance=EITHER, eps=st.sampled_from([0.1, 0.5, 2.0, 1000.0]))
def test_the_scheme_is_within_one_and_eps_and_within_its_constant(
    instance: CmsInstance, eps: float
) -> None:
    optimum = cheapest_by_trying(instance)

    solution = ptas(instance, eps)

    assert holds(instance, solution, optimum)
    assert solution.cost <= (1 + eps) * optimum + 1e-6
    more = additive_machines(instance.blocks) * instance.costs.max()
    assert solution.cost <= optimum + more + 1e-6


def many_jobs(seed: int, jobs: int = 200) -> CmsInstance:
    """A hundred machines or two, far too many to try everything."""
    rng = np.random.default_rng(seed)
    configurations = up_to([1, 2, 4], 7)
    sizes = np.array([1.0, 2.0, 4.0])
    amounts = sizes * rng.uniform(0.5, 1.5, (jobs, 3))
    demands = rng.lognormal(1.0, 0.8, jobs)
    return cms_instance(amounts.tolist(), demands.tolist(), configurations)


@pytest.mark.parametrize("seed", range(4))
def test_guarantees_hold_against_the_bound_where_there_are_many_jobs(seed: int) -> None:
    instance = many_jobs(seed)
    scheme = ptas(instance, 0.05)
    bound = scheme.lower_bound
    rounding, greedy = lp_rounding(instance), log_greedy(instance)

    for one in (scheme, rounding, greedy):
        assert list(faults(instance, one.schedule)) == []
    # 3 kinds of blocks: max(3, 1 + 3 * 1) = 4 machines at most, 5 % from 80 machines on.
    assert bound > 80
    assert scheme.cost <= bound + 4
    assert scheme.cost <= 1.05 * bound
    assert rounding.cost <= 2 * bound + 2 * 3
    assert greedy.cost <= 4 * scheme.cost * log(2 * 200) + 2
    assert scheme.cost <= min(rounding.cost, greedy.cost)


def test_blocks_that_serve_more_than_a_demand_are_cut_to_it() -> None:
    instance = cms_instance([[9.0, 1.0]], [2.0], [[1, 1]])

    assert instance.amounts.tolist() == [[2.0, 1.0]]


def test_configurations_up_to_a_size_are_maximal_and_all() -> None:
    # Sizes 2 and 3 in 7: 3+3, 3+2+2 and 2+2+2; of 3+2 there is room for another 2.
    assert sorted(up_to([2, 3], 7)) == [(0, 2), (2, 1), (3, 0)]


def test_a_job_that_nothing_serves_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"Job 1 is served by no block"):
        cms_instance([[1.0, 0.0], [0.0, 3.0]], [1.0, 1.0], [[2, 0]])


def test_a_demand_of_nothing_is_refused_by_place_and_rule() -> None:
    with pytest.raises(InvalidInput, match=r"demands at 1 is 0\.0.*above 0"):
        cms_instance([[1.0], [1.0]], [1.0, 0.0], [[1]])
