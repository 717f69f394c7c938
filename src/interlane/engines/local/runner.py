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
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from interlane.engines.local import shim
from interlane.live.port import Attempt, Begun, Ended, NeverBegan, Output
from interlane.model import JobId

SHIM: Final = Path(shim.__file__)
LOST: Final = "Its shim was killed or the machine went down, so that its end is unknown."
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
        workdir = order.workdir or folder / "work"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if order.workdir is None:
            workdir.mkdir(exist_ok=True)
        words = json.dumps(_order(order, workdir, self._log_file_bytes)).encode()
        pid = _spawned(folder, words)
        self._add(_Watched(order.attempt, pid, os.pidfd_open(pid)))

    def past(self, attempt: Attempt) -> Begun | Ended | NeverBegan | None:
        """Say what has become of an attempt that was begun or fenced off; None if neither."""
        with self._lock:
            if attempt in self._watched:
                return Begun(attempt)
        return self.find(attempt) if (self.folder(attempt) / shim.CLAIM).exists() else None

    def find(self, attempt: Attempt) -> Begun | Ended | NeverBegan:
        """Adopt a shim that lives, say how one ended, or fence the attempt off."""
        with self._lock:
            if attempt in self._watched:
                return Begun(attempt)
        folder = self.folder(attempt)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if _fenced(folder):
            return NeverBegan(attempt, "Nobody had begun it, and nobody will.")
        words = (folder / shim.CLAIM).read_text()
        fd = _shim_alive(folder, int(words))
        if fd is None:
            return self._end(attempt)
        self._add(_Watched(attempt, int(words), fd))
        return Begun(attempt)

    def strangers(self, known: Collection[Attempt]) -> list[Attempt]:
        """Adopt and return the attempts that run and that nobody named."""
        named = {self.folder(attempt) for attempt in known}
        folders = [folder for folder in self._folder.glob("*/*") if folder not in self._past]
        return [
            attempt
            for folder in folders
            if folder not in named and (attempt := self._stranger(folder)) is not None
        ]

    def _stranger(self, folder: Path) -> Attempt | None:
        if not folder.name.isdigit() or not (folder / shim.CLAIM).exists():
            return None  # nobody has begun it; whoever knows it asks about it by name
        attempt = Attempt(JobId(folder.parent.name), int(folder.name))
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
        files = _log_files(self.folder(attempt))
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

    def runs(self, job_id: str) -> bool:
        """Tell whether an attempt at a job runs."""
        with self._lock:
            return any(attempt.job_id == job_id for attempt in self._watched)

    def folder(self, attempt: Attempt) -> Path:
        """Return the folder of an attempt."""
        return self._folder / attempt.job_id / str(attempt.number)

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
        if _fenced(folder):
            return NeverBegan(attempt, "Its shim ended before it had begun.")
        try:
            said: dict[str, Any] = json.loads((folder / shim.ENDED).read_text())
        except FileNotFoundError:
            return Ended(attempt, None, LOST)
        return Ended(attempt, said["exit_code"], said["why"])


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


def _fenced(folder: Path) -> bool:
    """Claim an attempt that nobody has claimed; return whether it will never run."""
    claim = folder / shim.CLAIM
    if not claim.exists():
        fence = shim.claim(str(folder), shim.FENCED)
        if fence is not None:
            os.close(fence)
            return True
    return claim.read_text() == shim.FENCED


def _shim_alive(folder: Path, pid: int) -> int | None:
    """Return a reference to the shim if it lives: its lock says so, not its number."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    with (folder / shim.CLAIM).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return fd
    os.close(fd)
    return None


def _log_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the parts of a log with the byte that each begins with, in order."""
    return sorted(
        (int(path.name.removeprefix(shim.LOG)), path) for path in folder.glob(f"{shim.LOG}*")
    )
