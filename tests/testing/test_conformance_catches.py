"""The suite is only as good as the faults it finds: each planted one must fall."""

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, seed, settings

from interlane.kernel.ledger import Ledger
from interlane.model import Job
from interlane.policy.base import Order, Placer
from interlane.policy.order import Fifo
from interlane.testing.build import cluster, job, ledger_with, machine
from interlane.testing.conformance import ContractBroken, check_order, check_placer
from interlane.testing.faulty import FAULTY_ORDERS, FAULTY_PLACERS, PlainFirstFit
from interlane.testing.strategies import jobs, ledgers, several_jobs

RUNS = 3


@given(drawn=jobs(), ledger=ledgers())
def test_the_sound_placer_that_the_faulty_ones_copy_keeps_the_contract(
    drawn: Job, ledger: Ledger
) -> None:
    check_placer(PlainFirstFit(), drawn, ledger)


@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("fault", FAULTY_PLACERS)
def test_every_planted_placer_is_caught(fault: str, run: int) -> None:
    @seed(run)
    @settings(max_examples=400, database=None, phases=[Phase.generate], derandomize=False)
    @given(drawn=jobs(), ledger=ledgers())
    def keeps_the_contract(drawn: Job, ledger: Ledger) -> None:
        check_placer(FAULTY_PLACERS[fault](), drawn, ledger)

    with pytest.raises(ContractBroken):
        keeps_the_contract()


@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("fault", FAULTY_ORDERS)
def test_every_planted_order_is_caught(fault: str, run: int) -> None:
    @seed(run)
    @settings(max_examples=30, database=None, phases=[Phase.generate], derandomize=False)
    @given(drawn=several_jobs())
    def keeps_the_contract(drawn: list[Job]) -> None:
        check_order(FAULTY_ORDERS[fault](), drawn)

    with pytest.raises(ContractBroken):
        keeps_the_contract()


TWO_BY_TWO = cluster(machine("m0", gpus=2), machine("m1", gpus=2, type="V100"))

CLAUSES: dict[str, tuple[str, Job, Callable[[], Ledger]]] = {
    "overcommits": (
        "fits",
        job(gpus=1),
        lambda: ledger_with(TWO_BY_TWO, [[1000, 0]]),
    ),
    "asks for less than the job needs": (
        "fits",
        job(gpus=1, gpu_milli=800),
        lambda: ledger_with(TWO_BY_TWO, [[500, 500], [500, 500]]),
    ),
    "chooses for less than the job needs": (
        "fits",
        job(gpus=1, gpu_milli=800),
        lambda: ledger_with(TWO_BY_TWO, [[500, 500], [500, 500]]),
    ),
    "invents machines": ("known machine", job(gpus=1), lambda: Ledger(TWO_BY_TWO)),
    "invents tasks": ("known task", job(gpus=1), lambda: Ledger(TWO_BY_TWO)),
    "invents GPUs": ("known GPU", job(gpus=1), lambda: Ledger(TWO_BY_TWO)),
    "uses the global random generator": (
        "no global random generator",
        job(gpus=1),
        lambda: Ledger(TWO_BY_TWO),
    ),
    "uses numpy's global random generator": (
        "no global random generator",
        job(gpus=1),
        lambda: Ledger(TWO_BY_TWO),
    ),
    "writes to the state": ("view unchanged", job(gpus=1), lambda: Ledger(TWO_BY_TWO)),
    "writes to the view's index": ("view unchanged", job(gpus=1), lambda: Ledger(TWO_BY_TWO)),
    "places half the gang": (
        "complete",
        job(gpus=1, instances=2),
        lambda: Ledger(TWO_BY_TWO),
    ),
    "places too many": ("complete", job(cpus=1), lambda: Ledger(TWO_BY_TWO)),
    "refuses silently": ("refusal has a reason", job(gpus=4), lambda: Ledger(TWO_BY_TWO)),
    "refuses without a remedy": (
        "refusal has a remedy",
        job(gpus=4),
        lambda: Ledger(TWO_BY_TWO),
    ),
    "names a GPU twice": ("no GPU twice", job(gpus=2), lambda: Ledger(TWO_BY_TWO)),
    "ignores GPU types": ("GPU types", job(gpus=1, types=["V100"]), lambda: Ledger(TWO_BY_TWO)),
    "spreads what belongs together": (
        "togetherness",
        job(gpus=1, instances=2, same_machine=True),
        lambda: ledger_with(TWO_BY_TWO, [[0, 1000]]),
    ),
    "uses lost machines": (
        "machine is there",
        job(gpus=1),
        lambda: ledger_with(TWO_BY_TWO, lost=[0]),
    ),
    "answers differently when asked twice": (
        "same answer",
        job(gpus=1),
        lambda: Ledger(TWO_BY_TWO),
    ),
}


@pytest.mark.parametrize("fault", FAULTY_PLACERS)
def test_a_planted_placer_is_told_which_clause_it_broke(fault: str) -> None:
    clause, asked, ledger = CLAUSES[fault]
    placer: Placer = FAULTY_PLACERS[fault]()

    with pytest.raises(ContractBroken) as caught:
        check_placer(placer, asked, ledger())

    assert caught.value.clause == clause


ORDER_CLAUSES = {
    "a key that is not a number": "key is finite",
    "an endless key": "key is finite",
    "uses the global random generator": "no global random generator",
    "draws lots": "same answer",
    "counts questions": "same answer",
    "a rank that falls while waiting": "rank never falls",
    "a rise that never comes": "rise comes",
    "a rise at once": "rise comes later",
    "service that is forgotten": "service counts",
    "a slope that is not there": "rank follows its slope",
    "favours the rich": "more running, less urgent",
}


@pytest.mark.parametrize("fault", FAULTY_ORDERS)
def test_a_planted_order_is_told_which_clause_it_broke(fault: str) -> None:
    with pytest.raises(ContractBroken) as caught:
        check_order(FAULTY_ORDERS[fault](), [job("a"), job("b", at=1)])

    assert caught.value.clause == ORDER_CLAUSES[fault]


def test_a_sound_order_passes() -> None:
    order: Order = Fifo()

    check_order(order, [job("a", at=1), job("b", at=1), job("c")])
