"""How long one decision takes at 6,500 GPUs with 100,000 jobs waiting."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlane.kernel.scheduler import Scheduler
from interlane.model import Cluster, Finished, Job, JobId, Start, Started, Submitted
from interlane.policy.base import Order
from interlane.policy.order import Fifo, HighestResponseRatio, ShortestFirst
from interlane.policy.place import pack
from interlane.policy.policy import Discipline, Policy
from interlane.traces.clusters import load_cluster
from interlane.traces.jobs import jobs_of
from interlane.traces.synth import synthesize


def measure(*, quick: bool) -> dict[str, Any]:
    waiting = 5_000 if quick else 100_000
    cluster = load_cluster("pai2020")
    trace = synthesize(jobs=waiting + 10_000, cluster=cluster, load=0.9, seed=2)
    jobs, _ = jobs_of(trace, estimate="duration")
    orders: dict[str, Order] = {
        "sjf": ShortestFirst(),
        "fifo": Fifo(),
        "hrrn": HighestResponseRatio(),
    }
    result: dict[str, Any] = {"waiting": waiting, "gpus": cluster.gpus}
    _decisions(cluster, jobs[:3_000], Policy(ShortestFirst(), pack()), 1_000, 200)
    for name, order in orders.items():
        policy = Policy(order, pack())
        result |= _row(name, _decisions(cluster, jobs, policy, waiting, 2_000))
    easy = Policy(Fifo(), pack(), Discipline.EASY)
    result |= _row("fifo_easy", _decisions(cluster, jobs, easy, waiting, 300))
    return result


def _row(
    name: str, times_s: "np.ndarray[tuple[int], np.dtype[np.float64]]"
) -> dict[str, float]:
    return {
        f"{name}_p50_ms": round(1e3 * float(np.quantile(times_s, 0.5)), 3),
        f"{name}_p99_ms": round(1e3 * float(np.quantile(times_s, 0.99)), 3),
    }


def _decisions(
    cluster: Cluster, jobs: list[Job], policy: Policy, waiting: int, count: int
) -> NDArray[np.float64]:
    """Fill the cluster and the queue, then time decisions: a job ends, another arrives."""
    scheduler = Scheduler(cluster, policy)
    running: list[JobId] = []
    backlog = iter(jobs)
    while scheduler.waiting < waiting and (job := next(backlog, None)) is not None:
        scheduler.learn(Submitted(job), job.submitted_s)
        if scheduler.waiting % 1_000 == 0:
            _confirm(scheduler, running, job.submitted_s)
    now_s = jobs[-1].submitted_s
    _confirm(scheduler, running, now_s)
    times_s = []
    for step in range(count):
        now_s += 1.0
        scheduler.learn(Finished(running.pop(step * 7919 % len(running))), now_s)
        if (job := next(backlog, None)) is not None:
            scheduler.learn(Submitted(job), now_s)
        begin_s = time.process_time()
        actions = scheduler.decide(now_s)
        times_s.append(time.process_time() - begin_s)
        for action in actions:
            if isinstance(action, Start):
                scheduler.learn(Started(action.job_id, action.placement), now_s)
                running.append(action.job_id)
    return np.array(times_s)


def _confirm(scheduler: Scheduler, running: list[JobId], now_s: float) -> None:
    for action in scheduler.decide(now_s):
        if isinstance(action, Start):
            scheduler.learn(Started(action.job_id, action.placement), now_s)
            running.append(action.job_id)
