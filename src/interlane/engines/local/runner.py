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
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from interlane.engines.local import shim
from interlane.engines.local.claims import (
    folder_name,
    identity_of,
    is_foreign,
    read_claim,
    read_end,
    run_name,
    shim_of,
)
from interlane.live.port import Attempt, Begun, Ended, NeverBegan, Output, Unanswered

SHIM: Final = Path(shim.__file__)
LOST: Final = "Its shim was killed or the machine went down, so that its end is unknown."
NOBODY: Final = "Nobody had begun it, and nobody will."
UNBEGUN: Final = "Its shim ended before it had begun."
SHIM_GONE_S: Final = 0.02
SHIM_LOOKS: Final = 50
HIDDEN: Final = (
    "Its claim {0} is held by a process that cannot be seen from here; it is left alone until "
    "that has ended."
)
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
    claim: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What its claim says beside whose it is; see ``claims.claim_of``."""

    @property
    def digest(self) -> str | None:
        """Of what the job's user wrote, if it is known."""
        return self.claim.get("digest")


AttemptPast = Begun | Ended | NeverBegan | Unanswered
Told = Callable[[Ended | NeverBegan], None]


class ProcessRunner:
    """Runs attempts as plain processes."""

    def __init__(
        self,
        folder: Path,
        tell: Told,
        log_file_bytes: int | None = None,
        look_again_s: float = LOOK_AGAIN_S,
    ) -> None:
        self._folder = folder
        self._look_again_s = look_again_s
        self._tell = tell
        self._log_file_bytes = log_file_bytes or shim.LOG_FILE_BYTES
        self._lock = threading.Lock()
        self._watched: dict[Attempt, _Watched] = {}
        self._roots: dict[str, Path] = {}
        """Folders of runs of others, by holder."""
        self._past: set[Path] = set()
        """Folders of attempts that are known to be over."""
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
        workdir = order.workdir or folder / "work"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if order.workdir is None:
            workdir.mkdir(exist_ok=True)
        words = json.dumps(_order(order, workdir, self._log_file_bytes)).encode()
        pid = _spawned(folder, words)
        self._add(_Watched(order.attempt, pid, os.pidfd_open(pid)))

    def past(self, attempt: Attempt, digest: str | None = None) -> AttemptPast | None:
        """Say what has become of an attempt that was begun or fenced off; None if neither."""
        with self._lock:
            if attempt in self._watched:
                return Begun(attempt)
        folder = self.folder(attempt)
        if not (folder / shim.CLAIM).exists():
            return None
        return None if is_foreign(read_claim(folder), attempt, digest) else self.find(attempt)

    def find(self, attempt: Attempt) -> AttemptPast:
        """Adopt a shim that lives, say how one ended, or fence the attempt off."""
        with self._lock:
            if attempt in self._watched:
                return Begun(attempt)
        folder = self.folder(attempt)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        never = _never_began(folder, attempt)
        if never is not None:
            return NeverBegan(attempt, never)
        try:
            alive = _shim_alive(folder)
        except _Hidden:
            return Unanswered(attempt, HIDDEN.format(folder / shim.CLAIM))
        if alive is None:
            return self._end(attempt)
        self._add(_Watched(attempt, *alive))
        return Begun(attempt)

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
        if name is None or not folder.name.isdigit() or not (folder / shim.CLAIM).exists():
            return None  # nobody has begun it; whoever knows it asks about it by name
        attempt = Attempt(name.job_id, int(folder.name), name.uid, holder)
        if isinstance(self.find(attempt), Begun):
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
        for fd in (self._heard, self._call, *(one.fd for one in self._watched.values())):
            os.close(fd)
        self._selector.close()

    def runs(self, name: str) -> bool:
        """Tell whether an attempt runs at the job whose folder is called so."""
        with self._lock:
            return any(folder_name(attempt) == name for attempt in self._watched)

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
        os.write(self._call, b".")

    def _watch(self) -> None:
        untold: list[Attempt] = []
        while not self._closing:
            for key, _ in self._selector.select(self._look_again_s if untold else None):
                if key.data is None:
                    os.read(self._heard, 4096)
                else:
                    self._let_go(key.data)
                    untold.append(key.data.attempt)
            untold = [attempt for attempt in untold if not self._told(attempt)]

    def _let_go(self, watched: "_Watched") -> None:
        """Stop watching a shim that has ended."""
        with self._lock:
            self._selector.unregister(watched.fd)
            del self._watched[watched.attempt]
            os.close(watched.fd)
        with suppress(ChildProcessError):  # an adopted shim is nobody's child
            os.waitpid(watched.pid, 0)

    def _told(self, attempt: Attempt) -> bool:
        """Tell how an attempt ended; False if a full disk, say, keeps that from being known."""
        try:
            end = self._end(attempt)
        except OSError as error:
            log.warning("How %s ended cannot be told yet: %s", attempt.job_id, error)
            return False
        self._tell(end)
        return True

    def _end(self, attempt: Attempt) -> Ended | NeverBegan:
        folder = self.folder(attempt)
        if not folder.is_dir():
            return Ended(attempt, None, LOST)
        never = _never_began(folder, attempt, UNBEGUN)
        if never is not None:
            return NeverBegan(attempt, never)
        end = read_end(folder, attempt)
        if end is None:
            return Ended(attempt, None, LOST)
        return Ended(attempt, end.exit_code, end.why)


@dataclass(frozen=True, slots=True)
class _Watched:
    attempt: Attempt
    pid: int
    fd: int
    """Refers to the shim's process, and to no other that gets its number later."""


def _order(order: ShimOrder, workdir: Path, log_file_bytes: int) -> dict[str, Any]:
    return {
        "processes": [
            {
                "argv": each.argv,
                "env": dict(each.env),
                "memory_bytes_max": each.memory_bytes_max,
            }
            for each in order.processes
        ],
        "signal": order.signal,
        "grace_s": order.grace_s,
        "limit_s": order.limit_s,
        "workdir": str(workdir),
        "log_file_bytes": log_file_bytes,
        "claim": {**identity_of(order.attempt), **order.claim},
    }


def _spawned(folder: Path, order: bytes) -> int:
    """Start a shim in a session of its own and hand it its order; return its number.

    The signals that stop it are blocked until it is ready for them.
    """
    ends, written = os.pipe2(os.O_CLOEXEC)
    errors = os.open(folder / "shim.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        pid = os.posix_spawn(
            sys.executable,
            (sys.executable, "-I", "-S", str(SHIM), str(folder)),
            {},
            file_actions=(
                (os.POSIX_SPAWN_DUP2, ends, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, errors, 2),
            ),
            setsid=True,
            setsigmask=(signal.SIGTERM, shim.KILL),
        )
    except OSError:
        os.close(written)
        raise
    finally:
        os.close(ends)
        os.close(errors)
    with suppress(BrokenPipeError), os.fdopen(written, "wb") as file:
        file.write(order)
    return pid


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


def _is_locked(claim: Path) -> bool:
    with claim.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _set_aside(folder: Path) -> None:
    """Move what is another's out of the way; nothing of it is lost."""
    for number in count(1):
        aside = folder.with_name(f"{folder.name}.foreign-{number}")
        if not aside.exists():
            log.warning("%s has the claim of another attempt; it is %s now.", folder, aside)
            folder.rename(aside)
            return


def _log_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the parts of a log with the byte that each begins with, in order."""
    return sorted(
        (int(path.name.removeprefix(shim.LOG)), path) for path in folder.glob(f"{shim.LOG}*")
    )
