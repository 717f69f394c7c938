"""Deciding by shape must equal walking over the whole queue, job by job."""

import pytest
from hypothesis import given

from interlane.kernel.scheduler import Scheduler
from interlane.metrics.log import LogEvent
from interlane.model import Cluster, Job
from interlane.policy.base import Order
from interlane.policy.catalogue import make_order
from interlane.policy.order import FairShare
from interlane.policy.place import RulePlacer, first_fit, pai_pack
from interlane.testing.build import cluster, job, make, play, pool, starts, times
from interlane.testing.naive import NaiveScheduler
from interlane.testing.strategies import clusters, gang_traces, traces

ORDERS: dict[str, Order] = {
    **{name: make_order(name) for name in ("fifo", "sjf", "hrrn", "priority", "fair")},
    "fair by queue, weighted": FairShare("queue", {"prod": 3.0}),
}
PLACERS = {"first-fit": first_fit(), "pai-pack": pai_pack()}


@pytest.mark.parametrize("placer", PLACERS)
@pytest.mark.parametrize("order", ORDERS)
@given(on=clusters(most=3), trace=traces())
def test_greedy_skip_starts_every_job_when_a_walk_over_the_whole_queue_would(
    order: str, placer: str, on: Cluster, trace: tuple[list[Job], list[float]]
) -> None:
    jobs, true_s = trace
    rule: RulePlacer = PLACERS[placer]
    scheduler: Scheduler = make(on, order=ORDERS[order], placer=rule)

    log = play(jobs, true_s, scheduler)
    naive = NaiveScheduler(on, ORDERS[order], rule.types)

    assert starts(log) == naive.run(jobs, true_s)
    assert times(log, LogEvent.GROWN) == naive.grown


@pytest.mark.parametrize("order", ORDERS)
@given(trace=gang_traces())
def test_gangs_start_and_grow_when_a_walk_over_all_of_them_would(
    order: str, trace: tuple[list[Job], list[float]]
) -> None:
    on = cluster(gpus=[2, 3])
    naive = NaiveScheduler(on, ORDERS[order], first_fit().types)

    log = play(*trace, make(on, order=ORDERS[order]))

    assert starts(log) == naive.run(*trace)
    assert times(log, LogEvent.GROWN) == naive.grown


def test_a_job_that_does_not_fit_is_passed() -> None:
    # The pool has 2 GPUs; a takes one until 10 s; b needs both and waits; c passes b.
    jobs = [job("a", gpus=1), job("b", gpus=2, at=1), job("c", gpus=1, at=2)]

    log = play(jobs, 10.0, make(pool(2)))

    # c runs from 2 s to 12 s, so b gets both GPUs at 12 s.
    assert starts(log) == {"a": 0, "b": 12, "c": 2}


def test_a_shape_that_was_refused_is_tried_again_when_something_becomes_free() -> None:
    jobs = [job("a", gpus=2), job("b", gpus=2, at=1), job("c", gpus=2, at=1)]

    log = play(jobs, 10.0, make(cluster(gpus=[2])))

    assert starts(log) == {"a": 0, "b": 10, "c": 20}


def test_a_job_that_overtakes_its_own_shape_overtakes_others_too() -> None:
    # slow and quick ask for the same.  At 30 s they are level and slow leads by its serial;
    # at 90 s quick has the highest ratio of all: 60/1 against 60/89 and 60/1000.
    jobs = [
        job("x", gpus=1),
        job("a-slow", gpus=1, estimate=1000, at=30, serial=1),
        job("b-quick", gpus=1, estimate=1, at=30, serial=2),
        job("other", gpus=1, cpus=1, estimate=89, at=30, serial=3),
    ]
    lengths = {"x": 90, "a-slow": 5, "b-quick": 5, "other": 5}

    log = play(jobs, lengths, make(order=make_order("hrrn")))

    assert starts(log) == {"x": 0, "b-quick": 90, "other": 95, "a-slow": 100}


def test_a_newcomer_does_not_hide_that_another_has_overtaken() -> None:
    # quick overtakes slow at about 31 s; late joins them at 60 s, when nobody has decided
    # since.  At 90 s the ratios are 60/1, 60/89, 60/1000 and 30/1000.
    jobs = [
        job("x", gpus=1),
        job("a-slow", gpus=1, estimate=1000, at=29, serial=1),
        job("b-quick", gpus=1, estimate=1, at=30, serial=2),
        job("other", gpus=1, cpus=1, estimate=89, at=30, serial=3),
        job("late", gpus=1, estimate=1000, at=60, serial=4),
    ]
    lengths = {"x": 90, "a-slow": 5, "b-quick": 5, "other": 5, "late": 5}

    log = play(jobs, lengths, make(order=make_order("hrrn")))

    assert starts(log) == {"x": 0, "b-quick": 90, "other": 95, "a-slow": 100, "late": 105}
