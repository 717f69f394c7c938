"""The same work twice: trainings and a stream of requests, with and without sharing."""

import json
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from interlane import demo as scripts
from interlane.cli.client import Failure
from interlane.cli.demo_site import DemoServer
from interlane.model.errors import InterlaneError

SCRIPTS: Final = Path(scripts.__file__).parent
KINDS: Final = ("cnn", "mlp", "transformer", "cnn")
FETCH_MS: Final = 30
"""How long every step of a training waits for its data."""

JOB_MEMORY: Final = "4GB"
SLOWDOWN_MAX: Final = 2.0
"""Bound of every training: it takes turns with one other at most, on a device of 10 GB."""

FUNCTIONS: Final = {"classify": "load_images", "embed": "load_texts"}
"""Handler -> what loads its model."""

FUNCTION_MEMORY: Final = "500MB"
CALM_PER_S, BURST_PER_S = 1.0, 15.0
BURST_S, BURST_EVERY_S = 1.5, 6.0
ASKERS: Final = 16
DEADLINE: Final = "2s"
LOOK_S: Final = 0.2
SEED: Final = 7

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Work:
    """What is done: trainings of so many steps, requests for so long."""

    steps: int
    stream_s: float

    @property
    def trainings(self) -> tuple[str, ...]:
        """The kinds of model that are trained."""
        return KINDS

    def requests(self) -> list[tuple[float, str]]:
        """Return when which function is asked: bursts above a calm, the same every time."""
        rng = Random(SEED)
        found = [
            (at_s, name)
            for number, name in enumerate(FUNCTIONS)
            for at_s in self._arrivals(rng, number * BURST_EVERY_S / len(FUNCTIONS))
        ]
        return sorted(found)

    def _arrivals(self, rng: Random, offset_s: float) -> Iterator[float]:
        at_s = rng.expovariate(CALM_PER_S)
        while at_s < self.stream_s:
            yield at_s
            bursts = (at_s + offset_s) % BURST_EVERY_S < BURST_S
            at_s += rng.expovariate(BURST_PER_S if bursts else CALM_PER_S)


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """One request, and what became of it."""

    latency_s: float
    cpu_s: float
    was_answered: bool


@dataclass(frozen=True, slots=True)
class DemoTraining:
    """One training, and how it went."""

    waited_s: float
    completion_s: float
    loop_s: float
    cpu_s: float
    loss: float


@dataclass(frozen=True, slots=True)
class DemoRun:
    """How the work went."""

    trained: tuple[DemoTraining, ...]
    asked: tuple[DemoRequest, ...]
    makespan_s: float
    cold_starts: int
    cores: int

    @property
    def utilisation(self) -> float:
        """Share of the devices' cores that did the work, until all trainings had ended."""
        used_s = sum(one.cpu_s for one in self.trained) + sum(one.cpu_s for one in self.asked)
        return used_s / (self.cores * self.makespan_s)

    @property
    def mean_completion_s(self) -> float:
        """Seconds from handing a training in to its end, on average."""
        return sum(one.completion_s for one in self.trained) / len(self.trained)

    def latency_s(self, share: float) -> float:
        """Return a quantile of the latencies of answered requests."""
        latencies = sorted(one.latency_s for one in self.asked if one.was_answered)
        return latencies[round(share * (len(latencies) - 1))] if latencies else float("nan")

    @property
    def unanswered(self) -> int:
        """Requests that got no answer in time."""
        return sum(not one.was_answered for one in self.asked)


def play(
    work: Work,
    training: DemoServer,
    serving: DemoServer,
    cores: int,
    tell: Tell,
    *,
    shared: bool,
) -> DemoRun:
    """Do the work: shared on one server, or on two that each have devices of their own."""
    cold_before = _deployed(serving, shared=shared)
    begin_s = time.monotonic()
    jobs = [
        training.client().post("/jobs", _job(kind, work.steps, shared=shared)).document()["id"]
        for kind in work.trainings
    ]
    with ThreadPoolExecutor(ASKERS) as askers:
        asking = askers.submit(_stream, work, serving, askers)
        trained = _awaited(training, jobs, tell)
        makespan_s = time.monotonic() - begin_s
        asked = asking.result()
    cold = _cold_starts(serving) - cold_before
    return DemoRun(tuple(trained), tuple(asked), makespan_s, cold, cores)


def _deployed(site: DemoServer, *, shared: bool) -> int:
    """Deploy the functions, wait until they are warm, and return their cold starts so far."""
    client = site.client()
    for name, load in FUNCTIONS.items():
        client.post("/functions", _function(name, load, shared=shared))
    for name in FUNCTIONS:
        while (state := client.get(f"/functions/{name}").document())["state"] != "warm":
            if state["state"] == "failed":
                raise InterlaneError(f"The demo's function {name} failed: {state['reason']}")
            time.sleep(LOOK_S)
    return _cold_starts(site)


def _cold_starts(site: DemoServer) -> int:
    functions = site.client().get("/functions").document()["functions"]
    return sum(one["cold_starts"] for one in functions)


def _function(name: str, load: str, *, shared: bool) -> dict[str, Any]:
    return {
        "kind": "function",
        "name": name,
        "handler": f"functions:{name}",
        "load": f"functions:{load}",
        "path": str(SCRIPTS),
        "preload": ["torch"],
        "memory": FUNCTION_MEMORY,
        "deadline": DEADLINE,
        "replicas": {"max": 1},
        "keep": "auto" if shared else "1h",
    }


def _job(kind: str, steps: int, *, shared: bool) -> dict[str, Any]:
    words = (sys.executable, SCRIPTS / "train.py", kind, steps, FETCH_MS)
    gpu = {"count": 1, "memory": JOB_MEMORY} if shared else {"count": 1}
    return {
        "name": kind,
        "resources": {"gpu": gpu},
        "share": {"max_slowdown": SLOWDOWN_MAX} if shared else {"mode": "exclusive"},
        "run": f"exec {shlex.join(map(str, words))}",
    }


# -- trainings ------------------------------------------------------------------------


def _awaited(site: DemoServer, jobs: list[str], tell: Tell) -> list[DemoTraining]:
    """Wait until all trainings have ended; return how they went."""
    ended: dict[str, DemoTraining] = {}
    while len(ended) < len(jobs):
        time.sleep(LOOK_S)
        for job_id in jobs:
            job = site.job(job_id)
            if job_id not in ended and job["ended_s"] is not None:
                ended[job_id] = _trained(site, job)
                tell(f"{job_id} has ended ({len(ended)} of {len(jobs)})")
    return [ended[job_id] for job_id in jobs]


def _trained(site: DemoServer, job: dict[str, Any]) -> DemoTraining:
    printed = site.printed(job["id"])
    if job["state"] != "succeeded":
        raise InterlaneError(
            f"The demo's training {job['id']} has {job['state']}: {job['reason']} It printed: "
            f"{printed[-500:]}"
        )
    told = json.loads(printed.splitlines()[-1])
    return DemoTraining(
        job["started_s"] - job["submitted_s"],
        job["ended_s"] - job["submitted_s"],
        told["loop_s"],
        told["cpu_s"],
        told["loss"],
    )


# -- requests -------------------------------------------------------------------------


def _stream(work: Work, site: DemoServer, askers: ThreadPoolExecutor) -> list[DemoRequest]:
    """Ask at the times that the work says, however long answers take."""
    mine = threading.local()
    begin_s = time.monotonic()

    def ask(number: int, due_s: float, name: str) -> DemoRequest:
        if not hasattr(mine, "client"):
            mine.client = site.client()
        try:
            answer = mine.client.post(f"/functions/{name}/invoke", {"number": number})
        except Failure:
            return DemoRequest(time.monotonic() - begin_s - due_s, 0.0, was_answered=False)
        took_s = time.monotonic() - begin_s - due_s
        return DemoRequest(took_s, answer.document()["cpu_s"], was_answered=True)

    futures = []
    for number, (due_s, name) in enumerate(work.requests()):
        time.sleep(max(0.0, begin_s + due_s - time.monotonic()))
        futures.append(askers.submit(ask, number, due_s, name))
    return [future.result() for future in futures]
