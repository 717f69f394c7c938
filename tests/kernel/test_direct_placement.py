"""Rare demands are placed without the index; the answer must be the same as with it."""

from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel import compiled
from interlane.kernel.ledger import Ledger
from interlane.kernel.view import View
from interlane.model import Job
from interlane.policy.place import RulePlacer, balance, best_fit, first_fit, pack
from interlane.testing.strategies import jobs, ledgers


@given(
    drawn=jobs(),
    ledger=ledgers(),
    placer=st.sampled_from([first_fit(), pack(), balance(), best_fit()]),
)
def test_a_demand_gets_the_same_place_with_and_without_its_index(
    drawn: Job, ledger: Ledger, placer: RulePlacer
) -> None:
    view = View(ledger)
    without = view.choose(drawn, placer.rule)
    # Asked a moment ago, so that the second answer comes from the index.
    view.cursors[:, compiled.ASKED_CURSOR] = ledger.changed
    with_index = view.choose(drawn, placer.rule)

    assert with_index == without
