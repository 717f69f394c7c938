"""What must never happen while machines come, change, drain and go."""

from functools import partial

import pytest
from hypothesis import Phase, given, seed, settings

from interlane.kernel.scheduler import Scheduler
from interlane.model import Cluster
from interlane.policy.catalogue import make_order, make_placer
from interlane.policy.policy import Discipline, Policy
from interlane.testing.conformance import ContractBroken
from interlane.testing.faulty import FAULTY_SCHEDULERS, PlainFirstFit
from interlane.testing.machines import Step, check_machines, steps
from interlane.testing.strategies import LEVELS, clusters

EMPTY = Cluster("empty", (), topology=LEVELS)

FILLING = {
    "first-fit": Policy(make_order("fifo"), make_placer("first-fit")),
    "pack": Policy(make_order("sjf"), make_placer("pack")),
    "balance": Policy(make_order("fifo"), make_placer("balance")),
    "random": Policy(make_order("fifo"), make_placer("random")),
}
OTHERS = {
    "plain Python": Policy(make_order("fifo"), PlainFirstFit()),
    "strict": Policy(make_order("fifo"), make_placer("pack"), Discipline.STRICT),
    "easy": Policy(make_order("fifo"), make_placer("pack"), Discipline.EASY),
    "preempting": Policy(make_order("srtf"), make_placer("best-fit")),
    "preempting by service": Policy(make_order("las"), make_placer("pack")),
    "reserve-and-lend": Policy(make_order("fifo"), make_placer("reserve-and-lend")),
}


@pytest.mark.parametrize("name", FILLING)
@given(on=clusters(most=3), happens=steps())
def test_a_greedy_queue_keeps_to_the_machines_there_are_and_fills_them(
    name: str, on: Cluster, happens: list[Step]
) -> None:
    check_machines(lambda at: Scheduler(at, FILLING[name]), on, happens, fills=True)


@pytest.mark.parametrize("name", OTHERS)
@given(on=clusters(most=3), happens=steps())
def test_every_discipline_and_preemption_keep_to_the_machines_there_are(
    name: str, on: Cluster, happens: list[Step]
) -> None:
    check_machines(lambda at: Scheduler(at, OTHERS[name]), on, happens)


@given(happens=steps())
def test_machines_may_come_and_go_in_a_cluster_that_begins_empty(happens: list[Step]) -> None:
    check_machines(lambda at: Scheduler(at, FILLING["pack"]), EMPTY, happens, fills=True)


@pytest.mark.parametrize("run", range(2))
@pytest.mark.parametrize("fault", FAULTY_SCHEDULERS)
def test_every_planted_scheduler_is_caught(fault: str, run: int) -> None:
    make = partial(Scheduler, policy=FILLING["first-fit"])
    through = FAULTY_SCHEDULERS[fault]

    @seed(run)
    @settings(max_examples=1_000, database=None, phases=[Phase.generate], derandomize=False)
    @given(on=clusters(most=3), happens=steps())
    def keeps_the_contract(on: Cluster, happens: list[Step]) -> None:
        check_machines(make, on, happens, through=through, fills=True)

    with pytest.raises(ContractBroken):
        keeps_the_contract()
