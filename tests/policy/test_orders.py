"""What each order says of single jobs, with the arithmetic."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.policy.base import Order
from interlane.policy.order import (
    NO_ESTIMATE_S,
    FairShare,
    Fifo,
    HighestResponseRatio,
    LeastAttainedService,
    PriorityWithAgeing,
    ShortestFirst,
    ShortestFirstWithAgeing,
    ShortestRemainingFirst,
)
from interlane.testing.build import job

SECONDS = st.floats(0, 1e6)


@pytest.mark.parametrize(
    ("order", "preempts", "accounts", "counts_lost_work", "slope"),
    [
        (Fifo(), False, False, False, 0.0),
        (ShortestFirst(), False, False, False, 0.0),
        (ShortestFirstWithAgeing(), False, False, False, 0.0),
        (ShortestRemainingFirst(), True, False, False, -1.0),
        (LeastAttainedService(), True, False, True, 0.0),
        (HighestResponseRatio(), False, False, False, 0.0),
        (PriorityWithAgeing(), False, False, False, 0.0),
        (PriorityWithAgeing(preemptive=True), True, False, False, 0.0),
        (FairShare(), False, True, False, 0.0),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "key") else str(value),
)
def test_what_an_order_does_at_all(
    order: Order, *, preempts: bool, accounts: bool, counts_lost_work: bool, slope: float
) -> None:
    said = order.preempts, order.keeps_accounts, order.counts_lost_work, order.rank_slope
    assert said == (preempts, accounts, counts_lost_work, slope)


@pytest.mark.parametrize("order", [Fifo(), ShortestFirst(), HighestResponseRatio()])
def test_orders_that_stop_nobody_rank_all_alike_and_charge_nobody(order: Order) -> None:
    one = job(user="ann", queue="prod", estimate=10, priority=3)
    assert (order.rank(one, 0.0), order.rank(one, 1e9)) == (0.0, 0.0)
    assert order.rank_rises_after_s(one, 5.0) is None
    assert order.account(one) == ""
    assert order.share("ann", 8_000) == 0.0


# -- shortest remaining -------------------------------------------------------------------


@given(estimate=SECONDS, ran=SECONDS)
def test_what_remains_is_the_estimate_less_what_ran_and_never_below_zero(
    estimate: float, ran: float
) -> None:
    order, one = ShortestRemainingFirst(), job(estimate=estimate)
    left = estimate - ran if ran < estimate else 0.0
    assert order.key(one, ran) == (left, 0.0)
    assert order.rank(one, ran) == left


@given(estimate=SECONDS, ran=SECONDS, more=st.floats(0, 1e3))
def test_the_slope_foretells_the_rank(estimate: float, ran: float, more: float) -> None:
    order, one = ShortestRemainingFirst(), job(estimate=estimate)
    foretold = order.rank(one, ran) + order.rank_slope * more
    assert order.rank(one, ran + more) == pytest.approx(max(0.0, foretold), abs=1e-6)


def test_a_job_without_an_estimate_comes_after_any_that_has_one() -> None:
    order = ShortestRemainingFirst()
    assert order.key(job(), 0.0) == (NO_ESTIMATE_S, 0.0)
    assert order.key(job(estimate=NO_ESTIMATE_S / 10), 0.0) < order.key(job(), 0.0)


# -- least attained service ---------------------------------------------------------------


@given(
    gpus=st.integers(0, 8),
    milli=st.sampled_from([100, 500, 1000]),
    ran=st.floats(0, 1e5),
    levels=st.lists(st.floats(1, 1e6), min_size=1, max_size=4, unique=True).map(sorted),
)
def test_the_rank_rises_when_it_is_said_to_and_not_before(
    gpus: int, milli: int, ran: float, levels: list[float]
) -> None:
    order = LeastAttainedService(tuple(levels))
    one = job(gpus=gpus, gpu_milli=milli, cpus=1)
    after_s = order.rank_rises_after_s(one, ran)
    if after_s is None:
        assert order.rank(one, ran) == len(levels) == order.rank(one, ran * 10)
        return
    assert order.rank(one, ran + after_s * 0.999) == order.rank(one, ran) < len(levels)
    assert order.rank(one, ran + after_s * 1.001 + 1e-6) > order.rank(one, ran)


def test_service_is_gpus_times_seconds_and_work_without_gpus_counts_a_hundredth() -> None:
    # To 100 GPU seconds: 4 half GPUs for 50 s, one for 100 s, none for 10,000 s.
    order = LeastAttainedService((100.0,))
    halves = job(gpus=4, gpu_milli=500)
    lasts_s = [order.rank_rises_after_s(one, 0.0) for one in (halves, job(gpus=1), job(cpus=8))]
    assert lasts_s == [50.0, 100.0, pytest.approx(10_000.0)]


def test_a_level_outweighs_any_time_of_submission() -> None:
    order = LeastAttainedService((100.0,))
    assert order.key(job(gpus=1, at=7.0), 0.0) == (7.0, 0.0)
    assert order.key(job(gpus=1, at=7.0), 100.0) == (1e12 + 7.0, 0.0)


def test_the_default_levels_are_tiresias_in_gpu_seconds() -> None:
    one, order = job(gpus=1), LeastAttainedService()
    edges = [3_249, 3_250, 32_499, 32_500, 324_999, 325_000]
    assert [order.rank(one, ran) for ran in edges] == [0, 1, 1, 2, 2, 3]


# -- ageing, ratios, priorities -----------------------------------------------------------


def test_patience_is_seconds_of_waiting_for_one_of_length() -> None:
    # 100 s long and submitted at 50 s: 100 + 50/10; by default the patience is 10.
    assert ShortestFirstWithAgeing().key(job(estimate=100, at=50), 0.0) == (105.0, 0.0)
    assert ShortestFirstWithAgeing(2.0).key(job(estimate=100, at=50), 0.0) == (125.0, 0.0)


def test_a_response_ratio_counts_lengths_below_a_second_as_one() -> None:
    order = HighestResponseRatio()
    assert order.key(job(estimate=4, at=10), 0.0) == (2.5, -0.25)
    assert order.key(job(estimate=0.5, at=10), 0.0) == (10.0, -1.0)


@given(estimate=st.floats(1, 1e5), at=SECONDS, waited=SECONDS)
def test_urgency_is_the_waiting_time_over_the_length(
    estimate: float, at: float, waited: float
) -> None:
    value, slope = HighestResponseRatio().key(job(estimate=estimate, at=at), 0.0)
    urgency = value + slope * (at + waited)
    assert urgency == pytest.approx(-waited / estimate, rel=1e-6, abs=1e-6)


def test_priority_ages_in_the_queue_but_not_in_rank() -> None:
    # Two hours of lateness cost two steps of an hour each; by default a step is an hour.
    order = PriorityWithAgeing()
    assert order.key(job(priority=3, at=7_200), 0.0) == (2 - 3, 0.0)
    assert PriorityWithAgeing(60.0).key(job(priority=3, at=7_200), 0.0) == (120 - 3, 0.0)
    assert (order.rank(job(priority=3), 0.0), order.rank(job(priority=-1), 9.0)) == (-3.0, 1.0)


def test_shares_are_running_gpus_over_weight_and_strangers_weigh_one() -> None:
    order = FairShare(weights={"ann": 4.0})
    assert (order.share("ann", 8_000), order.share("bob", 8_000)) == (2_000.0, 8_000.0)
    assert order.key(job(at=5.0), 99.0) == (5.0, 0.0)


@pytest.mark.parametrize("least", [1e-9, inf])
def test_any_weight_patience_and_age_above_zero_will_do(least: float) -> None:
    assert FairShare(weights={"ann": least}).share("ann", 0) == 0.0
    assert ShortestFirstWithAgeing(patience=least).key(job(estimate=3), 0.0) == (3.0, 0.0)
    assert PriorityWithAgeing(age_s=least).key(job(priority=2), 0.0) == (-2.0, 0.0)
