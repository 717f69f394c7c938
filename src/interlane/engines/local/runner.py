"""Runs attempts at jobs as processes of this machine.

Every attempt has a folder and a shim of its own (``shim``), a process that outlives the server;
so a server that comes back finds what runs.

No attempt runs twice.  The driver writes an attempt down before it asks for it, a shim
claims its attempt before it runs anything, and a runner that finds an attempt unclaimed
claims it itself, which fences off any shim that is late.
"""

import fcntl
import json
import logging
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from interlane.engines.local import shim
from interlane.engines.local.accounts import WORK, Account
from interlane.engines.local.attempt_group import AttemptGroup, boot
from interlane.engines.local.claims import (
    folder_name,
    has_begun,
    identity_of,
    is_cancelled,
    is_foreign,
    is_number,
    mark_cancelled,
    read_claim,
    read_end,
    run_name,
    shim_of,
)
from interlane.engines.local.groups import AttemptGroups, GroupLimits, group_in, keep_group
from interlane.engines.local.places import JobPlaces, clear_temporary, made_places
from interlane.engines.local.shortage import WORDS, Descriptors
from interlane.live.port import (
    Attempt,
    Begun,
    Ended,
    NeverBegan,
    Output,
    Pending,
    Unanswered,
)

SHIM: Final = Path(shim.__file__)
LOST: Final = "Its shim and the shim's watcher were killed, so that its end is unknown."
WENT_DOWN: Final = "The machine went down while it ran."
LEFT_BEHIND: Final = "Processes of %s are left, and are killed: %s"
NEVER_WHOLE: Final = "Not all of its processes could be started, so none was."
NOBODY: Final = "Nobody had begun it, and nobody will."
UNBEGUN: Final = "Its shim ended before it had begun."
SHIM_GONE_S: Final = 0.02
SHIM_LOOKS: Final = 50
HIDDEN: Final = (
    "Its claim {0} is held by a process that cannot be seen from here; it is left alone until "
    "that has ended."
)
STOPPED, CANCELLED = "stopped", "cancelled"
"""Why attempts ended, as ``live.port.Ended`` has it."""
NAME_LENGTH: Final = 64
LOOK_AGAIN_S: Final = 2.0
"""Seconds between looks for an end that the disk does not tell."""

log = logging.getLogger("interlane.live")


@dataclass(frozen=True, slots=True)
class JobProcess:
    """One process of a job."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    """May hold secrets, so that it is never printed."""
    memory_bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class ShimOrder:
    """All that a shim needs to run an attempt."""

    attempt: Attempt
    processes: tuple[JobProcess, ...]
    signal: int
    grace_s: float
    workdir: Path | None = None
    """None for a folder of the attempt's own."""
    limit_s: float | None = None
    limits: GroupLimits = field(default_factory=GroupLimits)
    """What all processes may have together."""
    account: Account | None = None
    """As whom it runs; None for the server's own."""
    claim: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What its claim says beside whose it is; see ``claims.claim_of``."""
    terminal: Mapping[str, Any] | None = None
    """Rows, columns and patience of its terminal, if it has one; see ``terminal``."""

    @property
    def digest(self) -> str | None:
        """Of what the job's user wrote, if it is known."""
        return self.claim.get("digest")


AttemptPast = Pending | Begun | Ended | NeverBegan | Unanswered
Told = Callable[[Ended | NeverBegan], None]


class ProcessRunner:
    """Runs attempts as plain processes."""

    def __init__(
        self,
        folder: Path,
        tell: Told,
        log_file_bytes: int | None = None,
        look_again_s: float = LOOK_AGAIN_S,
        groups: AttemptGroups | None = None,
        work: Path = WORK,
        tell_begun: Callable[[Begun], None] = lambda begun: None,
    ) -> None:
        self._folder = folder
        self._tell_begun = tell_begun
        self._groups = AttemptGroups() if groups is None else groups
        self._descriptors = Descriptors()
        self._work = work
        self._look_again_s = look_again_s
        self._tell = tell
        self._log_file_bytes = log_file_bytes or shim.LOG_FILE_BYTES
        self._lock = threading.Lock()
        self._watched: dict[Attempt, _Watched] = {}
        self._unheard: dict[Attempt, _Watched] = {}
        """Those of which only a mark on the disk tells that their job has begun."""
        self._roots: dict[str, Path] = {}
        """Folders of runs of others, by holder."""
        self._past: set[Path] = set()
        """Folders of attempts that are known to be over."""
        self._untold: dict[Attempt, int | None] = {}
        """Attempts whose shim has ended with this status, until that is told."""
        self._selector = selectors.DefaultSelector()
        self._heard, self._call = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._heard, selectors.EVENT_READ)
        self._closing = False
        self._watcher = threading.Thread(target=self._watch, name="runner", daemon=True)
        self._watcher.start()

    def start(self, order: ShimOrder) -> None:
        """Start an attempt under a shim of its own, or raise ``OSError``; its end is told."""
        folder = self.folder(order.attempt)
        if is_foreign(read_claim(folder), order.attempt, order.digest):
            _set_aside(folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        job_id, number, uid = order.attempt.job_id, order.attempt.number, order.attempt.uid
        name = f"{job_id[:NAME_LENGTH]}.{uid or 'run'}.{number}"
        with self._descriptors.for_a_start():
            group = self._groups.make(name, order.limits)
            try:
                keep_group(folder, group)
                places = made_places(folder, order.account, self._work)
                said = _order(order, places, group, self._log_file_bytes)
                said["descriptors"] = self._descriptors.soft
                self._spawn(order.attempt, folder, json.dumps(said).encode())
            except OSError:
                group.remove()
                raise

    def _spawn(self, attempt: Attempt, folder: Path, order: bytes) -> None:
        """Start a shim, watch it, then give it its order: without one it claims nothing."""
        with ExitStack() as kept:
            with ExitStack() as given:
                ends, written = _pipe(given, kept)
                heard, tells = _pipe(kept, given)
                pid = _spawned(folder, ends, tells)
            try:
                self._add(_Watched(attempt, pid, os.pidfd_open(pid), heard))
            except OSError:
                kept.close()
                os.waitpid(pid, 0)
                raise
            kept.pop_all()
        with suppress(BrokenPipeError), os.fdopen(written, "wb") as file:
            file.write(order)

    def past(self, attempt: Attempt, digest: str | None = None) -> AttemptPast | None:
        """Say what has become of an attempt that was begun or fenced off; None if neither."""
        folder = self.folder(attempt)
        known = self._known(attempt, folder)
        if known is not None:
            return known
        if not (folder / shim.CLAIM).exists():
            return None
        return None if is_foreign(read_claim(folder), attempt, digest) else self.find(attempt)

    def find(self, attempt: Attempt) -> AttemptPast:
        """Adopt a shim that lives, say how one ended, or fence the attempt off."""
        folder = self.folder(attempt)
        known = self._known(attempt, folder)
        if known is not None:
            return known
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        never = _never_began(folder, attempt)
        if never is not None:
            group = group_in(folder)
            if group is not None and not is_foreign(read_claim(folder), attempt):
                group.remove()  # whoever made it died before its shim could
            return NeverBegan(attempt, never)
        try:
            alive = _shim_alive(folder)
        except _Hidden:
            return Unanswered(attempt, HIDDEN.format(folder / shim.CLAIM))
        if alive is None:
            if not self._is_over(attempt):
                self._remember(attempt)
                return _on_its_way(attempt, folder)
            return self._end(attempt)
        self._add(_Watched(attempt, *alive, None, has_begun(folder)))
        return _on_its_way(attempt, folder)

    def _known(self, attempt: Attempt, folder: Path) -> Pending | Begun | None:
        """Return how far an attempt is whose end is yet to be told; None for all others."""
        with self._lock:
            watched, is_untold = self._watched.get(attempt), attempt in self._untold
        if watched is not None:
            return Begun(attempt) if watched.has_begun else Pending(attempt)
        return _on_its_way(attempt, folder) if is_untold else None

    def take_over(self, holder: str, runs: Path) -> None:
        """Look for the attempts of another holder in its folder of runs."""
        self._roots[holder] = runs

    def strangers(self, known: Collection[Attempt]) -> list[Attempt]:
        """Adopt and return the attempts that run and that nobody named."""
        named = {self.folder(attempt) for attempt in known}
        return [
            attempt
            for holder, root in (("", self._folder), *self._roots.items())
            for folder in root.glob("*/*")
            if folder not in self._past
            and folder not in named
            and (attempt := self._stranger(folder, holder)) is not None
        ]

    def serial(self) -> int:
        """Return the highest number of a job that has a folder here."""
        names = (run_name(folder.name) for folder in self._folder.iterdir())
        return max((name.serial for name in names if name is not None), default=0)

    def _stranger(self, folder: Path, holder: str) -> Attempt | None:
        name = run_name(folder.parent.name)
        if name is None or not is_number(folder.name) or not (folder / shim.CLAIM).exists():
            return None  # nobody has begun it; whoever knows it asks about it by name
        attempt = Attempt(name.job_id, int(folder.name), name.uid, holder)
        if isinstance(self.find(attempt), Pending | Begun):
            return attempt
        self._past.add(folder)
        return None

    def stop(self, attempt: Attempt) -> None:
        """Ask the shim to stop its job, with the job's signal and after its grace by force."""
        with self._lock:
            watched = self._watched.get(attempt)
            if watched is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(watched.fd, signal.SIGTERM)

    def cancel(self, attempt: Attempt) -> None:
        """Stop a job for good: no server runs it again, whatever copy of the records it has."""
        try:
            mark_cancelled(self.folder(attempt))
        except FileNotFoundError:
            pass  # nothing of it has begun
        except OSError as error:  # what nobody wants is ended in any case
            log.warning("That %s was cancelled is not noted: %s", attempt.job_id, error)
        self.stop(attempt)

    def was_cancelled(self, attempt: Attempt) -> bool:
        """Tell whether the job was stopped for good, under this attempt or another."""
        return is_cancelled(self.folder(attempt))

    def kill(self, attempt: Attempt) -> None:
        """Ask the shim to end its job at once."""
        with self._lock:
            watched = self._watched.get(attempt)
            if watched is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(watched.fd, shim.KILL)

    def output(self, attempt: Attempt, begin: int, size: int) -> Output:
        """Return what a job printed, from the first byte still kept at or after ``begin``."""
        files = _log_files(self._printed_in(attempt))
        if begin < 0:
            printed = files[-1][0] + files[-1][1].stat().st_size if files else 0
            begin = max(0, printed + begin)
        for first, path in files:
            with suppress(FileNotFoundError):
                if begin < first + path.stat().st_size:
                    begin = max(begin, first)
                    with path.open("rb") as file:
                        file.seek(begin - first)
                        return Output(begin, file.read(size))
        return Output(begin, b"")

    def close(self) -> None:
        """Stop watching."""
        self._closing = True
        os.write(self._call, b".")
        self._watcher.join()
        self._descriptors.close()
        for watched in self._watched.values():
            os.close(watched.fd)
            if watched.heard is not None:
                os.close(watched.heard)
        for fd in (self._heard, self._call):
            os.close(fd)
        self._selector.close()

    def runs(self, name: str) -> bool:
        """Tell whether an attempt runs at the job whose folder is called so."""
        with self._lock:
            known = (*self._watched, *self._untold)
            return any(folder_name(attempt) == name for attempt in known)

    def folder(self, attempt: Attempt) -> Path:
        """Return the folder of an attempt, of whoever holds it."""
        root = self._roots.get(attempt.holder, self._folder)
        return root / folder_name(attempt) / str(attempt.number)

    def _printed_in(self, attempt: Attempt) -> Path:
        """Return where an attempt printed, whoever held it then."""
        name = Path(folder_name(attempt)) / str(attempt.number)
        roots = (self._folder, *self._roots.values())
        return next((root / name for root in roots if (root / name).is_dir()), roots[0] / name)

    # -- watching ---------------------------------------------------------------------

    def _add(self, watched: "_Watched") -> None:
        with self._lock:
            self._watched[watched.attempt] = watched
            self._selector.register(watched.fd, selectors.EVENT_READ, watched)
            if watched.heard is not None:
                self._selector.register(watched.heard, selectors.EVENT_READ, watched)
            elif not watched.has_begun:
                self._unheard[watched.attempt] = watched
        os.write(self._call, b".")

    def _watch(self) -> None:
        while not self._closing:
            is_due = self._untold or self._unheard
            for key, _ in self._selector.select(self._look_again_s if is_due else None):
                if key.data is None:
                    os.read(self._heard, 4096)
                elif key.fd == key.data.fd:
                    self._let_go(key.data)
                else:
                    self._hear(key.data)
            for watched in list(self._unheard.values()):
                self._look_at(watched)
            for attempt, status in list(self._untold.items()):
                self._try_to_tell(attempt, status)

    def _hear(self, watched: "_Watched") -> None:
        """Hear that a job begins, or that its shim will never say so."""
        if watched.heard is None:
            return  # it ended in the same moment
        said = os.read(watched.heard, 1)
        self._hang_up(watched)
        if said:
            self._note_begun(watched)

    def _hang_up(self, watched: "_Watched") -> None:
        with self._lock:
            heard, watched.heard = watched.heard, None
            if heard is not None:
                self._selector.unregister(heard)
                os.close(heard)

    def _look_at(self, watched: "_Watched") -> None:
        """See whether a job has begun whose shim was started by another server."""
        if has_begun(self.folder(watched.attempt)):
            self._note_begun(watched)

    def _note_begun(self, watched: "_Watched") -> None:
        watched.has_begun = True
        self._unheard.pop(watched.attempt, None)
        self._tell_begun(Begun(watched.attempt))

    def _let_go(self, watched: "_Watched") -> None:
        """Stop watching a shim that has ended; how its job did is told when nothing is left."""
        if not watched.has_begun:
            self._look_at(watched)
        self._unheard.pop(watched.attempt, None)
        self._hang_up(watched)
        status = None
        with suppress(ChildProcessError):  # an adopted shim is nobody's child
            _, status = os.waitpid(watched.pid, 0)
        with self._lock:
            self._selector.unregister(watched.fd)
            del self._watched[watched.attempt]
            self._untold[watched.attempt] = status
            os.close(watched.fd)

    def _remember(self, attempt: Attempt) -> None:
        """Go on looking at an attempt whose shim has ended, and of which something is left."""
        with self._lock:
            self._untold.setdefault(attempt, None)
        os.write(self._call, b".")

    def _try_to_tell(self, attempt: Attempt, status: int | None) -> None:
        """Tell how an attempt ended, unless something of it is left or nobody knows yet."""
        try:
            if not self._is_over(attempt):
                return
            end = self._end(attempt, status)
        except OSError as error:
            log.warning("How %s ended cannot be told yet: %s", attempt.job_id, error)
            return
        except Exception as error:  # whatever one job has left, others end, too
            log.error("How %s ended cannot be told.", attempt.job_id, exc_info=error)
            return
        with self._lock:
            self._untold.pop(attempt, None)
        self._tell(end)

    def _is_over(self, attempt: Attempt) -> bool:
        """Kill whatever a dead shim has left behind; return whether nothing is left."""
        folder = self.folder(attempt)
        group = group_in(folder)
        if _is_locked(folder / shim.CLAIM):
            return False  # its watcher was killed, and the shim ends the job
        if group is None or (group.is_marked and (folder / shim.ENDED).exists()):
            clear_temporary(folder)
            return True  # a shim that has written the end has looked, which takes its time
        left = group.processes()
        if left:
            log.warning(LEFT_BEHIND, attempt.job_id, left)
            group.kill()
            return False
        group.remove()
        clear_temporary(folder)
        return True

    def _end(self, attempt: Attempt, status: int | None = None) -> Ended | NeverBegan:
        folder = self.folder(attempt)
        if not folder.is_dir():
            return Ended(attempt, None, shim.CUT_OFF, cause=LOST)
        unclaimed, lacks = _why_unclaimed(status)
        never = _never_began(folder, attempt, unclaimed)
        if never is not None:
            return NeverBegan(attempt, never, lacks if never == unclaimed else None)
        end = read_end(folder, attempt)
        if end is None:
            return _lost(attempt, group_in(folder))
        if end.lacks is not None:
            lacks = WORDS.get(end.lacks, f"what a start takes ({os.strerror(end.lacks)})")
            return NeverBegan(attempt, NEVER_WHOLE, lacks)
        why = CANCELLED if end.why == STOPPED and is_cancelled(folder) else end.why
        return Ended(attempt, end.exit_code, why, cause=end.cause)


def _on_its_way(attempt: Attempt, folder: Path) -> Pending | Begun:
    return Begun(attempt) if has_begun(folder) else Pending(attempt)


def _pipe(first: ExitStack, second: ExitStack) -> tuple[int, int]:
    """Return the ends of a pipe, the one that is read and the one that is written."""
    ends, written = os.pipe2(os.O_CLOEXEC)
    first.callback(os.close, ends)
    second.callback(os.close, written)
    return ends, written


def _lost(attempt: Attempt, group: AttemptGroup | None) -> Ended:
    """Return the end of an attempt of which nobody has written it down."""
    if group is not None and group.boot != boot():
        return Ended(attempt, None, "lost", cause=WENT_DOWN)
    return Ended(attempt, None, shim.CUT_OFF, cause=LOST)


def _why_unclaimed(status: int | None) -> tuple[str, str | None]:
    """Say why a shim has not claimed its attempt, and what the machine lacked for it."""
    code = None if status is None else os.waitstatus_to_exitcode(status)
    if code is None:
        return UNBEGUN, None
    if code < 0:
        name = signal.Signals(-code).name
        return f"Its shim was killed by {name} before it had begun.", "memory, perhaps,"
    place = code - shim.SHORT_CODE
    if 0 <= place < len(shim.SHORTAGES):
        lacks = WORDS[shim.SHORTAGES[place]]
        return UNBEGUN, lacks
    return UNBEGUN, None


@dataclass(slots=True)
class _Watched:
    attempt: Attempt
    pid: int
    fd: int
    """Refers to the shim's process, and to no other that gets its number later."""
    heard: int | None
    """On which the shim says that its job begins; None for one of another server."""
    has_begun: bool = False


def _order(
    order: ShimOrder, places: JobPlaces, group: AttemptGroup, log_file_bytes: int
) -> dict[str, Any]:
    return {
        "processes": [
            {
                "argv": each.argv,
                "env": {**places.variables, **each.env, **group.variables},
                "memory_bytes_max": each.memory_bytes_max,
            }
            for each in order.processes
        ],
        "signal": order.signal,
        "grace_s": order.grace_s,
        "limit_s": order.limit_s,
        "workdir": str(order.workdir or places.work),
        "account": None if order.account is None else asdict(order.account),
        "group": group.document,
        "log_file_bytes": log_file_bytes,
        "terminal": order.terminal,
        "tells": shim.TELLS,
        "claim": {**identity_of(order.attempt), **order.claim},
    }


def _spawned(folder: Path, ends: int, tells: int) -> int:
    """Start a shim in a session of its own that reads its order from a pipe; return its number.

    The signals that stop it are blocked until it is ready for them.
    """
    errors = os.open(folder / "shim.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return os.posix_spawn(
            sys.executable,
            (sys.executable, "-I", "-S", str(SHIM), str(folder)),
            {},
            file_actions=(
                (os.POSIX_SPAWN_DUP2, ends, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, errors, 2),
                (os.POSIX_SPAWN_DUP2, tells, shim.TELLS),
            ),
            setsid=True,
            setsigmask=(signal.SIGTERM, shim.KILL),
        )
    finally:
        os.close(errors)


def _never_began(folder: Path, attempt: Attempt, unclaimed: str = NOBODY) -> str | None:
    """Claim an attempt that nobody has claimed; return why it will never run, if it will not.

    A claim that was made for another is no claim to this one, and keeps its shim from running.
    """
    words = {"format": shim.FORMAT, shim.FENCED: True, **identity_of(attempt)}
    if not (folder / shim.CLAIM).exists():
        fence = shim.claim(str(folder), json.dumps(words))
        if fence is not None:
            os.close(fence)
            return unclaimed
    said = read_claim(folder)
    if is_foreign(said, attempt):
        return "Its folder has the claim of another attempt, so that it has never run."
    is_fenced = said is not None and said.get(shim.FENCED) is True
    return "It was fenced off before it had begun." if is_fenced else None


def _shim_alive(folder: Path) -> tuple[int, int] | None:
    """Return the shim, by number and by reference, if it lives: its lock says so."""
    for _ in range(SHIM_LOOKS):
        if not _is_locked(folder / shim.CLAIM):
            return None
        pid = shim_of(folder, read_claim(folder))
        if pid is not None:
            with suppress(ProcessLookupError):
                return pid, os.pidfd_open(pid)
        time.sleep(SHIM_GONE_S)  # it ends just now, and lets go of its lock a moment later
    raise _Hidden


class _Hidden(Exception):
    """Somebody has the lock of a claim who cannot be found."""


def _set_aside(folder: Path) -> None:
    """Move what is another's out of the way; nothing of it is lost."""
    for number in count(1):
        aside = folder.with_name(f"{folder.name}.foreign-{number}")
        if not aside.exists():
            log.warning("%s has the claim of another attempt; it is %s now.", folder, aside)
            folder.rename(aside)
            return


def _is_locked(claim: Path) -> bool:
    """Tell whether somebody lives who has claimed an attempt."""
    try:
        with claim.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    return False


def _log_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the parts of a log with the byte that each begins with, in order."""
    found = ((path.name.removeprefix(shim.LOG), path) for path in folder.glob(f"{shim.LOG}*"))
    return sorted((int(begin), path) for begin, path in found if is_number(begin))
