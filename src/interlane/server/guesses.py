"""How long jobs will run: what their users expect, else what their like ran for."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from interlane.model import MILLI, JobId, Request
from interlane.model.units import MIB_PER_GIB
from interlane.predict.guesses import Basis
from interlane.predict.live import Live
from interlane.predict.recall import Recall
from interlane.predict.runs import Runs

OFF_BY = 2.0
"""What users expect is taken to be right within this factor, eight times in ten."""


@dataclass(frozen=True, slots=True)
class Span:
    """A guessed run time; eight times in ten from ``low_s`` to ``high_s``."""

    seconds: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of a job when it is handed in."""

    job_id: JobId
    program: str
    user: str
    request: Request
    submitted_s: float
    expected_s: float | None


class Guesses:
    """Guesses at submission, and learns at the end."""

    def __init__(self) -> None:
        self._live = Live(Recall())

    def guess(self, asked: Asked) -> Span:
        """Return how long a job will run; what its user expects counts until its like ran."""
        found = self._live.submitted(asked.job_id, _run(asked))
        expected_s = asked.expected_s
        if expected_s is not None and found.basis > Basis.GROUP:
            return Span(expected_s, expected_s / OFF_BY, expected_s * OFF_BY)
        return Span(found.seconds, found.low_s, found.high_s)

    def learn(self, job_id: JobId, ran_s: float) -> None:
        """Learn how long a job ran."""
        self._live.finished(job_id, ran_s)

    def forget(self, job_id: JobId) -> None:
        """Drop a job that did not end by itself."""
        self._live.forget(job_id)

    def recall(self, ended: Iterable[tuple[Asked, float]]) -> None:
        """Learn from jobs that ended before, the oldest first."""
        for asked, ran_s in ended:
            self._live.submitted(asked.job_id, _run(asked))
            self._live.finished(asked.job_id, ran_s)


def _run(asked: Asked) -> Runs:
    tasks = asked.request.tasks
    types = sorted({kind for task in tasks for kind in task.demand.gpu_types})
    memory_mib = sum(task.instances * task.demand.memory_mib for task in tasks)
    return Runs(
        np.array([asked.submitted_s]),
        np.array([np.nan]),
        (asked.program,),
        (asked.user,),
        np.array([asked.request.gpu_milli / MILLI]),
        np.array([asked.request.cpu_milli / MILLI]),
        np.array([memory_mib / MIB_PER_GIB]),
        np.array([asked.request.instances]),
        ("/".join(types),),
    )
