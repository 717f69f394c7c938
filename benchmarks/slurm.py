"""Measure interlane on a real Slurm, beside Slurm's own scheduler, and print JSON.

    python -m benchmarks.slurm [--only against|looking-on|cost] [--jobs 500]

It takes root and Slurm (``make slurm``).  Nodes are real daemons; GPUs are device files and
jobs sleep, so that what is compared is the order and the place of jobs and nothing else.

``against``: the same jobs of several users, once under Slurm's backfill with multifactor
priority and once under interlane (shortest first by its own estimates), on a fresh Slurm each.
``looking-on``: how often jobs that Slurm schedules start within the band that ``eta`` told.
``cost``: what 5,000 waiting jobs cost the controller, and how long a decision takes.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import mean, quantiles
from typing import Any

from interlane import wiring
from interlane.engines.slurm.engine import SlurmEngine
from interlane.engines.slurm.manifests import SlurmSite, submit_lua
from interlane.engines.slurm.session import SlurmSettings
from interlane.kernel.scheduler import Scheduler
from interlane.live.driver import Driver
from interlane.live.driver.state import SchedulerPlan
from interlane.live.questions.etas import Etas
from interlane.live.store.store import Store
from interlane.model import MILLI
from interlane.testing.slurm_cluster import SlurmCluster, SlurmShape, slurm
from interlane.testing.waiting import until

USERS = ("games", "news", "mail", "backup", "uucp")
PROGRAMS = 12
MEDIAN_S = (1.0, 30.0)
SPREAD = 0.25
LOAD = 1.6
"""Work that comes over what the GPUs can do, while jobs come."""
DECISIONS = 100
PATIENT_S = 300.0
STOCK = (
    "SchedulerType=sched/backfill\nSchedulerParameters=bf_interval=2,bf_max_job_test=1000\n"
    "PriorityType=priority/multifactor\nPriorityWeightAge=1000\nPriorityWeightJobSize=1000\n"
    "PriorityMaxAge=0-1"
)


@dataclass(frozen=True)
class Work:
    """A job that comes."""

    at_s: float
    user: str
    program: int
    length_s: float
    asks: str
    milli: int

    def words(self) -> list[str]:
        """Return how it is submitted."""
        return [
            f"--uid={self.user}",
            f"--job-name=p{self.program}",
            f"--gres={self.asks}",
            "--mem=10M",
            "--time=10",
            "--chdir=/tmp",
        ]

    def script(self, notes: Path) -> str:
        """Return what it runs: it notes where it is, and sleeps."""
        note = f"echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES > {notes}/$SLURM_JOB_ID"
        return f"#!/bin/sh\n{note}\nsleep {self.length_s:.2f}\n"


def work(count: int, gpus: int, seed: int) -> list[Work]:
    """Return jobs in the order in which they come."""
    rng = Random(seed)
    low_s, high_s = MEDIAN_S
    medians = [low_s * (high_s / low_s) ** (n / (PROGRAMS - 1)) for n in range(PROGRAMS)]
    asks = [("shard:250", 250), ("shard:500", 500), ("gpu:1", 1000), ("gpu:2", 2000),
            ("gpu:4", 4000)]  # fmt: skip
    weights = (30, 20, 30, 12, 8)
    milli = sum(one[1] * weight for one, weight in zip(asks, weights, strict=True)) / 100
    every_s = mean(medians) * milli / MILLI / (gpus * LOAD)
    at_s, found = 0.0, []
    for _ in range(count):
        program = rng.randrange(PROGRAMS)
        ((ask, much),) = rng.choices(asks, weights)
        length_s = medians[program] * rng.lognormvariate(0.0, SPREAD)
        found.append(Work(at_s, rng.choice(USERS), program, length_s, ask, much))
        at_s += rng.expovariate(1 / every_s)
    return found


def submit_all(cluster: SlurmCluster, jobs: Sequence[Work], notes: Path) -> dict[str, Work]:
    """Submit jobs when they come."""
    begun_s, found = time.monotonic(), {}
    for number, job in enumerate(jobs):
        time.sleep(max(0.0, begun_s + job.at_s - time.monotonic()))
        name = cluster.run(
            "sbatch", "--parsable", "--output=/dev/null", *job.words(), text=job.script(notes)
        )
        found[name.strip()] = job
        if number % 50 == 0:
            print(f"{number} of {len(jobs)} submitted", file=sys.stderr)
    return found


def outcome(cluster: SlurmCluster, jobs: dict[str, Work]) -> dict[str, float]:
    """Wait for the end, and say how long jobs waited and how much of the GPUs they had."""
    until_s = time.monotonic() + 3_000
    while time.monotonic() < until_s and cluster.run("squeue", "--noheader").strip():
        time.sleep(1.0)
    document = json.loads(cluster.run("squeue", "--json", "--states=all"))
    shown = {str(one["job_id"]): one for one in document["jobs"]}
    ended = [shown[name] for name in jobs]
    assert all(one["job_state"] == "COMPLETED" for one in ended)
    waits = [one["start_time"] - one["submit_time"] for one in ended]
    first = min(one["submit_time"] for one in ended)
    last = max(one["end_time"] for one in ended)
    used = sum(
        (one["end_time"] - one["start_time"]) * jobs[str(one["job_id"])].milli for one in ended
    )
    gpus = cluster.shape.nodes * cluster.shape.gpus
    return {
        "mean_wait_s": round(mean(waits), 2),
        "p90_wait_s": round(quantiles(waits, n=10)[-1], 2),
        "mean_turnaround_s": round(
            mean(one["end_time"] - one["submit_time"] for one in ended), 2
        ),
        "span_s": last - first,
        "gpu_allocation": round(used / MILLI / gpus / (last - first), 4),
    }


def against(count: int, seed: int) -> dict[str, Any]:
    """Run the same jobs under Slurm's scheduler and under interlane."""
    shape = SlurmShape(
        nodes=4, gpus=8, cpus=64, memory_mib=64_000, min_job_age_s=6_000, extra=STOCK
    )
    jobs = work(count, 32, seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        notes = _notes(folder, "stock")
        with slurm(shape) as cluster:
            stock = outcome(cluster, submit_all(cluster, jobs, notes))
        notes, state = _notes(folder, "ours"), folder / "state"
        lua = submit_lua(SlurmSite(("gpu",), state))
        held = SlurmShape(**{**_fields(shape), "lua": lua})
        with slurm(held) as cluster, server(cluster, state):
            named = submit_all(cluster, jobs, notes)
            ours = outcome(cluster, named)
            exact = exactly_placed(state, notes, named)
    return {
        "jobs": count,
        "slurm": stock,
        "interlane": ours,
        "wait_ratio": round(ours["mean_wait_s"] / stock["mean_wait_s"], 3),
        **exact,
    }


def _fields(shape: SlurmShape) -> dict[str, Any]:
    return {name: getattr(shape, name) for name in SlurmShape.__dataclass_fields__}


def _notes(folder: Path, name: str) -> Path:
    notes = folder / name
    notes.mkdir()
    notes.chmod(0o777)
    return notes


@contextmanager
def server(cluster: SlurmCluster, state: Path) -> Iterator[None]:
    """Serve with shortest job first."""
    words = (sys.executable, "-m", "interlane", "up", "--engine", "slurm", "--partition", "gpu")
    options = ("--order", "sjf", "--port", "0", "--no-pages", "--state", str(state))
    with subprocess.Popen((*words, *options), env=cluster.env) as process:
        until((state / "slurm-heartbeat").exists, "a server")
        try:
            yield
        finally:
            process.terminate()


def exactly_placed(state: Path, notes: Path, jobs: dict[str, Work]) -> dict[str, int]:
    """Compare where jobs ran, as their processes saw it, with where they were put."""
    store = Store(f"sqlite:///{state}/state.db")
    spot = re.compile(r"machine='(\w+)', gpus=\(([\d, ]*)\)")
    decided: dict[str, set[str]] = {}
    for entry in store.whole_log():
        if type(entry.what).__name__ == "Start" and entry.job_id in jobs:
            (node, gpus), *_ = spot.findall(repr(entry.what))
            numbers = ",".join(gpus.replace(" ", "").strip(",").split(","))
            decided.setdefault(str(entry.job_id), set()).add(f"{node} {numbers}")
    store.close()
    ran = {name: (notes / name).read_text().strip() for name in jobs}
    right = sum(ran[name] in decided.get(name, ()) for name in jobs)
    shares = [name for name in jobs if jobs[name].milli < MILLI]
    of_shares = sum(ran[name] in decided.get(name, ()) for name in shares)
    return {
        "placed_as_decided": right,
        "shares": len(shares),
        "shares_placed_as_decided": of_shares,
    }


# -- looking on -----------------------------------------------------------------------


def looking_on(count: int, seed: int) -> dict[str, Any]:
    """Look on while Slurm schedules, and compare what ``eta`` told with what came."""
    shape = SlurmShape(nodes=2, gpus=4, cpus=64, min_job_age_s=6_000, extra=STOCK)
    jobs = work(count, 8, seed)
    with tempfile.TemporaryDirectory() as name, slurm(shape) as cluster:
        folder = Path(name)
        folder.chmod(0o755)
        notes = _notes(folder, "notes")
        os.environ["SLURM_CONF"] = cluster.env["SLURM_CONF"]
        engine = SlurmEngine(folder / "state", SlurmSettings(dry_run=True, idle_s=1.0))
        words = {"order": "fifo", "placer": "pack", "queue": "easy"}
        plan = SchedulerPlan(wiring.live_scheduler_maker(words), words)
        store = Store(f"sqlite:///{folder}/state.db")
        driver = Driver(store, plan, engine, observe_every_s=2.0)
        driver.start()
        etas = Etas(driver.snapshot, store, wiring.played_starts)
        etas.start()
        told: dict[str, dict[str, Any]] = {}
        try:
            named = _ask_as_they_come(cluster, jobs, notes, driver, etas, told)
            outcome(cluster, named)
        finally:
            etas.close()
            driver.close()
            store.close()
        document = json.loads(cluster.run("squeue", "--json", "--states=all"))
        changed = [one["job_id"] for one in document["jobs"] if one["admin_comment"]]
    started = {str(one["job_id"]): one["start_time"] for one in document["jobs"]}
    judged = {job: one for job, one in told.items() if not one["young"]}
    # Slurm tells whole seconds: a job that started at 7 did so before 8.
    inside = sum(one["low"] < started[job] + 1 and started[job] <= one["high"]
                 for job, one in judged.items())  # fmt: skip
    return {
        "jobs": count,
        "asked_about": len(told),
        "judged": len(judged),
        "inside_band": round(inside / max(1, len(judged)), 3),
        "jobs_changed": len(changed),
    }


def _ask_as_they_come(
    cluster: SlurmCluster,
    jobs: Sequence[Work],
    notes: Path,
    driver: Driver,
    etas: Etas,
    told: dict[str, dict[str, Any]],
) -> dict[str, Work]:
    named: dict[str, Work] = {}
    begun_s = time.monotonic()
    for job in jobs:
        time.sleep(max(0.0, begun_s + job.at_s - time.monotonic()))
        words = ("sbatch", "--parsable", "--output=/dev/null", *job.words())
        named[cluster.run(*words, text=job.script(notes)).strip()] = job
        for name in named:
            record = driver.open_record(name)
            if name not in told and record is not None and record.started_s is None:
                said = etas.document(record)
                if said["low_s"] is not None:
                    young = "wide" in said["because"].rpartition(";")[2]
                    told[name] = {
                        "low": said["low_s"],
                        "high": said["high_s"],
                        "young": young,
                    }
    return named


# -- cost -----------------------------------------------------------------------------


class TimedScheduler(Scheduler):
    """Notes how long each decision takes."""

    took_s: list[tuple[float, float]]
    """By the clock, and of the processor: others may have that meanwhile."""

    def decide(self, now_s: float) -> Any:  # noqa: ANN401 - whatever the scheduler returns
        """Decide, and note how long it took."""
        begun_s, cpu_s = time.perf_counter(), time.thread_time()
        try:
            return super().decide(now_s)
        finally:
            took = time.perf_counter() - begun_s, time.thread_time() - cpu_s
            TimedScheduler.took_s.append(took)


def cost(waiting: int, seconds: float) -> dict[str, Any]:
    """Let many jobs wait, and see what looking at them costs Slurm's controller."""
    shape = SlurmShape(nodes=4, gpus=8, cpus=64, extra=STOCK)
    TimedScheduler.took_s = []
    with tempfile.TemporaryDirectory() as name, slurm(shape) as cluster:
        os.environ["SLURM_CONF"] = cluster.env["SLURM_CONF"]
        _let_wait(cluster, waiting)
        pid = cluster.daemons["slurmctld"].pid
        idle_s = _cpu_of(pid, seconds)
        engine = SlurmEngine(Path(name) / "state", SlurmSettings(frozenset({"gpu"})))
        base = wiring.live_scheduler_maker({"order": "sjf", "placer": "pack", "queue": "skip"})

        def timed(cluster_: Any, lately: Any) -> Scheduler:  # noqa: ANN401
            made = base(cluster_, lately)
            made.__class__ = TimedScheduler
            return made

        store = Store(f"sqlite:///{name}/state.db")
        driver = Driver(store, SchedulerPlan(timed), engine)
        driver.start()
        until(lambda: len(driver.open_records()) > waiting * 0.9, "all jobs")
        # The first ends let all estimates be made anew; decisions come after that.
        until(lambda: len(TimedScheduler.took_s) > DECISIONS, "decisions", PATIENT_S)
        busy_s = _cpu_of(pid, seconds)
        calls = engine.calls_last_minute
        driver.close()
        store.close()
    by_clock, of_cpu = (sorted(one) for one in zip(*TimedScheduler.took_s, strict=True))
    return {
        "waiting": waiting,
        "calls_per_minute": calls,
        "slurmctld_cpu_idle": round(idle_s, 4),
        "slurmctld_cpu_with_interlane": round(busy_s, 4),
        "decisions": len(by_clock),
        "decision_ms": _told_ms(by_clock),
        "decision_cpu_ms": _told_ms(of_cpu),
    }


def _told_ms(took_s: Sequence[float]) -> dict[str, float]:
    at = {"median": 0.5, "p99": 0.99, "max": 1.0}
    return {
        name: round(1_000 * took_s[int(part * (len(took_s) - 1))], 2)
        for name, part in at.items()
    }


def _let_wait(cluster: SlurmCluster, count: int) -> None:
    """Submit jobs that are held for us."""

    def submit(number: int) -> None:
        ask = ("gpu:1", "shard:250", "gpu:2")[number % 3]
        words = ("--hold", "--comment=interlane", f"--gres={ask}", "--mem=10M")
        script = "#!/bin/sh\nsleep 5\n"
        cluster.submit(*words, f"--job-name=p{number % PROGRAMS}", script=script)
        if number % 500 == 0:
            print(f"{number} of {count} wait", file=sys.stderr)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(submit, range(count)))


def _cpu_of(pid: int, seconds: float) -> float:
    """Return the part of a core that a process takes."""
    ticks = os.sysconf("SC_CLK_TCK")

    def used() -> int:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(words[11]) + int(words[12])

    before, begun_s = used(), time.monotonic()
    time.sleep(seconds)
    return (used() - before) / ticks / (time.monotonic() - begun_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=("against", "looking-on", "cost"), action="append")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--looked-on", type=int, default=200)
    parser.add_argument("--waiting", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    said = parser.parse_args()
    chosen = said.only or ("against", "looking-on", "cost")
    found: dict[str, Any] = {"load_at_start": os.getloadavg()[0]}
    if "against" in chosen:
        found["against"] = against(said.jobs, said.seed)
    if "looking-on" in chosen:
        found["looking_on"] = looking_on(said.looked_on, said.seed)
    if "cost" in chosen:
        found["cost"] = cost(said.waiting, 60.0)
    found["load_at_end"] = os.getloadavg()[0]
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
