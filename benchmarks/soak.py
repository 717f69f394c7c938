"""The live machine for ten minutes: jobs, requests and questions; its memory must stay flat."""

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.served import Caller, rss_mib, served

SOAK_S = 600.0
SETTLED = 0.3
"""Part of the time after which the machine has taken what it needs."""

JOBS_PER_S = 2.0
REQUESTS_PER_S = 100.0
QUESTIONS_PER_S = 2.0
LOOK_S = 1.0
JOB = {"name": "soak", "run": "true", "resources": {"gpu": {"compute": "200m"}}}
HANDLER = "def noop(asked):\n    return asked\n"


def measure(*, quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "noop.py").write_text(HANDLER)
        with served(folder / "state") as server:
            return _soaked(folder, server, SOAK_S / 20 if quick else SOAK_S)


def _soaked(folder: Path, server: int, soak_s: float) -> dict[str, Any]:
    state = folder / "state"
    function = {"name": "noop", "handler": "noop:noop", "path": str(folder), "memory": "100MB"}
    Caller(state).ask("POST", "/functions", function)
    stop = threading.Event()
    done = [
        _again_and_again(stop, state, JOBS_PER_S, _hand_in),
        _again_and_again(stop, state, REQUESTS_PER_S, _call),
        _again_and_again(stop, state, QUESTIONS_PER_S, _look_around),
    ]
    begin_s, seen = time.monotonic(), []
    while time.monotonic() - begin_s < soak_s:
        time.sleep(LOOK_S)
        seen.append(rss_mib(server))
    stop.set()
    for thread, _ in done:
        thread.join()
    settled = seen[round(SETTLED * len(seen)) :]
    third = len(settled) // 3
    before, after = (sorted(part)[third // 2] for part in (settled[:third], settled[-third:]))
    return {
        "seconds": soak_s,
        "jobs": done[0][1][0],
        "requests": done[1][1][0],
        "settled_mib": round(before, 1),
        "end_mib": round(after, 1),
        "growth_mib": round(after - before, 1),
        "most_mib": round(max(seen), 1),
    }


def _again_and_again(
    stop: threading.Event, state: Path, per_s: float, act: Callable[[Caller, int], None]
) -> tuple[threading.Thread, list[int]]:
    """Do something at a rate until told to stop; the list holds how often it was done."""
    done = [0]

    def work() -> None:
        caller, begin_s = Caller(state), time.monotonic()
        while not stop.wait(max(0.0, begin_s + done[0] / per_s - time.monotonic())):
            act(caller, done[0])
            done[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    return thread, done


def _hand_in(caller: Caller, number: int) -> None:
    caller.ask("POST", "/jobs", JOB)


def _call(caller: Caller, number: int) -> None:
    caller.ask("POST", "/functions/noop/invoke", number)


def _look_around(caller: Caller, number: int) -> None:
    for path in ("/jobs?limit=100", "/gpus", "/summary", "/functions"):
        caller.ask("GET", path)
