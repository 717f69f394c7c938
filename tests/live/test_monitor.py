"""What follows from looks at the device daemon, with looks made by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path

import numpy as np
import pytest

from interlane.lanes.report import ProcessReport, ProcessState, RunReport
from interlane.live.measure import coruns, occupancy
from interlane.live.measure.coruns import (
    BESIDE,
    LANES,
    LATENCY,
    CoRun,
    CoRunFiles,
    SoloSpeed,
    function_workload,
    job_workload,
)
from interlane.live.measure.monitor import LastReport, Monitor
from interlane.live.port import Measured
from interlane.model import Cluster, GpuRef, JobId, Machine, MachineId, Workload
from interlane.testing import reports
from interlane.testing.live import snapshot_of

A, B = JobId("big-7-1"), JobId("small-2")
BIG, SMALL, TRAIN = map(job_workload, ("big", "small", "train"))
PROGRAMS = {A: "big", B: "small"}
HERE = MachineId("here")
GPU = GpuRef(HERE, 0)


def process(
    name: str,
    lane: int,
    *,
    done: int,
    busy_s: float,
    at: int,
    waited_s: float = 0.0,
    share: int = 0,
) -> ProcessReport:
    run = RunReport(done, busy_s, waited_s, float(at))
    return reports.process(name, lane, run, share_milli=share)


def told(
    *jobs: ProcessReport, at: float, pid: int = 1, gpus: tuple[GpuRef, ...] = (GPU,)
) -> Measured:
    return Measured(reports.daemon(reports.device(*jobs), pid=pid), at, gpus)


def make_monitor(turns: str | None = None) -> Monitor:
    return Monitor(turns, PROGRAMS.get)


def saw(monitor: Monitor) -> LastReport:
    assert monitor.seen is not None
    return monitor.seen


def slowdown(monitor: Monitor, job_id: JobId) -> float | None:
    return saw(monitor).uses[job_id].measured_slowdown


def test_jobs_in_turns_are_slowed_down_by_waiting() -> None:
    monitor = make_monitor()

    for at in range(11):  # each waits half of the time, and works the other half
        one, two = (
            process(name, 0, done=10 * at, busy_s=at / 2, waited_s=at / 2, at=at)
            for name in (A, B)
        )
        monitor.heard(told(one, two, at=float(at)))

    assert slowdown(monitor, A) == slowdown(monitor, B) == pytest.approx(2)
    assert saw(monitor).devices[GPU].busy == 1.0


def test_jobs_beside_are_slowed_down_by_longer_iterations() -> None:
    monitor = make_monitor()
    done = 0
    for at in range(20):  # 10 iterations of 0.1 s a second, then 5 of 0.2 s beside another
        done += 10 if at < 5 else 5
        jobs = [process(A, 0, done=done, busy_s=float(at), at=at)]
        if at >= 4:
            jobs.append(process(B, 1, done=at, busy_s=float(at), at=at))

        monitor.heard(told(*jobs, at=float(at)))

    assert slowdown(monitor, A) == pytest.approx(2)
    assert slowdown(monitor, B) is None, "it was never seen alone"


def test_a_new_daemon_counts_devices_from_nothing() -> None:
    monitor = make_monitor()
    for at in range(5):
        monitor.heard(told(process(A, 0, done=at, busy_s=float(at), at=at), at=float(at)))

    monitor.heard(told(pid=2, at=5.0))

    assert saw(monitor).devices[GPU].busy is None
    assert saw(monitor).uses == {}


def test_what_processes_of_one_job_do_is_added_up() -> None:
    monitor = make_monitor()
    first, second = (process(A, 0, done=3, busy_s=1.0, at=2) for _ in range(2))

    monitor.heard(told(first, second, at=0.0))

    assert saw(monitor).uses[A].iterations == 6


def test_a_process_that_ends_does_not_count_backwards() -> None:
    monitor = make_monitor()
    monitor.heard(told(process(A, 0, done=90, busy_s=9.0, at=9), at=0.0))

    monitor.heard(told(process(A, 0, done=1, busy_s=0.1, at=1), at=1.0))

    assert slowdown(monitor, A) is None


def test_over_all_that_was_done_waiting_counts_too() -> None:
    done = RunReport(iterations=100, busy_s=5.0, waited_s=5.0, present_s=20.0)

    assert make_monitor().over_all(A, done).measured_slowdown == pytest.approx(20 / 15)


def test_predictions_go_by_the_shares_of_those_that_ran() -> None:
    monitor = make_monitor("fair")
    for at in range(8):
        jobs = [
            process(A, 0, done=at, busy_s=float(at), at=at, share=600),
            process(B, 0, done=0 if at < 4 else at, busy_s=0.0, at=at, share=300),
        ]

        monitor.heard(told(*jobs, at=float(at)))
        if at == 3:
            assert saw(monitor).uses[A].predicted_slowdown == 1, "the other has not run yet"

    over_all = monitor.over_all(A, RunReport(iterations=7, busy_s=7.0, present_s=7.0))
    assert over_all.predicted_slowdown == pytest.approx((3 * 1 + 4 * 1.5) / 7)
    assert over_all.measured_slowdown == pytest.approx(1)
    assert monitor.over_all(B, RunReport()).predicted_slowdown == pytest.approx(3)


def test_a_pair_is_told_of_when_it_parts() -> None:
    monitor, found, solos = make_monitor("fair"), list[CoRun](), dict[Workload, SoloSpeed]()

    def tell(coruns: Sequence[CoRun], alone: Mapping[Workload, SoloSpeed]) -> None:
        found.extend(coruns)
        solos.update(alone)

    monitor.tell = tell
    for at in range(12):  # both wait half of the time, and one leaves in the end
        both = [
            process(name, 0, done=10 * at, busy_s=at / 4, waited_s=at / 2, at=at)
            for name in (A, B)
        ]
        monitor.heard(told(*both[: 1 if at == 11 else 2], at=float(at)))

    assert {one[:3] for one in found} == {(LANES, BIG, SMALL), (LANES, SMALL, BIG)}
    assert [one.slowdown for one in found] == pytest.approx([2, 2])
    solo = solos[BIG]
    assert (solo.busy, solo.memory, solo.per_s) == pytest.approx((0.5, 0.25, 20))


def test_a_short_company_is_not_told_of() -> None:
    monitor, found = make_monitor("fair"), list[CoRun]()
    monitor.tell = lambda coruns, solos: found.extend(coruns)
    for at in range(5):
        both = [process(name, 0, done=10 * at, busy_s=at / 2, at=at) for name in (A, B)]
        monitor.heard(told(*both, at=float(at)))
    monitor.heard(told(at=5.0))

    assert found == []


def test_beside_each_other_a_model_predicts() -> None:
    monitor = make_monitor("fair")
    monitor.beside = lambda victim, others: {"big": 1.5}.get(victim)
    for at in range(4):
        both = [
            process(name, lane, done=at, busy_s=at / 2, at=at)
            for lane, name in enumerate((A, B))
        ]
        monitor.heard(told(*both, at=float(at)))

    assert monitor.over_all(A, RunReport()).predicted_slowdown == 1.5
    assert monitor.over_all(B, RunReport()).predicted_slowdown is None


def test_a_pair_is_told_of_though_nobody_knows_its_jobs_any_more() -> None:
    on_record, found = dict(PROGRAMS), list[CoRun]()
    monitor = Monitor("fair", on_record.get)
    monitor.tell = lambda coruns, solos: found.extend(coruns)
    for at in range(10):
        both = [process(name, 0, done=10 * at, busy_s=at / 2, at=at) for name in (A, B)]
        monitor.heard(told(*both, at=float(at)))
    on_record.clear()
    monitor.heard(told(at=10.0))

    assert {(one.victim, one.aggressor) for one in found} == {
        (BIG, SMALL),
        (SMALL, BIG),
    }


def test_jobs_that_were_never_on_record_are_not_told_of() -> None:
    monitor, found = Monitor("fair"), list[CoRun]()
    monitor.tell = lambda coruns, solos: found.extend(coruns)
    monitor.beside = lambda victim, others: 9.0
    for at in range(10):
        both = [
            process(name, lane, done=10 * at, busy_s=at / 2, at=at)
            for lane, name in enumerate((A, B))
        ]
        monitor.heard(told(*both, at=float(at)))
    monitor.heard(told(at=10.0))

    assert found == []
    assert saw(monitor).programs == {}
    assert monitor.over_all(A, RunReport()).predicted_slowdown is None


# -- several daemons ------------------------------------------------------------------

ONE, OTHER = MachineId("one"), MachineId("other")


def test_daemons_of_two_machines_do_not_mix_though_their_devices_have_the_same_numbers() -> (
    None
):
    monitor = make_monitor("fair")
    for at in range(8):  # alone on one machine, while another job is alone on the other
        for machine, job_id, busy in ((ONE, A, 1.0), (OTHER, B, 0.5)):
            job = process(job_id, 0, done=10 * at, busy_s=busy * at, at=at)
            gpus = (GpuRef(machine, 0),)
            # The clocks of those who ask need not agree.
            at_s = at + (1000.0 if machine == OTHER else 0.0)
            monitor.heard(told(job, at=at_s, pid=len(machine), gpus=gpus))

    seen = saw(monitor)
    assert {gpu: one.busy for gpu, one in seen.devices.items()} == {
        GpuRef(ONE, 0): 1.0,
        GpuRef(OTHER, 0): 0.5,
    }
    assert seen.devices[GpuRef(OTHER, 0)].report.processes[0].name == B
    for job_id in (A, B):
        assert seen.uses[job_id].iterations == 70
        assert seen.uses[job_id].predicted_slowdown == 1, "nobody takes turns with it"
        assert seen.uses[job_id].measured_slowdown == pytest.approx(1)
    assert seen.programs == PROGRAMS
    assert seen.solos.keys() == {A, B}
    assert seen is saw(monitor), "nothing new was reported"


def test_a_daemon_that_begins_anew_costs_the_others_nothing() -> None:
    monitor = make_monitor()
    for at in range(5):
        for machine in (ONE, OTHER):
            job = process(A if machine == ONE else B, 0, done=at, busy_s=float(at), at=at)
            monitor.heard(told(job, at=float(at), gpus=(GpuRef(machine, 0),)))

    monitor.heard(told(at=5.0, pid=2, gpus=(GpuRef(OTHER, 0),)))

    busy = {gpu.machine: one.busy for gpu, one in saw(monitor).devices.items()}
    assert busy == {ONE: 1.0, OTHER: None}
    assert saw(monitor).uses.keys() == {A}


def test_a_job_on_two_machines_is_as_slow_as_its_slowest_part() -> None:
    monitor = make_monitor()
    for at in range(8):
        for machine, waited in ((ONE, 0.5), (OTHER, 0.0)):
            job = process(A, 0, done=10 * at, busy_s=at / 2, waited_s=waited * at, at=at)
            monitor.heard(told(job, at=float(at), gpus=(GpuRef(machine, 0),)))

    assert saw(monitor).uses[A].iterations == 140
    assert slowdown(monitor, A) == pytest.approx(2)
    done = RunReport(140, 7.0, 3.5, 14.0)
    assert monitor.over_all(A, done).measured_slowdown == pytest.approx(14 / 10.5)


def test_a_machine_that_is_gone_is_forgotten() -> None:
    monitor = make_monitor()
    for machine, job_id in ((ONE, A), (OTHER, B)):
        job = process(job_id, 0, done=1, busy_s=1.0, at=1)
        monitor.heard(told(job, at=0.0, gpus=(GpuRef(machine, 0),)))

    monitor.forget(ONE)
    assert saw(monitor).uses.keys() == {B}
    monitor.forget(OTHER)
    assert monitor.seen is None


# -- devices --------------------------------------------------------------------------


def cluster(*machines: MachineId) -> Cluster:
    return Cluster("two", tuple(Machine(one, "T4", 2, 8_000, 8_192, 1_024) for one in machines))


def test_devices_are_those_that_the_daemon_was_said_to_share() -> None:
    monitor = make_monitor()
    found = reports.daemon(
        reports.device(process(A, 0, done=3, busy_s=1.0, at=1), index=0),
        reports.device(index=1),
        reports.device(index=2),
    )
    monitor.heard(Measured(found, 0.0, (GpuRef(OTHER, 1), GpuRef(OTHER, 0))))

    given = occupancy.held(snapshot_of(cluster(ONE, OTHER)))
    shown = occupancy.seen(given, monitor.seen)

    assert [(one.machine, one.gpu, one.is_shared, one.booked_bytes) for one in shown] == [
        (ONE, 0, False, 0),
        (ONE, 1, False, 0),
        (OTHER, 0, True, 0),
        (OTHER, 1, True, 120),
    ]


def test_a_job_that_its_daemon_has_not_admitted_is_shown_with_the_reason() -> None:
    why = "It needs 9 bytes, of which 4 are free."
    waits = reports.process(A, None, state=ProcessState.QUEUED, why=why)
    monitor = make_monitor()
    monitor.heard(told(waits, at=0.0))
    one = Cluster("one", (Machine(HERE, "T4", 1, 8_000, 8_192, 1_024),))
    (device,) = occupancy.held(snapshot_of(one))
    holds = replace(device, jobs=(occupancy.TenantUse(A, 500, 100),))

    ((tenant,),) = (one.jobs for one in occupancy.seen([holds], monitor.seen))

    assert (tenant.state, tenant.why, tenant.lane, tenant.booked_bytes) == (
        "queued",
        why,
        None,
        0,
    )
    assert saw(monitor).processes[A].why == why

    monitor.heard(told(waits, reports.process(A, 0, state=ProcessState.RUNNING), at=1.0))
    ((tenant,),) = (one.jobs for one in occupancy.seen([holds], monitor.seen))
    assert (tenant.state, tenant.why) == ("running", None), "another process of it runs"


def test_co_runs_are_kept_as_training_reads_them(tmp_path: Path) -> None:
    from interlane.sim.coruns import pairs_by_way
    from interlane.traces.colocation import read

    solos = {BIG: SoloSpeed(0.9, 0.2, 30.0), SMALL: SoloSpeed(0.5, 0.1, 90.0)}
    for slower in (3.0, 1.25):  # what was kept before is gone on with
        files = CoRunFiles(tmp_path / "coruns", "EMULATED")
        files.add([CoRun(BESIDE, BIG, SMALL, slower)], solos)
        files.add([CoRun(LANES, SMALL, BIG, 2.0)], {})

    kept = read(tmp_path / "coruns")
    ways = pairs_by_way(kept)
    assert kept.count == 4
    assert {way: set(pairs.throughput) for way, pairs in ways.items()} == {
        "side-by-side/training": {0.8},  # the newest
        "lanes/training": {0.5},
    }
    profiles = ways["lanes/training"].profiles
    assert profiles.names == ("big", "small")
    assert profiles.values[0, 0, :2].tolist() == [0.9, 0.2]


def test_co_runs_of_functions_are_kept_though_little_is_known_of_them(tmp_path: Path) -> None:
    from interlane.sim.coruns import pairs_by_way
    from interlane.traces.colocation import read

    score = function_workload("score")
    alone = {score: SoloSpeed(nan, nan, 100.0)}
    CoRunFiles(tmp_path, "EMULATED").add(
        [
            CoRun(BESIDE, TRAIN, score, 1.25),
            CoRun(LATENCY, score, TRAIN, 4.0),
            CoRun(coruns.P99, score, TRAIN, 1e6),
        ],
        alone,
    )

    kept = read(tmp_path)
    assert {way: pairs.throughput.tolist() for way, pairs in pairs_by_way(kept).items()} == {
        "side-by-side/training": [0.8],
        "side-by-side/latency": [0.25],
        "side-by-side/p99": [0.01],
    }
    assert kept.workloads == ("train", "function:score")
    assert np.isnan(kept.values).tolist() == [[[True] * 3, [True, True, False]]]


def test_only_the_newest_co_runs_of_each_way_are_kept(tmp_path: Path) -> None:
    from interlane.traces.colocation import read

    for slower in (1.0, 2.0, 4.0, 8.0):
        files = CoRunFiles(tmp_path, "EMULATED", kept=3)
        files.add([CoRun(LATENCY, function_workload("f"), TRAIN, slower)] * 2, {})

    (runs,) = read(tmp_path).coruns.values()
    assert [one.throughput for one in runs] == [0.125, 0.125, 0.25]


def test_a_file_of_co_runs_that_is_damaged_or_cannot_be_written_costs_no_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = CoRun(BESIDE, BIG, SMALL, 1.25)
    (tmp_path / "coruns.csv").write_text("nonsense\n1\n")

    CoRunFiles(tmp_path, "EMULATED").add([found], {})
    (tmp_path / "file").touch()
    CoRunFiles(tmp_path / "file", "EMULATED").add([found], {})

    assert "begun anew" in caplog.text
    assert "cannot be kept" in caplog.text
    assert "big" in (tmp_path / "coruns.csv").read_text()
