"""Virtual time: exact re-rating, failures, conservation, and runs that always end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.kernel.rest import Wrapper
from interlane.metrics.log import EventLog, LogEvent
from interlane.model import MILLI, Action, Cluster, Event, InvalidField, Job
from interlane.policy.base import Order
from interlane.policy.order import LeastAttainedService, ShortestRemainingFirst
from interlane.sim.engine import Simulator
from interlane.sim.world import CpuContention, Failures, ShareContention, World
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
from interlane.testing.strategies import clusters, traces

Trace = tuple[list[Job], list[float]]


def test_nothing_happens_without_jobs() -> None:
    log = play([], [], make())

    assert len(log) == 0


def test_a_job_of_no_length_ends_when_it_starts() -> None:
    log = play([job("a", gpus=1), job("b", gpus=1)], 0.0, make())

    assert starts(log) == ends(log) == {"a": 0, "b": 0}


def test_a_job_that_can_never_fit_is_refused_and_the_run_ends() -> None:
    log = play([job("big", gpus=9), job("a", gpus=1, at=1)], 5.0, make())

    assert [log.jobs[number].id for number in log.refusals] == ["big"]
    assert ends(log) == {"a": 6}


def test_roles_that_cannot_fit_together_end_the_run_too() -> None:
    # Two GPUs on two machines: each role wants both halves of one whole machine.
    on = cluster(machine("m0", gpus=2, cpus=4), machine("m1", gpus=2, cpus=1))
    roles = task(gpus=2, cpus=3, role="chief"), task(gpus=1, cpus=2, role="worker")

    log = play([job("x", *roles), job("a", gpus=1, at=1)], 5.0, make(on))

    assert [log.jobs[number].id for number in log.refusals] == ["x"]
    assert ends(log) == {"a": 6}


def test_neighbours_slow_each_other_down_exactly_while_they_share() -> None:
    # Each sharer stretches by half: speed 1 alone, 1/1.5 beside one other.
    world = World(slow_downs=(ShareContention(per_sharer=0.5),))
    jobs = [job("a", gpus=1, gpu_milli=500), job("b", gpus=1, gpu_milli=500, at=10)]

    log = play(jobs, {"a": 30, "b": 10}, make(gpus=1), world)

    # b needs 10 s of work at 2/3: it ends at 10 + 15 = 25 s.  a has done 10 s alone and
    # 15 * 2/3 = 10 s beside b; the last 10 s it does alone: 35 s.
    assert ends(log) == pytest.approx({"a": 35, "b": 25})


def test_jobs_on_other_gpus_are_no_neighbours() -> None:
    world = World(slow_downs=(ShareContention(per_sharer=0.5),))
    jobs = [job("a", gpus=1), job("b", gpus=1)]

    assert ends(play(jobs, 10.0, make(gpus=2), world)) == {"a": 10, "b": 10}


def test_a_gang_is_as_fast_as_its_slowest_spot() -> None:
    world = World(slow_downs=(ShareContention(per_sharer=1.0),))
    # gang has half of both GPUs; x shares the first one for 10 s of the gang's time.
    jobs = [job("gang", gpus=2, gpu_milli=500), job("x", gpus=1, gpu_milli=500, at=5)]

    log = play(jobs, {"gang": 20, "x": 5}, make(gpus=2), world)

    # From 5 s on both run at half speed; x ends at 15 s, when the gang has done 5 + 5 s.
    assert ends(log) == {"x": 15, "gang": 25}


def test_a_faster_gpu_shortens_the_job() -> None:
    on = cluster(machine("m0", gpus=1, type="V100"))

    log = play([job("a", gpus=1), job("c", cpus=1)], 30.0, make(on), World({"V100": 3.0}))

    # Work without GPUs does not profit.
    assert ends(log) == {"a": 10, "c": 30}


def test_scarce_cpus_slowdown_run_times_as_published() -> None:
    on = cluster(machine("m0", gpus=4, cpus=48))
    jobs = [job("a", gpus=1, cpus=8), job("b", gpus=1, cpus=40, at=6)]

    log = play(jobs, {"a": 16, "b": 10}, make(on), World(slow_downs=(CpuContention(),)))

    # a alone leaves 40 cores idle: no stretch.  From 6 s on none is, and both go at 3.55/4.40.
    # After 10 x 4.40/3.55 s both are done: a had 10 s left.
    assert ends(log) == pytest.approx({"a": 6 + 10 * 4.40 / 3.55, "b": 6 + 10 * 4.40 / 3.55})


def test_an_elastic_gang_runs_at_the_speed_of_its_share() -> None:
    jobs = [job("x", gpus=1), job("gang", gpus=1, instances=4, at_least=1, at=1)]

    log = play(jobs, {"x": 5, "gang": 12}, make(pool(4)))

    # Three of four instances do 3 s of work until x has left; all of them do the other 9 s.
    assert ends(log) == {"x": 5, "gang": 14}


def test_a_gang_that_stays_small_takes_longer_in_proportion() -> None:
    jobs = [job("x", gpus=1), job("gang", gpus=1, instances=4, at_least=1, at=1)]

    log = play(jobs, {"x": 50, "gang": 12}, make(pool(4)))

    # Three of four instances: 12 s of work take 16 s.
    assert ends(log) == {"x": 50, "gang": 17}


def test_what_a_gang_grows_into_has_neighbours_too() -> None:
    world = World(slow_downs=(ShareContention(per_sharer=1.0),))
    jobs = [
        job("x", gpus=1, gpu_milli=500, serial=-2),
        job("y", gpus=1, gpu_milli=500, serial=-1),
        job("gang", gpus=1, gpu_milli=500, instances=3, at_least=2, at=1),
    ]

    log = play(jobs, {"x": 2, "y": 40, "gang": 9}, make(gpus=2), world)

    # x and y share GPU 0 at half speed, so that x ends at 4 s; the gang's two of three
    # instances have then done 2 s of work alone on GPU 1.  From 4 s on the third is beside
    # y, which halves the speed of the gang: its 7 s take 14 s.  y has done 2 s by then, does
    # 7 s beside the gang and its last 31 s alone.
    assert times(log, LogEvent.GROWN) == {"gang": [4]}
    assert ends(log) == pytest.approx({"x": 4, "gang": 18, "y": 49})


def test_events_of_one_moment_are_learned_before_anybody_decides() -> None:
    # At 10 s a ends and b and c arrive; c is shorter and must win although b came first.
    jobs = [
        job("a", gpus=1, estimate=10),
        job("b", gpus=1, estimate=9, at=10, serial=1),
        job("c", gpus=1, estimate=1, at=10, serial=2),
    ]

    log = play(jobs, {"a": 10, "b": 9, "c": 1}, make(order=ShortestRemainingFirst()))

    assert starts(log) == {"a": 0, "c": 10, "b": 11}
    assert times(log, LogEvent.PREEMPTED) == {}


def test_a_preempted_job_pays_for_lost_work_and_for_starting_again() -> None:
    world = World(restart_s=3)
    jobs = [
        job("a", gpus=1, estimate=100, checkpoint_s=10),
        job("b", gpus=1, estimate=5, at=27),
    ]

    log = play(jobs, {"a": 100, "b": 5}, make(order=ShortestRemainingFirst()), world)

    # a is stopped at 27 s and keeps 20 s; b ends at 32 s; 80 s of work and 3 s to get going.
    assert ends(log) == {"b": 32, "a": 115}


def test_a_lost_machine_sets_jobs_back_to_their_checkpoint() -> None:
    failures = Failures(mean_up_s=50, mean_down_s=10, seed=1)
    rng = failures.stream(machine("m0"))
    lost_s, down_s, lost_again_s = (rng.expovariate(1 / mean) for mean in (50, 10, 50))
    length_s = lost_s + 0.25 * lost_again_s
    jobs = [job("kept", gpus=1, checkpoint_s=lost_s / 2.5), job("redone", gpus=1)]

    log = play(jobs, length_s, make(cluster(gpus=[2])), World(failures=failures))

    assert times(log, LogEvent.JOB_LOST)["kept"][0] == pytest.approx(lost_s)
    # The machine is back after down_s.  kept has two checkpoints, 0.8 of what it did.
    back_s = lost_s + down_s
    assert times(log)["kept"][1] == pytest.approx(back_s)
    kept_left_s = length_s - 0.8 * lost_s
    if kept_left_s < lost_again_s:
        assert ends(log)["kept"] == pytest.approx(back_s + kept_left_s)
    assert ends(log)["redone"] >= back_s + length_s - 1e-9


def test_failures_are_the_same_for_the_same_seed() -> None:
    def lines(seed: int) -> list[object]:
        failures = Failures(mean_up_s=40, mean_down_s=20, seed=seed)
        jobs = [job(f"j{n}", gpus=1, at=n, checkpoint_s=5, serial=n) for n in range(8)]
        log = play(jobs, 50.0, make(cluster(gpus=[2, 2])), World(failures=failures))
        return list(log.lines())

    assert lines(1) == lines(1)
    assert lines(1) != lines(2)


def test_a_run_can_stop_early() -> None:
    engine = Simulator(make(gpus=1), [job("a", gpus=1), job("b", gpus=1)], [10.0, 10.0])

    log = engine.run(until_s=10.0)

    assert ends(log) == {"a": 10}
    assert starts(log) == {"a": 0, "b": 10}


def test_a_bad_world_is_refused_in_one_sentence() -> None:
    for bad in (
        lambda: World({"T4": 0.0}),
        lambda: Failures(mean_up_s=0),
        lambda: Failures(mean_up_s=1, mean_down_s=-1),
        lambda: ShareContention(-0.1),
    ):
        with pytest.raises(InvalidField, match=r"^.+ is .+, but it must be .+\.$"):
            bad()


# -- conservation -------------------------------------------------------------------------


def held_gpu_s(log: EventLog) -> dict[str, float]:
    """Return the GPU seconds that each job held, from the log alone."""
    since: dict[int, list[tuple[float, int]]] = {}
    total: dict[str, float] = {}
    for line in log.lines():
        if line.placement is not None:
            tasks = log.jobs[line.subject].request.tasks
            milli = sum(
                spot.instances * tasks[spot.task].demand.gpu_milli_total
                for spot in line.placement.spots
            )
            assert (line.subject in since) == (line.kind is LogEvent.GROWN)
            since.setdefault(line.subject, []).append((line.at_s, milli))
        elif line.kind in (LogEvent.FINISHED, LogEvent.PREEMPTED, LogEvent.JOB_LOST):
            name = log.jobs[line.subject].id
            for begin_s, milli in since.pop(line.subject):
                held = (line.at_s - begin_s) * milli / MILLI
                total[name] = total.get(name, 0.0) + held
    assert not since
    return total


def is_rigid(asked: Job) -> bool:
    return all(each.least == each.instances for each in asked.request)


@given(on=clusters(most=3), trace=traces())
def test_gpu_seconds_are_conserved(on: Cluster, trace: Trace) -> None:
    jobs, true_s = trace

    held = held_gpu_s(play(jobs, true_s, make(on)))

    for asked, length_s in zip(jobs, true_s, strict=True):
        if asked.id in held and (is_rigid(asked) or asked.request.is_elastic):
            rolewise = len(asked.request.tasks) > 1 and not is_rigid(asked)
            if not rolewise:
                # A gang with fewer instances runs longer in the same measure.
                work = asked.request.gpu_milli / MILLI * length_s
                assert held[asked.id] == pytest.approx(work)


@given(
    trace=traces(most=10),
    order=st.sampled_from([ShortestRemainingFirst(), LeastAttainedService((10.0, 60.0))]),
    restart_s=st.sampled_from([0.0, 4.0]),
)
def test_gpu_seconds_are_conserved_when_jobs_are_stopped(
    trace: Trace, order: Order, restart_s: float
) -> None:
    jobs, true_s = trace
    scheduler = make(cluster(gpus=[2, 1]), order=order)

    log = play(jobs, true_s, scheduler, World(restart_s=restart_s))

    held, stops = held_gpu_s(log), times(log, LogEvent.PREEMPTED)
    for asked, length_s in zip(jobs, true_s, strict=True):
        if asked.id not in held or not is_rigid(asked):
            continue
        lost_s = held[asked.id] * MILLI / max(asked.request.gpu_milli, 1) - length_s
        restarts_s = restart_s * len(stops.get(asked.id, []))
        if asked.request.gpu_milli == 0:
            continue
        if asked.checkpoint_s == 0:
            assert lost_s == pytest.approx(restarts_s, abs=1e-6)
        else:
            # Less than one checkpoint interval is lost each time.
            most_s = restarts_s + asked.checkpoint_s * len(stops.get(asked.id, []))
            assert restarts_s - 1e-6 <= lost_s <= most_s + 1e-6


@pytest.mark.parametrize("per_sharer", [0.1, 0.3, 0.7])
def test_equal_neighbours_end_together_and_not_before(per_sharer: float) -> None:
    world = World(slow_downs=(ShareContention(per_sharer),))
    for length_s in range(1, 60):
        jobs = [job(name, gpus=1, gpu_milli=250, at=0.1) for name in "abc"]

        log = play(jobs, float(length_s), make(gpus=1), world)

        at_s = [line.at_s for line in log.lines()]
        assert at_s == sorted(at_s)
        expected_s = 0.1 + length_s * (1 + 2 * per_sharer)
        assert list(ends(log).values()) == pytest.approx([expected_s] * 3)


class Ordered(Wrapper):
    """A scheduler that checks that time never runs backwards."""

    _now_s = 0.0

    def learn(self, event: Event, now_s: float) -> None:
        assert now_s >= self._now_s
        self._now_s = now_s
        super().learn(event, now_s)

    def decide(self, now_s: float) -> tuple[Action, ...]:
        assert now_s >= self._now_s
        return super().decide(now_s)


@given(on=clusters(most=2), trace=traces(most=10), slowdown=st.floats(0.01, 3.0))
def test_time_never_runs_backwards_when_speeds_change(
    on: Cluster, trace: Trace, slowdown: float
) -> None:
    world = World({"T4": 0.7, "V100": 1.3}, (ShareContention(slowdown), CpuContention()))

    scheduler = make(on)
    log = Simulator(scheduler, *trace, world, through=Ordered(scheduler)).run()

    at_s = [line.at_s for line in log.lines()]
    assert at_s == sorted(at_s)
    assert len(ends(log)) + len(log.refusals) == len(trace[0])
