"""A job that outgrows its memory fails by itself, and is admitted with more the next time."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlane.device.bench.stage import BenchStage
from interlane.device.lane_request import LaneRequest
from interlane.device.launch import run_shared, status
from interlane.device.memory import Programs, program_of

MIB = 1 << 20
NEIGHBOUR = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(300):
    optimizer.zero_grad()
    loss = model(torch.randn(64, 64)).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item().hex())
"""
GREEDY = """
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(32, 1024)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    rows = 64 if step < 5 else 16 * 1024  # five tensors of 64 MiB
    model(torch.randn(rows, 32)).square().mean().backward()
    optimizer.step()
print("finished")
"""


@pytest.fixture(scope="module")
def stage() -> Iterator[BenchStage]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        stage = BenchStage(Path(folder))
        stage.prepare()
        yield stage
        stage.end()


@pytest.fixture
def daemon(
    stage: BenchStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    (tmp_path / "neighbour.py").write_text(NEIGHBOUR)
    (tmp_path / "greedy.py").write_text(GREEDY)
    monkeypatch.chdir(tmp_path)
    with stage.daemon("fair", device="cpu:1GiB") as path:
        yield Path(path)
        Path(path).with_suffix(".programs").unlink(missing_ok=True)


def run(path: Path, script: str, *, memory_mib: int | None = None, retry: bool = False) -> int:
    command = [sys.executable, script]
    request = LaneRequest(script)
    if memory_mib is not None:
        request = LaneRequest(
            script,
            persistent_bytes=32 * MIB,
            ephemeral_bytes=memory_mib * MIB,
            is_declared=True,
        )
    return run_shared(command, request, path, warm=True, retry=retry)


def test_a_job_beyond_its_memory_fails_and_its_neighbour_does_not_notice(
    daemon: Path, stage: BenchStage, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(daemon, "neighbour.py") == 0
    alone = capfd.readouterr().out
    neighbour = subprocess.Popen(
        [sys.executable, "-m", "interlane", "share", "run", "--warm", "--socket", str(daemon),
         "--", sys.executable, "neighbour.py"],
        env=stage.environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    code = run(daemon, "greedy.py", memory_mib=32)

    assert code == 1
    assert "can't allocate memory" in capfd.readouterr().err
    assert neighbour.communicate(timeout=240)[0] == alone
    assert neighbour.returncode == 0
    assert status(daemon).devices[0].booked_bytes == 0


def test_it_runs_once_more_with_more_memory_if_it_may(
    daemon: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = run(daemon, "greedy.py", memory_mib=160, retry=True)

    said = capfd.readouterr()
    assert "once more with 3" in said.err
    assert (code, said.out) == (0, "finished\n"), said.err


def test_the_next_run_is_admitted_with_what_this_one_lacked(daemon: Path) -> None:
    assert run(daemon, "greedy.py", memory_mib=160) == 1

    program = program_of([sys.executable, "greedy.py"], Path.cwd())
    expected = Programs(daemon.with_suffix(".programs")).demand(program)
    assert expected is not None
    assert expected.ephemeral_bytes >= 320 * MIB
    assert run(daemon, "greedy.py") == 0


def test_an_error_that_is_no_lack_of_memory_is_not_tried_again(
    daemon: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "greedy.py").write_text("import torch\nraise RuntimeError('no')\n")

    assert run(daemon, "greedy.py", memory_mib=64, retry=True) == 1
    assert "once more" not in capfd.readouterr().err
