"""Compiled code is loaded before the first job comes."""

from interlane.kernel.scheduler import Scheduler
from interlane.live.questions.estimates import Asked, Guesses
from interlane.model import Demand, Job, JobId, Start, Started, Submitted, one_task


def warm_up(scheduler: Scheduler) -> None:
    """Play two jobs that nobody sees on a scheduler that nobody uses.

    The second deserves more than the first by every order, so that one makes way that can.
    """
    whole = one_task(
        Demand(gpus=max((machine.gpus for machine in scheduler.cluster), default=0))
    )
    Guesses().guess(Asked(JobId("warm-up"), "warm-up", "", whole, 0.0, None))
    for number, guess_s in enumerate((1e9, 1.0)):
        job = Job(JobId(f"warm-up-{number}"), whole, 0.0, number, guess_s, priority=number)
        for action in scheduler.handle(Submitted(job), number * 1e6):
            if isinstance(action, Start):
                scheduler.learn(Started(action.job_id, action.placement), 0.0)
        scheduler.explain(job.id, number * 1e6)
