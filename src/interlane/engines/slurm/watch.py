"""The thread that looks at Slurm again and again, and tells what is new."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Final

from interlane.engines.slurm.changes import Unfit
from interlane.engines.slurm.claims import HeldClaim
from interlane.engines.slurm.commands import SlurmSilent
from interlane.engines.slurm.gres import GPU, SHARD, read_gres
from interlane.engines.slurm.reading import OVER, RUNNING, WAITING, SlurmJob
from interlane.engines.slurm.requests import Requests
from interlane.engines.slurm.runs import RunStage, SlurmListing, SlurmRun
from interlane.engines.slurm.session import AskedEnd, AskedLaunch, SlurmSession, spec_id
from interlane.engines.slurm.wanted import asks_of
from interlane.live.port import Attempt, Begun, Launch
from interlane.model import JobId, Placement

HEARTBEAT: Final = "slurm-heartbeat"
"""The file that says when we last saw Slurm; without it, what we hold is released."""

log = logging.getLogger("interlane.live")


class SlurmWatch:
    """See the module's text."""

    def __init__(self, session: SlurmSession, requests: Requests) -> None:
        self._session = session
        self._requests = requests
        self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)
        self._complained: set[str] = set()
        self._unplaced: dict[Attempt, Launch] = {}
        """What has begun, and nobody has looked yet on which GPUs."""
        self._is_awaited = False
        """Whether jobs are held that could begin where others end."""
        self._is_full = True
        """Whether the last look was at everything."""
        self._full_s = 0.0
        """When another one may be."""
        self._next_s = 0.0
        """When another one is due, whether there is more to see or not."""

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._session.closing.set()
        self._session.look_now.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        pause_s = self._session.settings.busy_s
        while True:
            self._session.look_now.wait(pause_s)
            self._session.look_now.clear()
            if self._session.closing.is_set():
                return
            begun_s = time.monotonic()
            try:
                self.look()
            except SlurmSilent as error:
                log.warning("Slurm is silent, and is asked again: %s", error)
            except Exception as error:  # whatever it is, jobs count on the next look
                log.error("Slurm could not be looked at.", exc_info=error)
            pause_s = self._pause_s(time.monotonic() - begun_s)

    def _pause_s(self, took_s: float) -> float:
        """Wait for a moment, news or not, and return how long to wait for news then."""
        flight, settings = self._session.flight, self._session.settings
        usual_s = settings.calm_s if flight.running else settings.idle_s
        if flight.asked or flight.ending or (flight.running and self._is_awaited):
            usual_s = settings.busy_s
        if self._is_full:
            self._full_s = time.monotonic() + took_s / settings.share
            took_s = 0.0
        pause_s = max(usual_s, took_s)  # a machine that is busy must not delay us for long
        self._session.closing.wait(min(max(settings.busy_s, took_s), pause_s))
        return pause_s

    def _listing(self) -> SlurmListing:
        """Look at what changes, or at everything if there is more and that is due."""
        now_s = time.monotonic()
        if now_s < max(self._next_s, self._full_s):
            self._is_full = False
            glanced, has_more = self._session.glance()
            if not has_more or now_s < self._full_s:
                return glanced
        self._is_full = True
        self._next_s = now_s + self._session.settings.idle_s
        return self._session.read()

    def look(self) -> None:
        """Look once, and tell what is new."""
        with self._session.flight.lock:
            asked, ending = dict(self._session.flight.asked), dict(self._session.flight.ending)
            running = set(self._session.flight.running)
        listing = self._listing()
        for report in self._session.changes.news(listing):
            self._session.tell(report)
        self._complain()
        for attempt, one in asked.items():
            self._follow(attempt, one, listing)
        self._tell_where(listing)
        known = running | asked.keys()
        self._session.flight.over &= listing.runs.keys()
        self._is_awaited = any(run.stage is RunStage.HELD for run in listing.runs.values())
        for run in listing.runs.values():
            if run.attempt not in known:
                self._take_up(run, listing)
        for attempt in running:
            self._follow_running(attempt, listing)
        for attempt, end in ending.items():
            self._follow_ending(attempt, end, listing)
        if not self._session.settings.dry_run:
            for job in self._session.overwritten:
                at = Attempt(JobId(job.id), 0, job.key)
                self._session.do(at, partial(self._claim_again, job))
            self._hold_strays(listing, asked)
            for unfit in self._session.changes.unfit(listing):
                self._give_back(unfit)
        self._beat()

    def _complain(self) -> None:
        """Say what of Slurm cannot be understood, each thing once."""
        for why, count in list(self._session.skipped.count.items()):
            if why not in self._complained:
                self._complained.add(why)
                log.warning("%s (%d times).", why, count)

    def _follow(self, attempt: Attempt, one: AskedLaunch, listing: SlurmListing) -> None:
        """Look what became of an attempt that was asked for."""
        run = listing.runs.get(attempt)
        is_late = time.monotonic() > one.deadline_s
        if run is not None and run.stage is RunStage.RUNS:
            self._unplaced[attempt] = one.launch
            self._begun(attempt)
        elif run is not None and run.stage is RunStage.OVER:
            self._requests.tell_end(attempt, self._session.sights.end_of(run), run)
        elif run is not None and run.stage is RunStage.BREAKS:
            give_up = partial(self._requests.give_up, attempt, "A part of it ended.", None)
            self._session.do(attempt, give_up)
        elif run is None and _runs_otherwise(attempt, listing):
            lacks = f"its say: Slurm began job {attempt.job_id} by itself"
            self._session.do(
                attempt, partial(self._requests.give_up, attempt, f"It lacked {lacks}.", lacks)
            )
        elif is_late:
            reason = "" if run is None else run.jobs[0].reason
            lacks = f"room by Slurm's own account ({reason or 'no reason given'})"
            give_up = partial(self._requests.give_up, attempt, f"It lacked {lacks}.", lacks)
            self._session.do(attempt, give_up)

    def _tell_where(self, listing: SlurmListing) -> None:
        """Tell of jobs that Slurm runs elsewhere than was decided, once all is to be seen.

        An administrator said so, or GPUs are alike and Slurm chose among them.
        """
        for attempt, launch in list(self._unplaced.items()):
            run = listing.runs.get(attempt)
            there = None if run is None else listing.place(run)
            if run is None or there is None:
                del self._unplaced[attempt]
                continue
            is_known = _gpus(there) == _gpus(launch.placement)
            if not is_known and not self._is_full:
                self._next_s = 0.0  # a glance has no GPUs
                continue
            del self._unplaced[attempt]
            if is_known and _instances(there) != _instances(launch.placement):
                log.warning("Slurm runs job %s at %s.", attempt.job_id, there)
                self._tell_found(run, listing)

    def _take_up(self, run: SlurmRun, listing: SlurmListing) -> None:
        """Tell of a run that Slurm began by itself, whether it has ended since or not."""
        attempt, flight = run.attempt, self._session.flight
        is_over = run.stage is RunStage.OVER and run.has_begun and run.is_brought
        if run.stage is not RunStage.RUNS and (not is_over or attempt in flight.over):
            return
        if not (self._is_full or is_over) and _lacks_gpus(run, listing):
            self._next_s = 0.0  # a glance has no GPUs, and others may be given them meanwhile
            return
        self._tell_found(run, listing)
        if is_over:
            self._requests.tell_end(attempt, self._session.sights.end_of(run), run)
            return
        self._begun(attempt)
        if run.is_brought and not self._session.settings.dry_run:
            self._claim(run)

    def _tell_found(self, run: SlurmRun, listing: SlurmListing) -> None:
        found = self._session.found(run, listing)
        if found is not None:
            self._session.tell(found)

    def _claim(self, run: SlurmRun) -> None:
        """Write down which attempt a run is, unless that is written."""
        job, number = run.jobs[0], run.attempt.number
        if job.is_asked_for(number):
            return
        old = job.held_claim
        claim = HeldClaim(number, job.restarts, old.serial, old.submitted_s or job.first_s,
                          job.first_s, asks=asks_of(job), pins=old.pins)  # fmt: skip
        note = partial(self._session.launcher.note, job.id, str(claim))
        self._session.do(run.attempt, note)

    def _begun(self, attempt: Attempt) -> None:
        with self._session.flight.lock:
            self._session.flight.asked.pop(attempt, None)
            self._session.flight.running.add(attempt)
        self._session.tell(Begun(attempt))

    def _follow_running(self, attempt: Attempt, listing: SlurmListing) -> None:
        """Tell when an attempt is over; the rest of a gang is ended first."""
        run = listing.runs.get(attempt)
        if run is not None and run.stage in (RunStage.RUNS, RunStage.WAITS, RunStage.HELD):
            return
        if run is not None and run.stage is RunStage.BREAKS:
            self._session.do(attempt, lambda: self._break(run))
            return
        self._requests.tell_end(attempt, self._session.sights.of(attempt, listing), run)

    def _follow_ending(self, attempt: Attempt, end: AskedEnd, listing: SlurmListing) -> None:
        """Make an attempt end that had time enough to do so."""
        run = listing.runs.get(attempt)
        is_due = time.monotonic() >= end.deadline_s
        if run is not None and run.stage is not RunStage.OVER and is_due:
            self._session.do(attempt, lambda: self._requests.force(run))

    def _break(self, run: SlurmRun) -> None:
        """End the rest of a gang of which a part has ended."""
        left = [job.id for job in run.jobs if job.state not in OVER]
        self._session.launcher.signal(9, *left)
        self._session.launcher.cancel(*left)

    def _claim_again(self, job: SlurmJob) -> None:
        """Write a claim again that somebody has written over."""
        launcher = self._session.launcher
        if launcher.written.over(job) is job:  # we have written nothing since
            launcher.note(job.id, str(job.claim))

    def _hold_strays(self, listing: SlurmListing, asked: Collection[Attempt]) -> None:
        """Hold jobs that Slurm has requeued by itself, so that it is ours where they go."""
        for run in listing.runs.values():
            is_ours = run.is_brought and run.attempt not in asked
            if is_ours and _is_stray(run.jobs[0]):
                self._session.do(run.attempt, partial(self._hold_stray, run.jobs[0].id))

    def _hold_stray(self, job_id: str) -> None:
        """Hold a job, unless it was asked for since."""
        job = self._session.one(job_id)
        if job is not None and _is_stray(job):
            self._session.launcher.hold(job_id)

    def _give_back(self, unfit: Unfit) -> None:
        """Leave a job to Slurm that we cannot schedule."""
        log.warning("Job %s is left to Slurm: %s", unfit.job.id, unfit.why)
        self._session.flight.left.add(unfit.job.key)
        attempt = Attempt(spec_id(unfit.job.key), 0, unfit.job.key)
        leave = partial(self._requests.leave, unfit.job, "interlane cannot schedule it")
        self._session.do(attempt, leave)

    def _beat(self) -> None:
        """Say that we are alive, to whoever would release what we hold."""
        made = self._session.folder / f"{HEARTBEAT}.made"
        made.write_text(f"{time.time():.0f}\n")
        made.replace(self._session.folder / HEARTBEAT)


def _is_stray(job: SlurmJob) -> bool:
    """Tell whether a job waits because Slurm has requeued it, and would begin by itself."""
    claim = job.held_claim
    waits = job.state in WAITING and not job.is_held
    return waits and claim.begins and job.restarts > claim.restarts


def _runs_otherwise(attempt: Attempt, listing: SlurmListing) -> bool:
    """Tell whether a job runs, and not as the attempt that was asked for."""
    job = listing.brought.get(attempt.uid)
    return job is not None and job.state in RUNNING


def _instances(placement: Placement) -> Counter[tuple[str, tuple[int, ...]]]:
    """Return where each instance is, however they are written down together."""
    return Counter(
        (spot.machine, spot.gpus) for spot in placement.spots for _ in range(spot.instances)
    )


def _lacks_gpus(run: SlurmRun, listing: SlurmListing) -> bool:
    """Tell whether a run has GPUs, and nobody has looked yet which."""
    asked = any(one.name in (GPU, SHARD) for job in run.jobs for one in read_gres(asks_of(job)))
    return asked and not _gpus(listing.place(run))


def _gpus(placement: Placement) -> int:
    return sum(len(spot.gpus) * spot.instances for spot in placement.spots)
