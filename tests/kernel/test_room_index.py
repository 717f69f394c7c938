"""The room index is brought up to date lazily; it must equal a count from scratch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlane import tables
from interlane.kernel.ledger import Ledger
from interlane.kernel.view import LedgerView
from interlane.model import (
    CapacityViolated,
    Cluster,
    Demand,
    Job,
    Placement,
    Request,
    Task,
)
from interlane.policy import rows
from interlane.policy.base import GangSpread, PlacementRule, TypeRule
from interlane.policy.scores import Score
from interlane.testing.build import cluster, demand, job, ledger_with, task
from interlane.testing.naive import Host, first_fit
from interlane.testing.strategies import clusters, demands, jobs, ledgers, requests, tasks

RULES = [
    PlacementRule(score) for score in (Score.FIRST, Score.PACK, Score.BALANCE, Score.BEST_FIT)
]


@settings(max_examples=80)
@given(
    on=clusters(most=4),
    shapes=st.lists(requests(), min_size=1, max_size=4),
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 3)), max_size=25
    ),
)
def test_the_index_equals_a_count_from_scratch_after_any_events(
    on: Cluster, shapes: list[Request], steps: list[tuple[int, int, int]]
) -> None:
    ledger = Ledger(on)
    view = LedgerView(ledger)
    held: list[np.ndarray[tuple[int, int], np.dtype[np.int64]]] = []
    for what, pick, rule in steps:
        request = shapes[pick % len(shapes)]
        if what <= 1:
            asked = Job(job().id, request, 0.0, 0)
            answer = view.choose(asked, RULES[rule])
            if isinstance(answer, Placement):
                profiles = view.shape(request, TypeRule.EXACT).profiles
                table = ledger.to_rows(answer, profiles)
                assert ledger.hold(table)
                held.append(table)
        elif what == 2 and held:
            ledger.release(held.pop(pick % len(held)))
        elif what == 3:
            ledger.set_up(pick % len(on), up=bool(rule % 2))
        fresh = LedgerView(ledger)
        for each in request:
            assert view.room(each) == fresh.room(each)
            assert list(view.candidates(each)) == list(fresh.candidates(each))
        again = Job(job().id, request, 0.0, 0)
        assert view.choose(again, RULES[rule]) == fresh.choose(again, RULES[rule])
    ledger.check(held)


@given(ledger=ledgers(), asked=demands())
def test_compiled_counting_equals_its_plain_twin(ledger: Ledger, asked: Demand) -> None:
    profile = ledger.add_ask(asked, asked.gpu_types if asked.gpus else frozenset(), 1)
    for number in range(len(ledger.cluster)):
        compiled_room = rows.room_for(ledger.free, number, ledger.asks, profile)
        assert compiled_room == rows.room_for.py_func(ledger.free, number, ledger.asks, profile)


@given(on=clusters(most=1), asked=tasks())
def test_room_is_as_many_as_can_be_seated_one_after_the_other(on: Cluster, asked: Task) -> None:
    room = LedgerView(Ledger(on)).room(asked)
    host = [Host.idle(on.machines[0])]
    alone = Request((Task(asked.demand),))
    unit = Request((Task(asked.demand, asked.least, same_machine=asked.same_machine),))
    seated = 0
    needs = unit if asked.same_machine else alone
    while seated < min(room, 40) + 1:
        if first_fit(Job(job().id, needs, 0.0, 0), host, TypeRule.EXACT) is None:
            break
        seated += needs.instances
    if room <= 40:
        assert seated == room
    else:
        assert seated > 40


@given(ledger=ledgers(), drawn=jobs())
def test_a_choice_leaves_no_trace(ledger: Ledger, drawn: Job) -> None:
    before = ledger.free.copy()
    view = LedgerView(ledger)

    first = view.choose(drawn, PlacementRule(Score.PACK))

    assert (ledger.free == before).all()
    assert view.choose(drawn, PlacementRule(Score.PACK)) == first
    assert LedgerView(ledger).choose(drawn, PlacementRule(Score.PACK)) == first


def test_many_changes_begin_a_new_list_and_lose_nothing() -> None:
    ledger = Ledger(cluster(gpus=[1, 1]))
    view = LedgerView(ledger)
    half = task(gpus=1, gpu_milli=500)
    profiles = view.shape(Request((half,)), TypeRule.EXACT).profiles
    answer = view.choose(job("a", half), PlacementRule(Score.FIRST))
    assert isinstance(answer, Placement)
    table = ledger.to_rows(answer, profiles)
    for _ in range(len(ledger.changes)):
        assert view.room(half) == 4
        ledger.hold(table)
        ledger.release(table)
    ledger.hold(table)

    assert ledger.change_lists >= 1
    assert view.room(half) == 3


def test_what_does_not_fit_is_not_held() -> None:
    ledger = ledger_with(cluster(gpus=[1]), [[600]])
    profile = ledger.add_ask(demand(gpus=1, gpu_milli=500), frozenset(), 1)
    table = np.zeros((1, tables.AT_WIDTH), np.int64)
    table[0, tables.AT_MASK] = 1
    table[0, tables.AT_INSTANCES] = 1
    table[0, tables.AT_ASK] = profile
    before = ledger.free.copy()

    assert not ledger.hold(table)
    assert (ledger.free == before).all()


def test_state_that_do_not_balance_are_noticed() -> None:
    ledger = Ledger(cluster(gpus=[2]))
    ledger.free[0, tables.FREE] -= 1

    with pytest.raises(CapacityViolated, match="Machine m0 has 999 free"):
        ledger.check([])


def test_the_same_seed_draws_the_same_machine() -> None:
    view = LedgerView(Ledger(cluster(gpus=[1] * 9)))
    rule = PlacementRule(Score.RANDOM, GangSpread.SAMPLE)

    answers = [view.choose(job(gpus=1), rule, seed) for seed in (0, 0, 7, 0, 7)]

    assert answers[0] == answers[1] == answers[3]
    assert answers[2] == answers[4]
