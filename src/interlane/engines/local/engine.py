"""An engine for this machine: jobs are processes under shims, on devices that they share.

``begin`` and ``stop`` are carried out in order by one thread, the ends of jobs are told by
another: what they wait for (a fork, a file, the device daemon) nobody else waits for.
"""

import logging
import socket
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from interlane.device.inventory import Devices
from interlane.device.lanes import Lanes
from interlane.engines.local.accounts import Accounts
from interlane.engines.local.claims import digest_of, found_in
from interlane.engines.local.dialling import to_port, to_terminal
from interlane.engines.local.groups import AttemptGroups, group_in, groups_here
from interlane.engines.local.launch import (
    JobBounds,
    Secrets,
    check_workdir,
    order_of,
    run_number,
)
from interlane.engines.local.others import Others, OutOfReach
from interlane.engines.local.retention import Retention
from interlane.engines.local.runner import AttemptPast, ProcessRunner, ShimOrder
from interlane.engines.local.shortage import MachineLacks, lacking
from interlane.lanes.report import DaemonReport
from interlane.live.files.job import JobSpec
from interlane.live.folder import holder_of
from interlane.live.port import (
    Attempt,
    Begun,
    Ended,
    Launch,
    MachineSeen,
    Measured,
    NeverBegan,
    NeverGrew,
    Observation,
    Output,
    Pending,
    Sight,
    Stop,
    Tell,
    Traits,
    Unanswered,
)
from interlane.model import InterlaneError

NAME: Final = "local"
CLUSTER: Final = "this machine"
KEEP_S: Final = 30 * 86_400.0
LOOK_S: Final = 5.0
RUNS: Final = "runs"
FAILED_MAX: Final = 10_000
DECIDE: Final = (
    "Nobody here can tell what has become of it: start that server again, or say "
    "'interlane resolve {0} requeue' or 'fail' once you know."
)

log = logging.getLogger("interlane.live")


class LocalEngine:
    """Runs jobs on this machine; see ``live.port.Engine``."""

    def __init__(
        self,
        folder: Path,
        devices: Devices,
        lanes: Lanes | None = None,
        keep_s: float = KEEP_S,
        look_s: float = LOOK_S,
        groups: AttemptGroups | None = None,
        bounds: JobBounds | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        """Keep everything in a folder.

        Args:
            folder: where secrets, and what jobs print, are kept.
            devices: what jobs run on.
            lanes: without them, jobs do not take turns.
            keep_s: seconds for which folders of jobs that have ended are kept.
            look_s: seconds between two looks for devices.
            groups: makes the groups of attempts; those that can be had here, if not given.
            bounds: what a job may have of the machine, whatever it asks for.
            accounts: as whom jobs run; as the server does, if not given.
        """
        self._mine = holder_of(folder)
        self._others = Others(self._mine)
        self.devices = devices
        self.secrets = Secrets(folder / "secrets")
        self.runs = folder / RUNS
        self.traits = Traits(
            NAME,
            CLUSTER,
            keeps_record=False,
            spans_machines=False,
            grows=False,
            emulated=devices.emulated,
            turns=None if lanes is None else lanes.settings.order,
            holder=str(self._mine),
        )
        self._lanes = lanes
        self._keep_s = keep_s
        self.bounds = bounds or JobBounds()
        self.accounts = accounts or Accounts()
        self.groups = groups_here(folder) if groups is None else groups
        self._tell: Tell = lambda report: None
        self._runner: ProcessRunner
        self._retention: Retention
        self._launcher = ThreadPoolExecutor(1, "launcher")
        self._ends = ThreadPoolExecutor(1, "ends")
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._look_s = look_s
        self._looker = threading.Thread(target=self._look, name="devices", daemon=True)
        self._asked: set[Attempt] = set()
        """Attempts that are on their way."""
        self._failed: dict[Attempt, NeverBegan] = {}
        """The newest attempts that could not be started."""

    def start(self, tell: Tell) -> None:
        """Begin to watch and to report."""
        for folder in (self.runs, self.secrets.folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._tell = tell
        self.groups.end_functions()
        self.groups.tidy()
        self.accounts.prepare()
        self._runner = ProcessRunner(
            self.runs,
            self._over,
            groups=self.groups,
            work=self.accounts.work,
            tell_begun=tell,
        )
        self._retention = Retention(self.runs, self._runner.runs, self._keep_s)
        self._retention.start()
        self._looker.start()
        if self._lanes is not None:
            self._lanes.heard = self._heard
            self._lanes.start()

    def close(self) -> None:
        """Stop watching; jobs run on, and what has not begun is left to the next server."""
        self._launcher.shutdown(cancel_futures=True)
        self._closing.set()
        self._looker.join()
        self._retention.close()
        self._runner.close()
        self._ends.shutdown(cancel_futures=True)
        self._others.close()
        if self._lanes is not None:
            self._lanes.close()

    def check(self, job: JobSpec, user: str, *, is_admin: bool = False) -> None:
        """Refuse jobs that would run as root, have too many processes, or name no secret.

        Those that would begin in a folder that is not there are refused, too.
        """
        self.accounts.check(user, is_admin=is_admin)
        self.bounds.check(job)
        if self.accounts.of(user) is None:  # others may not learn what only root can see
            check_workdir(job)
        self.secrets.check(job.secrets, user)

    def observe(self, known: Collection[Attempt]) -> Observation:
        """See what has become of attempts; those that nobody has begun are fenced off."""
        with self._lock:
            asked = set(self._asked)
        sights = [Pending(one) if one in asked else self._find(one) for one in known]
        others = self._runner.strangers({*known, *asked})
        kept = (found_in(self._runner.folder(one), one) for one in others)
        return Observation(
            (self.devices.machine,),
            attempts=(*sights, *map(Begun, others)),
            found=tuple(one for one in kept if one is not None),
            serial=self._runner.serial(),
        )

    def unreachable(self, holder: str) -> str | None:
        """Return why nobody here can tell what became of a holder's attempts, if so."""
        found = self._others.folder(holder)
        return found.why if isinstance(found, OutOfReach) else None

    def begin(self, launch: Launch) -> None:
        """Start the processes of an attempt, soon."""
        with self._lock:
            self._asked.add(launch.attempt)
        self._launcher.submit(self._begin, launch)

    def grow(self, launch: Launch) -> None:
        """Refuse: nothing here could let processes that run know of more."""
        why = "Jobs on one machine do not grow."
        self._tell(NeverGrew(launch.attempt, launch.growth, why))

    def stop(self, attempt: Attempt, how: Stop) -> None:
        """Stop an attempt, after everything that was asked before."""
        self._launcher.submit(self._stop, attempt, how)

    def discard(self, key: str, *, was_cancelled: bool, why: str) -> None:
        """Do nothing: nothing comes in through this engine."""

    def output(self, attempt: Attempt, begin: int, size: int) -> Output:
        """Return what an attempt printed."""
        return self._runner.output(attempt, begin, size)

    def dial(self, attempt: Attempt, port: int | None) -> socket.socket:
        """Return a socket that leads to a port of an attempt, or to its terminal."""
        folder = self._runner.folder(attempt)
        if port is None:
            return to_terminal(folder)
        return to_port(group_in(folder), port)

    # -- threads of its own -----------------------------------------------------------

    def _begin(self, launch: Launch) -> None:
        attempt = launch.attempt
        report: AttemptPast | None
        try:
            report = self._failed.get(attempt) or self._past(attempt, digest_of(launch.job))
            if isinstance(report, Pending | Begun) and self._is_elsewhere(launch):
                self._runner.stop(attempt)
                report = Pending(launch.attempt)
            if report is None and self._runner.was_cancelled(attempt):
                report = Ended(attempt, None, "cancelled")
            if report is None:
                self._runner.start(self._order(launch))
                report = Pending(attempt)
        except (OSError, InterlaneError) as error:
            report = self._never(NeverBegan(attempt, f"{error}", lacking(error)))
        except Exception as error:  # our own fault, and no reason to run nothing any more
            log.error("Attempt %s could not be started.", attempt, exc_info=error)
            why = f"The server failed to start it ({error!r})."
            report = self._never(NeverBegan(attempt, why))
        with self._lock:
            self._asked.discard(attempt)
        if not isinstance(report, Pending | Unanswered):  # else that is told later
            self._tell(report)

    def _is_elsewhere(self, launch: Launch) -> bool:
        """Tell whether an attempt has begun in another place than it is asked for now.

        A server may have asked for it of which the store knows nothing any more, because an
        old copy was put back: then nothing may be given to others there until it has ended.
        """
        found = found_in(self._runner.folder(launch.attempt), launch.attempt)
        return found is not None and found.placement != launch.placement

    def _never(self, report: NeverBegan) -> NeverBegan:
        """Remember that an attempt never began: it may be asked for once more."""
        self._failed[report.attempt] = report
        while len(self._failed) > FAILED_MAX:
            del self._failed[next(iter(self._failed))]
        return report

    def _order(self, launch: Launch) -> ShimOrder:
        account = self.accounts.of(launch.origin.user)
        devices = self.devices
        if devices.cpu_milli:
            _must_be_there(launch, devices.again())
        return order_of(
            *(launch, self.secrets, devices, self._lanes, self.bounds, account),
            paced="cpu" not in self.groups.limits,
        )

    def _stop(self, attempt: Attempt, how: Stop) -> None:
        match how:
            case Stop.KILL:
                self._runner.kill(attempt)
            case Stop.CANCEL:
                self._runner.cancel(attempt)
            case Stop.GRACEFUL:
                self._runner.stop(attempt)

    def _past(self, attempt: Attempt, digest: str) -> AttemptPast | None:
        """Say what became of an attempt that was asked for before; it is begun once."""
        found = self._runner.past(attempt, digest)
        return self._with_use(found) if isinstance(found, Ended) else found

    def _find(self, attempt: Attempt) -> Sight:
        """Look for an attempt where it is held; nobody is asked who may be alive and deaf."""
        folder = self._others.folder(attempt.holder)
        if isinstance(folder, OutOfReach) and folder.is_served:
            return Pending(attempt)  # that server ends soon, for it can store nothing any more
        if isinstance(folder, OutOfReach):
            return Unanswered(attempt, f"{folder.why} {DECIDE.format(attempt.job_id)}")
        if folder != self._mine.path:
            self._runner.take_over(attempt.holder, folder / RUNS)
        found = self._runner.find(attempt)
        return self._with_use(found) if isinstance(found, Ended) else found

    def _over(self, report: Ended | NeverBegan) -> None:
        """Tell of an end; what the job did on its device is asked for first."""
        if isinstance(report, Ended) and self._lanes is not None:
            self._ends.submit(lambda: self._tell(self._with_use(report)))
        else:
            self._tell(report)

    def _with_use(self, ended: Ended) -> Ended:
        if self._lanes is None:
            return ended
        return replace(ended, use=self._lanes.run(run_number(ended.attempt)))

    def _look(self) -> None:
        """Look for devices again and again; a device that is lost changes the machine."""
        while not self._closing.wait(self._look_s):
            try:
                found = self.devices.again()
            except Exception as error:  # a driver that fails is no reason to look no more
                log.warning("Devices could not be looked for: %s", error)
                continue
            if found is not self.devices:
                self.devices = found
                if self._lanes is not None:
                    self._lanes.share(found.shared)
                self._tell(MachineSeen(found.machine))

    def _heard(self, report: DaemonReport, now_s: float) -> None:
        self._tell(Measured(report, now_s, self.devices.gpus))


def _must_be_there(launch: Launch, devices: Devices) -> None:
    """Refuse to begin on a slice that was destroyed since it was given to the attempt."""
    for number in sorted({gpu for spot in launch.placement.spots for gpu in spot.gpus}):
        if not devices.machine.device(number).compute_milli:
            raise MachineLacks(f"device {number}, which was cut up otherwise,")
