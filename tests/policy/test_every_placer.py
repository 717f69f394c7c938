"""The whole catalogue keeps one contract, in states where empty and full are common."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel.ledger import Ledger
from interlane.model import Demand, Job, Request
from interlane.policy.base import Placer, TypeRule, TypicalDemand
from interlane.policy.catalogue import PLACERS, make_placer
from interlane.testing.build import job
from interlane.testing.conformance import check_finds_room, check_placer
from interlane.testing.strategies import jobs, ledgers, tasks

TYPICAL = (
    TypicalDemand(Demand(1, 500, cpu_milli=4_000), 0.5),
    TypicalDemand(Demand(1, 1000, cpu_milli=8_000), 0.3),
    TypicalDemand(Demand(4, 1000, cpu_milli=2_000, gpu_types=frozenset({"V100"})), 0.1),
    TypicalDemand(Demand(0, cpu_milli=2_000), 0.1),
)


def catalogue() -> dict[str, Placer]:
    placers = {name: make_placer(name, TYPICAL) for name in PLACERS}
    return placers | {
        "pack, any type": make_placer("pack", types=TypeRule.ANY),
        "random, V100s bind": make_placer("random", types=TypeRule.V100_ONLY),
    }


@pytest.mark.parametrize("name", catalogue())
@given(drawn=jobs(), ledger=ledgers(), seed=st.integers(0, 2**32))
def test_every_placer_keeps_the_contract(
    name: str, drawn: Job, ledger: Ledger, seed: int
) -> None:
    check_placer(catalogue()[name], drawn, ledger, seed)


@pytest.mark.parametrize("name", catalogue())
@given(data=st.data(), ledger=ledgers(), seed=st.integers(0, 2**32))
def test_every_placer_finds_room_where_there_is_some(
    name: str, data: st.DataObject, ledger: Ledger, seed: int
) -> None:
    drawn = Job(job().id, Request((data.draw(tasks()),)), 0.0, 0)

    check_finds_room(catalogue()[name], drawn, ledger, seed)
