"""The live machine under load: submissions, their latency, a long list, and kills."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from benchmarks.served import Caller, cpu_s, served
from interlane.testing.kills import kill_round

QUEUED = 10_000
RATE = 500
CLIENTS = 8
JOB = {
    "name": "queued", "run": "true", "time": {"expected": "1h"},
    "resources": {"gpu": {"count": 2}},
}  # fmt: skip
SHORT = {"name": "short", "run": "true", "resources": {"gpu": {"memory": "16MiB"}}}
STOPPED_RATE = 10
"""Few enough that two cores can start the processes, which is not what is measured."""
HOLD = {**JOB, "name": "holder", "run": "sleep 100000"}


def measure(*, quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        figures = _load(Path(folder) / "load", 1_000 if quick else QUEUED)
        figures |= _stopped(Path(folder) / "stopped", 200 if quick else 1_000)
    found = kill_round(10 if quick else 200)
    return {
        **figures,
        "kills": sum(found.kills.values()),
        "acknowledged": found.work.acknowledged,
        "lost_or_twice": len({*found.work.lost, *found.work.twice, *found.work.faked}),
        "log_replays": found.folds and found.difference is None,
    }


def _load(state: Path, jobs: int) -> dict[str, Any]:
    os.environ["INTERLANE_STATE"] = str(state)
    with served(state) as server:
        holder = Caller(state).ask("POST", "/jobs", HOLD)["id"]
        begin_s, before_s = time.monotonic(), cpu_s(server)
        latencies = _paced(state, jobs)
        took_s, used_s = time.monotonic() - begin_s, cpu_s(server) - before_s
        list_cpu_s, list_s = _ps(1_000)
        page_cpu_s = _queue_page(state, server)
        Caller(state).ask("DELETE", f"/jobs/{holder}")
    latencies.sort()
    return {
        "submissions": jobs,
        "submissions_per_s": round(jobs / took_s, 1),
        "p50_ms": round(1000 * latencies[len(latencies) // 2], 1),
        "p99_ms": round(1000 * latencies[int(len(latencies) * 0.99)], 1),
        "server_cpu_ms_each": round(1000 * used_s / jobs, 3),
        "ps_1000_s": round(list_s, 3),
        "ps_1000_cpu_s": round(list_cpu_s, 3),
        "queue_page_cpu_s": round(page_cpu_s, 3),
    }


def _stopped(state: Path, jobs: int) -> dict[str, Any]:
    """Submit jobs that start and end at once while every device daemon is stopped."""
    over = threading.Event()
    with served(state):
        stopper = threading.Thread(target=_stop_daemons, args=(state, over))
        stopper.start()
        latencies = sorted(_paced(state, jobs, SHORT, rate=STOPPED_RATE))
        over.set()
        stopper.join()
    return {"stopped_daemon_p99_ms": round(1000 * latencies[int(len(latencies) * 0.99)], 1)}


def _stop_daemons(state: Path, over: threading.Event) -> None:
    """Stop the daemon of a state folder, and whichever takes its place, until it is over."""
    stopped: set[int] = set()
    while not over.wait(0.1):
        for pid in _daemons(state) - stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                stopped.add(pid)
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _daemons(state: Path) -> set[int]:
    found: set[int] = set()
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes() if folder.name.isdigit() else b""
            if b"daemon" in words and os.fsencode(state) in words:
                found.add(int(folder.name))
    return found


def _paced(
    state: Path, jobs: int, job: Mapping[str, Any] = JOB, rate: float = RATE
) -> list[float]:
    """Submit jobs at a fixed rate from several connections; return every latency."""
    latencies: list[float] = []
    begin_s = time.monotonic()

    def client(number: int) -> None:
        caller = Caller(state)
        for at in range(number, jobs, CLIENTS):
            due_s = begin_s + at / rate
            time.sleep(max(0.0, due_s - time.monotonic()))
            sent_s = time.monotonic()
            caller.ask("POST", "/jobs", job)
            latencies.append(time.monotonic() - sent_s)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies


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


def _queue_page(state: Path, server: int, times: int = 10) -> float:
    """Return the server's CPU seconds for the queue page with all that waits, the mean."""
    caller = Caller(state)
    with httpx.Client(base_url=caller.url.geturl(), headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": caller.token.strip()})
        before_s = cpu_s(server)
        for _ in range(times):
            page = client.get("/queue", timeout=60).raise_for_status().text
            assert page.count(f"{JOB['name']}-") >= 50  # the first fifty, each with its link
        return (cpu_s(server) - before_s) / times
