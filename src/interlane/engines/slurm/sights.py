"""What has become of an attempt: from what Slurm shows now, and from what it has forgotten."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from interlane.engines.slurm.journal import Noted, SlurmJournal, Stage
from interlane.engines.slurm.runs import RunStage, SlurmListing, SlurmRun
from interlane.live.port import Attempt, Begun, Ended, NeverBegan, Pending, Sight

NOBODY: Final = "Nobody had begun it."
NOT_BEGUN: Final = "It was ended before all of it had begun."
REQUEUED: Final = "Slurm has put it back into its queue."
FORGOTTEN: Final = "Slurm has forgotten how it ended (its MinJobAge is over)."


@dataclass(frozen=True, slots=True)
class Sights:
    """Says what has become of attempts."""

    journal: SlurmJournal
    min_age_s: float
    """For how long Slurm keeps what has ended."""
    is_asked: Callable[[Attempt], bool]
    """Whether an attempt is on its way, asked for by this server."""
    is_stopping: Callable[[Attempt], bool]

    def of(self, attempt: Attempt, listing: SlurmListing) -> Sight | None:
        """Say what has become of an attempt; None if it has not begun and could still."""
        run = listing.runs.get(attempt)
        if run is not None:
            return self.of_run(run)
        if self.is_asked(attempt):
            return Pending(attempt)
        noted = self.journal.get(attempt)
        over = _noted(attempt, noted)
        if over is not None:
            return over
        job = listing.brought.get(attempt.uid)
        if job is None:
            return self._vanished(attempt, noted)
        was_asked = noted is not None and noted.stage is Stage.STOPPING
        if attempt.number in listing.numbers(job):  # Slurm has put it back into its queue since
            stopped = was_asked or self.is_stopping(attempt)
            return Ended(attempt, None, "stopped" if stopped else "lost", cause=REQUEUED)
        if attempt.number < job.held_claim.number:  # others were asked for since
            return Ended(attempt, None, "stopped")
        return None

    def of_run(self, run: SlurmRun) -> Sight | None:
        """Say what has become of a run that Slurm shows."""
        attempt = run.attempt
        match run.stage:
            case RunStage.HELD:
                return Pending(attempt) if self.is_asked(attempt) else None
            case RunStage.WAITS:  # somebody else may have released it, and not for us
                is_ours = not run.is_brought or self.is_asked(attempt)
                return Pending(attempt) if is_ours else None
            case RunStage.RUNS:
                return Begun(attempt)
            case RunStage.BREAKS:
                return Begun(attempt) if run.has_begun else Pending(attempt)
            case RunStage.OVER:
                return self.end_of(run)

    def end_of(self, run: SlurmRun) -> Ended | NeverBegan:
        """Say how a run ended."""
        noted = self.journal.get(run.attempt)
        over = _noted(run.attempt, noted)
        if over is not None:
            return over
        if not run.has_begun:
            return NeverBegan(run.attempt, NOT_BEGUN)
        was_asked = noted is not None and noted.stage is Stage.STOPPING
        return run.ended(was_stopped=was_asked or self.is_stopping(run.attempt))

    def _vanished(self, attempt: Attempt, noted: Noted | None) -> Sight | None:
        """Say what has become of an attempt of which Slurm shows nothing."""
        if attempt.uid.startswith(f"{attempt.job_id}."):  # a user's job, which cannot come back
            return Ended(attempt, None, FORGOTTEN)
        if noted is None or time.time() - noted.at_s < self.min_age_s:
            return None
        return Ended(attempt, None, "stopped" if noted.stage is Stage.STOPPING else FORGOTTEN)


def _noted(attempt: Attempt, noted: Noted | None) -> Ended | NeverBegan | None:
    if noted is not None and noted.stage is Stage.OVER:
        return noted.ended(attempt)
    if noted is not None and noted.stage is Stage.FENCED:
        return NeverBegan(attempt, NOBODY)
    return None


def others(listing: SlurmListing, known: Collection[Attempt]) -> list[SlurmRun]:
    """Return what runs, or is about to, and was not asked about."""
    there = (RunStage.WAITS, RunStage.RUNS, RunStage.BREAKS)
    asked = set(known)
    return [
        run for run in listing.runs.values() if run.stage in there and run.attempt not in asked
    ]
