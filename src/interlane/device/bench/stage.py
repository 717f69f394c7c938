"""Daemons and jobs for the bench, as processes of their own."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, TextIO

from interlane.device.backends.cpu import ENVIRONMENT
from interlane.device.fork_server import caller
from interlane.device.fork_server.request import request_of, socket_of
from interlane.device.launch import StartedProcess
from interlane.model import InterlaneError

START_S: Final = 300.0
"""Seconds in which a daemon or a fork server must be up, on a machine that is very busy."""
JOB: Final = "interlane.device.bench.job"


class BenchJob:
    """A job with a line in each direction."""

    def __init__(self, process: StartedProcess, to: TextIO, back: TextIO) -> None:
        self.process = process
        self._to = to
        self._back = back

    def ready(self) -> None:
        """Wait until the job waits for us."""
        if self._back.readline() != "ready\n":
            raise InterlaneError("a job of the bench failed; see above what it said.")

    def go(self, how: str = "go") -> None:
        """Let it begin."""
        self._to.write(f"{how}\n")
        self._to.flush()

    def told(self) -> Any:  # noqa: ANN401 - each kind of job tells something else
        """Wait for what a job that goes on has to tell."""
        return json.loads(self._back.readline() or "null")

    def seen(self) -> Any:  # noqa: ANN401 - each kind of job sees something else
        """Wait for the job to end; return what it saw."""
        line = self._back.readline()
        if self.process.wait() or not line:
            raise InterlaneError("a job of the bench failed; see above what it said.")
        return json.loads(line)

    def kill(self) -> None:
        """Kill it with no time to say anything."""
        self.process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Leave nothing behind."""
        self.kill()
        self.process.wait()
        self._to.close()
        self._back.close()


class BenchStage:
    """A folder for sockets, and ways to start things there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**_rooted(os.environ), "OMP_NUM_THREADS": "1", **ENVIRONMENT}
        self._fork_server = socket_of(folder, sys.executable, self.environment)

    def prepare(self) -> None:
        """Have torch imported once, in a fork server."""
        caller.launch(self._fork_server, sys.executable, self.environment)
        if not caller.await_fork_server(self._fork_server, START_S):
            raise InterlaneError("no fork server came up; see 'interlane doctor' for torch.")

    @contextmanager
    def daemon(
        self, order: str, device: str = "cpu:2GiB", sharing: str = "turns"
    ) -> Iterator[str]:
        """Run a daemon; yields its socket."""
        path = self.folder / f"{order}.sock"
        command = ["-m", "interlane", "share", "daemon", "--device", device]
        process = subprocess.Popen(
            [
                *(sys.executable, *command, "--sharing", sharing),
                *("--order", order, "--socket", str(path)),
            ],
            env=self.environment,
            stderr=subprocess.DEVNULL,
        )
        try:
            _await(path, process)
            yield str(path)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()

    @contextmanager
    def job(self, kind: str, *, warm: bool = True, **settings: object) -> Iterator[BenchJob]:
        """Start a job."""
        command = [sys.executable, "-m", JOB, kind, json.dumps(settings)]
        to_job, our_end = os.pipe()
        our_other_end, from_job = os.pipe()
        try:
            process = self._started(command, (to_job, from_job), warm=warm)
        finally:
            os.close(to_job)
            os.close(from_job)
        job = BenchJob(process, os.fdopen(our_end, "w"), os.fdopen(our_other_end))
        try:
            yield job
        finally:
            job.close()

    def _started(
        self, command: list[str], streams: tuple[int, int], *, warm: bool
    ) -> StartedProcess:
        if not warm:
            return subprocess.Popen(
                command, env=self.environment, stdin=streams[0], stdout=streams[1]
            )
        request = request_of(command, self.environment)
        assert request is not None
        return caller.fork(request, self._fork_server, (*streams, 2))

    def run(self, kind: str, *, warm: bool = True, **settings: object) -> Any:  # noqa: ANN401
        """Run a job to its end."""
        with self.job(kind, warm=warm, **settings) as job:
            job.ready()
            job.go()
            return job.seen()

    def end(self) -> None:
        """End the fork server."""
        with suppress(OSError, caller.NoJobForkServer):
            os.kill(caller.pid_of(self._fork_server), signal.SIGKILL)


@contextmanager
def staged() -> Iterator[BenchStage]:
    """Yield a stage, and leave nothing of it."""
    with tempfile.TemporaryDirectory(prefix="interlane-bench-") as folder:
        stage = BenchStage(Path(folder))
        try:
            stage.prepare()
            yield stage
        finally:
            stage.end()


def _rooted(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which modules are found from any folder."""
    roots = environment.get("PYTHONPATH")
    if not roots:
        return dict(environment)
    absolute = [str(Path(root).absolute()) for root in roots.split(os.pathsep)]
    return {**environment, "PYTHONPATH": os.pathsep.join(absolute)}


def _await(path: Path, process: "subprocess.Popen[bytes]") -> None:
    end_s = monotonic() + START_S
    while not path.exists():
        if process.poll() is not None or monotonic() > end_s:
            raise InterlaneError("the bench's daemon did not start.")
        sleep(0.005)
