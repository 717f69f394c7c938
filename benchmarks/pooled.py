"""20,000 jobs on one pool of 6,500 GPUs, per order: the published simulator's benchmark."""

import time
from pathlib import Path
from typing import Any

from interlane.kernel.scheduler import Scheduler
from interlane.metrics.outcomes import outcomes
from interlane.model import Cluster, Job
from interlane.policy.base import Order
from interlane.policy.order import Fifo, ShortestFirst
from interlane.policy.place import first_fit
from interlane.policy.policy import Policy
from interlane.sim.adapt import adaptation
from interlane.sim.engine import Simulator
from interlane.sim.experiment import play
from interlane.traces.clusters import load_cluster
from interlane.traces.data import data_dir
from interlane.traces.jobs import at_rate, jobs_of, sample
from interlane.traces.read import read_trace
from interlane.traces.schema import Trace
from interlane.traces.synth import synthesize

GPUS = 6_500
ESTIMATES = {
    "sjf": "duration",
    "sjgg": "group_gpu_dur",
    "sjg": "group_dur",
    "sju": "user_dur",
}
PUBLISHED_CPU_S = {"fifo": 406.0, "sjf": 209.0}
"""CPU seconds of the published simulator on the stand-in trace."""


def measure(*, quick: bool) -> dict[str, Any]:
    jobs = 2_000 if quick else 20_000
    trace, source = _trace(jobs)
    cluster = load_cluster(f"pool:{GPUS}")
    compile_s = _play(*_jobs(trace, "duration"), cluster, ShortestFirst())[0]
    result: dict[str, Any] = {"jobs": jobs, "trace": source, "first_run_s": compile_s}
    for name, order, estimate in _orders(trace):
        runs = [
            _play(*_jobs(trace, estimate), cluster, order) for _ in range(2 if quick else 5)
        ]
        result[f"{name}_cpu_s"] = min(run[0] for run in runs)
        result[f"{name}_mean_jct_s"] = runs[0][1]
        if name in PUBLISHED_CPU_S and not quick:
            result[f"{name}_times_faster"] = round(PUBLISHED_CPU_S[name] / min(runs)[0], 1)
    return result


def _orders(trace: Trace) -> list[tuple[str, Order, str | None]]:
    estimates = {
        "sjf": "duration",
        "sjgg": "group_gpu_dur",
        "sjg": "group_dur",
        "sju": "user_dur",
    }
    known = [(name, ShortestFirst(), estimate) for name, estimate in estimates.items()]
    return [("fifo", Fifo(), None), *(k for k in known if k[2] in trace.estimates)]


def _trace(jobs: int) -> tuple[Trace, str]:
    data = data_dir(None)
    file = None if data is None else data / "pai-v2020" / "standin_estimate_100K.csv.gz"
    if file is not None and file.exists():
        return at_rate(sample(read_trace(Path(file)), jobs, 42), 1000), file.name
    return synthesize(jobs=jobs, cluster=load_cluster(f"pool:{GPUS}"), seed=42), "synthetic"


def _jobs(trace: Trace, estimate: str | None) -> tuple[list[Job], list[float]]:
    return jobs_of(trace, estimate=estimate, adapt=adaptation(load_cluster(f"pool:{GPUS}")))


def _play(
    jobs: list[Job], true_s: list[float], cluster: Cluster, order: Order
) -> tuple[float, float]:
    begin_s = time.process_time()
    engine = Simulator(Scheduler(cluster, Policy(order, first_fit())), jobs, true_s)
    log = play(engine)
    cpu_s = time.process_time() - begin_s
    return round(cpu_s, 3), round(float(outcomes(log).jct_s.mean()), 3)
