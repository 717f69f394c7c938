"""A sweep as it stands: read from its jobs again and again, wherever these are seen."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from interlane.model.states import ENDED, JobState
from interlane.sweep.decide import Runs, RunState, TrialRun, best_run, decide, is_silent
from interlane.sweep.definition import Sweep, of_job_name
from interlane.sweep.metric import MetricReader, known

CHUNK_BYTES: Final = 1 << 20

_STATES: Final = {
    JobState.HELD: RunState.WAITING,
    JobState.QUEUED: RunState.WAITING,
    JobState.SUCCEEDED: RunState.ENDED,
    JobState.FAILED: RunState.FAILED,
    JobState.REFUSED: RunState.FAILED,
    JobState.CANCELLED: RunState.STOPPED,
}
"""All other states are of jobs that run."""


@dataclass(frozen=True, slots=True)
class TrialJob:
    """A job of a sweep, as a server shows it."""

    id: str
    name: str
    state: JobState
    attempt: int
    """0 until it was tried."""
    reason: str | None


class TrialSource(Protocol):
    """Where the jobs of sweeps are seen."""

    def jobs(self, sweep: str) -> Iterable[TrialJob]:
        """Return the jobs of a sweep, the newest first."""
        ...

    def printed(self, job: TrialJob, begin: int, size: int) -> tuple[bytes, int]:
        """Return a part of what its attempt printed, and where to go on."""
        ...


@dataclass(slots=True)
class _Printed:
    """What was read of what an attempt printed."""

    attempt: int
    reader: MetricReader
    offset: int = 0
    is_whole: bool = False


@dataclass
class SweepBoard:
    """The runs of a sweep as they were when it last looked."""

    source: TrialSource
    sweep: Sweep
    runs: Runs = field(default_factory=dict)
    _printed: dict[str, _Printed] = field(default_factory=dict)

    def look(self) -> int:
        """Look at all jobs; return how many outputs were read."""
        found: dict[tuple[int, int], TrialRun] = {}
        reads = 0
        for job in self.source.jobs(self.sweep.name):
            at = of_job_name(self.sweep.name, job.name)
            if at is None or at[0] >= len(self.sweep.trials) or at[1] >= self.sweep.rounds:
                continue
            # Somebody may have run a trial again: the newest counts, once it has ended well.
            before = found.get(at)
            if before is not None and (before.state is RunState.ENDED or not _succeeded(job)):
                continue
            reads += self._read(job)
            printed = self._printed.get(job.id)
            reports = () if printed is None else tuple(printed.reader.reports)
            state = _STATES.get(job.state, RunState.RUNNING)
            found[at] = TrialRun(*at, state, reports, job.id, job.reason)
        self.runs = found
        return reads

    def status(self) -> "SweepStatus":
        """Return how the sweep stands."""
        due = decide(self.sweep, self.runs).submit
        is_over = not due and not any(run.state.is_open for run in self.runs.values())
        return SweepStatus(self.sweep, self.runs, is_over)

    def _read(self, job: TrialJob) -> int:
        if not job.attempt:
            return 0
        printed = self._printed.get(job.id)
        if printed is None or printed.attempt != job.attempt:
            printed = _Printed(job.attempt, MetricReader(self.sweep.metric))
            self._printed[job.id] = printed
        reads, is_full = 0, not printed.is_whole
        while is_full:
            reads += 1
            data, printed.offset = self.source.printed(job, printed.offset, CHUNK_BYTES)
            is_full = len(data) == CHUNK_BYTES
            printed.is_whole = job.state in ENDED and not is_full
            printed.reader.read(data, is_last=printed.is_whole)
        return reads


def _succeeded(job: TrialJob) -> bool:
    return job.state is JobState.SUCCEEDED


@dataclass(frozen=True)
class SweepStatus:
    """A sweep as it stands."""

    sweep: Sweep
    runs: Runs
    is_over: bool

    @property
    def best(self) -> TrialRun | None:
        """The best trial so far, of those that ran to their end."""
        return best_run(self.sweep, self.runs.values())

    @property
    def problem(self) -> str | None:
        """Why it has no best trial although it is over, in a sentence."""
        return _problem(self) if self.is_over and self.best is None else None

    def counts(self) -> dict[str, int]:
        """Return how many runs are in each state."""
        found = [run.state for run in self.runs.values()]
        return {state.value: found.count(state) for state in RunState}

    def ordered(self) -> list[TrialRun]:
        """Return the last run of every trial, the best first."""
        last = {run.trial: run for run in sorted(self.runs.values(), key=lambda one: one.rung)}

        def rank(run: TrialRun) -> tuple[bool, int, float, int]:
            value = run.value
            if value is None or not known(value):
                return True, -run.rung, 0.0, run.trial
            return False, -run.rung, self.sweep.goal.rank(value), run.trial

        return sorted(last.values(), key=rank)

    def told(self, run: TrialRun) -> str:
        """Say what became of a run."""
        if run.state is RunState.ENDED and not run.reports:
            return f"ended without printing {self.sweep.metric}"
        if run.state is RunState.FAILED and run.reason:
            return f"failed: {run.reason}"
        return run.state.value

    def values(self, run: TrialRun) -> str:
        """Return the values of a run, in a few words."""
        values = self.sweep.trials[run.trial].values
        return " ".join(f"{name}={value}" for name, value in values.items())

    def document(self) -> dict[str, Any]:
        """Return all of it, for programs."""
        best = self.best
        return {
            "name": self.sweep.name,
            **self.sweep.definition,
            "over": self.is_over,
            "problem": self.problem,
            "trials": len(self.sweep.trials),
            "runs": self.counts(),
            "best": None if best is None else self._run_document(best),
            "results": [self._run_document(run) for run in self.ordered()],
        }

    def _run_document(self, run: TrialRun) -> dict[str, Any]:
        return {
            "trial": run.trial,
            "rung": run.rung,
            "values": dict(self.sweep.trials[run.trial].values),
            "job": run.job_id,
            "state": run.state.value,
            "told": self.told(run),
            "value": run.value if known(run.value) else None,
            "reports": len(run.reports),
            "command": self.sweep.command(run.trial, run.rung),
        }


def _problem(status: SweepStatus) -> str:
    sweep, runs = status.sweep, list(status.runs.values())
    if not any(run.reports for run in runs):
        first = min(runs, key=lambda run: (run.trial, run.rung))
        stopped = any(run.state is RunState.STOPPED for run in runs)
        why = " and the others were cancelled" if stopped and is_silent(runs) else ""
        return (
            f"No trial printed {sweep.metric}{why}: let them print lines such as "
            f"{sweep.metric}=0.25, or name what they print with --metric; 'interlane logs "
            f"{first.job_id}' shows what one printed."
        )
    counts = status.counts()
    return (
        f"No trial ran to its end with a finite {sweep.metric}: {counts['failed']} failed, "
        f"{counts['stopped']} were cancelled or stopped, {counts['ended']} ended."
    )
