"""A learner that wraps a scheduler: estimates from a predictor that learns as jobs end.

The predictor is asked when a job is submitted and told when it ends, so that no estimate knows
anything that has not happened.  Everything else is the scheduler's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from interlane.kernel.rest import Decides, Wrapper
from interlane.model import (
    MILLI,
    Cancelled,
    Event,
    Finished,
    Grown,
    JobId,
    Preempted,
    Started,
    Submitted,
)
from interlane.model.units import MIB_PER_GIB
from interlane.predict.live import OnlinePredictor
from interlane.predict.recall import Recall
from interlane.predict.runs import Runs
from interlane.traces.schema import Trace


@dataclass(frozen=True, eq=False)
class Learning:
    """A predictor to begin with, and what it may know of each job when it is submitted."""

    predictor: Recall
    runs: Runs
    places: Mapping[str, int]
    """Job -> its place in ``runs``."""

    def run(self, job_id: str) -> Runs:
        """Return what is known of one job; its length is not."""
        run = self.runs.take(np.array([self.places[job_id]]))
        return replace(run, duration_s=np.array([np.nan]))


def learning_on(trace: Trace, predictor: Recall) -> Learning:
    """Return what a predictor needs to learn on while a trace is played."""
    ids = trace.frame["job_id"].filter(trace.frame["job_id"].rle_id().is_first_distinct())
    return Learning(predictor, runs_of(trace), {name: at for at, name in enumerate(ids)})


def runs_of(trace: Trace) -> Runs:
    """Return the jobs of a trace as a predictor sees them, in the order of the trace."""
    instances = pl.col("instances")
    jobs = trace.frame.group_by(
        pl.col("job_id").rle_id().alias("job"), maintain_order=True
    ).agg(
        pl.col("submit_s", "duration_s", "group", "user", "gpu_types").first(),
        gpus=(pl.col("gpus") * pl.col("gpu_milli") * instances).sum() / MILLI,
        cpus=(pl.col("cpu_milli") * instances).sum() / MILLI,
        memory_gib=(pl.col("memory_mib") * instances).sum() / MIB_PER_GIB,
        pods=pl.col("pods").sum(),
    )
    return Runs(
        jobs["submit_s"].to_numpy(),
        jobs["duration_s"].to_numpy(),
        tuple(jobs["group"]),
        tuple(jobs["user"]),
        jobs["gpus"].to_numpy(),
        jobs["cpus"].to_numpy(),
        jobs["memory_gib"].to_numpy(),
        jobs["pods"].to_numpy(),
        tuple(jobs["gpu_types"]),
    )


class LearningScheduler(Wrapper):
    """Estimates at submission, and learns at the end."""

    def __init__(self, inner: Decides, learning: Learning) -> None:
        super().__init__(inner)
        self._live = OnlinePredictor(learning.predictor)
        self._learning = learning
        self._ran_s: dict[JobId, float] = {}
        """What jobs that were stopped had run for before."""
        self._since_s: dict[JobId, float] = {}
        """When the present attempt of each running job began."""
        self._asked: dict[JobId, int] = {}
        """Instances that each elastic job could use, until it ends."""
        self._has: dict[JobId, int] = {}
        """Instances that each of them has run with since then."""

    def learn(self, event: Event, now_s: float) -> None:
        """Pass one event on, with an estimate where a job is submitted."""
        match event:
            case Submitted(job):
                estimate = self._live.submitted(job.id, self._learning.run(job.id))
                event = Submitted(replace(job, duration_s_estimate=estimate.seconds))
                if job.request.is_elastic:
                    self._asked[job.id] = job.request.instances
            case Started(job_id, placement):
                self._since_s[job_id] = now_s
                if job_id in self._asked:
                    self._has[job_id] = placement.instances
            case Grown(job_id, more):
                # As if it had begun later, with all of the instances that it has now.
                had = self._has[job_id]
                self._has[job_id] = has = had + more.instances
                self._since_s[job_id] = now_s - (now_s - self._since_s[job_id]) * had / has
            case Preempted(job_id, lost_s):
                ran_s = max(0.0, self._worked_s(job_id, now_s) - lost_s)
                self._ran_s[job_id] = self._ran_s.get(job_id, 0.0) + ran_s
            case Finished(job_id):
                ran_s = self._ran_s.pop(job_id, 0.0) + self._worked_s(job_id, now_s)
                self._asked.pop(job_id, None)
                self._live.finished(job_id, ran_s)
            case Cancelled(job_id):
                self._asked.pop(job_id, None)
                self._live.forget(job_id)
            case _:
                pass  # tells nothing about how long jobs run
        super().learn(event, now_s)

    def _worked_s(self, job_id: JobId, now_s: float) -> float:
        """Return how long the whole gang would have run for what the attempt has done."""
        worked_s = now_s - self._since_s.pop(job_id)
        if job_id not in self._asked:
            return worked_s
        return worked_s * self._has.pop(job_id) / self._asked[job_id]
