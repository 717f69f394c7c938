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
    rng = np.zeros(1, np.uint64)
    nowhere = np.zeros(len(ledger.cluster), np.bool_)
    settings = view.compiled_rule(rule)
    knowledge = settings.typical, settings.weights
    answers = []
    for by_index in (False, True):
        out = np.zeros((part.most * part.instances_per_unit, compiled.AT_WIDTH), np.int64)
        state = ledger.free.copy()
        what = (
            part.profile, 0, part.least, part.most, ledger.asks, state, ledger.total,
            ledger.brief,
        )  # fmt: skip
        if by_index:
            count = compiled.place_by_index(
                int(rule.score), int(rule.spread), int(rule.gpu_choice), 1, *what,
                ledger.changes, ledger.changed, view.cursors, view.rooms, view.sums,
                view.scores, nowhere, *knowledge, rng, out, 0,
            )  # fmt: skip
        else:
            count = compiled.place_directly(
                int(rule.score), int(rule.gpu_choice), *what, ledger.shares, nowhere,
                *knowledge, rng, out, 0,
            )  # fmt: skip
        answers.append((count, out[: max(count, 0)].tolist(), state.tolist()))

    assert answers[0] == answers[1]
