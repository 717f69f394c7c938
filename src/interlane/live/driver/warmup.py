"""Compiled code is loaded before the first job comes."""

from interlane.live.driver.state import MakeScheduler
from interlane.live.files.job import Gpu, JobSpec, Resources
from interlane.live.questions.estimates import Guesses, asked_of
from interlane.model import Job, JobId, Start, Started, Submitted


def warm_up(make_scheduler: MakeScheduler) -> None:
    """Play two jobs that nobody sees.

    The second deserves more than the first by every order, so that one makes way that can.
    """
    scheduler = make_scheduler()
    everything = Gpu(count=max(machine.gpus for machine in scheduler.cluster))
    whole = JobSpec(name="warm-up", run="true", resources=Resources(gpu=everything))
    known = asked_of(JobId("warm-up"), whole, "", 0.0, scheduler.cluster)
    Guesses().guess(known)
    for number, guess_s in enumerate((1e9, 1.0)):
        job = Job(
            JobId(f"warm-up-{number}"), known.request, 0.0, number, guess_s, priority=number
        )
        for wish in scheduler.handle(Submitted(job), number * 1e6):
            if isinstance(wish, Start):
                scheduler.learn(Started(wish.job_id, wish.placement), 0.0)
        scheduler.explain(job.id, number * 1e6)
