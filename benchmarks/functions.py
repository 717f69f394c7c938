"""Functions under load: requests a second to warm replicas that do nothing, and cold starts."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CONNECTIONS = 32
REPLICAS = 2
REQUESTS = 20_000
COLD_STARTS = 10
HANDLERS = """
def noop(asked):
    return asked
"""
TORCH = """
import torch

def weights():
    return torch.nn.Linear(64, 64)

def forward(model, asked):
    return float(model(torch.ones(1, 64)).sum())
"""


def measure(*, quick: bool) -> dict[str, Any]:
    requests = 2_000 if quick else REQUESTS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "noop.py").write_text(HANDLERS)
        (folder / "torched.py").write_text(TORCH)
        command = (sys.executable, "-m", "interlane", "up", "--devices", "cpu:2", "--port", "0")
        server = subprocess.Popen(
            (*command, "--state", str(folder / "state")), stderr=subprocess.PIPE
        )
        assert server.stderr is not None
        for line in server.stderr:
            if line.startswith(b"Serving"):
                break
        try:
            return _figures(_Machine(folder / "state"), folder, server.pid, requests)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def _figures(machine: "_Machine", folder: Path, server: int, requests: int) -> dict[str, Any]:
    spec = {"path": str(folder), "replicas": {"max": REPLICAS}, "keep": "1h"}
    machine.deploy({"name": "noop", "handler": "noop:noop", **spec})
    machine.deploy(
        {
            "name": "torched",
            "handler": "torched:forward",
            "load": "torched:weights",
            "preload": ["torch"],
            "memory": "1GB",
            **spec,
        }
    )
    asyncio.run(machine.load(requests // 10))
    everybody = (server, *machine.pids("noop"), os.getpid())
    begin_s, before = time.monotonic(), [_cpu_s(pid) for pid in everybody]
    latencies = sorted(asyncio.run(machine.load(requests)))
    took_s = time.monotonic() - begin_s
    used = [_cpu_s(pid) - at_s for pid, at_s in zip(everybody, before, strict=True)]
    cold = {name: machine.cold_start_s(name, COLD_STARTS) for name in ("noop", "torched")}
    return {
        "requests": requests,
        "requests_per_s": round(requests / took_s),
        "p50_ms": round(1000 * latencies[requests // 2], 2),
        "p99_ms": round(1000 * latencies[int(requests * 0.99)], 2),
        "server_cpu_ms_each": round(1000 * used[0] / requests, 3),
        "all_cpu_ms_each": round(1000 * sum(used) / requests, 3),
        "noop_cold_start_ms": round(1000 * cold["noop"], 1),
        "torch_cold_start_ms": round(1000 * cold["torched"], 1),
    }


class _Machine:
    """A server, spoken to as little as possible."""

    def __init__(self, state: Path) -> None:
        said = json.loads((state / "server.json").read_text())
        self._url = urlsplit(said["url"])
        self._headers = {"Authorization": f"Bearer {(state / 'token').read_text()}"}

    def ask(self, method: str, path: str, document: object = None) -> Any:  # noqa: ANN401
        connection = HTTPConnection(self._url.hostname or "", self._url.port)
        body = None if document is None else json.dumps(document)
        headers = {**self._headers, "Content-Type": "application/json"}
        connection.request(method, f"/api/v1/functions{path}", body, headers)
        answer = connection.getresponse()
        if answer.status >= 300:
            raise AssertionError(answer.read())
        return json.load(answer)

    def deploy(self, spec: dict[str, Any]) -> None:
        self.ask("POST", "", spec)
        while self.ask("GET", f"/{spec['name']}")["state"] != "warm":
            time.sleep(0.05)

    def pids(self, name: str) -> list[int]:
        return [one["pid"] for one in self.ask("GET", f"/{name}")["replicas"]]

    def cold_start_s(self, name: str, times: int) -> float:
        """Return the median of how long a request takes that finds no replica."""
        taken = []
        for _ in range(times):
            for pid in self.pids(name):
                os.kill(pid, signal.SIGKILL)
            while self.ask("GET", f"/{name}")["replicas"]:
                time.sleep(0.01)
            begin_s = time.monotonic()
            self.ask("POST", f"/{name}/invoke", 1)
            taken.append(time.monotonic() - begin_s)
        return sorted(taken)[times // 2]

    async def load(self, requests: int) -> list[float]:
        """Keep some connections busy until all requests are answered; return latencies."""
        loop = asyncio.get_running_loop()
        work = _Work(requests, loop.create_future(), self._request())
        for _ in range(CONNECTIONS):
            await loop.create_connection(
                lambda: _Caller(work), self._url.hostname, self._url.port
            )
        await work.done
        return work.latencies

    def _request(self) -> bytes:
        head = "POST /api/v1/functions/noop/invoke HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
        return f"{head}Authorization: {self._headers['Authorization']}\r\n\r\n1".encode()


class _Work:
    def __init__(self, left: int, done: "asyncio.Future[None]", request: bytes) -> None:
        self.left, self.requests, self.done, self.request = left, left, done, request
        self.latencies: list[float] = []


class _Caller(asyncio.Protocol):
    """Sends the next request when the last one is answered."""

    def __init__(self, work: _Work) -> None:
        self._work = work

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - of this loop
        self._line = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._heard += data
        if not self._heard.endswith(b"\r\n\r\n1"):
            return
        if not self._heard.startswith(b"HTTP/1.1 200"):
            raise AssertionError(self._heard)
        self._work.latencies.append(time.monotonic() - self._begun_s)
        if len(self._work.latencies) == self._work.requests:
            self._work.done.set_result(None)
        self._next()

    def _next(self) -> None:
        if self._work.left == 0:
            self._line.close()
            return
        self._work.left -= 1
        self._heard, self._begun_s = b"", time.monotonic()
        self._line.write(self._work.request)


def _cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
