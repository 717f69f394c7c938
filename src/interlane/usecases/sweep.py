"""Sweeps on a live server: begin one, go on with one, look at one, cancel one.

The trials are jobs, and the sweep is stored with each of them: whoever follows a sweep keeps
nothing that is not on the server, and can be killed at any moment.  What is done next is for
``interlane.sweep`` to say; a job is submitted under a key of its trial, and therefore once.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, TypeVar

from interlane.client.client import MOST, Client, JobAnswer
from interlane.client.connection import STALE, Failure, job_path
from interlane.model.errors import InterlaneError, InvalidInput, Rejected, Unreachable
from interlane.model.states import JobState
from interlane.sweep.board import SweepBoard, SweepStatus, TrialJob
from interlane.sweep.decide import RunState, SweepDecision, TrialRun, decide
from interlane.sweep.definition import Sweep, command_line, sweep_of
from interlane.usecases.reporter import Reporter, Tell

__all__ = ["SweepStatus", "begun", "cancelled", "command_line", "looked_at", "resumed"]

LOOK_EVERY_S: Final = 1.0
READS_PER_S: Final = 40.0
"""Outputs that are read in the long run: a server lets nobody in much oftener."""
PATIENCE_S: Final = 600.0
"""Seconds for which a server that does not answer is waited for."""

Found = TypeVar("Found")


def begun(client: Client, document: Mapping[str, Any], reporter: Reporter) -> SweepStatus:
    """Begin a sweep, and follow it to its end."""
    sweep = sweep_of(document)
    if next(client.pages(1, sweep=sweep.name), None) is not None:
        raise InvalidInput(
            f"There is a sweep {sweep.name} already; 'interlane sweep resume {sweep.name}' "
            "goes on with it, and another --name begins another."
        )
    count = len(sweep.trials)
    reporter.note(f"sweep {sweep.name}: {count:,} trial{'s' * (count > 1)}")
    return SweepFollower(client, sweep, reporter).follow()


def resumed(client: Client, name: str, reporter: Reporter) -> SweepStatus:
    """Go on with a sweep that nobody follows any more, from where it stands."""
    return SweepFollower(client, _stored(client, name), reporter).follow()


def looked_at(client: Client, name: str) -> SweepStatus:
    """Return how a sweep stands now."""
    board = SweepBoard(ServedTrials(client), _stored(client, name))
    board.look()
    return board.status()


def cancelled(client: Client, name: str) -> list[str]:
    """Cancel all of a sweep that has not ended; return which jobs those were."""
    found = [JobAnswer.of(one) for one in client.pages(MOST, sweep=name)]
    if not found:
        raise _unknown(name)
    still = [job.id for job in found if not job.has_ended]
    for job_id in still:
        _cancel(client, job_id)
    return still


@dataclass(frozen=True, slots=True)
class ServedTrials:
    """Jobs of sweeps, as a server shows them."""

    client: Client

    def jobs(self, sweep: str) -> Iterator[TrialJob]:
        """Yield the jobs of a sweep, the newest first."""
        for document in self.client.pages(MOST, sweep=sweep):
            job = JobAnswer.of(document)
            yield TrialJob(job.id, job.name, job.state, document["attempt"], job.reason)

    def printed(self, job: TrialJob, begin: int, size: int) -> tuple[bytes, int]:
        """Return a part of what its attempt printed, and where to go on."""
        query = {"offset": begin, "limit": size, "attempt": job.attempt}
        answer = self.client.get(f"{job_path(job.id)}/log", **query)
        return answer.body, int(answer.header("X-Next-Offset"))


def _stored(client: Client, name: str) -> Sweep:
    """Return a sweep as any of its jobs has it."""
    first = next(client.pages(1, sweep=name), None)
    if first is None:
        raise _unknown(name)
    said = client.get(job_path(first["id"])).document()["spec"]["sweep"]
    if "job" not in said:
        raise InvalidInput(f"The sweep {name} is {first['user']}'s; only they see all of it.")
    return sweep_of({**said["definition"], "name": name, "job": said["job"]})


def _unknown(name: str) -> InterlaneError:
    return InvalidInput(f"There is no sweep {name!r}; the page /sweeps lists all.")


def _cancel(client: Client, job_id: str) -> None:
    try:
        client.delete(job_path(job_id))
    except Failure as error:
        if error.exit_code != STALE:  # it has ended meanwhile
            raise


@dataclass
class SweepFollower:
    """Carries out what is decided about a sweep, until it is over."""

    client: Client
    sweep: Sweep
    reporter: Reporter
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    board: SweepBoard = field(init=False)
    _stopped: set[tuple[int, int]] = field(default_factory=set)
    """Whom this follower has stopped, or found stopped when it began."""
    _best: TrialRun | None = None

    def __post_init__(self) -> None:
        self.board = SweepBoard(ServedTrials(self.client), self.sweep)

    def follow(self) -> SweepStatus:
        """Go on until nothing runs and nothing is to be run."""
        self._patiently(self.board.look)
        self._stopped = self._found_stopped()
        expected = _runs_expected(self.sweep)
        with self.reporter.steps(f"sweep {self.sweep.name}", expected, "runs") as tell:
            while self._patiently(lambda: self._step(tell)):
                began_s = self.clock()
                reads = self._patiently(self.board.look)
                took_s = self.clock() - began_s
                self.sleep(max(LOOK_EVERY_S, reads / READS_PER_S, 2 * took_s))
        return self.board.status()

    def _step(self, tell: Tell) -> bool:
        """Do what is to be done now; return whether there is more to come."""
        decision = decide(self.sweep, self.board.runs)
        others = self._found_stopped() - self._stopped
        if others and decision.submit:
            # Whoever cancels does not expect us to begin more.
            self.reporter.note(
                f"{len(others)} of the jobs of {self.sweep.name} were cancelled, so that no "
                f"more are begun; 'interlane sweep resume {self.sweep.name}' goes on without "
                "them."
            )
            decision = SweepDecision(stop=decision.stop)
        self._carry_out(decision)
        self._tell_best()
        runs = self.board.runs.values()
        tell(sum(not run.state.is_open for run in runs))
        return bool(decision.submit) or any(run.state.is_open for run in runs)

    def _found_stopped(self) -> set[tuple[int, int]]:
        runs = self.board.runs.items()
        return {at for at, run in runs if run.state is RunState.STOPPED}

    def _carry_out(self, decision: SweepDecision) -> None:
        for at in decision.stop:
            if at not in self._stopped:
                _cancel(self.client, self.board.runs[at].job_id)
                self._stopped.add(at)
        for number, (trial, rung) in enumerate(decision.submit):
            job = self.client.submit(self.sweep.job_of(trial, rung), key=self._key(trial, rung))
            if not self.board.runs and number == 0:
                made = job.status()
                if made.state is JobState.REFUSED:
                    raise Rejected(
                        f"{made.id} is refused, as all trials would be. {made.reason}"
                    )

    def _tell_best(self) -> None:
        status = self.board.status()
        best = status.best
        if best is None or best == self._best:
            return
        self._best = best
        told = f"{self.sweep.metric} {best.value:g} ({status.values(best)})"
        self.reporter.note(f"trial {best.trial}: {told}, the best so far")

    def _key(self, trial: int, rung: int) -> str:
        said = json.dumps([self.sweep.definition, dict(self.sweep.job)], sort_keys=True)
        digest = sha256(said.encode()).hexdigest()[:16]
        return f"sweep/{self.sweep.name}/{digest}/{trial}/{rung}"

    def _patiently(self, call: Callable[[], Found]) -> Found:
        """Call the server until it answers: it may be on its way back."""
        since_s, is_told = self.clock(), False
        while True:
            try:
                return call()
            except Unreachable as error:
                if self.clock() - since_s > PATIENCE_S:
                    raise
                if not is_told:
                    self.reporter.note(f"{error} Trying again for {PATIENCE_S / 60:g} minutes.")
                is_told = True
                self.sleep(5 * LOOK_EVERY_S)


def _runs_expected(sweep: Sweep) -> int:
    count = len(sweep.trials)
    if sweep.halving is None or not sweep.in_rounds:
        return count
    return count + sum(sweep.halving.kept(count, rung) for rung in range(sweep.rounds - 1))
