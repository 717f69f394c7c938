"""What the threads of one server share: ways to ask Slurm, what is under way, what was seen."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from typing import Final

from interlane.engines.slurm.changes import Changes
from interlane.engines.slurm.claims import LEFT, is_marked
from interlane.engines.slurm.commands import SlurmCommands, SlurmSaysNo, SlurmSilent
from interlane.engines.slurm.glances import (
    GLANCE,
    arrived_words,
    read_arrived,
    read_glance,
    settled,
    updated,
)
from interlane.engines.slurm.journal import SlurmJournal
from interlane.engines.slurm.launch import Launcher, SlurmAccounts
from interlane.engines.slurm.reading import Skipped, SlurmJob, SlurmNode, read_jobs, read_nodes
from interlane.engines.slurm.runs import SlurmListing, SlurmRun
from interlane.engines.slurm.sights import Sights
from interlane.live.files.job import JobSpec, Origin, StopFields
from interlane.live.port import Attempt, Found, Launch, Tell
from interlane.model import JobId

LANES: Final = 8
"""Threads that speak to Slurm for different jobs at a time."""
WORK: Final = "work"
_TABLE: Final = ("squeue", "--noheader", "--all", "--states=all")

log = logging.getLogger("interlane.live")


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """How Slurm is used."""

    partitions: frozenset[str] = frozenset()
    """Those whose jobs we schedule; empty for all."""
    dry_run: bool = False
    """Whether nothing is changed, and Slurm decides."""
    trusts_users: bool = False
    idle_s: float = 5.0
    """Seconds between two looks at Slurm when we wait for nothing."""
    calm_s: float = 2.0
    """Seconds between two looks when jobs run."""
    busy_s: float = 0.5
    """Seconds between two looks when something is on its way."""
    share: float = 0.1
    """Part of the time that looking at all that there is may take."""
    launch_s: float = 30.0
    """Seconds within which Slurm must begin what we release."""
    keep_s: float = 30 * 86_400.0
    min_age_s: float = 300.0
    """Slurm's ``MinJobAge``."""
    cluster: str = "Slurm"


@dataclass(slots=True)
class AskedLaunch:
    """An attempt on its way."""

    launch: Launch
    deadline_s: float = float("inf")
    """When it is given up; nobody counts before it is released."""


@dataclass(slots=True)
class AskedEnd:
    """An attempt that was asked to end."""

    deadline_s: float
    """When it is made to end, once more if it was before."""


@dataclass
class Flight:
    """What this server has under way; all of it is lost with it."""

    asked: dict[Attempt, AskedLaunch] = field(default_factory=dict)
    running: set[Attempt] = field(default_factory=set)
    """Of these the end is told."""
    ending: dict[Attempt, AskedEnd] = field(default_factory=dict)
    stops: dict[Attempt, StopFields] = field(default_factory=dict)
    over: set[Attempt] = field(default_factory=set)
    """Of these the end was told, or was so before we began."""
    left: set[str] = field(default_factory=set)
    """Jobs that were given back to Slurm."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class SlurmSession:
    """See the module's text."""

    def __init__(self, folder: Path, settings: SlurmSettings, accounts: SlurmAccounts) -> None:
        self.settings = settings
        self.slurm = SlurmCommands()
        self.skipped = Skipped()
        self.folder = folder
        self.journal = SlurmJournal(folder)
        self.accounts = accounts
        partition = min(settings.partitions) if len(settings.partitions) == 1 else None
        self.launcher = Launcher(self.slurm, partition, accounts, folder / WORK)
        self.flight = Flight()
        self.sights = Sights(
            self.journal,
            settings.min_age_s,
            lambda attempt: attempt in self.flight.asked,
            lambda attempt: attempt in self.flight.ending,
        )
        self.changes = Changes()
        self.tell: Tell = lambda report: None
        self.closing = threading.Event()
        self.look_now = threading.Event()
        self._before: dict[int, SlurmJob] = {}
        """Jobs as they were last seen, by number."""
        self.overwritten: list[SlurmJob] = []
        """Jobs whose claim somebody has written over."""
        self._specs: dict[str, JobSpec | None] = {}
        """Of jobs that we submitted, by Slurm's number."""
        self._lanes = [ThreadPoolExecutor(1, f"slurm-{at}") for at in range(LANES)]

    def close(self) -> None:
        """Let what is being asked be asked, and nothing more."""
        for lane in self._lanes:
            lane.shutdown(cancel_futures=True)
        self.journal.close()

    def read(self) -> SlurmListing:
        """Look at all of Slurm: two calls."""
        begun_s = time.monotonic()
        self.skipped.clear()
        jobs = read_jobs(self.slurm.json("squeue", "--all"), self.skipped)
        nodes = read_nodes(self.slurm.json("sinfo", "--all"), self.skipped)
        steady = self._steady(jobs)
        self.launcher.written.seen(begun_s)
        return self._listing(steady, nodes)

    def _listing(self, jobs: list[SlurmJob], nodes: Sequence[SlurmNode]) -> SlurmListing:
        now = [self.launcher.written.over(job) for job in jobs]
        settings = self.settings
        return SlurmListing(now, nodes, settings.partitions, marked_only=not settings.dry_run)

    def glance(self) -> tuple[SlurmListing, bool]:
        """Look at what has changed of known jobs: one call, or two where some have come.

        It also tells if there is more to see.
        """
        last = self.changes.listing
        lines = dict(read_glance(self.slurm.run(*_TABLE, GLANCE)))
        there = [job for job in last.jobs if job.number in lines]
        now = [updated(job, lines[job.number]) for job in there]
        new = lines.keys() - {job.number for job in last.jobs}
        arrived = self._arrived(new) if new else []
        self._before |= {job.number: job for job in arrived}
        # One that cannot be understood is as it was until all is looked at: it is not gone.
        jobs = [new or job for new, job in zip(now, there, strict=True)]
        has_more = None in now or len(arrived) < len(new)
        return self._listing(jobs + arrived, last.nodes), has_more

    def _arrived(self, numbers: Collection[int]) -> list[SlurmJob]:
        """Look at jobs that nobody has seen yet."""
        mark = f"|{token_hex(4)}|"
        words = (f"--jobs={','.join(map(str, sorted(numbers)))}", arrived_words(mark))
        try:
            said = self.slurm.run(*_TABLE, *words)
        except SlurmSaysNo:  # one is gone again
            return []
        return [job for job in read_arrived(said, mark) if job.number in numbers]

    def _steady(self, jobs: list[SlurmJob]) -> list[SlurmJob]:
        """Let jobs be known as before of which Slurm or an administrator has lost a part.

        Slurm changes when a requeued job was submitted, and who writes an administrator's
        comment may not know that it was ours.  One that was understood and no longer is has
        not ended for that.
        """
        # What was written since the last look may be written over before anybody has seen it.
        over = self.launcher.written.over
        before = {number: over(job) for number, job in self._before.items()}
        found, overwritten = [], []
        jobs += [before[one] for one in self.skipped.numbers if one in before]
        for job in jobs:
            known = before.get(job.number)
            if known is not None and job.claim is None:
                is_left = job.admin_comment.startswith(LEFT)
                if known.claim is not None and not is_left and not is_marked(job.admin_comment):
                    job = replace(job, claim=known.claim, first_s=known.first_s)
                    overwritten.append(job)
                elif job.restarts:
                    job = replace(job, first_s=known.first_s)
            found.append(settled(job, known))
        self._before = {job.number: job for job in found}
        self.overwritten = overwritten
        return found

    def seen(self, job_id: str) -> SlurmJob | None:
        """Return a user's job as it was at the last look; None if that is in doubt."""
        seen = self.changes.listing.by_id.get(job_id)
        written = self.launcher.written
        return None if seen is None or written.is_doubted(job_id) else written.over(seen)

    def one(self, job_id: str) -> SlurmJob | None:
        """Look at one job as it is now: Slurm answers that quickly."""
        words = (*_TABLE, "--array", f"--jobs={job_id}", GLANCE)
        try:
            lines = list(read_glance(self.slurm.run(*words)))
        except SlurmSaysNo:
            return None
        seen = self.seen(job_id)
        if seen is not None and lines:
            now = updated(seen, lines[0][1])
            if now is not None:
                return self.launcher.written.over(now)
        return self.read().by_id.get(job_id)

    def found(self, run: SlurmRun, listing: SlurmListing) -> Found | None:
        """Return all that is known of a run; None where its file cannot be read."""
        job = run.jobs[0]
        serial, submitted_s = 0, job.first_s
        if job.claim is not None and not self.settings.dry_run:  # its numbers are not ours
            serial, submitted_s = job.claim.serial, job.claim.submitted_s
        file = self._spec(run, listing)
        if file is None:
            return None
        origin = Origin(serial, job.user, submitted_s, job.key if run.is_brought else None)
        return Found(run.attempt, file, origin, listing.place(run), run.started_s)

    def _spec(self, run: SlurmRun, listing: SlurmListing) -> JobSpec | None:
        job = run.jobs[0]
        if run.is_brought:
            return self.changes.spec_of(job, listing)
        if job.id not in self._specs:
            self._specs[job.id] = self.launcher.spec_of(job.id)
        return self._specs[job.id]

    def do(self, attempt: Attempt, act: Callable[[], None]) -> None:
        """Let one of the threads do something, in order for each job."""

        def acts() -> None:
            try:
                act()
            except (SlurmSilent, SlurmSaysNo) as error:  # the next look shows what came of it
                log.warning("Slurm could not be asked about %s: %s", attempt, error)
            except Exception as error:  # our own fault, and no reason to do nothing any more
                log.error("Slurm could not be asked about %s.", attempt, exc_info=error)
            self.look_now.set()

        lane = self._lanes[hash(attempt.job_id) % LANES]
        try:
            lane.submit(acts)
        except RuntimeError:  # the server ends
            log.warning("%s is left to the next server.", attempt)


def spec_id(key: str) -> JobId:
    """Return what users call the job of a key."""
    return JobId(key.rpartition(".")[0])
