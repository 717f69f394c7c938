"""Whom to stop: enough, nobody needlessly, and the cheap ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from interlane.kernel.ledger import Ledger
from interlane.model import Demand, InvalidField, Machine
from interlane.policy import rows, victims
from interlane.policy.preempt import Preemption
from interlane.tables import AT_MACHINE, HELD_BY, Holdings
from interlane.tables.compiled import change
from interlane.testing.build import cluster, machine

Spot = tuple[int, int, int, Demand]
"""Machine, mask of GPUs, instances, and what each instance needs."""


class Case:
    """Machines, and jobs that hold some of them."""

    def __init__(self, on: list[Machine], jobs: list[list[Spot]], cost: list[float]) -> None:
        self.ledger = Ledger(cluster(*on))
        self.cost = np.array(cost)
        held = []
        for holder, spots in enumerate(jobs):
            for number, mask, instances, needs in spots:
                ask = self.ledger.add_ask(needs, needs.gpu_types, 1)
                held.append((number, mask, instances, ask, holder))
        self.held = np.array(held, np.int64).reshape(-1, 5)
        self.free = self.without([])

    def without(self, stopped: list[int]) -> NDArray[np.int64]:
        """What is free when some jobs are stopped."""
        free = self.ledger.total.copy()
        for number, mask, instances, ask, holder in self.held.tolist():
            if holder not in stopped:
                change(free, number, self.ledger.asks, ask, mask, instances)
        return free

    def room(self, ask: int, stopped: list[int]) -> int:
        free = self.without(stopped)
        return sum(rows.room_for(free, at, self.ledger.asks, ask) for at in range(len(free)))

    def found(self, needs: Demand, need: int) -> tuple[int, list[int]]:
        """The ask's number, and whom the search stops."""
        ask = self.ledger.add_ask(needs, needs.gpu_types, 1)
        at, by = self.held[:, AT_MACHINE], self.held[:, HELD_BY]
        by_machine = np.lexsort((by, self.cost[by], at))
        starts = np.searchsorted(at[by_machine], np.arange(self.ledger.height + 1))
        first = np.searchsorted(by, np.arange(len(self.cost) + 1))
        holdings = Holdings(self.held, by_machine, starts, first, self.cost)
        chosen = victims.find_victims(self.free, self.ledger.asks, ask, need, holdings)
        return ask, np.flatnonzero(chosen).tolist()


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw two or three machines of two GPUs, and jobs that hold halves and whole ones."""
    machines = [machine(f"m{n}", gpus=2) for n in range(draw(st.integers(2, 3)))]
    places = [(at, gpu) for at in range(len(machines)) for gpu in (0, 1)]
    jobs: list[list[Spot]] = [[] for _ in range(draw(st.integers(1, 5)))]
    for at, gpu in places:
        for milli in draw(st.sampled_from([[1000], [500, 500], [500], []])):
            holder = draw(st.integers(0, len(jobs) - 1))
            jobs[holder].append((at, 1 << gpu, 1, Demand(1, milli)))
    jobs = [spots for spots in jobs if spots] or [[(0, 1, 1, Demand(1, 1))]]
    cost = [draw(st.sampled_from([1.0, 2.0, 5.0, 5.0, 9.0])) for _ in jobs]
    return Case(machines, jobs, cost)


@given(case=cases(), gpus=st.integers(1, 2), need=st.integers(1, 5))
def test_victims_are_enough_and_none_of_them_is_needless(
    case: Case, gpus: int, need: int
) -> None:
    ask, stopped = case.found(Demand(gpus), need)
    everybody = list(range(len(case.cost)))
    if case.room(ask, []) >= need or case.room(ask, everybody) < need:
        assert stopped == []
        return
    assert case.room(ask, stopped) >= need
    for one in stopped:
        assert case.room(ask, [other for other in stopped if other != one]) < need


@given(case=cases(), need=st.integers(1, 6))
def test_the_search_changes_nothing(case: Case, need: int) -> None:
    free, held = case.free.copy(), case.held.copy()
    case.found(Demand(1), need)
    assert (case.free == free).all()
    assert (case.held == held).all()


@given(
    costs=st.lists(st.integers(1, 50), min_size=4, max_size=6, unique=True),
    need=st.integers(1, 4),
)
def test_of_jobs_that_hold_alike_the_cheapest_go(costs: list[int], need: int) -> None:
    # One whole GPU each on a machine of its own: the least sum is that of the cheapest.
    on = [machine(f"m{n}", gpus=1) for n in range(len(costs))]
    jobs: list[list[Spot]] = [[(at, 1, 1, Demand(1))] for at in range(len(costs))]
    _, stopped = Case(on, jobs, [float(cost) for cost in costs]).found(Demand(1), need)
    assert sorted(costs[one] for one in stopped) == sorted(costs)[:need]


@given(costs=st.lists(st.integers(1, 9), min_size=4, max_size=4))
def test_a_gang_that_must_share_a_machine_is_seated_where_that_is_cheapest(
    costs: list[int],
) -> None:
    # Two machines of two GPUs, one job on each GPU: a pair costs the cheaper machine's both.
    on = [machine(name, gpus=2) for name in "ab"]
    jobs: list[list[Spot]] = [[(at // 2, 1 << at % 2, 1, Demand(1))] for at in range(4)]
    _, stopped = Case(on, jobs, [float(cost) for cost in costs]).found(Demand(2), 1)
    least = min(costs[0] + costs[1], costs[2] + costs[3])
    assert stopped in ([0, 1], [2, 3])
    assert sum(costs[one] for one in stopped) == least


def test_who_frees_all_that_is_needed_spares_those_who_were_stopped_before() -> None:
    # 0 gives one GPU for 3, and 1 gives two for 4: for one GPU 0 goes, for two 1 alone.
    on = [machine("a", gpus=1), machine("b", gpus=2)]
    jobs: list[list[Spot]] = [[(0, 1, 1, Demand(1))], [(1, 0b11, 1, Demand(2))]]
    case = Case(on, jobs, [3.0, 4.0])
    assert case.found(Demand(1), 1)[1] == [0]
    assert case.found(Demand(1), 2)[1] == [1]
    assert case.found(Demand(1), 3)[1] == [0, 1]
    assert case.found(Demand(1), 4)[1] == []


def test_a_cheap_job_whose_end_frees_nothing_usable_is_spared() -> None:
    # Job 0 holds a half of each GPU, 1 and 2 the others; a whole GPU takes 0 and one more.
    on = [machine("a", gpus=2)]
    half = Demand(1, 500)
    jobs: list[list[Spot]] = [
        [(0, 0b01, 1, half), (0, 0b10, 1, half)], [(0, 0b01, 1, half)], [(0, 0b10, 1, half)],
    ]  # fmt: skip
    assert Case(on, jobs, [1.0, 2.0, 5.0]).found(Demand(1), 1)[1] == [0, 1]
    assert Case(on, jobs, [9.0, 5.0, 2.0]).found(Demand(1), 1)[1] == [0, 2]


def test_all_that_a_victim_holds_counts_wherever_it_is() -> None:
    # Stopping the gang on both machines frees two GPUs; need 2 takes it alone.
    on = [machine("a", gpus=1), machine("b", gpus=1), machine("c", gpus=1)]
    jobs: list[list[Spot]] = [
        [(0, 1, 1, Demand(1)), (1, 1, 1, Demand(1))], [(2, 1, 1, Demand(1))],
    ]  # fmt: skip
    assert Case(on, jobs, [4.0, 5.0]).found(Demand(1), 2)[1] == [0]


@pytest.mark.parametrize(
    ("costs", "stopped"),
    [
        # One job holds three GPUs, another one: what a GPU costs decides, and all that the
        # search has to compare is the price of the cheapest.  3/3 beats 2/1, not 0.9/1.
        ((3.0, 2.0), [0]),
        ((3.0, 0.9), [1]),
        ((3.0, 1.0), [0]),  # the first machine of equals
    ],
)
def test_the_price_of_a_gpu_decides_between_machines(
    costs: tuple[float, float], stopped: list[int]
) -> None:
    on = [machine("a", gpus=3), machine("b", gpus=1)]
    jobs: list[list[Spot]] = [[(0, 0b111, 1, Demand(3))], [(1, 1, 1, Demand(1))]]
    assert Case(on, jobs, list(costs)).found(Demand(1), 1)[1] == stopped


def test_every_instance_of_a_spot_is_given_back() -> None:
    # Two instances of a half each fill the GPU; stopping their job frees it as a whole.
    jobs: list[list[Spot]] = [[(0, 1, 2, Demand(1, 500, cpu_milli=1_000))]]
    case = Case([machine("a", gpus=1, cpus=2)], jobs, [1.0])
    assert case.found(Demand(1, cpu_milli=2_000), 1)[1] == [0]
    assert case.found(Demand(1, 500, cpu_milli=1_000), 2)[1] == [0]


def test_unless_said_otherwise_anybody_may_be_stopped_and_that_costs_half_a_minute() -> None:
    assert Preemption() == Preemption(min_run_s=0.0, restart_s=30.0)


@pytest.mark.parametrize("field", ["min_run_s", "restart_s"])
def test_times_below_zero_are_refused(field: str) -> None:
    assert getattr(Preemption(**{field: 0.0}), field) == 0.0
    with pytest.raises(InvalidField, match=f"{field} is -1"):
        Preemption(**{field: -1.0})
