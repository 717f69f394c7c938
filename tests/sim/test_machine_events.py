"""Machines that join, change, drain, leave and are taken by others, played in virtual time."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlane.metrics.attempts import attempts, held_milli
from interlane.metrics.log import EventLog, LogEvent
from interlane.metrics.machines import gpu_milli_s, periods
from interlane.model import (
    Device,
    Job,
    MachineChanged,
    MachineDrained,
    MachineEvent,
    MachineId,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineReturned,
    MachineUndrained,
    Occupied,
    TakenGpu,
    with_devices,
)
from interlane.model.lifecycle import JobState
from interlane.sim.engine import Simulator
from interlane.sim.record import read_log, write_log
from interlane.sim.world import Failures, World
from interlane.testing.build import cluster, ends, job, machine, make, play, starts, times
from interlane.testing.strategies import scenarios, traces
from interlane.traces.cluster_file import ClusterScenario
from interlane.traces.machine_events import TimedEvent

A, B = MachineId("a"), MachineId("b")
Played = tuple[list[Job], list[float]]


def world(*events: tuple[float, MachineEvent], failures: Failures | None = None) -> World:
    timed = tuple(TimedEvent(at_s, event) for at_s, event in events)
    return World(failures=failures, events=timed)


def two_machines() -> tuple[Job, Job]:
    return job("x", gpus=1), job("y", gpus=1)


def test_a_machine_that_joins_takes_who_waits() -> None:
    joins = world((5.0, MachineJoined(machine("b", gpus=1))))

    log = play(two_machines(), 10.0, make(cluster(machine("a", gpus=1))), joins)

    assert starts(log) == {"x": 0, "y": 5}
    assert log.machine_ids == ["a", "b"]


def test_a_drained_machine_lets_its_jobs_end_and_takes_no_others() -> None:
    drains = world((5.0, MachineDrained(A)), (30.0, MachineUndrained(A)))

    log = play(two_machines(), 10.0, make(cluster(machine("a", gpus=1))), drains)

    assert ends(log)["x"] == 10
    assert starts(log)["y"] == 30


@pytest.mark.parametrize("event", [MachineLost(A), MachineLeft(A)])
def test_a_machine_that_goes_throws_its_jobs_back(event: MachineEvent) -> None:
    lab = cluster(machine("a", gpus=1), machine("b", gpus=1))
    kept = job("x", gpus=1, checkpoint_s=4)

    log = play([kept], 20.0, make(lab), world((10.0, event)))

    # It keeps the 8 s of its second checkpoint.
    assert times(log, LogEvent.JOB_LOST) == {"x": [10]}
    assert ends(log) == {"x": 10 + 12}
    assert log.losses[0]


def test_a_job_that_ends_as_its_machine_goes_has_ended() -> None:
    log = play([job("x", gpus=1)], 10.0, make(cluster(machine("a", gpus=1))),
               world((10.0, MachineLeft(A))))  # fmt: skip

    assert ends(log) == {"x": 10}


def test_a_lost_device_throws_back_who_was_on_it() -> None:
    whole = Device("T4", 16 * 1024)
    before = with_devices(A, [whole] * 2, cpu_milli=96_000, memory_mib=1024)
    after = with_devices(
        A, [whole, replace(whole, compute_milli=0)], cpu_milli=96_000, memory_mib=1024
    )

    log = play(two_machines(), 10.0, make(cluster(before)), world((5.0, MachineChanged(after))))

    # One of them is on GPU 1; it waits for the other and begins again.
    assert times(log, LogEvent.JOB_LOST) == {"y": [5]}
    assert ends(log) == {"x": 10, "y": 20}


def test_what_others_have_is_not_given_away() -> None:
    taken = Occupied(A, gpus=(TakenGpu(0, 600),))

    log = play(two_machines(), 10.0, make(cluster(machine("a", gpus=1))),
               world((0.0, taken), (7.0, Occupied(A))))  # fmt: skip

    assert starts(log) == {"x": 7, "y": 17}


def test_a_machine_that_is_lost_twice_over_returns_when_both_are_over() -> None:
    failures = Failures(mean_up_s=50, mean_down_s=10, seed=1)
    rng = failures.stream(machine("a"))
    lost_s, down_s = (rng.expovariate(1 / mean) for mean in (50, 10))
    planned = world(
        (lost_s + 0.5 * down_s, MachineLost(A)),
        (lost_s + 2.0 * down_s, MachineReturned(A)),
        failures=failures,
    )

    log = play([job("x", gpus=1)], lost_s + 1, make(cluster(machine("a", gpus=1))), planned)

    lost, returned, *_ = (line for line in log.lines() if line.event is not None)
    assert (lost.kind, returned.kind) == (LogEvent.MACHINE_LOST, LogEvent.MACHINE_RETURNED)
    assert lost.at_s == pytest.approx(lost_s)
    assert returned.at_s == pytest.approx(lost_s + 2.0 * down_s)


def test_a_machine_that_joins_fails_by_chance_too() -> None:
    failures = Failures(mean_up_s=20, mean_down_s=5, seed=3)
    joins = world((1.0, MachineJoined(machine("b", gpus=1))), failures=failures)
    jobs = [job(f"j{n}", gpus=1, checkpoint_s=1, serial=n) for n in range(8)]

    log = play(jobs, 40.0, make(cluster(machine("a", gpus=1))), joins)

    lost = {
        line.event.machine_id for line in log.lines() if isinstance(line.event, MachineLost)
    }
    assert lost == {"a", "b"}


def test_a_machine_that_left_does_not_fail_any_more() -> None:
    failures = Failures(mean_up_s=5, mean_down_s=1, seed=3)
    lost_s = failures.stream(machine("b")).expovariate(1 / 5)
    jobs = [job("x", gpus=1, checkpoint_s=1)]
    lab = cluster(machine("a", gpus=1), machine("b", gpus=1))

    log = play(jobs, 60.0, make(lab), world((lost_s + 0.1, MachineLeft(B)), failures=failures))

    of_b = [line for line in log.lines() if line.event and line.event.machine_id == "b"]
    assert [line.kind for line in of_b] == [LogEvent.MACHINE_LOST, LogEvent.MACHINE_LEFT]


def test_jobs_wait_when_the_last_machine_has_left() -> None:
    engine = Simulator(
        make(cluster(machine("a", gpus=1))), two_machines(), [10.0, 10.0],
        world((5.0, MachineLeft(A))),
    )  # fmt: skip

    log = engine.run()

    assert ends(log) == {}
    assert not log.refusals
    assert engine.scheduler.waiting == 2


@given(scenario=scenarios(), trace=traces(most=8))
def test_nothing_is_lost_and_nobody_uses_what_is_not_there(
    scenario: ClusterScenario, trace: Played
) -> None:
    log, engine = played(scenario, trace)

    gone = {line.subject for line in log.lines() if line.kind is LogEvent.FINISHED} | set(
        log.refusals
    )
    for number, each in enumerate(engine.jobs):
        waits = engine.scheduler.state(each.id) is JobState.QUEUED
        assert waits != (number in gone)
    held = attempts(log)
    used_s = float((held_milli(log, held) * (held.end_s - held.start_s)).sum())
    assert used_s <= there_milli_s(log, engine.now_s) + 1e-6


@given(scenario=scenarios(), trace=traces(most=8), speed=st.sampled_from([0.5, 2.0]))
def test_jobs_stand_on_machines_that_are_there(
    scenario: ClusterScenario, trace: Played, speed: float
) -> None:
    log, _ = played(scenario, trace, {"T4": speed})

    there = periods(log)
    tries = attempts(log)
    for begin_s, end_s, number in zip(tries.start_s, tries.end_s, tries.number, strict=True):
        for name in log.placements[number].machines:
            covered_s = sum(
                min(one.end_s, end_s) - max(one.begin_s, begin_s)
                for one in there
                if one.machine.id == name and one.begin_s < end_s and one.end_s > begin_s
            )
            assert covered_s == pytest.approx(end_s - begin_s)


@given(scenario=scenarios(), trace=traces(most=8))
def test_nobody_has_more_of_a_gpu_than_it_can_give(
    scenario: ClusterScenario, trace: Played
) -> None:
    log, engine = played(scenario, trace)

    tries = attempts(log)
    for period in periods(log):
        middle_s = (max(period.begin_s, 0.0) + min(period.end_s, engine.now_s)) / 2
        held: Counter[int] = Counter()
        for row in np.nonzero((tries.start_s <= middle_s) & (tries.end_s > middle_s))[0]:
            tasks = log.jobs[tries.job[row]].request.tasks
            for spot in log.placements[tries.number[row]].spots:
                if spot.machine == period.machine.id:
                    milli = tasks[spot.task].demand.gpu_milli * spot.instances
                    held.update(dict.fromkeys(spot.gpus, milli))
        for gpu, milli in held.items():
            assert milli <= period.machine.device(gpu).compute_milli


@given(scenario=scenarios(), trace=traces(most=6))
def test_a_log_with_machines_reads_back_equal(
    scenario: ClusterScenario, trace: Played, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log, _ = played(scenario, trace)
    path = Path(tmp_path_factory.mktemp("log")) / "log.parquet"

    write_log(log, path)

    back = read_log(path)
    assert list(back.lines()) == list(log.lines())


def played(
    scenario: ClusterScenario, trace: Played, speeds: dict[str, float] | None = None
) -> tuple[EventLog, Simulator]:
    jobs, true_s = trace
    plan = World(speeds or {}, events=scenario.events)
    engine = Simulator(make(scenario.cluster), jobs, true_s, plan, paranoid=True)
    return engine.run(), engine


def there_milli_s(log: EventLog, end_s: float) -> float:
    """Return the GPU time that there was, whoever had it."""
    free = gpu_milli_s(log, 0.0, end_s)
    taken = sum(
        milli * max(0.0, min(period.end_s, end_s) - max(period.begin_s, 0.0))
        for period in periods(log)
        for _, milli in period.taken
    )
    return free + taken
