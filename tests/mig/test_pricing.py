"""Bounds, patterns, coverings and simple planners, by hand and against trying everything."""

from dataclasses import replace
from itertools import product
from math import ceil

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from interlane.mig.baselines import FixedMix, SmallestSlices, WholeGpus, _mix, _smallest
from interlane.mig.covering import Block, Covering, covering_of, free_names, plan_of, spares
from interlane.mig.demand import GpuOffer, Problem, Service, SharedGpu
from interlane.mig.greedy import Greedy, _splits, greedy_cover, no_room, shares_of
from interlane.mig.knapsack import ServiceNeed, blocks_for, cheapest
from interlane.mig.patterns import nearest, within
from interlane.mig.plan import Effort, GpuPlan, Instance, Member, PartitionPlan, StopReason
from interlane.mig.pricing import (
    asks_of,
    bound_by,
    bound_of_survivors,
    cost_step,
    fair_prices,
    rounded_up,
    simple_bound,
    simple_prices,
)
from interlane.mig.profiles import gpu_model
from interlane.mig.searching import pinned_cost
from interlane.mig.survive import _shortfalls, spread_plan
from interlane.model import InvalidInput
from interlane.testing.mig import asked, cheapest_by_trying, small_demands

A100, A30 = "A100-80GB", "A30-24GB"
Demand = tuple[list[Service], list[GpuOffer], dict[tuple[str, str, str], float]]


def two_services(**offer: object) -> Problem:
    """a needs 20: 4g gives 8, 2g gives 5.  b needs 3 in two instances: 1g gives 2."""
    services = [Service("a", "a", 20, 100.0), Service("b", "b", 3, 100.0, min_replicas=2)]
    rates = {("a", A30, "4g.24gb"): 8.0, ("a", A30, "2g.12gb"): 5.0, ("b", A30, "1g.6gb"): 2.0}
    return asked(services, [GpuOffer(A30, **offer)], rates)[0]  # type: ignore[arg-type]


def pinned(problem: Problem, *gpus: GpuPlan) -> Problem:
    return replace(problem, pinned=gpus)


# -- coverings ----------------------------------------------------------------------------


def test_a_covering_is_the_problem_in_numbers() -> None:
    covering = covering_of(two_services(price=2.0, spare=3))
    names = [block.profile for block in covering.blocks]
    assert sorted(names) == ["1g.6gb", "2g.12gb", "4g.24gb"]
    assert covering.gives[0].tolist() == [{"4g.24gb": 8, "2g.12gb": 5}.get(n, 0) for n in names]
    assert covering.gives[1].tolist() == [{"1g.6gb": 2}.get(n, 0) for n in names]
    assert (covering.needs.tolist(), covering.least.tolist()) == ([20, 3], [1, 2])
    assert (set(covering.prices.tolist()), covering.constant) == ({2.0}, 6.0)
    supplied = {
        tuple(sorted((names[at], int(n)) for at, n in enumerate(row) if n))
        for row in covering.supply
    }
    # An A30 holds one of four units, two of two, one of two beside two of one, or four of one.
    assert supplied == {
        (("4g.24gb", 1),), (("2g.12gb", 2),), (("1g.6gb", 2), ("2g.12gb", 1)),
        (("1g.6gb", 4),),
    }  # fmt: skip
    assert covering.groups[0].most is None
    assert covering_of(two_services(limit=7, spare=3)).groups[0].most == 4


def test_what_is_pinned_is_there_paid_for_and_counts() -> None:
    held = Instance("2g.12gb", 0, "a", 1, 1, 5.0, 10.0)
    problem = pinned(
        two_services(limit=9), GpuPlan("p", A30, (held,)), GpuPlan("q", A30, (held,))
    )
    covering = covering_of(problem)
    assert covering.needs.tolist() == [10.0, 3.0]
    assert covering.least.tolist() == [0, 2]
    one = Instance("1g.6gb", 0, "b", 1, 1, 2.0, 10.0)
    half = covering_of(pinned(two_services(), GpuPlan("p", A30, (one,))))
    assert (half.needs.tolist(), half.least.tolist()) == ([20.0, 1.0], [1, 1])
    assert [(one.least, one.most) for one in covering.groups] == [(0, 7), (2, 2)]
    assert pinned_cost(covering) == 2.0
    beside = [one for one in covering.set_ups if one.group == 1]
    # Beside two units from 0: one of two, or two of one.
    assert sorted(tuple(str(slot) for slot in one.layout) for one in beside) == [
        ("1g.6gb@2", "1g.6gb@3"), ("2g.12gb@2",),
    ]  # fmt: skip
    over = pinned(two_services(), *(GpuPlan(f"p{n}", A30, (held,)) for n in range(4)))
    assert covering_of(over).needs.tolist() == [0.0, 3.0]


def test_a_gpu_shared_whole_is_a_set_up_with_a_block_for_each_member() -> None:
    both = SharedGpu("both", A30, (Member("a", 9.0, 1.0), Member("b", 4.0, 1.0)))
    covering = covering_of(replace(two_services(), shared=(both,)))
    shares = [at for at, block in enumerate(covering.blocks) if block.shared]
    assert [covering.blocks[at].profile for at in shares] == ["a", "b"]
    assert covering.gives[:, shares].tolist() == [[9.0, 0.0], [0.0, 4.0]]
    (set_up,) = [one for one in covering.set_ups if one.shared]
    assert [set_up.supply[at] for at in shares] == [1, 1]
    assert sum(set_up.supply) == 2
    by_compute, by_size = simple_prices(covering)
    assert by_compute[shares].tolist() == by_size[shares].tolist() == [0.5, 0.5]


@given(demand=small_demands())
def test_a_cover_becomes_gpus_that_hold_just_what_services_get(demand: Demand) -> None:
    problem, _ = asked(*demand)
    covering = covering_of(problem)
    cover = greedy_cover(covering)
    assert cover is not None
    for plan in (plan_of(problem, covering, cover), spread_plan(problem, covering, cover)):
        counts = np.zeros_like(cover.gets)
        rows = {one.name: row for row, one in enumerate(problem.services)}
        for gpu, one in plan.instances:
            column = covering.blocks.index(Block(gpu.model, one.profile))
            counts[rows[one.service], column] += 1
        assert (counts == cover.gets).all()
        assert len(plan.gpus) <= cover.used.sum()


def test_names_and_spares() -> None:
    names = free_names(["gpu-1", "other"])
    assert [next(names) for _ in range(3)] == ["gpu-0", "gpu-2", "gpu-3"]
    found = list(spares(two_services(spare=2)))
    assert [(gpu.id, gpu.model, gpu.is_spare) for gpu in found] == [
        ("spare-0", A30, True), ("spare-1", A30, True),
    ]  # fmt: skip


# -- patterns and prices ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "gives", "blocks"), [(0, 3, 0), (-5, 3, 0), (3, 3, 1), (3.1, 3, 2), (9, 3, 3),
                                  (3 * (1 + 1e-12), 3, 1)],
)  # fmt: skip
def test_so_many_blocks_give_what_is_left(left: float, gives: float, blocks: int) -> None:
    assert blocks_for(left, gives) == blocks


@given(
    gives=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    prices=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.5]), min_size=3, max_size=3),
    need=st.integers(0, 12),
    least=st.integers(0, 3),
)
def test_the_cheapest_of_several_asks_is_the_cheapest_pattern_of_any(
    gives: list[int], prices: list[float], need: int, least: int
) -> None:
    paid = np.array(prices[: len(gives)])
    first = ServiceNeed(
        tuple(range(len(gives))), tuple(map(float, gives)), float(need), least, len(gives)
    )
    second = replace(first, blocks=(0,), gives=(float(gives[0]),), need=float(need + 2))
    found = cheapest([first, second], paid)
    assert first.is_met(found.pattern) or second.is_met(found.pattern)
    tries = [
        float(paid @ np.array(counts))
        for counts in product(range(16), repeat=len(gives))
        if first.is_met(counts) or second.is_met(counts)
    ] if len(gives) < 3 else []  # fmt: skip
    assert found.cost == pytest.approx(float(paid @ np.array(found.pattern)))
    assert found.bound <= found.cost + 1e-9
    if tries:
        assert found.cost == pytest.approx(min(tries))


def test_an_ask_is_met_by_enough_throughput_in_enough_blocks() -> None:
    ask = ServiceNeed((0, 2), (2.0, 5.0), 10.0, 3, 3)
    assert ask.pattern([1, 2]) == (1, 0, 2)
    assert ask.is_met((1, 0, 2))
    assert not ask.is_met((0, 0, 2))  # two blocks, not three
    assert not ask.is_met((4, 0, 0))  # 8, not 10
    assert ask.is_met((0, 1, 2))  # a block that gives it nothing counts as one
    assert replace(ask, need=10 * (1 + 1e-10)).is_met((1, 0, 2)) is True


@given(
    gives=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    need=st.integers(1, 9),
    slack=st.sampled_from([0.0, 0.6, 1.5]),
)
def test_patterns_within_a_price_are_all_that_waste_no_block(
    gives: list[int], need: int, slack: float
) -> None:
    width = len(gives)
    ask = ServiceNeed(tuple(range(width)), tuple(map(float, gives)), float(need), 1, width)
    prices = np.array([1.0, 1.4, 0.7][:width])
    most = cheapest([ask], prices).cost + slack
    found, complete = within([ask], prices, most, 10_000)
    assert complete
    expected = set()
    for counts in product(range(10), repeat=width):
        fewer = [
            (*counts[:at], counts[at] - 1, *counts[at + 1 :])
            for at in range(width)
            if counts[at]
        ]
        wastes = any(ask.is_met(one) for one in fewer)
        if ask.is_met(counts) and not wastes and prices @ np.array(counts) <= most + 1e-9:
            expected.add(counts)
    assert found == expected
    rounding = 1e-6  # by which the cheapest may be off
    assert nearest([ask], prices, slack + rounding, len(expected) + 1) == (expected, True)
    few, complete = nearest([ask], prices, slack + rounding, 1)
    # The slack counts from a bound, so that a narrow one may hold nothing at all.
    assert (len(few) <= 1, complete, few <= expected) == (True, False, True)


def test_without_a_gpu_each_service_needs_its_largest_instance_once_more() -> None:
    covering = replace(covering_of(two_services()), survives=True)
    asks, plain = asks_of(covering), asks_of(replace(covering, survives=False))
    assert [(one.need, one.least) for one in plain[0]] == [(20.0, 1)]
    # a: its largest is a 2g (5) or a 4g (8); with a 2g at most, no 4g may be used.
    assert [(one.need, one.least, sorted(one.gives)) for one in asks[0]] == [
        (25.0, 2, [5.0]), (28.0, 2, [5.0, 8.0]),
    ]  # fmt: skip
    assert [(one.need, one.least) for one in asks[1]] == [(5.0, 2)]


def test_fair_prices_let_no_gpu_supply_more_than_it_costs() -> None:
    covering = covering_of(two_services())
    fair = fair_prices(covering, np.array([1.0, -3.0, 1.0]))
    worth = covering.supply @ fair
    assert fair.min() >= 0
    assert worth.max() == pytest.approx(1.0)
    cheap = np.full(3, 0.01)
    assert fair_prices(covering, cheap).tolist() == cheap.tolist()


@settings(max_examples=25)
@given(demand=small_demands(services=2), seed=st.integers(0, 99))
def test_any_prices_at_all_give_a_bound_that_holds(demand: Demand, seed: int) -> None:
    covering = covering_of(asked(*demand)[0])
    prices = np.random.default_rng(seed).uniform(0, 1, len(covering.blocks))
    least = cheapest_by_trying(*demand)
    assert bound_by(covering, asks_of(covering), prices) <= least + 1e-6
    assert simple_bound(covering) <= least + 1e-6


def test_the_simple_bound_by_hand() -> None:
    # By compute slices a 2g costs 1/2: a needs four of 5 (2 GPUs) or 8+8+5 (2.5); b two
    # quarters (1/2).  2.5 rounds up to 3.
    covering = covering_of(two_services())
    asks = asks_of(covering)
    by_compute = next(iter(simple_prices(covering)))
    assert sorted(by_compute.tolist()) == [0.25, 0.5, 1.0]
    assert bound_by(covering, asks, by_compute) == pytest.approx(2.5)
    assert simple_bound(covering) == 3.0
    assert simple_bound(covering_of(two_services(spare=4))) == 7.0
    assert simple_bound(covering_of(two_services(price=0.3))) == pytest.approx(0.9)


def test_limited_gpus_may_be_worth_more_than_they_cost() -> None:
    covering = covering_of(two_services(limit=5))
    prices = np.full(3, 1.0)
    # Nothing is endless, so prices stay: the cheapest patterns cost 3 (8+8+8) and 2 blocks,
    # and each of five GPUs may supply four blocks for 1, a profit of 3.
    assert bound_by(covering, asks_of(covering), prices) == pytest.approx(3 + 2 - 5 * 3)


def test_bounds_are_rounded_up_to_costs_that_can_occur() -> None:
    def priced(*prices: float) -> Covering:
        covering = covering_of(two_services())
        return replace(covering, prices=np.array(prices))

    assert cost_step(priced(1.0, 2.0)) == 1.0
    assert cost_step(priced(0.5, 0.75)) == 0.25
    assert cost_step(priced(1.0, 1.00001)) is None
    assert cost_step(priced(1 / 3, 1.0)) is None
    assert rounded_up(priced(0.5, 0.75), 2.3) == 2.5
    assert rounded_up(priced(0.5, 0.75), 2.25 + 1e-9) == 2.25
    assert rounded_up(priced(1 / 3, 1.0), 2.3) == 2.3
    survivors = bound_of_survivors(priced(2.0, 3.0), 4.5)
    assert survivors == 5.0 + 2.0
    held = covering_of(pinned(two_services(), GpuPlan("p", A30)))
    assert bound_of_survivors(held, 4.5) == 0.0


# -- greedy -------------------------------------------------------------------------------


def test_a_block_completes_a_share_of_the_need_and_no_more_than_a_replica() -> None:
    covering = covering_of(two_services())
    shares = {
        (row, covering.blocks[column].profile): float(value)
        for (row, column), value in np.ndenumerate(shares_of(covering))
        if value
    }
    # 8/20 and 5/20; 2/3 of b's need, but it wants two instances: a half each.
    assert shares == {(0, "4g.24gb"): 0.4, (0, "2g.12gb"): 0.25, (1, "1g.6gb"): 0.5}
    surviving = shares_of(replace(covering, survives=True))
    # Each needs its largest instance once more: 8/(20 + 8) and 2/(3 + 2).
    assert surviving.max(axis=1) == pytest.approx([8 / 28, 2 / 5])


def test_splits_give_blocks_to_two_services_or_one_and_none_comes_twice() -> None:
    covering = covering_of(two_services())
    for set_up in covering.set_ups:
        splits = [tuple((part.blocks, part.counts) for part in one) for one in _splits(set_up)]
        kinds = [block for block, count in enumerate(set_up.supply) if count]
        assert len(splits) == len({frozenset(one) for one in splits}) == 2 ** (len(kinds) - 1)
        for one in splits:
            together = sorted(block for blocks, _ in one for block in blocks)
            assert together == kinds
            for blocks, counts in one:
                assert counts == tuple(set_up.supply[block] for block in blocks)


def test_greedy_by_hand() -> None:
    # Worth of the first GPU: 4g 0.4, 2g+2g 0.5, 2g+1g+1g 0.25 of a and all of b.  Then a
    # misses 0.75, and 2g+2g (0.75 * 0.5) beats 4g (0.75 * 0.4).  Of the 0.25 that it misses
    # in the end either completes all, and the first of equals is taken.
    outcome = Greedy().solve(two_services(), Effort())
    held = [
        sorted((one.profile, one.service) for one in gpu.instances) for gpu in outcome.plan.gpus
    ]
    assert held == [
        [("4g.24gb", "a")], [("2g.12gb", "a"), ("2g.12gb", "a")],
        [("1g.6gb", "b"), ("1g.6gb", "b"), ("2g.12gb", "a")],
    ]  # fmt: skip
    assert (outcome.cost, outcome.lower_bound, outcome.stopped) == (
        3.0,
        3.0,
        StopReason.OPTIMAL,
    )
    with pytest.raises(InvalidInput, match="within the limit of 2 A30-24GB"):
        Greedy().solve(two_services(limit=2), Effort())
    assert no_room(two_services(limit=2), exists=False).startswith("No plan exists within")


# -- surviving ----------------------------------------------------------------------------


def test_needs_grow_by_what_is_missing_without_the_gpu_that_is_relied_on_most() -> None:
    problem = two_services()
    two = Instance("2g.12gb", 0, "a", 1, 1, 5.0, 10.0)
    one = Instance("1g.6gb", 0, "b", 1, 1, 2.0, 10.0)
    plan = PartitionPlan(
        (
            GpuPlan("g", A30, (two, replace(two, start=2))),
            GpuPlan("h", A30, (two, replace(two, start=2))),
            GpuPlan("i", A30, (one,)), GpuPlan("j", A30, (one,)), GpuPlan("k", A30, (one,)),
        )
    )  # fmt: skip
    # a has 20 and loses 10: 10 are missing, more than the 5 beside its largest.  b has 6,
    # loses 2, and needs 3.
    assert _shortfalls(problem, plan) == [10.0, 0.0]
    whole = PartitionPlan((*plan.gpus, *(replace(gpu, id=gpu.id * 2) for gpu in plan.gpus)))
    assert _shortfalls(problem, whole) == [0.0, 0.0]


# -- baselines ----------------------------------------------------------------------------


def by_slices(rate: float = 30.0, **more: object) -> Problem:
    """One service: 1g gives 1, 2g 2 and so on; a whole GPU of seven slices gives 9."""
    rates = {
        ("a", A100, profile.name): float(
            profile.compute_slices + 2 * (profile.compute_slices == 7)
        )
        for profile in gpu_model(A100).profiles
        if "+" not in profile.name and "." in profile.name
    }
    service = replace(Service("a", "a", rate, 100.0), **more)  # type: ignore[arg-type]
    return asked([service], [GpuOffer(A100)], rates)[0]


@pytest.mark.parametrize(
    ("planner", "rate", "gpus"),
    [
        # Whole GPUs give 9 each; 7 slices of 1 give 7; 4g+2g+1g give 7.
        (WholeGpus(), 30.0, ceil(30 / 9)),
        (WholeGpus(), 27.0, 3),
        (SmallestSlices(), 30.0, ceil(30 / 7)),
        (SmallestSlices(), 28.0, 4),
        (FixedMix(), 30.0, ceil(30 / 7)),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "solve") else str(value),
)
def test_baselines_cut_every_gpu_alike(
    planner: WholeGpus | SmallestSlices | FixedMix, rate: float, gpus: int
) -> None:
    outcome = planner.solve(by_slices(rate), Effort())
    assert (len(outcome.plan.gpus), outcome.cost) == (gpus, gpus)
    assert sum(outcome.plan.throughputs().values()) >= rate
    cuts = {tuple(slot.profile for slot in gpu.layout) for gpu in outcome.plan.gpus[:-1]}
    assert len(cuts) <= 1


def test_replicas_make_baselines_take_more_gpus() -> None:
    assert len(WholeGpus().solve(by_slices(9.0, min_replicas=3), Effort()).plan.gpus) == 3
    assert len(SmallestSlices().solve(by_slices(1.0, min_replicas=8), Effort()).plan.gpus) == 2
    assert len(FixedMix().solve(by_slices(1.0, min_replicas=4), Effort()).plan.gpus) == 2


def test_the_cuts_of_baselines() -> None:
    a100, a30 = gpu_model(A100), gpu_model(A30)
    sizes = [slot.profile[:2] for slot in _mix(a100)]
    assert sorted(sizes) == ["1g", "2g", "4g"]
    assert sorted(slot.profile[:2] for slot in _mix(a30)) == ["1g", "1g", "2g"]
    assert [str(slot) for slot in _smallest(a100)] == [f"1g.10gb@{start}" for start in range(7)]


def test_services_that_a_cut_cannot_serve_get_whole_gpus_and_are_named() -> None:
    rates = {
        ("a", A100, "7g.80gb"): 9.0,
        ("b", A100, "1g.10gb"): 1.0,
        ("b", A100, "7g.80gb"): 9.0,
    }
    services = [Service("a", "a", 10, 100.0), Service("b", "b", 3, 100.0)]
    problem = asked(services, [GpuOffer(A100)], rates)[0]
    outcome = SmallestSlices().solve(problem, Effort())
    assert [len(gpu.instances) for gpu in outcome.plan.gpus] == [3, 1, 1]
    assert outcome.notes[-1] == "On whole GPUs, since the cut is too slow: a."
    with pytest.raises(InvalidInput, match="needs 3 A100-80GB, and there are 2"):
        SmallestSlices().solve(replace(problem, offers=(GpuOffer(A100, limit=2),)), Effort())
    for other in (
        pinned(problem, GpuPlan("p", A100)),
        replace(problem, survive_gpu_loss=True),
        replace(problem, offers=(GpuOffer(A100), GpuOffer(A30))),
    ):
        with pytest.raises(InvalidInput, match="plans for one GPU model"):
            WholeGpus().solve(other, Effort())


@settings(max_examples=25)
@given(demand=small_demands(gpus=(A100,), services=2))
def test_no_baseline_beats_greedy_by_more_than_the_bound_allows(demand: Demand) -> None:
    problem, _ = asked(*demand)
    greedy = Greedy().solve(problem, Effort())
    assume(greedy.cost < 50)
    for planner in (WholeGpus(), SmallestSlices()):
        outcome = planner.solve(problem, Effort())
        assert outcome.lower_bound == greedy.lower_bound <= outcome.cost + 1e-9
