"""What is asked of Slurm: to begin, to end, to let go; in threads that may wait for it."""

import time
from contextlib import suppress
from typing import Final

from interlane.engines.slurm.claims import LEFT, HeldClaim
from interlane.engines.slurm.commands import SlurmSaysNo, SlurmSilent
from interlane.engines.slurm.journal import Stage
from interlane.engines.slurm.launch import LAUNCHED, output_path
from interlane.engines.slurm.printed import printed_to
from interlane.engines.slurm.reading import LEAVES, OVER, WAITING, SlurmJob
from interlane.engines.slurm.runs import RunStage, SlurmListing, SlurmRun
from interlane.engines.slurm.session import AskedEnd, SlurmSession, spec_id
from interlane.engines.slurm.sights import NOBODY
from interlane.engines.slurm.wanted import asks_of
from interlane.live.files import job as spec
from interlane.live.files.job import StopFields
from interlane.live.port import (
    Attempt,
    Begun,
    Ended,
    Launch,
    NeverBegan,
    Pending,
    Sight,
    Stop,
    Unanswered,
)
from interlane.model import InterlaneError, InvalidInput

USUAL_STOP: Final = StopFields(15, spec.GRACE_S)
FORCE_AGAIN_S: Final = 15.0
"""Seconds after which a run that does not end is made to once more."""
SETTLE_S: Final = 0.3
REVOKED_S: Final = 2.0
"""Seconds after which a node certainly takes a job that was requeued."""


class Requests:
    """Carries out what is asked of one attempt after the other."""

    def __init__(self, session: SlurmSession) -> None:
        self._session = session

    def begin(self, launch: Launch) -> None:
        """Pin and release a job, or submit it."""
        attempt = launch.attempt
        stage = self._session.journal.ask(attempt, launch.origin.serial)
        if stage is Stage.FENCED:
            self._never(attempt, NOBODY)
            return
        if stage is not Stage.ASKED:  # it was asked for before, and has gone on since
            self._forget(attempt)
            return
        try:
            if launch.origin.key is None:
                self._submit(launch)
            else:
                self._release(launch)
        except SlurmSilent:
            raise
        except _Taken as error:
            self.give_up(attempt, f"It lacked {error}.", str(error))
        except (InterlaneError, OSError) as error:
            self.give_up(attempt, str(error), None)
        finally:
            self._wait_for(attempt)

    def _wait_for(self, attempt: Attempt) -> None:
        with self._session.flight.lock:
            asked = self._session.flight.asked.get(attempt)
            if asked is not None:
                asked.deadline_s = time.monotonic() + self._session.settings.launch_s

    def _submit(self, launch: Launch) -> None:
        """Submit an attempt; one that Slurm shows was submitted before."""
        attempt, listing = launch.attempt, self._session.read()
        if attempt in listing.runs:
            return
        hosts = {node.name: node.address or node.name for node in listing.nodes}
        ids = self._session.launcher.submit(launch, listing.nodes_by_name, hosts)
        folder = self._session.launcher.workdir(launch)
        path, user = output_path(attempt, folder, 0), launch.origin.user
        owner = self._session.accounts.of(user).pw_uid
        self._session.journal.prints_to(attempt, str(path), owner)
        self._session.launcher.release(*ids)

    def _release(self, launch: Launch) -> None:
        """Pin and release a job that is held for us."""
        attempt = launch.attempt
        job = self._session.seen(attempt.job_id)
        if job is None or not job.is_held or job.is_asked_for(attempt.number):
            job = self._settled(attempt)
        if job is None or job.key != attempt.uid or job.state in OVER:
            raise InvalidInput(f"Slurm has no job {attempt.job_id} that waits.")
        if job.is_asked_for(attempt.number) and not job.is_held:
            return  # it was released before
        if attempt.number <= job.held_claim.number and not job.is_asked_for(attempt.number):
            self._forget(attempt)  # it ran, or was given up, and that has been told
            return
        if job.state in WAITING and not job.is_held:
            job = self._held(job)
        if job is None or not job.is_held:
            raise _Taken(f"its say: somebody released job {attempt.job_id} in Slurm")
        ours = self._session.settings.partitions
        if ours and job.partition not in ours:
            raise _Taken(f"its say: job {attempt.job_id} is in partition {job.partition}")
        listing = self._session.changes.listing
        self._let_credentials_end(job)
        self._session.journal.prints_to(attempt, printed_to(job), job.uid)
        self._session.launcher.pin_and_release(job, launch, listing.nodes_by_name)

    def _held(self, job: SlurmJob) -> SlurmJob | None:
        """Hold a job that somebody released; return it as it is then, for it may have begun."""
        with suppress(SlurmSaysNo):
            self._session.launcher.hold(job.id)
        return self._session.one(job.id)

    def _settled(self, attempt: Attempt) -> SlurmJob | None:
        """Return a job as it is now, once its last run has left the nodes."""
        end_s = time.monotonic() + self._session.settings.launch_s
        job = self._session.one(attempt.job_id)
        while job is not None and job.state == LEAVES and time.monotonic() < end_s:
            self._session.closing.wait(SETTLE_S)
            job = self._session.one(attempt.job_id)
        return job

    def _let_credentials_end(self, job: SlurmJob) -> None:
        """Wait until nodes take a job again that was requeued: they know runs by the second.

        What they are told to begin in the second in which the last one was ended fails there.
        """
        if job.restarts:
            left_s = job.submitted_s + REVOKED_S - time.time()
            self._session.closing.wait(min(REVOKED_S, max(0.0, left_s)))

    def stop(self, attempt: Attempt, how: Stop) -> None:
        """End an attempt, or keep it from beginning."""
        self._session.journal.stopping(attempt)
        if self._is_kept_waiting(attempt):
            self.give_up(attempt, "It was stopped before.", None)
            return
        listing = self._session.read()
        run = listing.runs.get(attempt)
        if run is None or run.stage is RunStage.OVER:
            self.tell_end(attempt, self.sight(attempt, listing), run)
        elif run.stage in (RunStage.HELD, RunStage.WAITS) and not _partly_runs(run):
            self.give_up(attempt, "It was stopped before.", None)
        else:
            with self._session.flight.lock:
                self._session.flight.running.add(attempt)
            self._end(run, how)

    def _is_kept_waiting(self, attempt: Attempt) -> bool:
        """Tell whether a user's job waits for an attempt that was asked for."""
        job = self._job_of(attempt)
        return job is not None and job.state in WAITING and job.is_asked_for(attempt.number)

    def _job_of(self, attempt: Attempt) -> SlurmJob | None:
        """Return a user's job as it is now; None if an attempt is at another, or at none."""
        if not attempt.uid.startswith(f"{attempt.job_id}."):
            return None
        job = self._session.one(attempt.job_id)
        return job if job is not None and job.key == attempt.uid else None

    def _end(self, run: SlurmRun, how: Stop) -> None:
        """Ask a run to end, or make it."""
        asked = self._session.flight.stops.get(run.attempt, USUAL_STOP)
        if how is Stop.KILL:
            self.force(run)
            return
        deadline_s = time.monotonic() + asked.grace_s
        with self._session.flight.lock:
            self._session.flight.ending.setdefault(run.attempt, AskedEnd(deadline_s))
        self._session.launcher.signal(asked.signal, *run.ids)

    def force(self, run: SlurmRun) -> None:
        """End a run; a job of a user's waits again, held."""
        with self._session.flight.lock:
            self._session.flight.ending[run.attempt] = AskedEnd(
                time.monotonic() + FORCE_AGAIN_S
            )
        if not run.is_brought:
            self._session.launcher.cancel(*run.ids)
            return
        try:
            self._session.launcher.requeue_held(run.ids[0])
        except SlurmSaysNo:  # --no-requeue: there is no other way to end it
            self._session.launcher.cancel(*run.ids)

    def discard(self, key: str, *, was_cancelled: bool) -> None:
        """Cancel a job of a user's, or give it back to Slurm."""
        job = self._session.one(spec_id(key))
        if job is None or job.key != key or job.state in OVER:
            return
        if was_cancelled:
            self._session.launcher.cancel(job.id)
        elif job.is_held:
            self.leave(job, "interlane could not run it")

    def leave(self, job: SlurmJob, why: str) -> None:
        """Give a job back to Slurm, as its user submitted it."""
        self._session.flight.left.add(job.key)
        self._session.launcher.unpin(job, f"{LEFT} {why}")
        self._session.launcher.release(job.id)

    def sight(self, attempt: Attempt, listing: SlurmListing) -> Sight:
        """Say what has become of an attempt; one that has not begun never will."""
        sight = self._session.sights.of(attempt, listing)
        return self._fence(attempt) if sight is None else sight

    def _fence(self, attempt: Attempt) -> Sight:
        """See to it that an attempt which has not begun never does."""
        if not self._session.settings.dry_run and not self._never_as(attempt):
            return Pending(attempt)  # it has begun since; the next look says so
        if self._session.journal.fence(attempt) is not Stage.FENCED:
            self._session.journal.never_began(attempt)
        return NeverBegan(attempt, NOBODY)

    def _never_as(self, attempt: Attempt) -> bool:
        """See to it that no run of a user's job is an attempt; False if its present one is."""
        job = self._job_of(attempt)
        if job is not None and job.state in WAITING:
            job = self._write_off(job, attempt.number)
        return job is None or job.state in WAITING or not job.is_asked_for(attempt.number)

    def _write_off(self, job: SlurmJob, number: int) -> SlurmJob | None:
        """Write on a job that waits that an attempt is given up; return it as it is then.

        It is held meanwhile: what is written while it begins would change which attempt it is.
        If somebody else had released it, it is released again.
        """
        old = job.held_claim
        if (old.number, not old.begins) > (number, False):
            return job
        is_theirs = not job.is_held and not job.is_asked_for(old.number)
        held = job if job.is_held else self._held(job)
        if held is None or not held.is_held:
            return held
        at_s = old.submitted_s or job.first_s, job.first_s
        asks = asks_of(held), old.pins
        claim = HeldClaim(number, held.restarts, old.serial, *at_s, False, *asks)
        self._session.launcher.unpin(held, str(claim))
        if is_theirs:
            self._session.launcher.release(held.id)
        return held

    def give_up(self, attempt: Attempt, why: str, lacks: str | None) -> None:
        """Hold or cancel what has not begun; if it has meanwhile, it has."""
        if attempt.uid.startswith(f"{attempt.job_id}."):
            if not self._never_as(attempt):
                return  # the next look says so
        elif not self._is_cancelled(attempt):
            return
        self._session.journal.never_began(attempt)
        self._never(attempt, why, lacks)

    def _is_cancelled(self, attempt: Attempt) -> bool:
        """Cancel what we submitted and has not begun; False if its end is told by a look."""
        run = self._session.read().runs.get(attempt)
        if run is None or run.stage is RunStage.OVER:
            return True
        if run.stage is RunStage.RUNS:
            return False
        self._session.launcher.cancel(*run.ids)
        self._force_when_partly(run)
        run = self._session.read().runs.get(attempt, run)
        if run.stage is RunStage.OVER:
            return True
        with self._session.flight.lock:
            self._session.flight.running.add(attempt)
        return False

    def _force_when_partly(self, run: SlurmRun) -> None:
        if _partly_runs(run):
            self._session.launcher.signal(9, *run.ids)

    def _forget(self, attempt: Attempt) -> None:
        with self._session.flight.lock:
            self._session.flight.asked.pop(attempt, None)

    def _never(self, attempt: Attempt, why: str, lacks: str | None = None) -> None:
        self._forget(attempt)
        self._session.tell(NeverBegan(attempt, why, lacks))

    def sweep(self, listing: SlurmListing) -> None:
        """Let nothing begin that a server before us has asked for."""
        for run in listing.runs.values():
            if run.is_brought:
                self._sweep_brought(run)
            elif run.stage not in (RunStage.RUNS, RunStage.OVER):
                self._session.launcher.cancel(*run.ids)
        for job in listing.jobs:
            if job.comment == LAUNCHED and job.is_held and job.claim is None:
                self._session.launcher.cancel(job.id)

    def _sweep_brought(self, run: SlurmRun) -> None:
        job = run.jobs[0]
        if not job.is_asked_for(run.attempt.number):
            return
        noted = self._session.journal.get(run.attempt)
        if run.stage is RunStage.OVER and noted is not None and noted.stage is Stage.STOPPING:
            self._session.launcher.requeue_held(job.id)
        if run.stage in (RunStage.HELD, RunStage.WAITS):
            self._write_off(job, run.attempt.number)

    def tell_end(self, attempt: Attempt, sight: Sight | None, run: SlurmRun | None) -> None:
        """Tell of an end; a user's job that was stopped waits again before that is told."""
        if sight is None or isinstance(sight, Begun | Pending | Unanswered):
            return
        was_stopped = isinstance(sight, Ended) and sight.was_stopped
        was_stopped = was_stopped and not self._session.settings.dry_run
        if was_stopped and run is not None and run.is_brought and run.stage is RunStage.OVER:
            with suppress(SlurmSaysNo):  # --no-requeue: it has ended for good
                self._session.launcher.requeue_held(run.ids[0])
        if isinstance(sight, Ended):
            self._session.journal.over(sight)
        else:
            self._session.journal.never_began(attempt)
        flight = self._session.flight
        with flight.lock:
            for known in (flight.asked, flight.ending, flight.stops):
                known.pop(attempt, None)
            flight.running.discard(attempt)
            flight.over.add(attempt)
        self._session.tell(sight)


class _Taken(InterlaneError):
    """Somebody else decides about a job now."""


def _partly_runs(run: SlurmRun) -> bool:
    return any(job.nodes for job in run.jobs)
