"""What a sweep does next: a function of its definition and of what its runs have printed.

Nothing is remembered between two decisions.  Whoever dies in between is replaced by somebody
who looks at the same jobs and comes to the same decisions.

With halving, a trial has a value at every rung: what it had reported when it had used that
budget.  There are two ways to spend budgets.

* **In rounds**, where the command names ``{budget}``: a trial is run anew for each.  It gets
  the next one as soon as it is certain to be among the best at its rung, however those do that
  still run; when all have reported, exactly the best have it.
* **While they run**, where it does not: a trial counts as having used as much as it has printed
  reports.  It is stopped as soon as so many others have done better at one of its rungs that it
  cannot be among the best there any more.

Both are functions of the values alone, and ties go to the lower number: in which order reports
come in makes no difference.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from interlane.sweep.definition import Sweep
from interlane.sweep.metric import known

SILENT_MAX: Final = 8
"""Runs that end without a report before the others are given up: they run the same program."""


class RunState(StrEnum):
    """Where a run of a trial stands."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_open(self) -> bool:
        """Whether it may still report."""
        return self in (RunState.WAITING, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A job of a sweep: one trial at one rung."""

    trial: int
    rung: int
    state: RunState
    reports: Sequence[float] = ()
    job_id: str = ""
    reason: str | None = None

    @property
    def value(self) -> float | None:
        """What it reported last."""
        return self.reports[-1] if self.reports else None

    def value_at(self, budget: int) -> float | None:
        """Return what it had reported by then; None if it has not come so far."""
        return self.reports[budget - 1] if len(self.reports) >= budget else None


Runs = Mapping[tuple[int, int], TrialRun]
"""Trial and rung -> its run."""


@dataclass(frozen=True, slots=True)
class SweepDecision:
    """What is to be done, by trial and rung; nothing once the sweep has ended."""

    submit: tuple[tuple[int, int], ...] = ()
    stop: tuple[tuple[int, int], ...] = ()


def decide(sweep: Sweep, runs: Runs) -> SweepDecision:
    """Return which trials are to be run, and which are not worth going on with."""
    if is_silent(runs.values()):
        return SweepDecision(stop=_open(runs))
    if sweep.in_rounds:
        return SweepDecision(submit=_due_in_rounds(sweep, runs))
    every = ((trial.number, 0) for trial in sweep.trials)
    return SweepDecision(tuple(one for one in every if one not in runs), _outrun(sweep, runs))


def is_silent(runs: Iterable[TrialRun]) -> bool:
    """Tell whether the metric is taken to be never printed: so many have ended without it."""
    seen = list(runs)
    if any(run.reports for run in seen):
        return False
    return sum(not run.state.is_open for run in seen) >= SILENT_MAX


def best_run(sweep: Sweep, runs: Iterable[TrialRun]) -> TrialRun | None:
    """Return the best of those that ran to the end of the largest budget that any did."""
    ended = [run for run in runs if run.state is RunState.ENDED and known(run.value)]
    last = max((run.rung for run in ended), default=0)
    among = [run for run in ended if run.rung == last]
    return min(among, key=lambda run: _rank(sweep, run.value, run.trial), default=None)


def entrants(sweep: Sweep, runs: Runs) -> list[list[int]]:
    """Return which trials are certain to get each budget, where they are run in rounds."""
    assert sweep.halving is not None
    members, undecided = [trial.number for trial in sweep.trials], 0
    found = [members]
    for rung in range(len(sweep.halving.budgets) - 1):
        there = [runs[one, rung] for one in members if (one, rung) in runs]
        ended = [run for run in there if run.state is RunState.ENDED and known(run.value)]
        ended.sort(key=lambda run: _rank(sweep, run.value, run.trial))
        pending = undecided + len(members) - sum(not run.state.is_open for run in there)
        kept = sweep.halving.kept(len(sweep.trials), rung)
        members = [run.trial for run in ended[: max(0, kept - pending)]]
        undecided = min(kept - len(members), pending + len(ended) - len(members))
        undecided = undecided if pending else 0
        found.append(members)
    return found


def _due_in_rounds(sweep: Sweep, runs: Runs) -> tuple[tuple[int, int], ...]:
    return tuple(
        (trial, rung)
        for rung, members in enumerate(entrants(sweep, runs))
        for trial in members
        if (trial, rung) not in runs
    )


def _outrun(sweep: Sweep, runs: Runs) -> tuple[tuple[int, int], ...]:
    """Return those that run and cannot be among the best at one of their rungs any more."""
    if sweep.halving is None:
        return ()
    lost: set[tuple[int, int]] = set()
    for rung, budget in enumerate(sweep.halving.budgets[:-1]):
        kept = sweep.halving.kept(len(sweep.trials), rung)
        behind = _by_value_at(sweep, runs, budget)[kept:]
        lost |= {(run.trial, run.rung) for run in behind if run.state.is_open}
    return tuple(sorted(lost))


def _by_value_at(sweep: Sweep, runs: Runs, budget: int) -> list[TrialRun]:
    """Return those that have come so far, the best first."""
    there = [run for run in runs.values() if run.value_at(budget) is not None]
    return sorted(there, key=lambda run: _rank(sweep, run.value_at(budget), run.trial))


def _rank(sweep: Sweep, value: float | None, trial: int) -> tuple[float, int]:
    """Return what is the smaller, the better: a value that is no number is the worst."""
    assert value is not None
    return (sweep.goal.rank(value) if known(value) else inf), trial


def _open(runs: Runs) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(one for one, run in runs.items() if run.state.is_open))
