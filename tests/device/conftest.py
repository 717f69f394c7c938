"""Real daemons, real jobs: each test has a daemon of its own, and a fork server."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from interlane.device import wire
from interlane.device.backends.unmeasured import Unmeasured
from interlane.device.client import DeviceClient
from interlane.device.daemon import Daemon
from interlane.device.fork_server import caller
from interlane.device.fork_server.request import request_of, socket_of
from interlane.device.lane_request import LaneRequest
from interlane.device.launch import environment_of, status
from interlane.device.link import NoDaemon, connected
from interlane.lanes.report import DaemonReport, DeviceReport, RunTotal
from interlane.testing.waiting import PATIENCE_S, until

SCRIPTS = Path(__file__).parent / "scripts"
MIB = 1 << 20
ONE_MIB: dict[str, Any] = {"persistent_bytes": MIB, "ephemeral_bytes": MIB}


@dataclass
class Job:
    process: caller.WarmJob
    output: Path
    run: int

    @property
    def text(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def finished(self) -> str:
        """Wait for a good end; return what the job printed."""
        assert self.process.wait(PATIENCE_S) == 0, self.text
        return self.text


@dataclass
class Stage:
    """A place to share a device at: a daemon's socket, and jobs."""

    folder: Path
    fork_servers: Path
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)

    @property
    def address(self) -> Path:
        return self.folder / "share.sock"

    @property
    def log(self) -> str:
        return (self.folder / "daemon.log").read_text(encoding="utf-8")

    def daemon(
        self, *words: str, device: str = "cpu:1GiB", descriptors: int | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a daemon that may have so many descriptors, and wait until it answers."""
        limit = () if descriptors is None else ("prlimit", f"--nofile={descriptors}")
        with (self.folder / "daemon.log").open("ab") as log:
            process = subprocess.Popen(
                [
                    *(*limit, sys.executable, "-m", "interlane", "share", "daemon"),
                    *("--socket", str(self.address), "--device", device),
                    *("--sharing", "turns", *words),
                ],
                stderr=log,
            )
        self.daemons.append(process)
        until(lambda: process.poll() is not None or self.answers())
        assert process.poll() is None, self.log
        return process

    def kill_daemon(self) -> None:
        self.daemons[-1].kill()
        self.daemons[-1].wait()

    def client(self, name: str = "test", **asked: Any) -> DeviceClient:  # noqa: ANN401 - as Action has them
        """Return a job in this process that needs no memory."""
        return DeviceClient(LaneRequest(name, **asked), self.address, Unmeasured)

    def answers(self) -> bool:
        try:
            self.status()
        except NoDaemon:
            return False
        return True

    def status(self, run: int = 0) -> DaemonReport:
        return status(self.address, run)

    def total(self, job: Job) -> RunTotal:
        """Return what became of a job, over all its processes."""
        found = self.status(job.run).run
        assert found is not None
        return found

    @property
    def device(self) -> DeviceReport:
        return self.status().devices[0]

    @property
    def states(self) -> dict[str, str]:
        return {one.name: one.state for one in self.device.processes}

    def iterations(self, job: Job) -> int:
        return next(
            (one.run.iterations for one in self.device.processes if one.pid == job.process.pid),
            0,
        )

    def goes_on(self, job: Job) -> None:
        """Wait until a job has run some iterations more."""
        before = self.iterations(job)
        until(lambda: self.iterations(job) > before + 3)

    def start(
        self,
        script: str | Path,
        *words: object,
        name: str = "",
        shared: bool = True,
        memory_mib: tuple[int, int] | None = None,
        declared: bool = True,
        priority: int = 0,
        total_s: float | None = None,
    ) -> Job:
        """Fork a job that shares the device, or runs alone, to tell what it prints then."""
        path = SCRIPTS / script
        persistent, ephemeral = memory_mib or (None, None)
        run = len(self.jobs) + 1
        asked = LaneRequest(
            name or path.name,
            priority=priority,
            total_s=total_s,
            persistent_bytes=None if persistent is None else persistent * MIB,
            ephemeral_bytes=None if ephemeral is None else ephemeral * MIB,
            is_declared=declared and memory_mib is not None,
            run=run,
        )
        environment = environment_of(asked, self.address, warm=True)
        if not shared:
            environment = dict(os.environ)
        request = request_of([sys.executable, str(path), *map(str, words)], environment)
        assert request is not None
        output = self.folder / f"{run}-{path.stem}.txt"
        with output.open("wb") as out, Path(os.devnull).open("rb") as nothing:
            streams = (nothing.fileno(), out.fileno(), out.fileno())
            job = Job(caller.fork(request, self.fork_servers, streams), output, run)
        self.jobs.append(job)
        return job

    def script(self, text: str, name: str = "script.py") -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def close(self) -> None:
        for job in self.jobs:
            if job.process.returncode is None:
                job.process.send_signal(signal.SIGKILL)
                job.process.wait(PATIENCE_S)
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()


def arrival(daemon: Daemon, key: int) -> socket.socket:
    """Let a job come to a daemon of this process; return its connection."""
    line = connected(daemon.settings.socket)
    line.send(wire.packed(LaneRequest("job", persistent_bytes=1, ephemeral_bytes=1).hello(key)))
    daemon.turn()
    daemon.turn()
    assert key in {job.key for job in daemon.devices[0].jobs.values()}
    return line


@pytest.fixture(scope="session")
def fork_servers() -> Iterator[Path]:
    """A process that has imported torch, and forks jobs."""
    pytest.importorskip("torch")
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        path = socket_of(Path(folder), sys.executable, os.environ)
        caller.launch(path, sys.executable, os.environ)
        assert caller.await_fork_server(path, PATIENCE_S)
        yield path
        if not path.exists():  # idle for long, it has ended by itself
            return
        os.kill(caller.pid_of(path), signal.SIGKILL)


@pytest.fixture
def stage(fork_servers: Path) -> Iterator[Stage]:
    # Not pytest's folder, whose path may be too long for a socket.
    with tempfile.TemporaryDirectory(prefix="share-") as folder:
        stage = Stage(Path(folder), fork_servers)
        yield stage
        stage.close()
