"""What follows from looks at the device daemon, with looks made by hand."""

from typing import Any

import pytest

from interlane.model import JobId
from interlane.server.monitor import Monitor, Use

A, B = JobId("a-1"), JobId("b-2")


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
        "iterations": done,
        "busy_s": busy_s,
        "waited_s": waited_s,
        "present_s": float(at),
    }


def told(*jobs: dict[str, Any], pid: int = 1) -> dict[str, Any]:
    busy_s = sum(job["busy_s"] for job in jobs)
    return {"pid": pid, "devices": [{"index": 0, "busy_seconds": busy_s, "jobs": list(jobs)}]}


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
