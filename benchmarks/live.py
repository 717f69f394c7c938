"""The live machine under load: submissions, their latency, a long list, and kills."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from interlane.testing.crashes import kill_again_and_again

QUEUED = 10_000
RATE = 500
CLIENTS = 8
JOB = {
    "name": "queued", "run": "true", "time": {"expected": "1h"},
    "resources": {"gpu": {"count": 2}},
}  # fmt: skip
HOLD = {**JOB, "name": "holder", "run": "sleep 100000"}


def measure(*, quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        figures = _load(Path(folder) / "load", 1_000 if quick else QUEUED)
        found = kill_again_and_again(_made(Path(folder) / "kills"), kills=5 if quick else 200)
    return {
        **figures,
        "kills": found.kills,
        "acknowledged": found.acknowledged,
        "lost_or_twice": found.lost + found.twice + found.never,
        "log_replays": found.replays,
    }


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _load(state: Path, jobs: int) -> dict[str, Any]:
    os.environ["INTERLANE_STATE"] = str(state)
    server = subprocess.Popen(
        (sys.executable, "-m", "interlane", "up", "--devices", "cpu:2", "--port", "0"),
        stderr=subprocess.PIPE,
    )
    assert server.stderr is not None
    for line in server.stderr:
        if line.startswith(b"Serving"):
            break
    try:
        holder = _submitter(state)(HOLD)[0]
        begin_s, before_s = time.monotonic(), _cpu_s(server.pid)
        latencies = _paced(state, jobs)
        took_s, used_s = time.monotonic() - begin_s, _cpu_s(server.pid) - before_s
        list_cpu_s, list_s = _ps(1_000)
        subprocess.run((sys.executable, "-m", "interlane", "cancel", holder), check=True)
    finally:
        server.kill()
        server.wait()
    latencies.sort()
    return {
        "submissions": jobs,
        "submissions_per_s": round(jobs / took_s, 1),
        "p50_ms": round(1000 * latencies[len(latencies) // 2], 1),
        "p99_ms": round(1000 * latencies[int(len(latencies) * 0.99)], 1),
        "server_cpu_ms_each": round(1000 * used_s / jobs, 3),
        "ps_1000_s": round(list_s, 3),
        "ps_1000_cpu_s": round(list_cpu_s, 3),
    }


def _paced(state: Path, jobs: int) -> list[float]:
    """Hand jobs in at a fixed rate from several connections; return every latency."""
    latencies: list[float] = []
    begin_s = time.monotonic()

    def client(number: int) -> None:
        send = _submitter(state)
        for at in range(number, jobs, CLIENTS):
            due_s = begin_s + at / RATE
            time.sleep(max(0.0, due_s - time.monotonic()))
            latencies.append(send(JOB)[1])

    threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies


def _submitter(state: Path) -> Any:  # noqa: ANN401 - a function of a job
    url = urlsplit(json.loads((state / "server.json").read_text())["url"])
    connection = HTTPConnection(url.hostname or "", url.port)
    headers = {
        "Authorization": f"Bearer {(state / 'token').read_text()}",
        "Content-Type": "application/json",
    }

    def send(job: dict[str, object]) -> tuple[str, float]:
        begin_s = time.monotonic()
        connection.request("POST", "/api/v1/jobs", json.dumps(job), headers)
        answer = connection.getresponse()
        said = json.load(answer)
        if answer.status != 201:
            raise AssertionError(said)
        return str(said["id"]), time.monotonic() - begin_s

    return send


def _ps(jobs: int) -> tuple[float, float]:
    """Return the CPU and the wall-clock seconds of ``interlane ps``, the best of three."""
    found = []
    for _ in range(3):
        begin_s, before = time.monotonic(), os.times()
        subprocess.run(
            (sys.executable, "-m", "interlane", "ps", "-n", str(jobs)),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        after = os.times()
        used_s = after.children_user + after.children_system
        used_s -= before.children_user + before.children_system
        found.append((used_s, time.monotonic() - begin_s))
    return min(found)


def _cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
