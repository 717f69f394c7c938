"""Attack a server in every way at once, and measure what that costs somebody else.

    python -m benchmarks.attacks [--seconds S] [--only NAME ...]

A server of its own on loopback; another user submits jobs at a steady rate, first alone, then
beside the attackers.  Reported are that user's latencies, refusals and failed jobs, the most
memory that the server has taken beside the figure that the guide states, and what the attackers
were answered.  Exits 1 if a bound is missed, or if an attacker has not really attacked.

On a machine that others use, latencies say how long one waits for a core.  The CPU seconds of
the server beside them do not.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.attackers import ATTACKS, Failure
from benchmarks.served import API, Caller, cpu_s

P99_MS = 300.0
RATE = 8.0
ALONE_S, WARM_S = 15.0, 5.0
WAITING = 500
"""Jobs that wait, so that questions about them cost something."""

BYSTANDER = "ann"
FINISHED_S = 300.0
"""Seconds after the attack in which all jobs of the bystander must have ended."""

ATTACKERS = 40
"""Tokens of attackers."""

PROCESSES = 64
"""Of one job: the machine is others', too."""

LEAST = {
    "half-open": ("opened", 10.0),
    "watchers": ("200", 4.0),
    "eta": ("left", 10.0),
    "garbage": ("4", 2.0),
    "jobs": ("201", 0.1),
    "functions": ("deploy", 8.0),
    "uploads": ("upload 200", 0.05),
    "pages": ("200", 0.5),
}
"""What attackers must have been answered a second, by how the answer begins."""

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "operate.md"
HOLD = {
    "name": "holds", "run": "sleep 100000", "time": {"expected": "10h"},
    "resources": {"gpu": {"count": 2}},
}  # fmt: skip
WAITS = {**HOLD, "name": "waits", "run": "true"}
MINE = {"name": "mine", "run": "true", "resources": {"cpu": "10m", "memory": "8MB"}}


def stated_mib() -> float:
    """Return the memory that the guide says suffices."""
    found = re.search(r"\*\*(\d+) GiB\*\* suffices", GUIDE.read_text())
    assert found is not None
    return 1024.0 * int(found.group(1))


@dataclass
class Bystander:
    """Somebody who only wants jobs to run."""

    url: str
    token: str
    latencies_s: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)

    def submit_for(self, seconds: float) -> None:
        """Submit at a steady rate; every fourth time over a new connection."""
        parts, due_s = urlsplit(self.url), time.monotonic()
        line = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        for number in range(int(seconds * RATE)):
            time.sleep(max(0.0, due_s - time.monotonic()))
            due_s += 1 / RATE
            if number % 4 == 0:
                line.close()
            begin_s = time.monotonic()
            self._submit(line)
            self.latencies_s.append(time.monotonic() - begin_s)
        line.close()

    def _submit(self, line: HTTPConnection) -> None:
        head = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        for again in (True, False):  # an idle connection may have been closed meanwhile
            try:
                line.request("POST", f"{API}/jobs", json.dumps(MINE), head)
                answer = line.getresponse()
                said = answer.read()
            except Failure as error:
                line.close()
                if not again:
                    self.refused.append(repr(error))
                continue
            if answer.status == 201:
                self.jobs.append(json.loads(said)["id"])
            else:
                self.refused.append(f"{answer.status} {said[:100]!r}")
            return

    def figures(self) -> dict[str, Any]:
        """Return what was measured since the last time."""
        found = sorted(self.latencies_s)
        told = {
            "submissions": len(found),
            "p50_ms": round(1000 * found[len(found) // 2], 1),
            "p99_ms": round(1000 * found[int(len(found) * 0.99)], 1),
            "refused": self.refused[:5],
        }
        self.latencies_s, self.refused = [], []
        return told


@contextmanager
def _server(state: Path) -> Iterator[int]:
    words = ("--devices", "cpu:2", "--port", "0", "--state", str(state), "--trust-users")
    command = (sys.executable, "-m", "interlane", "up", *words)
    server = subprocess.Popen(
        (*command, "--processes-per-job", str(PROCESSES)), stderr=subprocess.PIPE
    )
    assert server.stderr is not None
    for line in server.stderr:
        if line.startswith(b"Serving"):
            break
    drain = threading.Thread(target=server.stderr.read, daemon=True)
    drain.start()
    try:
        yield server.pid
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def _attacked(url: str, tokens: list[str], names: list[str], seconds: float) -> Any:  # noqa: ANN401
    """Start the attackers; returns what ends them and tells what they were answered."""
    words = ",".join(tokens)
    running = {
        name: subprocess.Popen(
            (sys.executable, "-m", "benchmarks.attackers", name, url, words, str(seconds)),
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
        )
        for name in names
    }

    def told() -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, process in running.items():
            try:
                said, _ = process.communicate(timeout=60)
                found[name] = json.loads(said)
            except (subprocess.TimeoutExpired, ValueError):
                process.kill()
                found[name] = "killed"
        return found

    return told


def peak_mib(pid: int) -> float:
    """Return the most memory that a process has had."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found.group(1)) / 1024


def measure(seconds: float, names: list[str]) -> dict[str, Any]:
    """Measure somebody's submissions alone, and beside attackers."""
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder) / "state") as server:
        admin = Caller(Path(folder) / "state")
        url = admin.url.geturl()

        def token(name: str) -> str:
            return str(admin.ask("POST", "/tokens", {"name": name, "role": "user"})["token"])

        attackers = [token(f"eve{number}") for number in range(ATTACKERS)]
        mine = Bystander(url, token(BYSTANDER))
        holder = admin.ask("POST", "/jobs", HOLD)["id"]
        for _ in range(WAITING):
            admin.ask("POST", "/jobs", WAITS)
        begin_s = cpu_s(server)
        mine.submit_for(ALONE_S)
        alone, memory_mib = mine.figures(), peak_mib(server)
        alone_s = cpu_s(server) - begin_s
        told = _attacked(url, attackers, names, seconds + 2 * WARM_S)
        time.sleep(WARM_S)
        before_s = cpu_s(server)
        mine.submit_for(seconds)
        used = (cpu_s(server) - before_s) / seconds
        attacked = mine.figures()
        answered = told()
        over_s = time.monotonic()
        admin = Caller(Path(folder) / "state")  # its connection has made way, perhaps
        unfinished = _unfinished(admin, mine.jobs)
        late_s = time.monotonic() - over_s
        attacked_mib = peak_mib(server)
        admin.ask("DELETE", f"/jobs/{holder}")
    return {
        "load": os.getloadavg()[0],
        "alone": alone,
        "attacked": attacked,
        "weak_attacks": weak(answered, seconds + 2 * WARM_S),
        "server_cores": {"alone": round(alone_s / ALONE_S, 2), "attacked": round(used, 2)},
        "jobs": len(mine.jobs),
        "jobs_not_succeeded": unfinished,
        "jobs_done_after_s": round(late_s, 1),
        "memory_mib": {
            "alone": round(memory_mib),
            "attacked": round(attacked_mib),
            "stated": stated_mib(),
        },
        "answers": answered,
    }


def weak(answers: dict[str, Any], seconds: float) -> list[str]:
    """Return the attackers that have hardly attacked."""
    found = []
    for name, said in answers.items():
        begins, per_s = LEAST[name]
        told = said if isinstance(said, dict) else {}
        count = sum(times for what, times in told.items() if what.startswith(begins))
        if count < per_s * seconds:
            found.append(f"{name}: {count} times {begins!r}, not {per_s * seconds:.0f}")
    return found


def _unfinished(admin: Caller, jobs: list[str]) -> dict[str, str]:
    """Wait for jobs of the bystander; return those that did not succeed, and their states."""
    end_s = time.monotonic() + FINISHED_S
    while True:
        states = _states(admin)
        left = {one: states.get(one, "not on record") for one in jobs}
        left = {one: state for one, state in left.items() if state != "succeeded"}
        if set(left.values()) <= {"failed", "not on record"} or time.monotonic() > end_s:
            return left
        time.sleep(1.0)


def _states(admin: Caller) -> dict[str, str]:
    """Return the states of all jobs of the bystander."""
    found: dict[str, str] = {}
    path = f"/jobs?user={BYSTANDER}&limit=500"
    cursor = ""
    while True:
        page = admin.ask("GET", path + cursor)
        found |= {one["id"]: one["state"] for one in page["jobs"]}
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--only", action="append", choices=list(ATTACKS))
    options = parser.parse_args()
    found = measure(options.seconds, options.only or list(ATTACKS))
    print(json.dumps(found, indent=2))
    memory = found["memory_mib"]
    is_good = (
        found["attacked"]["p99_ms"] <= P99_MS
        and not found["attacked"]["refused"]
        and not found["jobs_not_succeeded"]
        and not found["weak_attacks"]
        and memory["attacked"] <= memory["stated"]
    )
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
