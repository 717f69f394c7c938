"""Unmodified scripts share a device, and compute what they compute alone, to the last bit."""

import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interlane.lanes.order import ORDERS
from interlane.testing.waiting import PATIENCE_S, until

from .conftest import ONE_MIB, Stage

STEPS = {"mlp.py": 60, "cnn.py": 30, "transformer.py": 40, "trainer.py": 40}
ITERATIONS = {
    "mlp.py": 60,
    "cnn.py": 30,
    # One step for two forward passes.
    "transformer.py": 20,
    # Every tenth step is followed by an evaluation of two batches.
    "trainer.py": 40 + 4 * 2,
}


@pytest.fixture(scope="session")
def alone(fork_servers: Path) -> Iterator[Mapping[str, str]]:
    """What each script prints when it has the machine to itself."""
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder), fork_servers)
        yield {
            script: stage.start(script, steps, shared=False).finished()
            for script, steps in STEPS.items()
        }
        stage.close()


@pytest.mark.parametrize("order", ORDERS)
def test_four_scripts_take_turns_and_learn_what_they_learn_alone(
    stage: Stage, alone: Mapping[str, str], order: str
) -> None:
    stage.daemon("--order", order)

    jobs = {
        script: stage.start(script, steps, memory_mib=(60, 60), total_s=at, priority=at)
        for at, (script, steps) in enumerate(STEPS.items())
    }

    for script, job in jobs.items():
        assert job.finished() == alone[script]
        assert stage.total(job).iterations == ITERATIONS[script]
    until(lambda: not stage.device.processes)
    assert stage.device.booked_bytes == 0
    assert stage.device.switches >= len(jobs) - 1


def test_scripts_beside_each_other_learn_the_same_too(
    stage: Stage, alone: Mapping[str, str]
) -> None:
    stage.daemon("--sharing", "beside")

    jobs = [stage.start(script, steps, memory_mib=(60, 60)) for script, steps in STEPS.items()]

    assert [job.finished() for job in jobs] == [alone[script] for script in STEPS]


def test_at_most_one_job_of_a_lane_is_inside_an_iteration(stage: Stage) -> None:
    stage.daemon("--order", "rr")
    log = stage.folder / "inside.txt"
    script = stage.script(
        f"""
import os, time, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
log = os.open({str(log)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
class Slow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = model
    def forward(self, inputs):
        os.write(log, b"(")
        time.sleep(0.005)
        return self.layer(inputs)
slow = Slow()
for _ in range(30):
    slow(torch.ones(1, 2)).sum().backward()
    os.write(log, b")")
    optimizer.step()
"""
    )

    jobs = [stage.start(script, name=name, memory_mib=(20, 20)) for name in "abc"]
    for job in jobs:
        job.finished()

    assert log.read_text() == "()" * 90


def test_jobs_that_say_nothing_about_memory_are_measured_and_then_share(stage: Stage) -> None:
    stage.daemon("--order", "fair", device="cpu:600MiB")

    first = stage.start("mlp.py", 100_000, name="first")
    until(lambda: stage.device.booked_bytes < 300 << 20 and stage.states)
    second = stage.start("mlp.py", 100_000, name="second")

    until(lambda: stage.iterations(second) > 10)
    known = stage.iterations(first)
    until(lambda: stage.iterations(first) > known)
    (seen,) = (one for one in stage.device.processes if one.name == "first")
    assert seen.measured is not None
    assert seen.booked is not None
    assert seen.measured.persistent_bytes > 0
    assert seen.booked.persistent_bytes < 300 << 20


def test_a_job_of_higher_priority_goes_first_and_the_other_waits(stage: Stage) -> None:
    stage.daemon("--order", "priority")
    low, high = (
        stage.client(name, priority=priority, **ONE_MIB)
        for name, priority in (("low", 0), ("high", 5))
    )
    with low, high, ThreadPoolExecutor() as others:
        low.begin()
        wanted = others.submit(high.begin)
        until(lambda: low.revoked)
        low.end()
        wanted.result(PATIENCE_S)
        waiting = others.submit(low.begin)
        until(lambda: stage.states == {"low": "waiting", "high": "running"})

        for _ in range(50):  # nothing takes the lane from it between its iterations
            high.end()
            high.begin()

        assert stage.states == {"low": "waiting", "high": "running"}
        high.end()
        high.close()
        waiting.result(PATIENCE_S)


@pytest.mark.parametrize("estimate_s", [0.02, 2.0])  # ten times too small, ten times too large
def test_shortest_remaining_time_lets_a_short_job_pass(stage: Stage, estimate_s: float) -> None:
    stage.daemon("--order", "srtf")
    long = stage.start("mlp.py", 100_000, name="long", memory_mib=(60, 60), total_s=1000)
    until(lambda: stage.iterations(long) > 5)

    stage.start("mlp.py", 300, memory_mib=(60, 60), total_s=estimate_s).finished()

    assert long.process.poll() is None
