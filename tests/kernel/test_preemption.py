"""Preemption: the right victims, the least lost work, and never in circles."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlane.kernel.rest import Wrapper
from interlane.kernel.scheduler import Scheduler
from interlane.metrics.log import LogEvent
from interlane.model import (
    Action,
    Cluster,
    Event,
    Job,
    JobId,
    Placement,
    Preempt,
    Preempted,
    Start,
    Started,
    Submitted,
    Ticked,
    Wake,
)
from interlane.policy.base import Order
from interlane.policy.order import (
    LeastAttainedService,
    PriorityWithAgeing,
    ShortestRemainingFirst,
)
from interlane.policy.policy import Discipline
from interlane.policy.preempt import Preemption
from interlane.sim.engine import Simulator
from interlane.sim.world import World
from interlane.testing.build import (
    cluster,
    ends,
    job,
    make,
    play,
    pool,
    starts,
    task,
    times,
)
from interlane.testing.strategies import clusters, traces

ORDERS: dict[str, Order] = {
    "srtf": ShortestRemainingFirst(),
    "las": LeastAttainedService((10.0, 100.0, 1_000.0)),
    "priority": PriorityWithAgeing(preemptive=True),
    "priority that ages fast": PriorityWithAgeing(age_s=1.0, preemptive=True),
}


def begin(scheduler: Scheduler, *jobs: Job, now_s: float = 0) -> None:
    """Submit jobs and confirm that they started."""
    for action in scheduler.handle_all([Submitted(each) for each in jobs], now_s):
        if isinstance(action, Start):
            scheduler.learn(Started(action.job_id, action.placement), now_s)


def stopped(scheduler: Scheduler, asked: Job, now_s: float) -> list[str]:
    actions = scheduler.handle(Submitted(asked), now_s)
    return [action.job_id for action in actions if isinstance(action, Preempt)]


def test_a_shorter_job_takes_the_place_of_a_longer_one() -> None:
    jobs = [job("long", gpus=1, estimate=100), job("short", gpus=1, estimate=10, at=5)]

    log = play(jobs, {"long": 100, "short": 10}, make(order=ShortestRemainingFirst()))

    # long runs 0-5 and 15-110: 5 s done, 95 s left when short ends at 15 s.
    assert times(log) == {"long": [0, 15], "short": [5]}
    assert ends(log) == {"short": 15, "long": 110}


def test_a_job_that_is_shorter_by_less_than_what_is_left_waits() -> None:
    jobs = [job("a", gpus=1, estimate=100), job("b", gpus=1, estimate=50, at=60)]

    log = play(jobs, {"a": 100, "b": 50}, make(order=ShortestRemainingFirst()))

    # At 60 s a has 40 s left, less than b's 50 s.
    assert times(log) == {"a": [0], "b": [100]}


def test_a_job_is_protected_for_its_minimum_run_time() -> None:
    order, rule = ShortestRemainingFirst(), Preemption(min_run_s=20)
    jobs = [job("long", gpus=1, estimate=100), job("short", gpus=1, estimate=10, at=5)]

    log = play(jobs, {"long": 100, "short": 10}, make(order=order, preemption=rule))

    # long may be stopped from 20 s on, and nothing else happens before it ends.
    assert times(log)["long"][0] == 0
    assert starts(log)["short"] == 20


def test_the_victim_with_the_least_lost_work_is_chosen() -> None:
    scheduler = make(
        cluster(gpus=[1, 1, 1]),
        order=ShortestRemainingFirst(),
        preemption=Preemption(restart_s=0),
    )
    # At 25 s the jobs have run 25 s; since their last checkpoints 5, 1 and 25 s.
    begin(
        scheduler,
        job("a", gpus=1, estimate=900, checkpoint_s=20),
        job("b", gpus=1, estimate=500, checkpoint_s=8),
        job("c", gpus=1, estimate=700, checkpoint_s=60),
    )

    assert stopped(scheduler, job("x", gpus=1, estimate=10, at=25), 25) == ["b"]


def test_nobody_is_stopped_in_vain() -> None:
    scheduler = make(cluster(gpus=[2]), order=ShortestRemainingFirst())
    begin(scheduler, job("short", gpus=1, estimate=5), job("long", gpus=1, estimate=100))

    # Both GPUs are asked for, and only one could be had by stopping somebody.
    assert stopped(scheduler, job("x", gpus=2, estimate=10, at=1), 1) == []


def test_nobody_else_is_stopped_while_a_place_is_being_made() -> None:
    scheduler = make(cluster(gpus=[1, 1]), order=ShortestRemainingFirst())
    begin(scheduler, job("a", gpus=1, estimate=100), job("b", gpus=1, estimate=100))
    assert len(stopped(scheduler, job("x", gpus=1, estimate=10, at=1), 1)) == 1

    # Whose place it will be is decided when it is free; until then y may have it as well.
    assert stopped(scheduler, job("y", gpus=1, estimate=5, at=2), 2) == []


def test_equals_do_not_stop_each_other() -> None:
    scheduler = make(order=PriorityWithAgeing(preemptive=True))
    begin(scheduler, job("a", gpus=1, priority=3))

    assert stopped(scheduler, job("b", gpus=1, priority=3), 0) == []


def test_the_place_is_kept_for_whom_it_was_made() -> None:
    scheduler = make(order=ShortestRemainingFirst())
    begin(scheduler, job("a", gpus=1, estimate=100))
    assert stopped(scheduler, job("b", gpus=1, estimate=10), 1) == ["a"]

    (start, *_) = scheduler.handle(Preempted(JobId("a")), 2)

    assert isinstance(start, Start)
    assert start.job_id == "b"


def test_las_lets_newcomers_pass_a_job_that_had_its_share() -> None:
    order = LeastAttainedService((10.0, 100.0))
    jobs = [job("a", gpus=1), job("b", gpus=1, at=1)]

    log = play(jobs, {"a": 30, "b": 30}, make(order=order))

    # a reaches 10 GPU s at 10 s and falls; b runs until it has 10 GPU s too, at 20 s; both
    # are then at level 1, where a came first, but nobody on the same level is stopped: b
    # goes on until 40 s and a has its other 20 s until 60 s.
    assert times(log) == {"a": [0, 40], "b": [10]}


def test_las_wakes_for_every_level_not_only_for_the_first() -> None:
    order = LeastAttainedService((10.0, 20.0))
    # a falls to level 1 at 10 s, when nobody waits.  b has had 15 GPU s in its first run and
    # waits at level 1 from 15 s on... so it is c that shows the second level: submitted at
    # 12 s it stops a at once; both are equal at level 1 when c has had 10 GPU s at 22 s, and
    # c falls to level 2 at 32 s, where a, waiting at level 1, must take over.
    jobs = [job("a", gpus=1), job("c", gpus=1, at=12)]

    log = play(jobs, {"a": 100, "c": 100}, make(order=order))

    assert times(log)["a"][:2] == pytest.approx([0, 32], abs=0.01)


def test_las_counts_service_whose_work_was_lost() -> None:
    # a falls a level after 10 s and is stopped before its first checkpoint.  It has to begin
    # anew, but it had its 10 GPU s: b is next.
    jobs = [job("a", gpus=1, checkpoint_s=100), job("b", gpus=1)]

    log = play(jobs, {"a": 15, "b": 5}, make(order=LeastAttainedService((10.0,))))

    assert times(log) == {"a": [0, 15], "b": [10]}
    assert ends(log) == {"b": 15, "a": 30}


def test_old_age_does_not_make_preemption_go_in_circles() -> None:
    order = PriorityWithAgeing(age_s=10, preemptive=True)
    jobs = [job("old", gpus=1, priority=0), job("young", gpus=1, priority=1, at=50)]

    log = play(jobs, {"old": 100, "young": 10}, make(order=order))

    # old is ahead of young in the queue and would take its place back at once, so that
    # stopping it would only cost work.
    assert times(log) == {"old": [0], "young": [100]}


def test_roles_that_do_not_all_fit_afterwards_do_not_stop_anybody_for_ever() -> None:
    # Stopping long would make room for either role of x but not for both.
    on = cluster(gpus=[1, 1])
    roles = task(gpus=1, role="chief"), task(gpus=1, role="worker")
    jobs = [
        job("short", gpus=1, estimate=5),
        job("long", gpus=1, estimate=100),
        job("x", *roles, estimate=10, at=1),
    ]

    log = play(
        jobs, {"short": 5, "long": 100, "x": 10}, make(on, order=ShortestRemainingFirst())
    )

    assert set(ends(log)) == {"short", "long", "x"}
    assert len(times(log, LogEvent.PREEMPTED).get("long", [])) <= 1


@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=40)
@given(on=clusters(most=3), trace=traces(most=12))
def test_preemption_always_comes_to_rest_and_everybody_ends(
    order: str, on: Cluster, trace: tuple[list[Job], list[float]]
) -> None:
    jobs, true_s = trace
    scheduler = make(on, order=ORDERS[order])

    log = Simulator(scheduler, jobs, true_s, World(restart_s=3), paranoid=True).run()

    assert len(ends(log)) + len(log.refusals) == len(jobs)


@pytest.mark.parametrize("order", ORDERS)
def test_many_equal_jobs_do_not_trade_places(order: str) -> None:
    jobs = [
        job(f"j{n:02}", gpus=1, estimate=50, at=n // 4, priority=1, serial=n) for n in range(40)
    ]

    log = play(jobs, 50.0, make(pool(3), order=ORDERS[order]))

    # Equal jobs never deserve a place more, except that least attained service lets each
    # pass once a level: two levels are reached in 50 s.
    most = 2 if order == "las" else 0
    assert max(map(len, times(log, LogEvent.PREEMPTED).values()), default=0) <= most


@settings(max_examples=40)
@given(trace=traces(most=12), min_run_s=st.sampled_from([0.0, 7.0, 40.0]))
def test_every_victim_deserves_its_place_less_and_ran_its_minimum(
    trace: tuple[list[Job], list[float]], min_run_s: float
) -> None:
    order = PriorityWithAgeing(preemptive=True)
    scheduler = make(
        cluster(gpus=[2, 1]), order=order, preemption=Preemption(min_run_s=min_run_s)
    )
    watched = Watched(scheduler)

    Simulator(scheduler, *trace, through=watched).run()

    for victim, winner, ran_s in watched.stops:
        assert order.rank(victim, 0) > order.rank(winner, 0)
        assert ran_s >= min_run_s


class Watched(Wrapper):
    """A scheduler whose every action to stop somebody is noted: whom, for whom, when."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self.stops: list[tuple[Job, Job, float]] = []
        self._jobs: dict[JobId, Job] = {}
        self._started_s: dict[JobId, float] = {}

    def learn(self, event: Event, now_s: float) -> None:
        if isinstance(event, Submitted):
            self._jobs[event.job.id] = event.job
        if isinstance(event, Started):
            self._started_s[event.job_id] = now_s
        super().learn(event, now_s)

    def decide(self, now_s: float) -> tuple[Action, ...]:
        actions = super().decide(now_s)
        for action in actions:
            if isinstance(action, Preempt):
                victim, winner = self._jobs[action.job_id], self._jobs[action.in_favour_of]
                self.stops.append((victim, winner, now_s - self._started_s[action.job_id]))
        return actions


@settings(max_examples=80)
@given(
    machines=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    costs=st.lists(st.integers(0, 30), min_size=9, max_size=9),
    shares=st.lists(st.sampled_from([1000, 500]), min_size=9, max_size=9),
    need=st.integers(1, 3),
)
def test_victims_make_room_and_none_is_stopped_for_nothing(
    machines: list[int], costs: list[int], shares: list[int], need: int
) -> None:
    # Every job holds one GPU or half of one; its checkpoint interval sets what it loses at
    # 1000 s: with an interval of 1000 - cost it lost ``cost`` seconds since the last one.
    on = cluster(gpus=machines)
    scheduler = make(on, order=ShortestRemainingFirst(), preemption=Preemption(restart_s=0))
    running = [
        job(f"r{n}", gpus=1, gpu_milli=share, estimate=1e6, checkpoint_s=1000 - cost, serial=n)
        for n, (cost, share) in enumerate(zip(costs, shares, strict=True))
    ]
    begin(scheduler, *running)
    held: dict[str, Placement] = {
        each.id: placement
        for each in running
        if (placement := scheduler.placement(each.id)) is not None
    }
    asked = job("x", gpus=1, instances=need, estimate=1, at=1000)
    free = sum(
        milli == 1000 for n in range(len(on)) for milli in scheduler.view.free(n).gpu_milli
    )
    if need > on.gpus or free >= need:
        return

    victims = stopped(scheduler, asked, 1000)

    assert makes_room(held, set(victims), on, need)
    for spared in victims:
        assert not makes_room(held, set(victims) - {spared}, on, need)
    lost = {
        each.id: cost * each.request.gpu_milli
        for each, cost in zip(running, costs, strict=True)
    }
    best = cheapest(held, lost, on, need)
    if all(share == 1000 for share in shares):
        # One job a GPU: the cheapest set is simply the cheapest jobs, so greedy is exact.
        assert sum(lost[JobId(name)] for name in victims) == best


def makes_room(held: dict[str, Placement], gone: set[str], on: Cluster, need: int) -> bool:
    used = {
        (spot.machine, gpu)
        for name, placement in held.items()
        if name not in gone
        for spot in placement.spots
        for gpu in spot.gpus
    }
    return on.gpus - len(used) >= need


def cheapest(held: dict[str, Placement], lost: dict[JobId, int], on: Cluster, need: int) -> int:
    return min(
        sum(lost[JobId(name)] for name in gone)
        for size in range(len(held) + 1)
        for gone in combinations(held, size)
        if makes_room(held, set(gone), on, need)
    )


def test_somebody_who_waits_is_woken_when_a_rank_rises() -> None:
    scheduler = make(order=LeastAttainedService((10.0,)))
    begin(scheduler, job("a", gpus=1))

    assert scheduler.handle(Submitted(job("b", gpus=1, at=4)), 4) == (Wake(10.0),)
    assert scheduler.handle(Ticked(), 10)[0] == Preempt(JobId("a"), JobId("b"))


def test_every_role_gets_its_place() -> None:
    # Both GPUs must be freed: one for each role.
    roles = task(gpus=1, role="chief"), task(gpus=1, role="worker")
    jobs = [
        job("a", gpus=1, estimate=100),
        job("b", gpus=1, estimate=100),
        job("x", *roles, estimate=10, at=1),
    ]

    log = play(
        jobs,
        {"a": 100, "b": 100, "x": 10},
        make(cluster(gpus=[1, 1]), order=ShortestRemainingFirst()),
    )

    # x runs from 1 s to 11 s; a and b then have 99 s left.
    assert starts(log)["x"] == 1
    assert ends(log) == {"x": 11, "a": 110, "b": 110}


@pytest.mark.parametrize("queue", [Discipline.STRICT, Discipline.EASY])
def test_in_a_queue_that_nobody_may_pass_only_the_head_stops_others(queue: Discipline) -> None:
    # head wants both GPUs but short is not to be stopped for it; next could stop long, but
    # must not pass head, so that the place would stand empty.
    scheduler = make(cluster(gpus=[2]), order=ShortestRemainingFirst(), queue=queue)
    begin(scheduler, job("short", gpus=1, estimate=5), job("long", gpus=1, estimate=100))

    actions = scheduler.handle_all(
        [
            Submitted(job("head", gpus=2, estimate=10, at=1)),
            Submitted(job("next", gpus=1, estimate=20, at=1)),
        ],
        1,
    )

    assert not [action for action in actions if isinstance(action, Preempt)]
