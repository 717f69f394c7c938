"""Kill the server again and again while jobs are submitted, and see what is lost: nothing.

Clients submit jobs with keys and try again until they are answered; every job writes its id
down when it runs.  In the end every acknowledged job must have run, once, and the records must
be what the log says.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from interlane.live.replay import Replayed
from interlane.live.store.record import fold
from interlane.live.store.rows import JobsWanted
from interlane.live.store.store import Store
from interlane.model.lifecycle import JobState
from interlane.usecases.replay import replay_log

START_S = 120.0
COMMAND = (sys.executable, "-m", "interlane")
AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class KillReport:
    """What a run of kills came to."""

    kills: int
    acknowledged: int
    lost: int
    """Acknowledged jobs that are not there, or did not succeed."""
    twice: int
    """Jobs that ran more than once, or made more than one job of a key."""
    never: int
    """Acknowledged jobs that did not run."""
    adopted: int
    """Jobs that ran while the server was killed, and were found again."""
    replays: bool
    """Whether the log folds to the records."""
    replayed: Replayed
    """What fresh schedulers make of the log."""


@dataclass(slots=True)
class _Clients:
    """Hands in jobs until told to stop."""

    state: Path
    ran: Path
    job_s: float
    acknowledged: dict[str, set[str]] = field(default_factory=dict)
    """Key -> the jobs that were acknowledged for it."""
    stop: threading.Event = field(default_factory=threading.Event)

    def hand_in(self, client: int) -> None:
        number = 0
        while not self.stop.is_set():
            key = f"client-{client}-{number}"
            self.acknowledged[key] = set()
            while not self._sent(key) and not self.stop.is_set():
                time.sleep(AGAIN_S)
            number += 1
            time.sleep(AGAIN_S)

    def _sent(self, key: str) -> bool:
        """Hand in a job, and at times again, as a client does that missed the answer."""
        run = f"echo $INTERLANE_JOB_ID >> {self.ran}; sleep {self.job_s}"
        job = {"name": "crash", "run": run, "resources": {"gpu": {"compute": "100m"}}}
        try:
            for _ in range(2 if hash(key) % 3 == 0 else 1):
                self.acknowledged[key].add(submit(self.state, job, key))
        except (URLError, OSError, ValueError, KeyError):
            return bool(self.acknowledged[key])
        return True


def kill_again_and_again(
    folder: Path, *, kills: int, seed: int = 0, clients: int = 2, job_s: float = 0.3
) -> KillReport:
    """Kill a server this often at random moments under load, and return what came of it."""
    rng = Random(seed)
    state, ran = folder / "state", folder / "ran"
    ran.touch()
    work = _Clients(state, ran, job_s)
    threads = [
        threading.Thread(target=work.hand_in, args=(number,), daemon=True)
        for number in range(clients)
    ]
    adopted = 0
    for number in range(kills):
        server = started(state)
        if number == 0:
            for thread in threads:
                thread.start()
        time.sleep(rng.uniform(0.0, 1.0))
        server.send_signal(signal.SIGKILL)
        ended(server)
        adopted += _running(state)
    last = started(state)
    work.stop.set()
    for thread in threads:
        thread.join()
    _wait_for_all(state)
    last.terminate()
    ended(last)
    return _judged(state, ran, work, kills, adopted)


def started(
    state: Path, *more: str, until: bytes = b"Serving", devices: str = "cpu:2"
) -> "subprocess.Popen[bytes]":
    """Start a server on a folder, and wait until it says that it serves or something else."""
    words = ("up", "--devices", devices, "--port", "0", "--state", str(state), *more)
    server = subprocess.Popen(
        (*COMMAND, *words),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert server.stderr is not None
    for line in server.stderr:
        if line.startswith(until):
            return server
    raise AssertionError("The server did not come back.")


def ended(server: "subprocess.Popen[bytes]") -> None:
    """Wait until a server has ended."""
    assert server.stderr is not None
    server.stderr.close()
    server.wait()


def _store(state: Path) -> Store:
    return Store(f"sqlite:///{state / 'state.db'}")


def _running(state: Path) -> int:
    store = _store(state)
    running = store.counts()[JobState.RUNNING]
    store.close()
    return running


def _wait_for_all(state: Path) -> None:
    store = _store(state)
    end_s = time.monotonic() + START_S
    while store.open_jobs() and time.monotonic() < end_s:
        time.sleep(0.1)
    store.close()


def _judged(state: Path, ran: Path, work: _Clients, kills: int, adopted: int) -> KillReport:
    store = _store(state)
    records = {record.id: record for record in store.jobs(JobsWanted(limit=10**9))}
    replays = records == fold(store.whole_log())
    store.close()
    times = Counter(ran.read_text().split())
    ids = {str(job) for jobs in work.acknowledged.values() for job in jobs}
    there = {record.id for record in records.values() if record.state is JobState.SUCCEEDED}
    repeated = sum(1 for count in times.values() if count > 1)
    return KillReport(
        kills,
        len(ids),
        len(ids - there),
        repeated + sum(1 for jobs in work.acknowledged.values() if len(jobs) > 1),
        len(ids - set(times)),
        adopted,
        replays,
        replay_log(state),
    )


def submit(state: Path, job: Mapping[str, object], key: str) -> str:
    """Submit a job to the server of a folder; return its id."""
    url = json.loads((state / "server.json").read_text())["url"]
    token = (state / "token").read_text()
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Idempotency-Key": key,
    }
    asked = Request(f"{url}/api/v1/jobs", json.dumps(job).encode(), headers)
    try:
        with urlopen(asked, timeout=10) as answer:
            return str(json.load(answer)["id"])
    except HTTPError as error:
        error.close()
        raise
