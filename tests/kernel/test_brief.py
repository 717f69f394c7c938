"""The brief is a first look at the machines; it must never hide room that is there."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel.ledger import Ledger
from interlane.kernel.view import LedgerView
from interlane.model import Cluster, Job, Placement
from interlane.policy import rows
from interlane.policy.place import RulePlacer, balance, first_fit, pack
from interlane.tables import ABSENT
from interlane.testing.strategies import clusters, traces


def fresh_brief(ledger: Ledger) -> object:
    brief, shares = np.zeros_like(ledger.brief), np.full_like(ledger.shares, ABSENT)
    for number in range(len(ledger.cluster)):
        rows.summarise(ledger.free, ledger.total, number, brief, shares)
    return brief.tolist(), shares.tolist()


def present_brief(ledger: Ledger) -> object:
    return ledger.brief.tolist(), ledger.shares.tolist()


@given(
    on=clusters(most=6),
    trace=traces(most=12),
    placer=st.sampled_from([first_fit(), pack(), balance()]),
    keep=st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_the_brief_agrees_with_the_state_after_every_question_and_every_hold(
    on: Cluster,
    trace: tuple[list[Job], list[float]],
    placer: RulePlacer,
    keep: list[bool],
) -> None:
    ledger = Ledger(on)
    view = LedgerView(ledger)
    held = []
    for job, holds in zip(trace[0], keep, strict=False):
        answer = placer.place(job, view, Random(0))

        assert present_brief(ledger) == fresh_brief(ledger)

        if isinstance(answer, Placement) and holds:
            shape = view.shape(job.request, placer.types)
            table = ledger.to_rows(answer, shape.profiles)
            assert ledger.hold(table)
            held.append(table)
        elif held:
            ledger.release(held.pop())
        assert present_brief(ledger) == fresh_brief(ledger)
