"""Try whether jobs get more done beside each other than in turns.

Jobs of one lane take turns, so the length of their iterations is what it is alone.  Once that
is known, one of them gets a lane of its own for a moment, and everybody's iterations are
measured again: that is how much they slow each other down.  Whether the new lane stays is for
``lanes.sharing`` to say, as long as nobody is worse off than in turns by share; memory has a
word in it, too.  A trial costs a second or so, and is made once for each company that a job is
in.  It is not made where it can only cost: two jobs that each want all cores when they run get
nothing more done beside each other, and two pools of threads on the same cores can take ten
times as long.  For the same reason it ends as soon as a job is seen to be slower than in turns.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from interlane.device import page
from interlane.device.activity import Activity, activity_of
from interlane.device.shared import SharedDevice
from interlane.device.shared_job import SharedJob
from interlane.lanes.actions import LaneId
from interlane.lanes.sharing import FilledSlowDown, MeasuredSlowDown, OverlapIfItPays
from interlane.model import JobId

WINDOW_S: Final = 0.5
LEAST_ITERATIONS: Final = 4
"""Of a job in a window, for its length of an iteration to count."""
KNOWN_AFTER: Final = 2
"""Windows in turns before a job is tried: the first iterations of many are slow."""
SLACK: Final = 1.05
"""What beside each other may be slower than in turns for a job, as measured."""
MOST_WINDOWS: Final = 20
"""After which a trial in which too little happens is given up."""
COUNTED_WINDOWS: Final = 8
"""In which it is counted how many cores a job wants; that does not change."""
FILLED: Final = 0.9
"""Part of the cores from which on a job counts as wanting all: parts of a step are serial."""


@dataclass(slots=True)
class _Meter:
    """How long iterations of a job take."""

    iterations: int = 0
    busy_ns: int = 0
    alone_ns: float = inf
    """The least mean of a window."""
    windows: int = 0
    """In turns, with enough iterations."""
    cores: float | None = None
    """How many cores the job wants inside its iterations; None until that is known."""
    _seen: tuple[Activity, int] | None = None
    """What its process did, and the time inside iterations, at the last look."""

    def count_cores(self, job: SharedJob, seen: Activity | None) -> None:
        """Learn from a window in turns how many cores the job wants while it runs."""
        before, busy_ns = self._seen, job.word(page.BUSY_NS)
        if seen is None or (before is not None and busy_ns <= before[1]):
            return
        self._seen = seen, busy_ns
        if before is None:
            return
        cores = seen.wanted_since(before[0]) * 1e9 / (busy_ns - before[1])
        # What it does between its iterations is counted, too: the least is nearest.
        self.cores = cores if self.cores is None else min(self.cores, cores)

    def window(self, job: SharedJob) -> float | None:
        """Return the mean length of iterations since the last window that had enough."""
        iterations = job.word(page.ITERATIONS) - self.iterations
        if iterations < LEAST_ITERATIONS:
            return None
        mean_ns = (job.word(page.BUSY_NS) - self.busy_ns) / iterations
        self.restart(job)
        return mean_ns

    def restart(self, job: SharedJob) -> None:
        """Begin a window."""
        self.iterations, self.busy_ns = job.word(page.ITERATIONS), job.word(page.BUSY_NS)


@dataclass(slots=True)
class _Trial:
    job: JobId
    home: LaneId
    settled_s: float = 0.0
    """When all of them ran beside each other."""
    windows: int = 0
    is_settled: bool = False
    together_ns: dict[JobId, float] = field(default_factory=dict)


@dataclass(slots=True)
class Trials:
    """The trials of one device."""

    device: SharedDevice
    slow_down: MeasuredSlowDown
    sharing: OverlapIfItPays
    activity: Callable[[int], Activity | None] = activity_of
    """What the process of this number does."""
    _meters: dict[JobId, _Meter] = field(default_factory=dict)
    _tried: set[tuple[JobId, frozenset[JobId]]] = field(default_factory=set)
    _trial: _Trial | None = None
    _due_s: float = 0.0

    def look(self, now_s: float) -> None:
        """Measure, begin a trial or end one; to be called often."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + WINDOW_S
        self._forget_the_gone()
        means = self._measure()
        if self._trial is None:
            self._learn_alone(means)
            self._begin(set(means))
        else:
            self._go_on(self._trial, means, now_s)

    def _forget_the_gone(self) -> None:
        here = self.device.jobs
        self._meters = {one: meter for one, meter in self._meters.items() if one in here}
        self._tried = {(one, others) for one, others in self._tried if one in here}
        if self._trial is not None and self._trial.job not in here:
            self._trial = None

    def _measure(self) -> dict[JobId, float]:
        means = {}
        for job in self.device.jobs.values():
            meter = self._meters.setdefault(job.id, _Meter())
            mean_ns = meter.window(job)
            if mean_ns is not None:
                means[job.id] = mean_ns
        return means

    def _learn_alone(self, means: dict[JobId, float]) -> None:
        for job_id, mean_ns in means.items():
            meter = self._meters[job_id]
            meter.alone_ns = min(meter.alone_ns, mean_ns)
            meter.windows += 1
            if meter.windows <= COUNTED_WINDOWS:
                job = self.device.jobs[job_id]
                meter.count_cores(job, self.activity(job.pid))

    def _begin(self, active: set[JobId]) -> None:
        """Try the first job that takes turns with others, all of them known well enough."""
        if any(self._meters[one].windows < KNOWN_AFTER for one in active):
            return
        for lane in self.device.domain.book.lanes.values():
            here = [one for one in lane.tenants if one in active]
            company = frozenset(active.difference(here[-1:]))
            if len(here) < 2 or (here[-1], company) in self._tried:
                continue
            if self._may_pay(here[-1], company):
                self._tried.add((here[-1], company))
                self._trial = _Trial(here[-1], lane.id)
                self.device.move(here[-1], None)
                return

    def _may_pay(self, job_id: JobId, company: Iterable[JobId]) -> bool:
        """Tell whether it is worth a trial: not if cores are what two of them lack."""
        filled = {one: self._filled(one) for one in (job_id, *company)}
        expected = FilledSlowDown({one: part for one, part in filled.items() if part})
        for other in company:
            slower = expected.of(job_id, other)
            if slower is not None and 2.0 / slower < self.sharing.gain:
                return False
        return True

    def _filled(self, job_id: JobId) -> float:
        """Return the part of the device's cores that a job wants; 0 if that is not known."""
        cores = self._meters[job_id].cores
        spec = self.device.spec
        if cores is None or spec.name != "cpu":
            return 0.0
        part = cores / (len(spec.cores) or len(os.sched_getaffinity(0)))
        return 1.0 if part >= FILLED else part

    def _go_on(self, trial: _Trial, means: dict[JobId, float], now_s: float) -> None:
        lane = self.device.domain.book.lane_of(trial.job)
        trial.windows += 1
        if lane is None or trial.windows > MOST_WINDOWS:
            self._end(trial, stays=False)
        elif lane.id == trial.home:
            self.device.move(trial.job, None)  # it still ran, or there was no memory
        elif not trial.is_settled:
            trial.is_settled, trial.settled_s = True, now_s  # so far it was partly in turns
        else:
            trial.together_ns.update(means)
            others = trial.together_ns.keys() - {trial.job}
            if others and trial.job in trial.together_ns:
                self._end(trial, stays=self._pays(trial, others))
            elif self._is_lost(trial, now_s):
                self._end(trial, stays=False)

    def _is_lost(self, trial: _Trial, now_s: float) -> bool:
        """Tell whether the job had time for its iterations in turns, and is not done."""
        in_turns = self._in_turns(trial.job, self._meters.keys() & self.device.jobs.keys())
        due_ns = LEAST_ITERATIONS * self._meters[trial.job].alone_ns * in_turns * SLACK
        return now_s - trial.settled_s > max(WINDOW_S, 2 * due_ns / 1e9)

    def _pays(self, trial: _Trial, others: Iterable[JobId]) -> bool:
        slower = {
            job_id: max(1.0, mean_ns / self._meters[job_id].alone_ns)
            for job_id, mean_ns in trial.together_ns.items()
            if job_id in self.device.jobs
        }
        for other in others:
            self.slow_down.learn(trial.job, other, slower[trial.job])
            self.slow_down.learn(other, trial.job, slower.get(other, 1.0))
        gains = self.sharing.opens_lane(trial.job, [tuple(others)])
        return gains and not any(
            slow_down > SLACK * self._in_turns(job_id, slower)
            for job_id, slow_down in slower.items()
        )

    def _in_turns(self, job_id: JobId, company: Iterable[JobId]) -> float:
        """Return how much turns by share would slow a job down in this company."""
        weights = {one: self.device.jobs[one].weight for one in company}
        return sum(weights.values()) / weights[job_id]

    def _end(self, trial: _Trial, *, stays: bool) -> None:
        self._trial = None
        if not stays:
            self.device.move(trial.job, trial.home)
