"""Programs of every kind get a clear answer and a defined end; others get nothing of it."""

import os
import signal
import subprocess
import sys

import pytest

from interlane import cli
from interlane.testing.waiting import PATIENCE_S, is_alive, until

from .conftest import MIB, Stage

TRAIN = """
import os, sys, torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        model(torch.ones(8, 64)).sum().backward()
        optimizer.step()
"""


def run(stage: Stage, *words: object) -> int:
    """Run ``interlane share run`` in this process."""
    return cli.run(["share", "run", "--socket", str(stage.address), *map(str, words)])


def test_a_program_that_is_not_python_runs_and_its_code_is_passed_on(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.daemon()

    assert run(stage, "--", "sh", "-c", "echo hello; exit 5") == 5
    assert run(stage, "sh", "-c", "exit 0") == 0
    assert run(stage, "--", "sh", "-c", "kill -9 $$") == 128 + signal.SIGKILL

    said = capfd.readouterr()
    assert said.out == "hello\n"
    assert said.err.count("'sh' never imported torch, so it ran without a lease") == 1
    assert stage.device.booked_bytes == 0


def test_a_program_that_does_not_exist_is_said_so(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.daemon()

    assert run(stage, "--", "no-such-program") == 2
    assert "'no-such-program' is no program on the PATH" in capfd.readouterr().err


def test_a_script_that_does_not_say_what_runs_it_is_said_so(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.daemon()
    script = stage.script("echo hello", "job.sh")
    script.chmod(0o700)

    assert run(stage, "--", script) == 2
    assert "cannot be run (Exec format error); if it is a script" in capfd.readouterr().err


def test_a_cold_start_gates_the_script_and_runs_the_users_own_sitecustomize(
    stage: Stage, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.daemon()
    (stage.folder / "sitecustomize.py").write_text("print('my own')\n")
    before = os.environ.get("PYTHONPATH")
    places = [str(stage.folder), *([before] if before else [])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))
    script = stage.script(TRAIN + "train(6)\nprint(sys.path[0], os.getpgid(0) == os.getpid())")

    assert run(stage, "--", sys.executable, script) == 0

    assert capfd.readouterr().out == f"my own\n{stage.folder} True\n"
    assert stage.device.iterations == 6


@pytest.mark.parametrize("option", ["-I", "-E", "-uE", "-S"])
def test_a_python_that_leaves_the_hooks_out_is_told_so(
    stage: Stage, capfd: pytest.CaptureFixture[str], option: str
) -> None:
    stage.daemon()

    assert run(stage, "--", sys.executable, option, "-c", "pass") == 0

    assert f"was started with {option}, which leaves the hooks out" in capfd.readouterr().err


@pytest.mark.parametrize("ending", ["sys.exit(4)", "os._exit(4)", "os.kill(os.getpid(), 9)"])
@pytest.mark.parametrize("steps", [0, 5])
def test_a_job_that_ends_abruptly_leaves_nothing_behind(
    stage: Stage, ending: str, steps: int
) -> None:
    stage.daemon()

    job = stage.start(stage.script(TRAIN + f"train({steps})\n{ending}"), memory_mib=(20, 20))

    assert job.process.wait(PATIENCE_S) == (-9 if "kill" in ending else 4)
    until(lambda: not stage.device.processes)
    assert stage.device.booked_bytes == 0
    assert stage.total(job).iterations == steps


def test_a_script_without_an_optimizer_or_model_is_told_that_it_had_no_lease(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.daemon()
    script = stage.script("import torch\nprint(torch.ones(2).sum().item())")

    assert run(stage, "--", sys.executable, script) == 0

    said = capfd.readouterr()
    assert said.out == "2.0\n"
    assert "never ran an iteration" in said.err


def test_a_job_that_forks_twice_and_trains_there_is_a_job_of_its_own(stage: Stage) -> None:
    stage.daemon()
    script = stage.script(
        TRAIN
        + """
train(3)
if os.fork():
    os._exit(0)
if os.fork():
    os._exit(0)
os.setsid()
train(7)
print("trained", flush=True)
"""
    )

    job = stage.start(script, memory_mib=(20, 20))

    assert job.process.wait(PATIENCE_S) == 0
    until(lambda: "trained" in job.text)
    until(lambda: not stage.device.processes)
    assert stage.total(job).processes == 2
    # The fork's first forward pass came before it was known to train.
    assert stage.total(job).iterations == 3 + 7


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_workers_that_load_data_do_not_count_as_jobs(stage: Stage, way: str) -> None:
    stage.daemon()
    script = stage.script(
        TRAIN
        + f"""
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, at):
        return torch.nn.Linear(64, 64)(torch.ones(64)).detach()
if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(
        Data(), batch_size=2, num_workers=1, multiprocessing_context="{way}"
    )
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
    print("trained")
"""
    )

    job = stage.start(script, memory_mib=(20, 20))

    assert job.finished() == "trained\n"
    until(lambda: not stage.device.processes)
    tally = stage.total(job)
    assert (tally.processes, tally.iterations) == (1, 4)


def test_output_of_any_size_passes_by_without_being_kept(stage: Stage) -> None:
    stage.daemon()
    code = """
import sys
from interlane import cli
code = cli.run(sys.argv[1:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(code, peak.split()[1], file=sys.stderr)
"""
    words = ["share", "run", "--socket", str(stage.address), "--"]

    ended = subprocess.run(
        [sys.executable, "-c", code, *words, "head", "-c", "300000000", "/dev/zero"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )

    exit_code, most_kib = map(int, ended.stderr.splitlines()[-1].split())
    assert exit_code == 0
    assert most_kib < 200_000


def test_an_interrupt_ends_the_whole_job(stage: Stage) -> None:
    stage.daemon()
    marks = stage.folder / "marks"
    script = stage.script(f"sleep 1000 & echo $$ $! > {marks}; wait", "job.sh")
    launcher = subprocess.Popen(
        [
            *(sys.executable, "-m", "interlane", "share", "run"),
            *("--socket", str(stage.address), "--", "sh", str(script)),
        ],
        stderr=subprocess.DEVNULL,
    )
    until(lambda: marks.exists() and len(marks.read_text().split()) == 2)

    launcher.send_signal(signal.SIGINT)

    assert launcher.wait(PATIENCE_S) == 130
    pids = [int(pid) for pid in marks.read_text().split()]
    until(lambda: not any(map(is_alive, pids)), "the end of the job")


# -- memory ----------------------------------------------------------------------------------

GREEDY = (
    TRAIN
    + """
train(5)
held = []
try:
    for _ in range(40):
        held.append(torch.ones(10 << 18))  # 10 MiB
        train(1)
except (RuntimeError, MemoryError):
    print("out of memory after", len(held))
    held.clear()
train(2)
print("and on")
"""
)


def test_a_job_that_needs_ten_times_what_it_declared_runs_out_alone(stage: Stage) -> None:
    stage.daemon(device="cpu:600MiB")
    other = stage.start("mlp.py", 100_000, memory_mib=(100, 100))
    until(lambda: stage.iterations(other) > 5)

    greedy = stage.start(stage.script(GREEDY), memory_mib=(20, 20))

    said = greedy.finished()
    assert "out of memory after" in said
    assert "and on" in said
    before = stage.iterations(other)
    until(lambda: stage.iterations(other) > before)


def test_a_job_that_declares_ten_times_what_it_needs_keeps_it_until_it_ends(
    stage: Stage,
) -> None:
    stage.daemon(device="cpu:600MiB")
    modest = stage.start("mlp.py", 100_000, name="modest", memory_mib=(300, 200))
    until(lambda: stage.iterations(modest) > 20)
    late = stage.start("mlp.py", 10, name="late", memory_mib=(200, 10))

    until(lambda: stage.states.get("late") == "queued")
    job = next(one for one in stage.device.processes if one.name == "modest")
    assert job.booked is not None
    assert job.measured is not None
    assert job.booked.persistent_bytes == 300 * MIB
    assert job.measured.persistent_bytes < 100 * MIB

    modest.process.send_signal(signal.SIGKILL)
    late.finished()


@pytest.mark.parametrize("factor", [0.1, 10])
def test_an_estimate_that_is_not_a_promise_is_corrected_by_measuring(
    stage: Stage, factor: float
) -> None:
    stage.daemon(device="cpu:2GiB")

    job = stage.start(
        "mlp.py", 100_000, memory_mib=(int(90 * factor), int(10 * factor)), declared=False
    )

    until(lambda: stage.iterations(job) > 20)
    (seen,) = stage.device.processes
    for kind in ("persistent_bytes", "ephemeral_bytes"):
        measured = getattr(seen.measured, kind)
        assert measured <= getattr(seen.booked, kind) <= 1.1 * measured + 5 * MIB


def test_a_job_of_several_ranks_is_refused_rather_than_hung(
    stage: Stage, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.daemon()
    monkeypatch.setenv("WORLD_SIZE", "2")

    assert run(stage, "--", sys.executable, stage.script(TRAIN + "train(3)")) == 2

    assert "start the whole job with 'interlane share run --whole'" in capfd.readouterr().err


def test_a_whole_program_has_its_lane_to_itself(stage: Stage) -> None:
    stage.daemon("--order", "rr")
    other = stage.start("mlp.py", 100_000, memory_mib=(50, 50))
    until(lambda: stage.iterations(other) > 5)
    log = stage.folder / "seen"
    ask = f"{sys.executable} -m interlane share status -o json --socket {stage.address}"

    code = run(
        stage,
        "--whole",
        "--memory",
        "50MiB",
        "--",
        "sh",
        "-c",
        f"{ask} > {log}; {ask} >> {log}",
    )

    assert code == 0
    first, second = (
        part.split('"name": "mlp.py"')[1].split('"iterations": ')[1].split(",")[0]
        for part in log.read_text().split("\n}\n{")
    )
    assert first == second


# -- no daemon -------------------------------------------------------------------------------


def test_without_a_daemon_nothing_runs_and_the_message_says_what_to_do(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(stage, "--", "echo", "ran") == 3

    said = capfd.readouterr()
    assert said.out == ""
    assert "start one with 'interlane share daemon'" in said.err


def test_without_a_daemon_a_job_runs_alone_if_it_may(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(stage, "--alone", "--", "sh", "-c", "echo ran; exit 6") == 6

    said = capfd.readouterr()
    assert said.out == "ran\n"
    assert "the job runs without sharing" in said.err
