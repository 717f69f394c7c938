"""The demo does real work twice, and tells what it measured."""

import json
import subprocess
import sys

import pytest

from interlane.cli.demo_work import DemoRequest, DemoRun, DemoTraining, Work


def test_the_live_demo_trains_and_serves_with_sharing_and_without() -> None:
    words = (sys.executable, "-m", "interlane", "demo", "--seconds", "20", "-o", "json")
    said = subprocess.run(words, capture_output=True, text=True, check=False)

    assert said.returncode == 0, said.stderr
    assert "Pages: http://127.0.0.1:" in said.stderr
    found = json.loads(said.stdout)
    shared, alone = found["shared"], found["exclusive"]
    assert found["same_losses"]
    assert len(found["trainings"]) == 4
    assert shared["requests"] == alone["requests"] > 0
    assert shared["unanswered"] < shared["requests"]
    # With two devices to train on and waits filled, even a busy machine ends sooner.
    assert shared["makespan_s"] < alone["makespan_s"]
    assert shared["utilisation"] > alone["utilisation"]


def test_the_requests_of_the_demo_come_in_bursts_and_are_the_same_every_time() -> None:
    work = Work(steps=1, stream_s=30.0)

    requests = work.requests()

    assert requests == work.requests() == sorted(requests)
    assert {name for _, name in requests} == {"classify", "embed"}
    busiest = max(sum(at_s <= t < at_s + 1 for t, _ in requests) for at_s in range(30))
    assert busiest > 3 * len(requests) / 30


def test_utilisation_is_the_work_done_over_what_the_devices_could_do() -> None:
    trained = DemoTraining(waited_s=0.0, completion_s=8.0, loop_s=5.0, cpu_s=6.0, loss=1.0)
    asked = DemoRequest(0.1, 2.0, was_answered=True), DemoRequest(9.0, 0.0, was_answered=False)

    played = DemoRun((trained, trained), asked, makespan_s=10.0, cold_starts=0, cores=2)

    assert played.utilisation == pytest.approx(0.7)
    assert played.mean_completion_s == 8.0
    assert (played.latency_s(0.5), played.unanswered) == (0.1, 1)
