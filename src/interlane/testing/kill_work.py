"""Work for a server that is killed: jobs and requests, and what of them has really run.

Every job writes down when an attempt at it begins and when it ends, holds a lock of its own
meanwhile, and some of them take turns on a device as well.  So it can be told afterwards which
attempts ran, whether two were there at once, and whether two had the same device.
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from urllib.error import HTTPError, URLError

from interlane.model.lifecycle import JobState
from interlane.testing import crashes
from interlane.testing.waiting import until

AGAIN_S = 0.1
CLIENTS = 2
LANE_SHARE, CANCEL_SHARE, TWICE_SHARE = 0.15, 0.1, 0.3
"""Of jobs: those that take turns on a device, are cancelled, are submitted twice with a key."""

LAUNCH_S = 5.0
"""Seconds after its cancel in which a job that was being started may still begin."""

FUNCTION = "kept"
Refused = (HTTPError, URLError, OSError, ValueError, KeyError)
"""What a client sees of a server that is being killed."""

_RUN = """\
exec 9>>{root}/locks/$INTERLANE_JOB_ID
flock -n 9 || echo overlap $INTERLANE_JOB_ID $INTERLANE_ATTEMPT 0 >> {root}/ran
echo start $INTERLANE_JOB_ID $INTERLANE_ATTEMPT $(date +%s.%N) >> {root}/ran
{does}
echo end $INTERLANE_JOB_ID $INTERLANE_ATTEMPT $(date +%s.%N) >> {root}/ran
"""

_TURNS = """\
import fcntl, json, os, sys, time
from interlane.device.backends.unmeasured import Unmeasured
from interlane.device.client import DeviceClient
from interlane.device.inject import REQUEST_VARIABLE
from interlane.device.lane_request import LaneRequest
from interlane.device.rendezvous import socket_path

root, job = sys.argv[1], os.environ["INTERLANE_JOB_ID"]
request = LaneRequest(**json.loads(os.environ[REQUEST_VARIABLE]))
device = open(f"{root}/locks/device-{os.environ['INTERLANE_DEVICES']}", "w")
with DeviceClient(request, socket_path(), Unmeasured) as client:
    for _ in range(40):
        with client.iteration():
            try:
                fcntl.flock(device, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with open(f"{root}/ran", "a") as file:
                    file.write(f"clash {job} 0 {time.time()}\\n")
            time.sleep(0.01)
            fcntl.flock(device, fcntl.LOCK_UN)
"""

_HANDLER = """\
def answer(asked):
    return {"heard": asked}
"""


@dataclass(frozen=True, slots=True)
class RanLine:
    """What a job wrote down."""

    what: str
    job: str
    attempt: int
    at_s: float


@dataclass(slots=True)
class Asked:
    """What clients were told of one key."""

    jobs: set[str] = field(default_factory=set)
    at_s: float = 0.0
    """When it was acknowledged first."""
    cancelled_s: float | None = None
    """When its cancel was acknowledged."""


class KillWork:
    """Clients that submit, cancel and call for as long as they may."""

    def __init__(self, root: Path, seed: int) -> None:
        """Keep everything in a folder that is known by its name."""
        self.root = root
        self.serving: Path | None = None
        """State folder of the server that serves, as far as anybody knows."""
        self.asked: dict[str, Asked] = {}
        self.answers: Counter[str] = Counter()
        """Of calls to a function: good, wrong and refused."""
        self.refusal = ""
        """Why a job was last refused."""
        self._seed = seed
        self._may = threading.Event()
        self._over = threading.Event()
        self._busy = threading.Lock()
        self._inside = 0
        self._threads: list[threading.Thread] = []
        (root / "locks").mkdir()
        (root / "ran").touch()
        (root / "turns.py").write_text(_TURNS)
        (root / "handler.py").write_text(_HANDLER)

    def deploy(self, state: Path) -> None:
        """Deploy the function that is called."""
        function = {
            "name": FUNCTION,
            "handler": "handler:answer",
            "path": str(self.root),
            "env": {"ROOT": str(self.root)},
            "memory": "16MB",
        }
        until(lambda: _deployed(state, function), "a function")

    def begin(self) -> None:
        """Let clients in."""
        self._may.set()
        for client in range(CLIENTS):
            self._threads.append(threading.Thread(target=self._hand_in, args=(client,)))
        self._threads.append(threading.Thread(target=self._call))
        for thread in self._threads:
            thread.start()

    def pause(self) -> None:
        """Let nobody ask any more, and wait for the answers to what was asked."""
        self._may.clear()
        try:
            until(lambda: not self._inside, "an answer to all who ask")
        except AssertionError as error:
            raise AssertionError(f"{error} Last refused was: {self.refusal}") from None

    def go_on(self) -> None:
        """Let clients ask again."""
        self._may.set()

    def end(self) -> None:
        """Ask for nothing more."""
        self._over.set()
        self._may.set()
        for thread in self._threads:
            thread.join()

    def written(self) -> list[RanLine]:
        """Return what jobs wrote down so far."""
        lines = (line.split() for line in (self.root / "ran").read_text().splitlines())
        return [RanLine(what, job, int(n), float(at)) for what, job, n, at in lines]

    def _enter(self) -> bool:
        """Wait until one may ask; return whether there is anything left to ask."""
        while not self._over.is_set():
            self._may.wait()
            with self._busy:
                is_over, may = self._over.is_set(), self._may.is_set()
                if may and not is_over and self.serving is not None:
                    self._inside += 1
                    return True
            time.sleep(AGAIN_S)
        return False

    def _leave(self) -> None:
        with self._busy:
            self._inside -= 1

    def _hand_in(self, client: int) -> None:
        rng, number = Random(f"{self._seed} {client}"), 0
        while self._enter():
            try:
                self._job(f"client-{client}-{number}", rng)
            finally:
                self._leave()
            number += 1
            time.sleep(AGAIN_S * (1 + rng.random()))

    def _job(self, key: str, rng: Random) -> None:
        """Submit one job until that is acknowledged, and now and then cancel it."""
        asked = self.asked[key] = Asked()
        job, times = self._drawn(rng), 2 if rng.random() < TWICE_SHARE else 1
        while len(asked.jobs) == 0 and not self._over.is_set():
            try:
                for _ in range(times):  # as a client does that missed the answer
                    asked.jobs.add(crashes.submit(self._server(), job, key))
                    asked.at_s = asked.at_s or time.time()
            except Refused as error:
                self.refusal = repr(error)
                time.sleep(AGAIN_S)
        if rng.random() < CANCEL_SHARE:
            self._cancel(asked)

    def _cancel(self, asked: Asked) -> None:
        try:
            for job in asked.jobs:
                crashes.ask(self._server(), "DELETE", f"/jobs/{job}")
        except Refused:
            return
        asked.cancelled_s = time.time()

    def _server(self) -> Path:
        if self.serving is None:
            raise OSError("nobody serves")
        return self.serving

    def _drawn(self, rng: Random) -> dict[str, object]:
        does = f"sleep {rng.uniform(0.1, 1.5):.2f}"
        env = {}
        if rng.random() < LANE_SHARE:
            does = f"{sys.executable} {self.root}/turns.py {self.root}"
            env = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        return {
            "name": "kept",
            "run": _RUN.format(root=self.root, does=does),
            "env": env,
            "retries": 50,
            "resources": {"gpu": {"compute": "100m", "memory": "16MiB"}},
        }

    def _call(self) -> None:
        number = 0
        while self._enter():
            number += 1
            try:
                path = f"/functions/{FUNCTION}/invoke"
                said = json.loads(crashes.ask(self._server(), "POST", path, number))
                self.answers["good" if said == {"heard": number} else "wrong"] += 1
            except Refused:
                self.answers["refused"] += 1
            finally:
                self._leave()
            time.sleep(AGAIN_S)


def _deployed(state: Path, function: object) -> bool:
    """Deploy a function; the first one may have to be waited for, while code is compiled."""
    try:
        crashes.ask(state, "POST", "/functions", function)
    except TimeoutError:
        return False
    return True


# -- judging --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptJob:
    """What is on record in the end of one job."""

    state: JobState
    attempt: int


@dataclass(frozen=True, slots=True)
class WorkFindings:
    """What has become of work; each names the jobs that it is true of."""

    acknowledged: int
    forgotten: int
    """Acknowledged after a copy was made that was put back later; operators know of them."""
    lost: tuple[str, ...]
    """Acknowledged, and not there or not done."""
    twice: tuple[str, ...]
    """RanLine again though nobody had killed its shim, ran beside itself, or two of one key."""
    faked: tuple[str, ...]
    """On record as done, and never ran to its end."""
    uncancelled: tuple[str, ...]
    """Began after its cancel was acknowledged."""
    clashes: tuple[str, ...]
    """Had a device while another had it."""


@dataclass(frozen=True, slots=True)
class Excuses:
    """What those know who killed and put back."""

    shims_killed: frozenset[tuple[str, int]]
    """Attempts whose shim or its watcher was killed."""
    gaps: tuple[tuple[float, float], ...]
    """From when a copy was made until it was put back."""

    def forgets(self, at_s: float) -> bool:
        """Tell whether what was acknowledged at a time may be forgotten."""
        return any(begin <= at_s <= end for begin, end in self.gaps)

    def forgets_cancel(self, at_s: float, *, had_begun: bool) -> bool:
        """Tell whether a cancel may be forgotten that was acknowledged at a time."""
        if not had_begun:
            return self.forgets(at_s)
        return any(begin <= at_s <= end < at_s + LAUNCH_S for begin, end in self.gaps)


def judged(
    asked: Iterable[Asked], ran: list[RanLine], kept: dict[str, KeptJob], excuses: Excuses
) -> WorkFindings:
    """Compare what was acknowledged with what ran and with what is on record."""
    asked = list(asked)
    ended = {(one.job, one.attempt) for one in ran if one.what == "end"}
    ids = {job: one for one in asked for job in one.jobs}
    forgotten = {job for job, one in ids.items() if excuses.forgets(one.at_s)}
    done = {job for job, one in kept.items() if one.state is JobState.SUCCEEDED}
    cancelled = {job for job, one in ids.items() if one.cancelled_s is not None}
    gone = {job for job, one in kept.items() if one.state is JobState.CANCELLED}
    lost = {job for job in ids if job not in done and not (job in cancelled and job in gone)}
    return WorkFindings(
        len(ids),
        len(lost & forgotten),
        tuple(sorted(lost - forgotten)),
        tuple(sorted({*_repeated(ran, excuses), *_doubled(asked)})),
        tuple(sorted(job for job in done if (job, kept[job].attempt) not in ended)),
        tuple(sorted(_uncancelled(ids, ran, excuses))),
        tuple(sorted(one.job for one in ran if one.what == "clash")),
    )


def _repeated(ran: list[RanLine], excuses: Excuses) -> Iterable[str]:
    """Name jobs that ran again though nothing had cut them off, or beside themselves."""
    begun = Counter((one.job, one.attempt) for one in ran if one.what == "start")
    attempts: dict[str, list[int]] = {}
    for (job, attempt), count in begun.items():
        attempts.setdefault(job, []).append(attempt)
        if count > 1:
            yield job
    for job, numbers in attempts.items():
        if any((job, one) not in excuses.shims_killed for one in sorted(numbers)[:-1]):
            yield job
    yield from (one.job for one in ran if one.what == "overlap")


def _doubled(asked: Iterable[Asked]) -> Iterable[str]:
    """Name jobs of keys that made more than one."""
    return (job for one in asked if len(one.jobs) > 1 for job in one.jobs)


def _uncancelled(ids: dict[str, Asked], ran: list[RanLine], excuses: Excuses) -> Iterable[str]:
    """Name jobs of which an attempt began after the cancel, and came to its end.

    An old copy may forget the cancel of a job that had not begun, or that was to be stopped by
    a server that was killed before it could; any other is noted beside the job's runs.
    """
    ended = {(one.job, one.attempt) for one in ran if one.what == "end"}
    first_s: dict[str, float] = {}
    for one in ran:
        if one.what == "start":
            first_s.setdefault(one.job, one.at_s)
    for one in ran:
        at_s = ids[one.job].cancelled_s if one.job in ids else None
        if at_s is None or one.what != "start" or one.at_s < at_s + LAUNCH_S:
            continue
        had_begun = first_s[one.job] < at_s
        if (one.job, one.attempt) in ended and not excuses.forgets_cancel(
            at_s, had_begun=had_begun
        ):
            yield one.job
