"""Programs without PyTorch that share a device by two lines."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from interlane.device.lane_request import LaneRequest
from interlane.device.launch import environment_of
from interlane.lanes.actions import MemoryDemand
from interlane.testing.waiting import until

from .conftest import Stage

SKLEARN = """
import numpy as np
from interlane.device import attach
from sklearn.linear_model import SGDClassifier

rng = np.random.default_rng(7)
model = SGDClassifier(random_state=7)

def batches():
    for _ in range(30):
        inputs = rng.normal(size=(64, 8))
        yield inputs, inputs[:, 0] > 0

for inputs, wanted in attach().each(batches()):
    model.partial_fit(inputs, wanted, classes=[False, True])
print(float(np.abs(model.coef_).sum()))
"""
JAX = """
import jax
import jax.numpy as jnp
from interlane.device import attach

def loss(weights, inputs):
    return ((jnp.tanh(inputs @ weights) - inputs[:, :1]) ** 2).mean()

@jax.jit
def step(weights, inputs):
    return weights - 0.1 * jax.grad(loss)(weights, inputs)

weights = jnp.ones((8, 1))
keys = jax.random.split(jax.random.key(7), 30)
for key in attach().each(keys):
    # What is computed must be done when the body ends: another may have the device then.
    weights = jax.block_until_ready(step(weights, jax.random.normal(key, (64, 8))))
print(float(jnp.abs(weights).sum()))
"""
PROGRAMS = [
    pytest.param(SKLEARN, id="sklearn"),
    pytest.param(
        JAX, id="jax", marks=pytest.mark.skipif(not find_spec("jax"), reason="no jax here")
    ),
]


def started(stage: Stage, script: Path, run: int, **asked: Any) -> "subprocess.Popen[str]":  # noqa: ANN401
    """Start a program in an interpreter of its own, which loads no torch."""
    request = LaneRequest(**{"name": script.name, "run": run, **asked})
    environment = environment_of(request, stage.address)
    command = [sys.executable, str(script)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def finished(process: "subprocess.Popen[str]") -> str:
    printed, _ = process.communicate()
    assert process.returncode == 0
    return printed


def iterations(stage: Stage, run: int) -> int:
    total = stage.status(run).run
    assert total is not None
    return total.iterations


@pytest.mark.parametrize("program", PROGRAMS)
def test_two_programs_take_turns_and_compute_what_they_compute_alone(
    stage: Stage, program: str
) -> None:
    stage.daemon("--order", "rr")
    script = stage.script(program)
    alone = finished(started(stage, script, 1))

    jobs = [started(stage, script, run) for run in (2, 3)]

    assert [finished(job) for job in jobs] == [alone, alone]
    assert [iterations(stage, run) for run in (1, 2, 3)] == [30, 30, 30]


def test_a_program_gets_the_place_that_was_chosen_for_it(stage: Stage) -> None:
    stage.daemon()
    gate = stage.folder / "gate"
    program = f"""
import pathlib, time
from interlane.device import attach
device = attach(name="says nothing")
with device.iteration():
    pass
while not pathlib.Path({str(gate)!r}).exists():
    time.sleep(0.05)
"""
    job = started(stage, stage.script(program), 1, name="chosen", priority=4, **TWO_MIB)

    until(lambda: stage.states.get("chosen") is not None, "its place")
    (process,) = stage.device.processes
    assert (process.priority, process.booked) == (4, MemoryDemand(2 << 20, 2 << 20))
    gate.touch()
    finished(job)


TWO_MIB = {"persistent_bytes": 2 << 20, "ephemeral_bytes": 2 << 20, "is_declared": True}


def test_a_loop_that_is_left_early_has_ended_its_iteration(stage: Stage) -> None:
    stage.daemon()
    with stage.client() as client:
        for item in client.each(range(10)):
            assert client.inside
            if item == 3:
                break

        assert (client.inside, client.iterations) == (False, 4)
