"""An engine for Slurm: it holds, tells and releases jobs, and looks what becomes of them.

What is asked of one job is carried out in order by one of a few threads (``requests``); another
looks at Slurm again and again, and tells what differs from what it saw last (``watch``).
Everything that a thread knows besides can be read from Slurm again, so that a server which is
killed loses nothing.
"""

import os
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Final

from interlane.engines.slurm.launch import SlurmAccounts, check_job
from interlane.engines.slurm.printed import printed_to, read_printed
from interlane.engines.slurm.requests import Requests
from interlane.engines.slurm.runs import RunStage, SlurmListing, SlurmRun
from interlane.engines.slurm.session import (
    WORK,
    AskedLaunch,
    SlurmSession,
    SlurmSettings,
    spec_id,
)
from interlane.engines.slurm.sights import others
from interlane.engines.slurm.watch import SlurmWatch
from interlane.live.files import job as spec
from interlane.live.files.job import JobSpec
from interlane.live.port import (
    Attempt,
    Begun,
    Launch,
    NeverGrew,
    Observation,
    Output,
    Stop,
    Tell,
    Traits,
)
from interlane.model import InvalidInput

NAME: Final = "slurm"
ENDED_S: Final = 180.0
"""Seconds for which observations tell of ends that nobody asked about."""


class SlurmEngine:
    """Runs jobs on a Slurm cluster; see ``live.port.Engine``."""

    def __init__(self, folder: Path, settings: SlurmSettings) -> None:
        self.settings = settings
        self.traits = Traits(
            NAME,
            settings.cluster,
            keeps_record=True,
            spans_machines=True,
            grows=False,
            decides=not settings.dry_run,
        )
        self._accounts = SlurmAccounts(os.geteuid() == 0, settings.trusts_users)
        self._session = SlurmSession(folder, settings, self._accounts)
        self._requests = Requests(self._session)
        self._watch = SlurmWatch(self._session, self._requests)
        self._has_observed = False

    @property
    def calls_last_minute(self) -> int:
        """How many programs of Slurm's were run in the last minute."""
        return self._session.slurm.calls_last_minute

    def start(self, tell: Tell) -> None:
        """Begin to report; nothing begins any more that a server before has asked for."""
        session = self._session
        session.tell = tell
        session.journal.forget(self.settings.keep_s)
        (session.folder / WORK).mkdir(mode=0o700, exist_ok=True)
        listing = session.read()
        if self.traits.decides:
            session.changes.see(listing)
            self._requests.sweep(listing)
            listing = session.read()
        session.changes.see(listing)
        over = (run.attempt for run in listing.runs.values() if run.stage is RunStage.OVER)
        session.flight.over.update(over)
        self._watch.start()

    def close(self) -> None:
        """Stop reporting; what runs goes on, and what is held stays so."""
        self._session.tell = lambda report: None
        self._watch.close()
        self._session.close()

    def check(self, job: JobSpec, user: str, *, is_admin: bool = False) -> None:
        """Refuse what cannot run here, and everything while we only look on."""
        if not self.traits.decides:
            raise InvalidInput("The server only looks on (--dry-run); submit with sbatch.")
        check_job(job)
        self._session.accounts.check(user)

    def observe(self, known: Collection[Attempt]) -> Observation:
        """See what has become of attempts; what nobody has begun is fenced off."""
        listing = self._session.read()
        sights = [self._requests.sight(attempt, listing) for attempt in known]
        strangers = others(listing, known)
        mine = [run for run in strangers if run.attempt not in self._session.flight.asked]
        sights += [Begun(run.attempt) for run in mine if self._is_told(run)]
        ended = self._ends_unseen(listing, known)
        sights += [self._session.sights.end_of(run) for run in ended]
        seen = self._session.changes.visible(listing)
        running = [run for run in listing.runs.values() if run.stage is RunStage.RUNS]
        found = [self._session.found(run, listing) for run in (*running, *ended)]
        left = self._session.flight.left
        serial = max(self._session.journal.serial(), _serial(listing))
        return Observation(
            tuple(seen.machines.values()),
            tuple(sights),
            seen.drained,
            tuple(seen.occupied.values()),
            tuple(one for key, one in seen.wanted.items() if key not in left),
            tuple(one for one in found if one is not None),
            serial if self.traits.decides else 0,
            listing.apart,
        )

    def begin(self, launch: Launch) -> None:
        """Pin and release a job, or submit it, soon."""
        with self._session.flight.lock:
            self._session.flight.asked.setdefault(launch.attempt, AskedLaunch(launch))
            self._session.flight.stops[launch.attempt] = spec.stop_of(launch.job)
        self._session.do(launch.attempt, lambda: self._requests.begin(launch))

    def grow(self, launch: Launch) -> None:
        """Refuse: a job of Slurm's has what it began with."""
        why = "Jobs on Slurm do not grow."
        self._session.tell(NeverGrew(launch.attempt, launch.growth, why))

    def stop(self, attempt: Attempt, how: Stop) -> None:
        """Stop an attempt, after everything that was asked before."""
        if self.traits.decides:
            self._session.do(attempt, lambda: self._requests.stop(attempt, how))

    def discard(self, key: str, *, was_cancelled: bool, why: str) -> None:
        """Cancel a job of a user's, or give it back to Slurm."""
        if self.traits.decides:
            discards = partial(self._requests.discard, key, was_cancelled=was_cancelled)
            self._session.do(Attempt(spec_id(key), 0, key), discards)

    def output(self, attempt: Attempt, begin: int, size: int) -> Output:
        """Return what the first instance of an attempt printed, if its file is in reach."""
        noted = self._session.journal.get(attempt)
        path, uid = ("", None) if noted is None else (noted.output, noted.owner)
        if not path:
            run = self._session.read().runs.get(attempt)
            if run is not None:
                path, uid = printed_to(run.jobs[0]), run.jobs[0].uid
        if not path:
            raise InvalidInput(f"Nobody knows where {attempt.job_id} printed to.")
        assert uid is not None, "a path is noted with its owner"
        return read_printed(Path(path), begin, size, uid)

    def _is_told(self, run: SlurmRun) -> bool:
        """Tell whether a run is one to tell of: it runs, or will because of us."""
        return run.stage is not RunStage.WAITS or not run.is_brought

    def _ends_unseen(self, listing: SlurmListing, known: Collection[Attempt]) -> list[SlurmRun]:
        """Return runs of users' jobs that began and ended without us, and not long ago.

        The first time all of them: they are history, as far as Slurm remembers it.
        """
        since_s = time.time() - ENDED_S if self._has_observed else 0.0
        self._has_observed = True
        asked = set(known)
        return [
            run
            for run in listing.runs.values()
            if run.is_brought and run.stage is RunStage.OVER and run.has_begun
            and run.attempt not in asked and run.jobs[0].ended_s >= since_s
        ]  # fmt: skip


def _serial(listing: SlurmListing) -> int:
    return max((job.claim.serial for job in listing.jobs if job.claim), default=0)
