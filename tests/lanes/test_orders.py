"""Who gets a lane next, and who is asked to give it up."""

from math import inf

import pytest
from hypothesis import given
from hypothesis.strategies import builds, floats, integers, lists, none, sampled_from

from interlane.lanes.order import ORDERS, Fair, describe, make_order
from interlane.lanes.tenant import Tenant
from interlane.model import InvalidField, JobId, UnknownName

NEVER = inf
SECONDS = floats(0, 100).map(lambda value: round(value, 2))


def tenant(
    name: str,
    serial: int = 0,
    *,
    priority: int = 0,
    total_s: float | None = None,
    attained_s: float = 0.0,
    virtual_s: float = 0.0,
    last_turn: int = 0,
    since_s: float = 0.0,
    held_since_s: float | None = None,
) -> Tenant:
    return Tenant(
        JobId(name),
        serial,
        priority,
        total_s,
        attained_s,
        virtual_s,
        last_turn,
        None if held_since_s is not None else since_s,
        held_since_s,
    )


TENANTS = lists(
    builds(
        tenant,
        name=sampled_from("abc"),
        priority=integers(-2, 2),
        total_s=none() | SECONDS,
        attained_s=SECONDS,
        virtual_s=SECONDS,
        last_turn=integers(0, 5),
        since_s=SECONDS,
    ),
    min_size=2,
    max_size=6,
)


def numbered(drawn: list[Tenant]) -> list[Tenant]:
    for serial, one in enumerate(drawn):
        one.serial = serial
    return drawn


@pytest.mark.parametrize("name", ORDERS)
@given(drawn=TENANTS)
def test_every_order_serves_somebody_and_the_same_in_any_sequence(
    name: str, drawn: list[Tenant]
) -> None:
    order, waiting = make_order(name), numbered(drawn)

    first = order.pick(waiting, now_s=200.0)

    assert first in waiting
    assert order.pick(waiting[::-1], now_s=200.0) is first


@pytest.mark.parametrize("name", ORDERS)
@given(drawn=TENANTS)
def test_every_order_that_revokes_at_once_has_somebody_better_or_a_turn_that_is_over(
    name: str, drawn: list[Tenant]
) -> None:
    holder, *waiting = numbered(drawn)
    holder.wanted_since_s, holder.held_since_s = None, 199.0

    at_s = make_order(name).revoke_at_s(holder, waiting, turn_ends_s=200.5, now_s=200.0)

    assert at_s >= 200.0
    if at_s == 200.0:
        assert make_order(name).pick([holder, *waiting], now_s=200.0) is not holder


@pytest.mark.parametrize("name", ["rr", "pack", "fair", "las"])
@given(drawn=TENANTS)
def test_orders_that_take_turns_let_nobody_hold_the_lane_for_ever(
    name: str, drawn: list[Tenant]
) -> None:
    holder, *waiting = numbered(drawn)
    holder.wanted_since_s, holder.held_since_s = None, 0.0

    at_s = make_order(name).revoke_at_s(holder, waiting, turn_ends_s=1.0, now_s=0.5)

    assert at_s < NEVER


def test_every_order_has_a_help_sentence() -> None:
    assert all(describe(name).endswith(".") for name in ORDERS)


def test_an_unknown_order_is_named_with_those_that_are_known() -> None:
    with pytest.raises(UnknownName, match="srtf"):
        make_order("sjf")


def test_fifo_gives_the_lane_back_to_the_first_when_it_wants_it() -> None:
    first, second = tenant("first", 1), tenant("second", 2, held_since_s=0)

    assert make_order("fifo").revoke_at_s(second, [first], 99, now_s=5) == 5
    assert make_order("fifo").revoke_at_s(tenant("zero", 0), [first], 1, now_s=5) == NEVER


def test_srtf_prefers_the_least_remaining_and_puts_jobs_without_an_estimate_last() -> None:
    long, short = tenant("long", 1, total_s=100, attained_s=95), tenant("b", 2, total_s=10)

    assert make_order("srtf").pick([short, long], 0) is long
    assert make_order("srtf").pick([tenant("none", 0), short], 0) is short


def test_srtf_lets_a_shorter_newcomer_in_at_once() -> None:
    holder = tenant("a", 1, total_s=100, held_since_s=0)

    assert make_order("srtf").revoke_at_s(holder, [tenant("b", 2, total_s=9)], 99, 1) == 1


def test_srtf_takes_a_job_far_past_its_estimate_for_a_long_one() -> None:
    # Estimated at 5 s, held since 0: at 25 s it is 20 s over, as much as the other needs.
    holder, other = tenant("a", 1, total_s=5, held_since_s=0), tenant("b", 2, total_s=20)

    assert make_order("srtf").revoke_at_s(holder, [other], 1, now_s=3) == 25
    assert make_order("srtf").revoke_at_s(holder, [other], 1, now_s=26) <= 26


def test_fair_serves_the_one_behind_until_it_has_caught_up() -> None:
    holder, other = tenant("a", 1, virtual_s=2, held_since_s=10), tenant("b", 2, virtual_s=6)

    assert make_order("fair").revoke_at_s(holder, [other], 11, now_s=10) == 14
    assert make_order("fair").revoke_at_s(holder, [other], 20, now_s=10) == 20


def test_fair_starts_a_newcomer_at_the_lanes_virtual_time() -> None:
    newcomer, returning = tenant("new"), tenant("back", virtual_s=3)

    Fair(credit_s=2).enters(newcomer, 100.0, is_new=True)
    Fair(credit_s=2).enters(returning, 100.0, is_new=False)

    assert (newcomer.virtual_s, returning.virtual_s) == (100.0, 98.0)


def test_fair_credit_must_be_finite() -> None:
    with pytest.raises(InvalidField, match="credit_s"):
        Fair(credit_s=-1)


def test_round_robin_serves_whoever_had_the_lane_longest_ago() -> None:
    assert make_order("rr").pick([tenant("a", 1, last_turn=9), tenant("b", 2)], 0).job_id == "b"


def test_pack_serves_whoever_has_wanted_the_lane_longest() -> None:
    waiting = [tenant("a", 1, since_s=5), tenant("b", 2, since_s=4)]

    assert make_order("pack").pick(waiting, 9).job_id == "b"


def test_priority_preempts_at_once_and_is_fifo_among_equals() -> None:
    order, holder = make_order("priority"), tenant("a", 2, priority=1, held_since_s=0)

    assert order.revoke_at_s(holder, [tenant("b", 3, priority=2)], 99, 5) == 5
    assert order.revoke_at_s(holder, [tenant("b", 3, priority=1)], 1, 5) == NEVER
    assert order.revoke_at_s(holder, [tenant("b", 1, priority=1)], 99, 5) == 5
    assert order.urgency(tenant("b", priority=2)) < order.urgency(tenant("a", priority=1))


def test_las_serves_whoever_received_least() -> None:
    waiting = [tenant("a", 1, attained_s=5), tenant("b", 2, attained_s=4)]

    assert make_order("las").pick(waiting, 9).job_id == "b"
