"""10,000 to 1,000,000 synthetic tasks on the 1,897 machines of ``pai2020``, packed per GPU."""

import math
import resource
import time
from typing import Any

import numpy as np

from interlane.kernel.scheduler import Scheduler
from interlane.metrics.outcomes import outcomes
from interlane.model import Cluster
from interlane.policy.order import ShortestFirst
from interlane.policy.place import pack
from interlane.policy.policy import Policy
from interlane.sim.engine import Simulator
from interlane.sim.experiment import play
from interlane.traces.clusters import load_cluster
from interlane.traces.jobs import jobs_of
from interlane.traces.synth import synthesize


def measure(*, quick: bool) -> dict[str, Any]:
    cluster = load_cluster("pai2020")
    first_run_s = _play(1_000, cluster)["cpu_s"]
    sizes = (2_000, 20_000) if quick else (10_000, 100_000, 1_000_000)
    runs = [_play(size, cluster) for size in sizes]
    small, large = runs[0], runs[-1]
    return {
        "first_run_s": first_run_s,
        "runs": runs,
        "cpu_s": large["cpu_s"],
        "peak_memory_gib": large["peak_memory_gib"],
        "growth_over_n_log_n": round(_per_n_log_n(large) / _per_n_log_n(small), 2),
    }


def _per_n_log_n(run: dict[str, Any]) -> float:
    return float(run["cpu_s"] / (run["jobs"] * math.log(run["jobs"])))


def _play(size: int, cluster: Cluster) -> dict[str, Any]:
    trace = synthesize(jobs=size, cluster=cluster, load=0.9, seed=1)
    jobs, true_s = jobs_of(trace, estimate="duration")
    begin_s = time.process_time()
    engine = Simulator(Scheduler(cluster, Policy(ShortestFirst(), pack())), jobs, true_s)
    log = play(engine)
    cpu_s = time.process_time() - begin_s
    result = outcomes(log)
    return {
        "jobs": size,
        "instances": int(result.instances.sum()),
        "cpu_s": round(cpu_s, 2),
        "cpu_us_per_job": round(1e6 * cpu_s / size, 1),
        "decisions": engine.decisions,
        "mean_wait_s": round(float(np.mean(result.wait_s)), 1),
        "peak_memory_gib": round(
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2, 2
        ),
    }
