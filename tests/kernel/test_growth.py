"""Elastic gangs: they start with what there is and grow into what nobody who waits can use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel.rest import Wrapper
from interlane.kernel.scheduler import Scheduler
from interlane.metrics.log import LogEvent
from interlane.model import (
    Action,
    Cancelled,
    CapacityViolated,
    Event,
    Finished,
    Grow,
    GrowFailed,
    Grown,
    Job,
    JobId,
    MachineId,
    MachineLost,
    Placement,
    Preempt,
    Preempted,
    Start,
    Started,
    Submitted,
)
from interlane.model.lifecycle import JobState
from interlane.policy.base import PlacementRule, Placer, PlanStage
from interlane.policy.order import (
    FairShare,
    Fifo,
    LeastAttainedService,
    ShortestFirst,
    ShortestRemainingFirst,
)
from interlane.policy.place import RulePlacer, first_fit, pack, random
from interlane.policy.policy import Discipline
from interlane.policy.scores import Score
from interlane.sim.engine import Simulator
from interlane.sim.world import Failures, ShareContention, World
from interlane.tables import UP
from interlane.testing.build import (
    cluster,
    ends,
    job,
    machine,
    make,
    play,
    pool,
    starts,
    task,
    times,
)
from interlane.testing.faulty import PlainFirstFit
from interlane.testing.naive import Host
from interlane.testing.naive import first_fit as takes_room
from interlane.testing.strategies import gang_traces, traces

Trace = tuple[list[Job], list[float]]
GANG = JobId("gang")


def confirm(scheduler: Scheduler, actions: tuple[Action, ...], now_s: float) -> None:
    """Do what is decided, and nothing else."""
    for action in actions:
        if isinstance(action, Start):
            scheduler.learn(Started(action.job_id, action.placement), now_s)
        if isinstance(action, Grow):
            scheduler.learn(Grown(action.job_id, action.more), now_s)


def running(scheduler: Scheduler, *jobs: Job) -> Scheduler:
    """Return the scheduler after these jobs have come one by one, and started if they could."""
    for each in jobs:
        confirm(scheduler, scheduler.handle(Submitted(each), 0), 0)
    return scheduler


def two_gangs(scheduler: Scheduler, first: Job, second: Job) -> Scheduler:
    """Return it with both gangs at one instance each; another GPU is x's."""
    running(scheduler, job("x", gpus=1, estimate=1), job("y", gpus=1, estimate=1), first)
    actions = scheduler.handle_all([Finished(JobId("y")), Submitted(second)], 1)
    confirm(scheduler, actions, 1)
    assert instances(scheduler, first.id) == instances(scheduler, second.id) == 1
    return scheduler


def half_a_gang(**settings: object) -> Scheduler:
    """Return two GPUs: one is x's, the other has one of gang's two instances."""
    gang = job("gang", gpus=1, instances=2, at_least=1)
    return running(make(gpus=2, **settings), job("x", gpus=1, serial=-1), gang)  # type: ignore[arg-type]


def grown(actions: tuple[Action, ...]) -> dict[str, int]:
    """Return by how many instances each job is to grow."""
    return {
        action.job_id: action.more.instances for action in actions if isinstance(action, Grow)
    }


def instances(scheduler: Scheduler, job_id: JobId = GANG) -> int:
    placement = scheduler.placement(job_id)
    return 0 if placement is None else placement.instances


# -- the action and its events ---------------------------------------------------------------


def test_a_gang_grows_when_something_becomes_free() -> None:
    scheduler = half_a_gang()

    actions = scheduler.handle(Finished(JobId("x")), 5)

    (action,) = actions
    assert isinstance(action, Grow)
    assert (action.job_id, [spot.gpus for spot in action.more.spots]) == ("gang", [(0,)])
    assert scheduler.state(GANG) is JobState.GROWING
    confirm(scheduler, actions, 5)
    assert scheduler.state(GANG) is JobState.RUNNING
    assert instances(scheduler) == 2
    scheduler.check()


def test_what_is_grown_into_is_held_from_the_action_on() -> None:
    scheduler = half_a_gang()
    scheduler.handle(Finished(JobId("x")), 5)

    assert scheduler.handle(Submitted(job("late", gpus=1, at=5)), 5) == ()


def test_a_growth_that_fails_is_given_back_and_wanted_again_after_those_who_wait() -> None:
    scheduler = half_a_gang()
    scheduler.handle(Finished(JobId("x")), 5)
    scheduler.handle(Submitted(job("late", gpus=1, at=5)), 5)

    (action,) = scheduler.handle(GrowFailed(GANG, "no image"), 6)

    assert isinstance(action, Start)
    assert action.job_id == "late"
    assert scheduler.state(GANG) is JobState.RUNNING
    assert instances(scheduler) == 1
    scheduler.check()
    assert grown(scheduler.handle(Finished(JobId("late")), 7)) == {"gang": 1}


@pytest.mark.parametrize(
    "event",
    [Finished(GANG), Cancelled(GANG), Preempted(GANG), MachineLost(MachineId("m0"))],
    ids=lambda event: type(event).__name__,
)
def test_a_job_that_leaves_while_it_grows_leaves_all_of_it(event: Event) -> None:
    scheduler = half_a_gang()
    scheduler.handle(Finished(JobId("x")), 5)

    scheduler.learn(event, 6)

    scheduler.check()
    assert scheduler.view.free(0).gpu_milli == (1000, 1000)


def test_a_full_gang_does_not_grow() -> None:
    scheduler = running(make(gpus=4), job("gang", gpus=1, instances=2, at_least=1))

    assert scheduler.handle(Submitted(job("x", gpus=1)), 1)[1:] == ()


def test_a_gang_grows_step_by_step_and_never_past_its_full_size() -> None:
    others = [job(f"x{n}", gpus=1, serial=n - 9) for n in range(4)]
    scheduler = running(make(gpus=5), *others, job("gang", gpus=1, instances=4, at_least=1))

    sizes = []
    for n, other in enumerate(others):
        confirm(scheduler, scheduler.handle(Finished(other.id), n + 1), n + 1)
        sizes.append(instances(scheduler))

    assert sizes == [2, 3, 4, 4]


def test_a_gang_on_one_machine_does_not_grow() -> None:
    gang = job("gang", gpus=1, instances=2, at_least=1, same_machine=True)
    scheduler = running(make(gpus=2), job("x", gpus=1, serial=-1), gang)

    assert scheduler.handle(Finished(JobId("x")), 5) == ()


def test_every_role_grows_by_what_it_lacks() -> None:
    ps = task(cpus=1, instances=2, at_least=1, role="ps")
    workers = task(gpus=1, instances=3, at_least=1)
    on = cluster(machine("m0", gpus=3, cpus=2))
    jobs = [job("x", gpus=2, cpus=1, serial=-1), job("gang", ps, workers)]

    log = play(jobs, {"x": 5, "gang": 10}, make(on))

    # Two of five instances until 5 s: 2 s of work are done, the other 8 s need no longer.
    assert ends(log) == {"x": 5, "gang": 13}
    assert times(log, LogEvent.GROWN) == {"gang": [5, 5]}
    assert [line.placement.spots[0].task for line in log.lines()
            if line.kind is LogEvent.GROWN and line.placement] == [0, 1]  # fmt: skip


# -- who goes first -----------------------------------------------------------------------


@pytest.mark.parametrize("queue", Discipline)
def test_a_waiting_job_that_fits_comes_before_any_growth(queue: Discipline) -> None:
    scheduler = half_a_gang(queue=queue)
    scheduler.handle(Submitted(job("late", gpus=1, at=1)), 1)

    (action,) = scheduler.handle(Finished(JobId("x")), 5)

    assert isinstance(action, Start)
    assert action.job_id == "late"


def test_a_job_that_does_not_fit_is_passed_by_growth_in_a_greedy_queue() -> None:
    scheduler = half_a_gang()
    scheduler.handle(Submitted(job("wide", gpus=2, at=1)), 1)

    assert grown(scheduler.handle(Finished(JobId("x")), 5)) == {"gang": 1}


def test_nobody_grows_past_the_head_of_a_strict_queue() -> None:
    scheduler = half_a_gang(queue=Discipline.STRICT)
    scheduler.handle(Submitted(job("wide", gpus=2, at=1)), 1)

    assert scheduler.handle(Finished(JobId("x")), 5) == ()
    assert grown(scheduler.handle(Cancelled(JobId("wide")), 6)) == {"gang": 1}


def easy(gang_s: float, head: Job) -> tuple[Action, ...]:
    """Return what is decided when one of four GPUs becomes free and the head needs more."""
    scheduler = make(pool(4), queue=Discipline.EASY)
    jobs = [
        job("x", gpus=1, estimate=5, serial=-3),
        job("y", gpus=2, estimate=20, serial=-2),
        job("gang", gpus=1, instances=2, at_least=1, estimate=gang_s, serial=-1),
    ]
    running(scheduler, *jobs)
    scheduler.handle(Submitted(head), 1)
    return scheduler.handle(Finished(JobId("x")), 5)


def test_a_reservation_is_not_grown_into() -> None:
    # All of x and y is promised to the head at 20 s; half a gang of 50 s ends at 100 s.
    assert grown(easy(50, job("head", gpus=3, estimate=9, at=1))) == {}


def test_what_a_reservation_leaves_is_grown_into() -> None:
    # At 20 s three GPUs are free and the head needs two.
    assert grown(easy(50, job("head", gpus=2, estimate=9, at=1))) == {"gang": 1}


def test_a_gang_grows_for_whom_the_head_waits_itself() -> None:
    assert grown(easy(50, job("head", gpus=4, estimate=9, at=1))) == {"gang": 1}


def test_a_gang_that_ends_before_the_reservation_grows() -> None:
    # Half a gang of 10 s is expected to end at 20 s, just when the head is due.
    assert grown(easy(10, job("head", gpus=3, estimate=9, at=1))) == {"gang": 1}
    assert grown(easy(10.5, job("head", gpus=3, estimate=9, at=1))) == {}


def test_a_gang_that_has_grown_is_expected_to_end_sooner() -> None:
    scheduler = make(pool(4), queue=Discipline.EASY)
    x = job("x", gpus=3, estimate=10, serial=-1)
    running(scheduler, x, job("gang", gpus=1, instances=4, at_least=1, estimate=10))
    confirm(scheduler, scheduler.handle(Finished(x.id), 20), 20)
    scheduler.handle(Submitted(job("head", gpus=4, estimate=9, at=20)), 20)
    scheduler.handle(Submitted(job("late", gpus=1, estimate=9, at=21)), 21)

    # A quarter of the gang has done half of the work in 20 s; all of it needs 5 s more.
    why = scheduler.explain(JobId("late"), 21)

    assert why is not None
    assert why.tier.label == "capacity"
    assert scheduler._state.promise is not None
    assert scheduler._state.promise.at_s == 25


def test_the_policys_order_says_who_grows_first() -> None:
    scheduler = two_gangs(
        make(gpus=3, order=ShortestFirst()),
        job("long", gpus=1, instances=2, at_least=1, estimate=90),
        job("short", gpus=1, cpus=1, instances=2, at_least=1, estimate=9),
    )

    assert grown(scheduler.handle(Finished(JobId("x")), 5)) == {"short": 1}


def test_the_account_that_has_less_grows_first() -> None:
    scheduler = two_gangs(
        running(make(gpus=4, order=FairShare()), job("a", gpus=1, user="ann")),
        job("a-gang", gpus=1, instances=2, at_least=1, user="ann"),
        job("b-gang", gpus=1, instances=2, at_least=1, user="bob"),
    )

    assert grown(scheduler.handle(Finished(JobId("x")), 5)) == {"b-gang": 1}


def test_nobody_grows_into_room_that_is_being_made_for_another() -> None:
    # One GPU is idle; y is stopped so that the short job gets that and two others.
    scheduler = running(
        make(gpus=4, order=ShortestRemainingFirst()),
        job("y", gpus=2, estimate=900),
        job("x", gpus=1, estimate=4),
        job("gang", gpus=1, instances=2, at_least=1, estimate=30),
    )
    scheduler.learn(Finished(JobId("x")), 5)

    actions = scheduler.handle(Submitted(job("short", gpus=3, estimate=5, at=5)), 5)

    assert Preempt(JobId("y"), JobId("short")) in actions
    assert grown(actions) == {}


def test_a_job_that_is_to_stop_does_not_grow() -> None:
    scheduler = running(
        make(pool(3), order=ShortestRemainingFirst()),
        job("x", gpus=1, estimate=10),
        job("gang", gpus=1, instances=3, at_least=2, estimate=900),
    )
    actions = scheduler.handle(Submitted(job("short", gpus=2, estimate=5, at=1)), 1)
    assert actions[0] == Preempt(GANG, JobId("short"))

    assert scheduler.handle(Finished(JobId("x")), 2) == ()


# -- where to -----------------------------------------------------------------------------


def test_growth_keeps_to_the_types_that_the_job_names() -> None:
    on = cluster(machine("t", gpus=1), machine("v", gpus=2, type="V100"))
    gang = job("gang", gpus=1, instances=2, at_least=1, types=["V100"])
    scheduler = running(make(on), job("x", gpus=1, types=["V100"], serial=-1), gang)

    assert scheduler.decide(1) == ()  # the T4 is idle
    assert grown(scheduler.handle(Finished(JobId("x")), 5)) == {"gang": 1}


class HeldToT4:
    """A plan that keeps everybody on one type."""

    lent: frozenset[str] = frozenset()

    def stages(self, job: Job) -> tuple[PlanStage, ...]:
        return (PlanStage(frozenset({"T4"})),)


def test_growth_keeps_to_the_plan_of_the_job() -> None:
    on = cluster(machine("t", gpus=2), machine("v", gpus=1, type="V100"))
    placer = RulePlacer("planned", PlacementRule(Score.FIRST), plans=HeldToT4())
    gang = job("gang", gpus=1, instances=2, at_least=1)
    scheduler = running(make(on, placer=placer), job("x", gpus=1, serial=-1), gang)

    assert scheduler.decide(1) == ()  # the V100 is idle
    (action,) = scheduler.handle(Finished(JobId("x")), 5)
    assert isinstance(action, Grow)
    assert action.more.machines == ("t",)


@pytest.mark.parametrize("placer", [PlainFirstFit(), random()], ids=repr)
def test_placers_that_no_compiled_rule_expresses_grow_jobs_too(placer: Placer) -> None:
    scheduler = half_a_gang(placer=placer)

    assert grown(scheduler.handle(Finished(JobId("x")), 5)) == {"gang": 1}


# -- what must never happen ---------------------------------------------------------------


class Watched(Wrapper):
    """A scheduler that is watched: who waits, who holds what, and who was passed over."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._scheduler = scheduler
        self._jobs: dict[JobId, Job] = {}
        self._held: dict[JobId, Placement] = {}
        self.growths = 0

    def learn(self, event: Event, now_s: float) -> None:
        if isinstance(event, Submitted):
            self._jobs[event.job.id] = event.job
        if isinstance(event, Finished | Preempted):
            del self._held[event.job_id]
        if isinstance(event, Finished):
            del self._jobs[event.job_id]
        super().learn(event, now_s)

    def decide(self, now_s: float) -> tuple[Action, ...]:
        actions = super().decide(now_s)
        for action in actions:
            if isinstance(action, Start):
                self._held[action.job_id] = action.placement
        growths = [action for action in actions if isinstance(action, Grow)]
        if growths:
            self._check_that_nobody_fits()
        for action in growths:
            self.growths += 1
            self._held[action.job_id] += action.more
        return actions

    def _check_that_nobody_fits(self) -> None:
        """Raise if a job that waits would fit beside all that was held before the growth."""
        hosts = {each.id: Host.idle(each) for each in self._scheduler.cluster}
        for name, placement in self._held.items():
            for spot in placement.spots:
                needs = self._jobs[name].request.tasks[spot.task].demand
                for _ in range(spot.instances):
                    hosts[spot.machine].change(needs, spot.gpus, 1)
        for name, asked in self._jobs.items():
            if name not in self._held and self._scheduler.state(name) is not None:
                room = takes_room(asked, list(hosts.values()), first_fit().types)
                assert room is None, f"{name} fits and is passed over"


@given(
    trace=st.one_of(gang_traces(), traces()),
    order=st.sampled_from([Fifo(), ShortestFirst(), FairShare(), LeastAttainedService()]),
)
def test_growth_never_passes_over_a_waiting_job_that_fits(trace: Trace, order: Fifo) -> None:
    scheduler = make(cluster(gpus=[2, 3]), order=order)
    watched = Watched(scheduler)

    log = Simulator(scheduler, *trace, through=watched, paranoid=True).run()

    assert watched.growths == sum(map(len, times(log, LogEvent.GROWN).values()))


@given(
    trace=st.one_of(gang_traces(), traces(most=10)),
    queue=st.sampled_from(list(Discipline)),
    placer=st.sampled_from([first_fit(), pack(), random(), PlainFirstFit()]),
    order=st.sampled_from([Fifo(), FairShare(), ShortestRemainingFirst()]),
    failing=st.booleans(),
)
def test_gangs_stay_between_their_least_and_their_most_and_leave_nothing_behind(
    trace: Trace, queue: Discipline, placer: Placer, order: Fifo, *, failing: bool
) -> None:
    world = World(
        slow_downs=(ShareContention(),),
        failures=Failures(mean_up_s=400, mean_down_s=50) if failing else None,
    )
    scheduler = make(cluster(gpus=[2, 4]), queue=queue, placer=placer, order=order)

    log = play(*trace, scheduler, world)  # which checks the state after every moment

    assert len(ends(log)) + len(log.refusals) == len(trace[0])
    scheduler._state.ledger.check(held=[])  # a machine may be away by now, but nothing is held


def test_a_machine_that_is_away_at_the_end_is_not_taken_for_one_that_is_held() -> None:
    scheduler = running(make(cluster(gpus=[1, 1])), job("gang", gpus=1, instances=2))
    with pytest.raises(CapacityViolated, match=r"Machine m0 has .* free"):
        scheduler._state.ledger.check(held=[])

    scheduler.handle_all([Finished(GANG), MachineLost(MachineId("m1"))], 5)

    assert scheduler._state.ledger.free[:, UP].tolist() == [1, 0]
    scheduler._state.ledger.check(held=[])


@given(trace=gang_traces())
def test_a_strict_queue_sees_growth_only_when_nobody_waits(trace: Trace) -> None:
    log = play(*trace, make(cluster(gpus=[2, 4]), queue=Discipline.STRICT))

    waiting = 0
    for line in log.lines():
        waiting += (line.kind is LogEvent.SUBMITTED) - (
            line.kind in (LogEvent.STARTED, LogEvent.REFUSED)
        )
        assert line.kind is not LogEvent.GROWN or waiting == 0


def test_growth_asks_nothing_of_jobs_that_are_whole() -> None:
    jobs = [job(f"j{n}", gpus=1, instances=2, at=n) for n in range(9)]

    log = play(jobs, 10.0, make(gpus=4))

    assert starts(log)
    assert not times(log, LogEvent.GROWN)
