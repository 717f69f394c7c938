"""All orders of the catalogue keep one contract."""

from collections.abc import Callable

import pytest
from hypothesis import given

from interlane.model import InvalidField, Job
from interlane.policy.base import Order
from interlane.policy.catalogue import ORDERS, make_order
from interlane.policy.order import (
    FairShare,
    Fifo,
    HighestResponseRatio,
    LeastAttainedService,
    PriorityWithAgeing,
    ShortestFirst,
    ShortestFirstWithAgeing,
)
from interlane.testing.build import job
from interlane.testing.conformance import check_order
from interlane.testing.strategies import several_jobs


def catalogue() -> dict[str, Order]:
    return {name: make_order(name) for name in ORDERS} | {
        "preemptive priority": PriorityWithAgeing(preemptive=True),
        "fair by queue": FairShare("queue", {"prod": 3.0}),
        "short levels": LeastAttainedService((1.0, 10.0, 1e5)),
    }


@pytest.mark.parametrize("name", catalogue())
@given(drawn=several_jobs())
def test_every_order_keeps_the_contract(name: str, drawn: list[Job]) -> None:
    check_order(catalogue()[name], drawn)


def ahead(order: Order, one: Job, two: Job, *, now_s: float = 0.0) -> bool:
    (value_1, slope_1), (value_2, slope_2) = order.key(one, 0.0), order.key(two, 0.0)
    return value_1 + slope_1 * now_s < value_2 + slope_2 * now_s


def test_fifo_serves_whoever_came_first() -> None:
    assert ahead(Fifo(), job("late", at=1), job("later", at=2))


def test_shortest_first_serves_the_shorter_estimate_and_jobs_without_one_last() -> None:
    assert ahead(ShortestFirst(), job(estimate=10, at=9), job(estimate=11))
    assert ahead(ShortestFirst(), job(estimate=1e9), job())


def test_ageing_lets_a_long_job_go_before_whoever_comes_after_its_patience() -> None:
    # 100 s long and ten times patient: a job of 1 s passes if it comes before 990 s (1 + 99).
    order, long = ShortestFirstWithAgeing(patience=10), job("long", estimate=100)
    assert ahead(order, job("short", estimate=1, at=989), long)
    assert ahead(order, long, job("short", estimate=1, at=991))
    assert ahead(order, long, job("nothing", estimate=0, at=1001))


def test_hrrn_lets_a_long_wait_outweigh_a_short_job() -> None:
    # Ratios are 1 + waited/length.  At 100 s the long job has waited 100 of 1000 (0.1) and
    # the short one 10 of 50 (0.2); at 2000 s they have 2.0 and 38.2; the short one leads.
    long, short = job("long", estimate=1000), job("short", estimate=50, at=90)
    assert ahead(HighestResponseRatio(), short, long, now_s=100)
    # At 91 s the short job has 1/50 = 0.02, the long one 0.091: now the long one leads.
    assert ahead(HighestResponseRatio(), long, short, now_s=91)


def test_an_hour_of_waiting_is_worth_one_step_of_priority() -> None:
    order = PriorityWithAgeing(age_s=3600)
    old = job("old", priority=0, at=0)
    assert ahead(order, old, job("new", priority=1, at=3601))
    assert ahead(order, job("new", priority=1, at=3599), old)


def test_las_falls_a_level_when_its_gpu_seconds_pass_a_threshold() -> None:
    order, two_gpus = LeastAttainedService((100.0, 1000.0)), job(gpus=2)
    # Two GPUs reach 100 GPU seconds after 50 s and 1000 after 500 s.
    assert [order.rank(two_gpus, ran_s) for ran_s in (0, 49, 50, 499, 500)] == [0, 0, 1, 1, 2]
    assert order.rank_rises_after_s(two_gpus, 30) == 20
    assert order.rank_rises_after_s(two_gpus, 50) == 450
    assert order.rank_rises_after_s(two_gpus, 500) is None


def test_fair_share_divides_by_weight() -> None:
    order = FairShare(weights={"ann": 2.0})
    assert order.share("ann", 4000) == order.share("bob", 2000)
    assert order.account(job(user="ann", queue="prod")) == "ann"
    assert FairShare("queue").account(job(user="ann", queue="prod")) == "prod"


BAD_SETTINGS: dict[str, Callable[[], Order]] = {
    "levels that do not rise": lambda: LeastAttainedService((10.0, 10.0)),
    "a level of zero": lambda: LeastAttainedService((0.0,)),
    "no patience at all": lambda: ShortestFirstWithAgeing(patience=0),
    "no ageing at all": lambda: PriorityWithAgeing(age_s=0),
    "an unknown account": lambda: FairShare("team"),
    "a weight of zero": lambda: FairShare(weights={"ann": 0}),
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_a_bad_setting_is_refused_in_one_sentence(case: str) -> None:
    with pytest.raises(InvalidField, match=r"^.+ is .+, but .+\.$"):
        BAD_SETTINGS[case]()
