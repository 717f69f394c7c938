"""A task is placed with or without the index; the answer must be the same either way."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel import compiled
from interlane.kernel.ledger import Ledger
from interlane.kernel.view import LedgerView
from interlane.model import Job
from interlane.policy.place import RulePlacer, balance, best_fit, first_fit, pack
from interlane.policy.reserve import reserve_and_lend, reserve_and_pack, uncontended
from interlane.tables import AT_WIDTH, Machines, RoomIndex, RuleArgs, WantedTask
from interlane.testing.strategies import jobs, ledgers


@given(
    drawn=jobs(),
    ledger=ledgers(),
    placer=st.sampled_from(
        [
            *(first_fit(), pack(), balance(), best_fit()),
            *(reserve_and_pack(), reserve_and_lend(), uncontended()),
        ]
    ),
)
def test_a_demand_gets_the_same_place_with_and_without_its_index(
    drawn: Job, ledger: Ledger, placer: RulePlacer
) -> None:
    view = LedgerView(ledger)
    rule = placer.rule
    part = view.shape(drawn.request, rule.types).parts[0]
    wanted = WantedTask(part.profile, 0, part.least, part.most)
    args = RuleArgs._make(view.compiled_rule(rule).args)
    answers = []
    for by_index in (False, True):
        out = np.zeros((part.most * part.instances_per_unit, AT_WIDTH), np.int64)
        machines = Machines._make(ledger.tables)._replace(free=ledger.free.copy())
        if by_index:
            index = RoomIndex._make(view.tables)
            count = compiled.place_by_index(args, wanted, machines, index, view.nowhere, out, 0)
        else:
            count = compiled.place_directly(args, wanted, machines, view.nowhere, out, 0)
        answers.append((count, out[: max(count, 0)].tolist(), machines.free.tolist()))

    assert answers[0] == answers[1]
