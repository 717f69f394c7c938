"""Tables go into compiled code under the names that they have in Python."""

from typing import Any

from interlane.kernel.ledger import Ledger
from interlane.kernel.queue import WaitingJobs
from interlane.kernel.view import LedgerView
from interlane.policy.order import Fifo
from interlane.policy.place import d_choices
from interlane.tables import Machines, RoomIndex, RuleArgs, Waiting
from interlane.testing.build import cluster, job


def test_every_table_is_passed_on_under_its_own_name() -> None:
    ledger = Ledger(cluster(gpus=[2, 1]))
    owners: list[tuple[Any, Any]] = [
        (Machines, ledger),
        (RoomIndex, LedgerView(ledger)),
        (Waiting, WaitingJobs(Fifo())),
    ]

    for named, owner in owners:
        passed = named(*owner.tables)
        for name in named._fields:
            assert getattr(passed, name) is getattr(owner, name), f"{named.__name__}.{name}"


def test_a_rule_is_passed_on_under_its_own_names() -> None:
    view = LedgerView(Ledger(cluster(gpus=[2, 1])))
    rule = d_choices(3).rule

    args = RuleArgs._make(view.compiled_rule(rule).args)

    assert (args.score, args.spread, args.choices) == (rule.score, rule.spread, 3)
    assert args.gpu_choice == rule.gpu_choice
    assert args.random is view.random


def test_tables_that_grow_are_passed_on_as_they_are_now() -> None:
    ledger = Ledger(cluster(gpus=[1]))
    view = LedgerView(ledger)
    before = Machines._make(ledger.tables), RoomIndex._make(view.tables)

    for gpu_milli in range(1, 200):
        view.shape(job(gpus=1, gpu_milli=gpu_milli).request, d_choices().types)

    after = Machines._make(ledger.tables), RoomIndex._make(view.tables)
    assert after[0].asks is ledger.asks is not before[0].asks
    assert after[1].rooms is view.rooms is not before[1].rooms
