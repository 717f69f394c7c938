"""A warm start is a cold start, only sooner; a fork server's death costs time and no job."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlane.device.fork_server.caller import (
    NoJobForkServer,
    WarmJob,
    await_fork_server,
    fork,
    launch,
    pid_of,
    start,
)
from interlane.device.fork_server.request import LENGTH, read_request, request_of, socket_of
from interlane.testing.waiting import PATIENCE_S, is_alive, until

SELF_PORTRAIT = """
import json, os, resource, signal, sys, threading, torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(1, 8)).sum().backward()
optimizer.step()
main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "cwd": os.getcwd(), "path": sys.path, "name": __name__,
    "file": __file__, "spec": main.__spec__ is None, "globals": sorted(vars(main)),
    "env": dict(os.environ), "umask": os.umask(0), "nice": os.nice(0),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "cores": sorted(os.sched_getaffinity(0)),
    "hup": str(signal.getsignal(signal.SIGHUP)), "int": str(signal.getsignal(signal.SIGINT)),
    "pipe": str(signal.getsignal(signal.SIGPIPE)), "threads": threading.active_count(),
    "stdin": sys.stdin.read(), "encoding": sys.stdout.encoding, "tty": sys.stdout.isatty(),
    "lines": [sys.stdout.line_buffering, sys.stderr.line_buffering],
    "errors": [sys.stdin.errors, sys.stdout.errors, sys.stderr.errors],
    "weights": model.weight.tolist(), "group": os.getpgid(0) == os.getpid() or "inherited",
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:4],
}))
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    # Not pytest's folder, whose path may be too long for a socket.
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


@pytest.fixture(scope="module")
def fork_server(folder: Path, environment: dict[str, str]) -> Iterator[Path]:
    path = socket_of(folder, sys.executable, environment)
    launch(path, sys.executable, environment)
    assert await_fork_server(path, PATIENCE_S)
    yield path
    os.kill(pid_of(path), signal.SIGKILL)


class Stage:
    """A folder with a script, and both ways to start it."""

    def __init__(self, folder: Path, environment: dict[str, str], fork_server: Path) -> None:
        self.folder = folder
        self.environment = environment
        self.fork_server = fork_server
        self.out = folder / "out"
        self.err = folder / "err"

    def write(self, script: str) -> None:
        (self.folder / "job.py").write_text(script)

    def warm(self, *arguments: str, stdin: str = "") -> WarmJob:
        (self.folder / "in").write_text(stdin)
        request = request_of([sys.executable, "job.py", *arguments], self.environment)
        assert request is not None
        with (
            (self.folder / "in").open() as given,
            self.out.open("w") as out,
            self.err.open("w") as err,
        ):
            streams = given.fileno(), out.fileno(), err.fileno()
            return fork(request, self.fork_server, streams)


@pytest.fixture
def stage(
    tmp_path: Path,
    environment: dict[str, str],
    fork_server: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Stage:
    monkeypatch.chdir(tmp_path)
    return Stage(tmp_path, environment, fork_server)


def test_a_warm_job_cannot_tell_that_it_was_not_started_cold(stage: Stage) -> None:
    stage.write(SELF_PORTRAIT)
    command = [sys.executable, "job.py", "--lr", "0.1", "ä b"]
    stage.environment["GREETING"] = "grüß\ndich"

    cold = subprocess.run(
        command, capture_output=True, text=True, input="abc", env=stage.environment, check=True
    )
    code = stage.warm(*command[2:], stdin="abc").wait(PATIENCE_S)

    assert (code, stage.err.read_text()) == (0, "")
    warm_says, cold_says = json.loads(stage.out.read_text()), json.loads(cold.stdout)
    assert warm_says.pop("group") is True
    assert cold_says.pop("group") == "inherited"
    assert warm_says == cold_says


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit('over')", 1),
        ("import os; os._exit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -2),
        ("import torch; torch.ones(2, 3) @ torch.ones(2, 3)", 1),
        ("this is not Python", 1),
    ],
)
def test_the_exit_code_is_that_of_the_script(stage: Stage, script: str, code: int) -> None:
    stage.write(script)

    assert stage.warm().wait(PATIENCE_S) == code


def test_a_traceback_begins_in_the_script(stage: Stage) -> None:
    stage.write("def fail():\n    1 / 0\n\nfail()\n")

    assert stage.warm().wait(PATIENCE_S) == 1

    said = stage.err.read_text().splitlines()
    assert said[0] == "Traceback (most recent call last):"
    assert said[1] == f'  File "{stage.folder}/job.py", line 4, in <module>'
    assert said[-1] == "ZeroDivisionError: division by zero"


def test_a_module_is_run_as_the_interpreter_runs_it(stage: Stage) -> None:
    (stage.folder / "package").mkdir()
    (stage.folder / "package" / "__main__.py").write_text(
        "import sys; print(__name__, __spec__.name, sys.argv[1:])"
    )
    request = request_of([sys.executable, "-m", "package", "x"], stage.environment)
    assert request is not None

    with stage.out.open("w") as out:
        job = fork(request, stage.fork_server, (0, out.fileno(), 2))
    assert job.wait(PATIENCE_S) == 0

    assert stage.out.read_text() == "__main__ package.__main__ ['x']\n"


def test_every_warm_job_casts_its_own_rng(stage: Stage) -> None:
    stage.write("import numpy, random, torch\nprint(torch.initial_seed(), torch.rand(1).item(),"
                "numpy.random.random(), random.random())")  # fmt: skip
    cast = []
    for _ in range(2):
        assert stage.warm().wait(PATIENCE_S) == 0
        cast.append(stage.out.read_text().split())

    assert not set(cast[0]) & set(cast[1])


def test_signals_reach_the_job(stage: Stage) -> None:
    stage.write(
        "import signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    job = stage.warm()
    await_text(stage.out, "ready")
    assert job.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        job.wait(timeout=0.01)

    job.send_signal(signal.SIGUSR1)

    assert job.wait(PATIENCE_S) == 5
    job.send_signal(signal.SIGUSR1)


def test_interrupt_reaches_the_processes_that_the_job_has_started(stage: Stage) -> None:
    stage.write(
        "import signal, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "print('ready', flush=True)\n"
        "sys.exit(-child.wait())\n"
    )
    job = stage.warm()
    await_text(stage.out, "ready")

    job.send_signal(signal.SIGINT)

    assert job.wait(PATIENCE_S) == signal.SIGINT


def await_text(file: Path, text: str) -> None:
    until(lambda: text in file.read_text(), f"{text!r} in {file.name}")


def test_a_job_whose_caller_is_killed_ends_too(stage: Stage) -> None:
    stage.write("import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    job = stage.warm()
    await_text(stage.out, "ready")

    job._line.close()

    until(lambda: not is_alive(job.pid), "the end of the job")


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, LENGTH.pack(2) + b"{}",
     LENGTH.pack(4) + b"null", LENGTH.pack(7) + b"[[[[[[[", LENGTH.pack(1) + b"xyz"],
)  # fmt: skip
def test_garbage_is_answered_with_silence_and_the_next_job_starts(
    stage: Stage, garbage: bytes
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(str(stage.fork_server))
        socket.send_fds(line, [garbage or b"\0"], [0, 1, 2])
        stage.write("print('well')")

        assert stage.warm().wait(PATIENCE_S) == 0


def test_a_request_that_lacks_something_is_none() -> None:
    request = request_of([sys.executable, "-m", "a"], {})
    assert request is not None
    assert read_request(request.message) == request
    with pytest.raises(ValueError, match="not a request"):
        read_request(b'{"script": "x.py"}')


@pytest.mark.parametrize(
    "command", ["python", "python -c pass", "python -O job.py", "python gone.py", "python -m",
                "python ., ./job.py", "", "no-such-program job.py"]
)  # fmt: skip
def test_what_cannot_be_started_warm_is_left_to_be_started_cold(
    stage: Stage, folder: Path, command: str
) -> None:
    stage.write("")
    before = sorted(folder.iterdir())

    assert start(command.split(), stage.environment, folder) is None
    assert sorted(folder.iterdir()) == before


def test_one_fork_server_is_enough(stage: Stage, folder: Path) -> None:
    first = pid_of(stage.fork_server)
    stage.write("")

    launched = subprocess.run(
        [sys.executable, "-c", "from interlane.device.fork_server.server import main; main()",
         str(stage.fork_server)],
        timeout=PATIENCE_S, check=True,
    )  # fmt: skip

    assert launched.returncode == 0
    assert pid_of(stage.fork_server) == first


def test_a_fork_server_whose_socket_is_gone_ends(stage: Stage) -> None:
    fork_server = pid_of(stage.fork_server)

    stage.fork_server.unlink()

    until(lambda: not is_alive(fork_server), "the end of the fork server")
    launch(stage.fork_server, sys.executable, stage.environment)
    assert await_fork_server(stage.fork_server, PATIENCE_S)


def test_a_fork_server_that_dies_takes_no_job_along_and_is_followed_by_another(
    stage: Stage, folder: Path
) -> None:
    stage.write("import time\nprint('ready', flush=True)\ntime.sleep(1)\nprint('done')\n")
    job = stage.warm()
    await_text(stage.out, "ready")

    os.kill(pid_of(stage.fork_server), signal.SIGKILL)
    job.wait(PATIENCE_S)

    assert stage.out.read_text() == "ready\ndone\n"
    request = request_of([sys.executable, "job.py"], stage.environment)
    assert request is not None
    with pytest.raises(NoJobForkServer):
        fork(request, stage.fork_server)
    assert start([sys.executable, "job.py"], stage.environment, folder) is None
    assert await_fork_server(stage.fork_server, PATIENCE_S)
    stage.write("")
    assert stage.warm().wait(PATIENCE_S) == 0


def test_what_runs_in_the_group_of_a_job_is_started_cold(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    command = (sys.executable, str(script))

    assert request_of(command, {}) is not None
    assert request_of(command, {"INTERLANE_GROUP": "0" * 32}) is None
