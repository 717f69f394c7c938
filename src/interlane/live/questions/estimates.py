"""How long jobs will run: what their users expect, else what their like ran for."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Any

import numpy as np

from interlane.live.files import job as spec
from interlane.live.files.job import JobSpec
from interlane.live.store.record import JobRecord, UnreadableRecord
from interlane.live.store.rows import JobsWanted
from interlane.live.store.store import Store
from interlane.model import MILLI, JobId, Request
from interlane.model.lifecycle import JobState
from interlane.model.units import MIB_PER_GIB
from interlane.predict.estimates import HIGH, LOW, EstimateBasis
from interlane.predict.live import DurationEstimate, OnlinePredictor
from interlane.predict.recall import Recall
from interlane.predict.runs import Runs

OFF_BY = 2.0
"""What users expect is taken to be right within this factor, eight times in ten."""


ALIKE_MAX = 10_000
"""Estimates that are kept."""

REMEMBERED = 1_000
"""Ended jobs that estimates are learned from at the start."""


FEW = 5
"""Runs below which an estimate is told to be off by more than it thinks."""

NONE_OFF_BY = 30.0
"""Factor by which an estimate may be off that rests on nothing."""

OTHERS_OFF_BY = 5.0
"""The same of one that rests on other programs, before it is known how far those are off."""

COMPARED = 10
"""First runs of programs from which on it is known."""

COMPARED_MAX = 200
"""First runs that are remembered: the newest."""


@dataclass(frozen=True, slots=True)
class EstimateBand:
    """An estimated run time; eight times in ten from ``low_s`` to ``high_s``."""

    seconds: float
    low_s: float
    high_s: float
    basis: str = ""
    """What it rests on, and why the band is wide if it is."""

    def within(self, limit_s: float | None) -> "EstimateBand":
        """Return the estimate for a job that is ended after a while."""
        if limit_s is None or self.high_s <= limit_s:
            return self
        seconds, low_s = min(self.seconds, limit_s), min(self.low_s, limit_s)
        return EstimateBand(seconds, low_s, limit_s, self.basis)

    @property
    def document(self) -> dict[str, Any]:
        """What a record keeps beside the seconds."""
        return {"low_s": self.low_s, "high_s": self.high_s, "basis": self.basis}


@dataclass(frozen=True, slots=True)
class JobFeatures:
    """What is known of a job when it is submitted."""

    job_id: JobId
    program: str
    user: str
    request: Request
    submitted_s: float
    expected_s: float | None
    name: str = ""
    """Its name without the number; jobs alike in that count where the program is new."""
    limit_s: float | None = None
    """After so many seconds it is ended."""


class LiveEstimates:
    """Estimates at submission, and learns at the end.

    Jobs alike that are submitted one after another get one estimate, until something is
    learned: an estimate costs as much as everything else that a submission needs.
    """

    def __init__(self, trained: Recall | None = None) -> None:
        """Begin with what a predictor was trained on, or with nothing."""
        self._live = OnlinePredictor(trained)
        self._by_name = OnlinePredictor()
        self._is_trained = trained is not None
        self._runs: Counter[str] = Counter()
        """How many runs of each program have ended here."""
        self._off: deque[float] = deque(maxlen=COMPARED_MAX)
        """By which factors first runs of programs differed from what others' runs said."""
        self._made: dict[tuple[object, ...], EstimateBand] = {}
        """What was estimated since something was last learned."""

    def estimate(self, asked: JobFeatures) -> EstimateBand:
        """Return how long a job will run.

        What earlier runs of its program took counts most, then what its user expects, then
        what jobs of its name took, and at last what everybody's did.
        """
        alike = (asked.program, asked.name, asked.user, asked.request, asked.expected_s)
        if alike not in self._made:
            if len(self._made) == ALIKE_MAX:
                self._made.clear()
            self._made[alike] = self._estimated(asked)
        return self._made[alike].within(asked.limit_s)

    def runs_of(self, program: str) -> int:
        """Return how many runs of a program have ended here."""
        return self._runs[program]

    def learn(self, asked: JobFeatures, ran_s: float) -> None:
        """Learn how long a job ran."""
        said = self._live.submitted(asked.job_id, _run(asked))
        self._live.finished(asked.job_id, ran_s)
        self._by_name.submitted(asked.job_id, _named(asked))
        self._by_name.finished(asked.job_id, ran_s)
        if said.basis > EstimateBasis.GROUP and self._runs:
            self._off.append(max(ran_s, 1.0) / max(said.seconds, 1.0))
        self._runs[asked.program] += 1
        self._made.clear()

    def _estimated(self, asked: JobFeatures) -> EstimateBand:
        found = _asked(self._live, asked.job_id, _run(asked))
        runs = self._runs[asked.program]
        if found.basis > EstimateBasis.GROUP:
            expected_s = asked.expected_s
            if expected_s is not None:
                low_s, high_s = expected_s / OFF_BY, expected_s * OFF_BY
                return EstimateBand(expected_s, low_s, high_s, "what its user expects")
            named = _asked(self._by_name, asked.job_id, _named(asked))
            found = named if named.basis <= EstimateBasis.GROUP else found
            runs = self._runs.total()
        span = EstimateBand(found.seconds, found.low_s, found.high_s, found.basis.words)
        if self._is_trained:
            return span
        if runs < FEW:
            return _widened(span, runs)
        return span if found.basis <= EstimateBasis.GROUP else self._of_others(span)

    def _of_others(self, span: EstimateBand) -> EstimateBand:
        """Return a band as wide as other programs were off when they ran first."""
        compared = len(self._off)
        if compared < COMPARED:
            low, high = 1 / OTHERS_OFF_BY, OTHERS_OFF_BY
            why = "none of which is this program, so that the band is wide"
        else:
            rising = sorted(self._off)
            low = rising[max(0, floor(LOW * (compared + 1)) - 1)]
            high = rising[min(compared - 1, ceil(HIGH * (compared + 1)) - 1)]
            why = f"as far off as for {compared} programs that were new"
        return EstimateBand(
            span.seconds,
            min(span.low_s, span.seconds * low),
            max(span.high_s, span.seconds * high),
            f"{span.basis}, {why}",
        )


def _widened(span: EstimateBand, runs: int) -> EstimateBand:
    """Return a band that admits that little is known."""
    off_by = 1.0 + (FEW - 1.0) / runs if runs else NONE_OFF_BY
    rests = f"{runs} {'run' if runs == 1 else 'runs'}" if runs else "no run at all"
    return EstimateBand(
        span.seconds,
        min(span.low_s, span.seconds / off_by),
        max(span.high_s, span.seconds * off_by),
        f"{rests} that ended here, so that the band is wide",
    )


def remembered(
    store: Store, request_of: Callable[[JobSpec], Request], trained: Recall | None = None
) -> LiveEstimates:
    """Return estimates that know the newest jobs that ended well."""
    estimates = LiveEstimates(trained)
    wanted = JobsWanted(REMEMBERED, states=frozenset({JobState.SUCCEEDED}))
    for record in reversed(store.jobs(wanted)):
        if isinstance(record, UnreadableRecord):
            continue
        asked = asked_before(record, request_of(record.job))
        estimates.learn(asked, record.ran_for_s(record.ended_s or 0.0))
    return estimates


def asked_before(record: JobRecord, request: Request) -> JobFeatures:
    """Return what was known of a job when it was submitted."""
    return asked_of(record.id, record.job, record.user, record.submitted_s, request)


def asked_of(
    job_id: JobId, job: JobSpec, user: str, submitted_s: float, request: Request
) -> JobFeatures:
    """Return what is known of a job that is submitted."""
    return JobFeatures(
        job_id,
        spec.program_of(job),
        user,
        request,
        submitted_s,
        spec.expected_s(job),
        spec.plain_name(job),
        spec.limit_s(job),
    )


def _asked(live: OnlinePredictor, job_id: JobId, run: Runs) -> DurationEstimate:
    found = live.submitted(job_id, run)
    live.forget(job_id)
    return found


def _named(asked: JobFeatures) -> Runs:
    """Return the run as one of all jobs of its name; a job without one is like no other."""
    return replace(_run(asked), group=(asked.name,))


def _run(asked: JobFeatures) -> Runs:
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
