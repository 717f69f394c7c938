"""Profiles are compared with what real steps of the same programs are measured to need."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interlane.device.backends.cpu import ENVIRONMENT
from interlane.device.profile import builder_of, profile
from interlane.lanes.actions import MemoryDemand
from interlane.model import InvalidInput

MIB = 1 << 20
JOBS = """
import torch
torch.set_num_threads(1)

def training(model, batch):
    optimizer = torch.optim.Adam(model.parameters())
    def step():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    return step

def mlp():
    return training(
        torch.nn.Sequential(
            torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)
        ),
        torch.randn(16 * 1024, 64),
    )

def cnn():
    return training(
        torch.nn.Sequential(
            torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(),
            torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
        ),
        torch.randn(32, 3, 64, 64),
    )

def huge():
    return training(torch.nn.Linear(200_000, 200_000), torch.randn(64, 200_000))

def asks_for_a_value():
    step = mlp()
    def log():
        step()
        print(torch.ones(2).sum().item())
    return log

def accumulates():
    model = torch.nn.Linear(8, 8)
    def step():
        for _ in range(2):
            model(torch.randn(4, 8)).sum().backward()
    return step

def nothing():
    return None

def measured(name):
    from interlane.device.backends.cpu import CpuBackend
    from interlane.device.memory import MemoryMeter
    globals()[name]()()  # what the first step imports is nobody's tensor
    backend = CpuBackend()
    step = globals()[name]()
    meter = MemoryMeter(backend)
    for _ in range(4):
        step()
    return meter.measure()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("jobs")
    (made / "profiled_jobs.py").write_text(JOBS)
    return made


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_profile_is_near_what_the_job_is_measured_to_need(folder: Path, name: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c",
         f"import profiled_jobs, json; d = profiled_jobs.measured({name!r});"
         "print(json.dumps([d.persistent_bytes, d.ephemeral_bytes]))"],
        cwd=folder, check=True, capture_output=True, timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", **ENVIRONMENT},
    ).stdout  # fmt: skip
    measured = MemoryDemand(*json.loads(told))

    profiled = profile(builder_of(f"profiled_jobs:{name}", folder)).demand

    assert profiled.persistent_bytes == pytest.approx(measured.persistent_bytes, abs=6 * MIB)
    # Beside tensors there are workspaces of the libraries, a fifth for convolutions.
    assert profiled.ephemeral_bytes == pytest.approx(measured.ephemeral_bytes, rel=0.25)


def test_a_job_that_this_machine_cannot_hold_is_profiled_all_the_same(folder: Path) -> None:
    told = profile(builder_of("profiled_jobs:huge", folder))

    weights = 4 * (200_000 * 200_000 + 200_000)
    assert told.at_peak["parameters"] == weights
    # Weights, gradients and Adam's two moments stay; one more of the size is made in passing.
    assert told.demand.persistent_bytes == pytest.approx(4 * weights, rel=0.01)
    assert sum(told.at_peak.values()) == told.demand.peak_bytes


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("profiled_jobs:asks_for_a_value", "asks for the value of a tensor"),
        ("profiled_jobs:accumulates", "does what the tracker cannot follow"),
        ("profiled_jobs:nothing", "must return a function"),
        ("profiled_jobs:gone", "has no function 'gone'"),
        ("no_such_module:build", "cannot be imported"),
        ("profiled_jobs", "must read like module:function"),
        (":build", "must read like module:function"),
    ],
)
def test_what_cannot_be_profiled_is_refused_in_a_sentence(
    folder: Path, name: str, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        profile(builder_of(name, folder))
