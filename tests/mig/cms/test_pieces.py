"""Pieces of configurable machine scheduling, each by hand or against trying everything."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.mig.cms.greedy import _filled, log_greedy
from interlane.mig.cms.instance import (
    CmsInstance,
    Schedule,
    cms_instance,
    faults,
    up_to,
    without_surplus,
)
from interlane.mig.cms.planner import cms_of
from interlane.mig.cms.programs import BlockProgram, machines_for, whole_step, with_extra
from interlane.mig.cms.ptas import additive_machines, ptas
from interlane.mig.cms.rounding import lp_rounding, rounded
from interlane.mig.covering import covering_of
from interlane.mig.demand import GpuOffer, Service
from interlane.mig.solver import ENDLESS, Column, LinearProgram
from interlane.model import InvalidField, InvalidInput
from interlane.testing.cms import small_instances
from interlane.testing.mig import asked

PAIR = cms_instance([[2, 1], [0, 3]], [4, 6], [[2, 0], [1, 1], [0, 2]])
"""Job 0 needs 4: block 0 gives 2, block 1 gives 1.  Job 1 needs 6 and gets 3 of block 1."""


# -- instances and schedules --------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"demands": []}, "at least one job"),
        ({"configurations": []}, "one configuration"),
        ({"amounts": [[1, 2]]}, "amounts has 1 rows of 2, but there are 2 jobs"),
        ({"amounts": [[1, 2], [1]]}, "amounts has rows of different lengths"),
        ({"configurations": [[1, 0], [1]]}, "configurations has rows of different lengths"),
        ({"costs": [1]}, "There are 1 costs and 3 configurations"),
        ({"costs": [1, 0, 1]}, "costs at 1 is 0.0, but it must be above 0"),
        ({"demands": [1, -1]}, "demands at 1 is -1.0, but it must be above 0"),
        ({"amounts": [[1, 2], [-1, 2]]}, "amounts at 2 is -1.0, but it must be 0 or more"),
        ({"amounts": [[1, 2], [float("inf"), 2]]}, "amounts at 2 is inf"),
        ({"configurations": [[1, 0], [0.5, 1], [0, 2]]}, "configurations at 2 is 0.5"),
        ({"configurations": [[1, 0], [-1, 1], [0, 2]]}, "configurations at 2 is -1.0"),
        (
            {"configurations": [[1, 0]], "amounts": [[0, 1], [1, 0]]},
            "Job 0 is served by no block",
        ),
    ],
)
def test_an_instance_that_makes_no_sense_is_refused(
    change: dict[str, list[float]], sentence: str
) -> None:
    good = {
        "amounts": [[2, 1], [0, 3]],
        "demands": [4, 6],
        "configurations": [[2, 0], [1, 1], [0, 2]],
    }
    with pytest.raises(InvalidInput, match=sentence):
        cms_instance(**(good | change))  # type: ignore[arg-type]


def test_what_is_wrong_with_a_schedule_is_told() -> None:
    good = Schedule(np.array([1, 0, 1]), np.array([[2, 0], [0, 2]]))
    assert list(faults(PAIR, good)) == []
    assert good.cost(replace(PAIR, costs=np.array([3.0, 1.0, 0.5]))) == 3.5
    few = Schedule(np.array([1, 0, 0]), good.gets)
    assert list(faults(PAIR, few)) == ["Block 1: 2 are taken and 0 are there."]
    less = Schedule(good.used, np.array([[1, 0], [0, 2]]))
    assert list(faults(PAIR, less)) == ["Job 0 gets 2 of 4."]
    odd = Schedule(np.array([2, -1, 1]), good.gets)
    assert next(faults(PAIR, odd)) == "A count is below 0."


@given(
    gets=st.lists(st.integers(0, 6), min_size=2, max_size=2),
    amounts=st.lists(st.integers(0, 4), min_size=2, max_size=2),
    demand=st.integers(1, 9),
)
def test_surplus_is_what_can_go_while_the_demand_is_met(
    gets: list[int], amounts: list[int], demand: int
) -> None:
    instance = CmsInstance(np.array([amounts], float), np.array([float(demand)]),
                           np.ones((1, 2), np.int64), np.ones(1))  # fmt: skip
    kept = without_surplus(instance, np.array([gets]))[0]
    had, has = np.dot(gets, amounts), np.dot(kept, amounts)
    assert (kept <= gets).all()
    assert has >= min(had, demand)
    for block in range(2):
        if kept[block]:
            # Nothing that is left could go, and blocks that give nothing are gone.
            assert amounts[block] > 0
            assert has - amounts[block] < demand


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3), capacity=st.integers(4, 7))
def test_maximal_multisets_are_those_to_which_nothing_can_be_added(
    sizes: list[int], capacity: int
) -> None:
    def fits(counts: tuple[int, ...]) -> bool:
        return sum(n * size for n, size in zip(counts, sizes, strict=True)) <= capacity

    every = [one for one in product(range(8), repeat=len(sizes)) if fits(one)]
    maximal = [
        one
        for one in every
        if not any(fits((*one[:at], one[at] + 1, *one[at + 1 :])) for at in range(len(sizes)))
    ]
    assert sorted(up_to(sizes, capacity)) == sorted(maximal)


# -- greedy and rounding ------------------------------------------------------------------


def test_block_after_block_goes_to_whoever_gains_most() -> None:
    shares = np.array([[0.5, 0.25], [0.25, 0.5]])
    gain, given_ = _filled(np.array([2, 2]), shares, np.array([1.0, 0.4]))
    # Block 0 is given first (equal best shares): twice to job 0, which is then whole.  Of
    # block 1, job 1 takes one for the 0.4 that it misses, and nobody gains by another.
    assert gain == pytest.approx(0.5 + 0.5 + 0.4)
    assert given_.tolist() == [[2, 0], [0, 1]]


@given(instance=small_instances(with_costs=True))
def test_greedy_schedules_serve_and_cost_what_they_say(instance: CmsInstance) -> None:
    found = log_greedy(instance)
    assert list(faults(instance, found.schedule)) == []
    assert found.cost == found.schedule.cost(instance)
    assert log_greedy(instance, found.cost).is_optimal
    assert not log_greedy(instance, found.cost - 0.5).is_optimal


@given(instance=small_instances(with_costs=True))
def test_rounding_a_vertex_serves_all_and_stays_below_twice_its_value(
    instance: CmsInstance,
) -> None:
    vertex = BlockProgram(instance).relaxed()
    schedule = rounded(instance, vertex)
    assert list(faults(instance, schedule)) == []
    additive = 2 * instance.blocks * instance.costs.max()
    assert vertex.value - 1e-6 <= schedule.cost(instance) <= 2 * vertex.value + additive + 1e-6
    used, gets = vertex.used, vertex.gets
    assert vertex.value == pytest.approx(float(instance.costs @ used), abs=1e-6)
    assert ((instance.amounts * gets).sum(axis=1) >= instance.demands * (1 - 1e-6)).all()
    assert (gets.sum(axis=0) <= used @ instance.counts + 1e-6).all()


@given(instance=small_instances(with_costs=True), data=st.data())
def test_machines_for_blocks_are_the_cheapest_that_supply_them(
    instance: CmsInstance, data: st.DataObject
) -> None:
    blocks = np.array([data.draw(st.integers(0, 4)) for _ in range(instance.blocks)])
    start = with_extra(instance, np.zeros(len(instance.costs), np.int64), blocks)
    assert (start @ instance.counts >= blocks).all()
    found = machines_for(instance, blocks, start)
    assert (found @ instance.counts >= blocks).all()
    least = min(
        float(instance.costs @ np.array(used))
        for used in product(range(5), repeat=len(instance.costs))
        if (np.array(used) @ instance.counts >= blocks).all()
    )
    assert float(instance.costs @ found) == pytest.approx(least)


def test_for_each_block_that_is_missing_the_cheapest_machine_is_added() -> None:
    dear = replace(PAIR, costs=np.array([1.0, 5.0, 2.0]))
    # Three of block 0 are missing, one of block 1: three of the first, one of the last.
    found = with_extra(dear, np.array([0, 0, 0]), np.array([3, 1]))
    assert found.tolist() == [3, 0, 1]
    assert with_extra(dear, np.array([0, 1, 0]), np.array([1, 1])).tolist() == [0, 1, 0]
    assert (whole_step(dear), whole_step(replace(PAIR, costs=np.array([0.5, 1, 1])))) == (1, 0)


@pytest.mark.parametrize(("blocks", "added"), [(1, 1), (2, 2), (3, 4), (4, 9), (5, 16)])
def test_the_scheme_adds_a_constant_of_machines(blocks: int, added: int) -> None:
    assert additive_machines(blocks) == added
    with pytest.raises(InvalidField, match="eps"):
        ptas(PAIR, 0.0)


def test_a_small_instance_is_solved_to_the_end_where_eps_asks_for_it() -> None:
    # 4 and 6 take two blocks of each kind: one machine of either pure configuration.
    # The scheme's first schedule meets the bound; it promised the bound and two machines.
    for found, at_most in ((ptas(PAIR, 0.1), 4.0), (lp_rounding(PAIR, 0.1), 2.0)):
        assert (found.cost, found.lower_bound, found.at_most) == (2.0, 2.0, at_most)
        assert found.is_optimal
        assert not found.is_cut_short
    plain = lp_rounding(PAIR)
    assert plain.at_most == pytest.approx(2 * 2.0 + 2 * 2)


def test_services_are_jobs_whose_need_is_one() -> None:
    problem, _ = asked(
        [Service("a", "a", 10, 100.0), Service("b", "b", 3, 100.0, min_replicas=2)],
        [GpuOffer("A30-24GB", 2.0)],
        {("a", "A30-24GB", "4g.24gb"): 4.0, ("b", "A30-24GB", "1g.6gb"): 3.0},
    )
    instance = cms_of(covering_of(problem))
    assert instance.demands.tolist() == [1.0, 1.0]
    assert sorted(instance.amounts.max(axis=1).tolist()) == [0.4, 0.5]
    assert set(instance.costs.tolist()) == {2.0}


# -- the solver ---------------------------------------------------------------------------


def test_a_program_is_minimised_and_made_whole() -> None:
    # min x + y with x + 2y >= 3, y <= 1: in fractions and in whole numbers x = 1, y = 1; with
    # twice the price of y, x = 3.
    def program(price: float) -> LinearProgram:
        made = LinearProgram([(3.0, ENDLESS)])
        made.add([Column(1.0, [(0, 1.0)]), Column(price, [(0, 2.0)], most=1.0)])
        return made

    solved = program(1.0).run()
    assert solved.values is not None
    assert solved.values.tolist() == [1.0, 1.0]
    assert (solved.objective, solved.duals.tolist()) == (2.0, [1.0])
    whole = program(1.9)
    whole.make_whole()
    found = whole.run()
    assert found.values is not None
    assert found.objective == pytest.approx(2.9)
    assert not found.is_infeasible
    never = LinearProgram([(3.0, 2.0)])
    never.add([Column(1.0, [(0, 1.0)])])
    assert never.run().is_infeasible
