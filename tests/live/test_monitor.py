"""What follows from looks at the device daemon, with looks made by hand."""

from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlane.live.measure import coruns
from interlane.live.measure.coruns import (
    BESIDE,
    LANES,
    LATENCY,
    CoRun,
    CoRunFiles,
    Solo,
    function_workload,
    job_workload,
)
from interlane.live.measure.monitor import Monitor, Use
from interlane.model import JobId, Workload

A, B = JobId("big-7-1"), JobId("small-2")
BIG, SMALL, TRAIN = map(job_workload, ("big", "small", "train"))


def process(
    name: str,
    lane: int,
    *,
    done: int,
    busy_s: float,
    at: int,
    waited_s: float = 0.0,
    share: int = 0,
) -> dict[str, Any]:
    return {
        "name": name,
        "lane": lane,
        "share": share,
        "state": "idle",
        "measured_persistent_bytes": 100,
        "measured_ephemeral_bytes": 20,
        "iterations": done,
        "busy_s": busy_s,
        "waited_s": waited_s,
        "present_s": float(at),
    }


def told(*jobs: dict[str, Any], pid: int = 1) -> dict[str, Any]:
    busy_s = sum(job["busy_s"] for job in jobs)
    device = {
        "index": 0, "busy_seconds": busy_s, "capacity_bytes": 480, "jobs": list(jobs)
    }  # fmt: skip
    return {"pid": pid, "devices": [device]}


def slowdown(monitor: Monitor, job_id: JobId) -> float | None:
    assert monitor.seen is not None
    return monitor.seen.uses[job_id].measured_slowdown


def test_jobs_in_turns_are_slowed_down_by_waiting() -> None:
    monitor = Monitor()

    for at in range(11):  # each waits half of the time, and works the other half
        one, two = (
            process(name, 0, done=10 * at, busy_s=at / 2, waited_s=at / 2, at=at)
            for name in (A, B)
        )
        monitor.heard(told(one, two), float(at))

    assert slowdown(monitor, A) == slowdown(monitor, B) == pytest.approx(2)
    assert monitor.seen is not None
    assert monitor.seen.busy == (1.0,)


def test_jobs_beside_are_slowed_down_by_longer_iterations() -> None:
    monitor = Monitor()
    done = 0
    for at in range(20):  # 10 iterations of 0.1 s a second, then 5 of 0.2 s beside another
        done += 10 if at < 5 else 5
        jobs = [process(A, 0, done=done, busy_s=float(at), at=at)]
        if at >= 4:
            jobs.append(process(B, 1, done=at, busy_s=float(at), at=at))

        monitor.heard(told(*jobs), float(at))

    assert slowdown(monitor, A) == pytest.approx(2)
    assert slowdown(monitor, B) is None, "it was never seen alone"


def test_a_new_daemon_counts_devices_from_nothing() -> None:
    monitor = Monitor()
    for at in range(5):
        monitor.heard(told(process(A, 0, done=at, busy_s=float(at), at=at)), float(at))

    monitor.heard(told(pid=2), 5.0)

    assert monitor.seen is not None
    assert monitor.seen.busy == (None,)
    assert monitor.seen.uses == {}


def test_what_processes_of_one_job_do_is_added_up() -> None:
    monitor = Monitor()
    first, second = (process(A, 0, done=3, busy_s=1.0, at=2) for _ in range(2))

    monitor.heard(told(first, second), 0.0)

    assert monitor.seen is not None
    assert monitor.seen.uses[A].iterations == 6


def test_a_process_that_ends_does_not_count_backwards() -> None:
    monitor = Monitor()
    monitor.heard(told(process(A, 0, done=90, busy_s=9.0, at=9)), 0.0)

    monitor.heard(told(process(A, 0, done=1, busy_s=0.1, at=1)), 1.0)

    assert slowdown(monitor, A) is None


def test_over_all_that_was_done_waiting_counts_too() -> None:
    done = Use(iterations=100, busy_s=5.0, waited_s=5.0, present_s=20.0)

    assert Monitor().slowdown(A, done) == pytest.approx(20 / 15)


def test_predictions_go_by_the_shares_of_those_that_ran() -> None:
    monitor = Monitor("fair")
    for at in range(8):
        jobs = [
            process(A, 0, done=at, busy_s=float(at), at=at, share=600),
            process(B, 0, done=0 if at < 4 else at, busy_s=0.0, at=at, share=300),
        ]

        monitor.heard(told(*jobs), float(at))
        if at == 3:
            assert monitor.seen is not None
            assert monitor.seen.uses[A].predicted_slowdown == 1, "the other has not run yet"

    over_all = monitor.over_all(A, Use(iterations=7, busy_s=7.0, present_s=7.0))
    assert over_all.predicted_slowdown == pytest.approx((3 * 1 + 4 * 1.5) / 7)
    assert over_all.measured_slowdown == pytest.approx(1)
    assert monitor.over_all(B, Use()).predicted_slowdown == pytest.approx(3)


def test_a_pair_is_told_of_when_it_parts() -> None:
    monitor, found, solos = Monitor("fair"), list[CoRun](), dict[Workload, Solo]()

    def tell(coruns: Sequence[CoRun], alone: Mapping[Workload, Solo]) -> None:
        found.extend(coruns)
        solos.update(alone)

    monitor.tell = tell
    for at in range(12):  # both wait half of the time, and one leaves in the end
        both = [
            process(name, 0, done=10 * at, busy_s=at / 4, waited_s=at / 2, at=at)
            for name in (A, B)
        ]
        monitor.heard(told(*both[: 1 if at == 11 else 2]), float(at))

    assert {one[:3] for one in found} == {(LANES, BIG, SMALL), (LANES, SMALL, BIG)}
    assert [one.slowdown for one in found] == pytest.approx([2, 2])
    solo = solos[BIG]
    assert (solo.busy, solo.memory, solo.per_s) == pytest.approx((0.5, 0.25, 20))


def test_a_short_company_is_not_told_of() -> None:
    monitor, found = Monitor("fair"), list[CoRun]()
    monitor.tell = lambda coruns, solos: found.extend(coruns)
    for at in range(5):
        both = [process(name, 0, done=10 * at, busy_s=at / 2, at=at) for name in (A, B)]
        monitor.heard(told(*both), float(at))
    monitor.heard(told(), 5.0)

    assert found == []


def test_beside_each_other_a_model_predicts() -> None:
    monitor = Monitor("fair")
    monitor.beside = lambda victim, others: {"big": 1.5}.get(victim)
    for at in range(4):
        both = [
            process(name, lane, done=at, busy_s=at / 2, at=at)
            for lane, name in enumerate((A, B))
        ]
        monitor.heard(told(*both), float(at))

    assert monitor.over_all(A, Use()).predicted_slowdown == 1.5
    assert monitor.over_all(B, Use()).predicted_slowdown is None


def test_co_runs_are_kept_as_training_reads_them(tmp_path: Path) -> None:
    from interlane.sim.coruns import pairs_by_way
    from interlane.traces.colocation import read

    solos = {BIG: Solo(0.9, 0.2, 30.0), SMALL: Solo(0.5, 0.1, 90.0)}
    for slower in (3.0, 1.25):  # what was kept before is gone on with
        files = CoRunFiles(tmp_path / "coruns", "EMULATED")
        files.add([CoRun(BESIDE, BIG, SMALL, slower)], solos)
        files.add([CoRun(LANES, SMALL, BIG, 2.0)], {})

    kept = read(tmp_path / "coruns")
    ways = pairs_by_way(kept)
    assert kept.count == 4
    assert {way: set(pairs.retained) for way, pairs in ways.items()} == {
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
    alone = {score: Solo(nan, nan, 100.0)}
    CoRunFiles(tmp_path, "EMULATED").add(
        [
            CoRun(BESIDE, TRAIN, score, 1.25),
            CoRun(LATENCY, score, TRAIN, 4.0),
            CoRun(coruns.P99, score, TRAIN, 1e6),
        ],
        alone,
    )

    kept = read(tmp_path)
    assert {way: pairs.retained.tolist() for way, pairs in pairs_by_way(kept).items()} == {
        "side-by-side/training": [0.8],
        "side-by-side/latency": [0.25],
        "side-by-side/p99": [0.01],
    }
    assert kept.workloads == ("train", "function:score")
    assert np.isnan(kept.values).tolist() == [[[True] * 3, [True, True, False]]]


def test_only_the_newest_co_runs_of_each_way_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlane.traces.colocation import read

    monkeypatch.setattr(coruns, "KEPT", 3)
    for slower in (1.0, 2.0, 4.0, 8.0):
        files = CoRunFiles(tmp_path, "EMULATED")
        files.add([CoRun(LATENCY, function_workload("f"), TRAIN, slower)] * 2, {})

    (runs,) = read(tmp_path).coruns.values()
    assert [one.retained for one in runs] == [0.125, 0.125, 0.25]


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
