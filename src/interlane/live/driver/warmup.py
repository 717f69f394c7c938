"""Compiled code is loaded before the first job comes."""

from typing import Final

from interlane.kernel.scheduler import Scheduler
from interlane.live.questions.estimates import JobFeatures, LiveEstimates
from interlane.model import (
    Demand,
    Job,
    JobId,
    Request,
    Start,
    Started,
    Submitted,
    Task,
    one_task,
)

_WARM: Final[set[str]] = set()
"""Policies whose code this process has loaded."""


def warm_up(scheduler: Scheduler) -> None:
    """Play three jobs that nobody sees on a scheduler that nobody uses, once in a process.

    The second deserves more than the first by every order, so that one makes way that can; the
    third has two roles.
    """
    if scheduler.policy.name in _WARM:
        return
    _WARM.add(scheduler.policy.name)
    whole = one_task(
        Demand(gpus=max((machine.gpus for machine in scheduler.cluster), default=0))
    )
    LiveEstimates().estimate(JobFeatures(JobId("warm-up"), "warm-up", "", whole, 0.0, None))
    roles = Request((Task(Demand(cpu_milli=1)), Task(Demand(cpu_milli=1), role="other")))
    for number, (request, estimate_s) in enumerate(((whole, 1e9), (whole, 1.0), (roles, 1.0))):
        job = Job(JobId(f"warm-up-{number}"), request, 0.0, number, estimate_s, priority=number)
        for action in scheduler.handle(Submitted(job), number * 1e6):
            if isinstance(action, Start):
                scheduler.learn(Started(action.job_id, action.placement), 0.0)
        scheduler.explain(job.id, number * 1e6)
