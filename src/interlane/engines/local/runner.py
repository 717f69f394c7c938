"""Runs attempts at jobs as processes of this machine.

``Runner`` is the seam: the driver knows nothing else, and a runner that starts jobs under the
device daemon takes the place of this one.  Every attempt has a folder and a shim of its own
(``shim``), a process that outlives the server; so a server that comes back finds what runs.

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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from interlane.engines.local import shim
from interlane.model import JobId

SHIM: Final = Path(shim.__file__)
LOST: Final = "Its shim was killed or the machine went down, so that its end is unknown."
LOOK_AGAIN_S: Final = 2.0
"""Seconds between looks for an end that the disk does not tell."""

log = logging.getLogger("interlane.live")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to run a job; its number makes it different from all others."""

    job_id: JobId
    number: int


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a job."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    """May hold secrets, so that it is never printed."""
    memory_bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """All that is needed to run an attempt."""

    attempt: Attempt
    processes: tuple[Process, ...]
    signal: int
    grace_s: float
    workdir: Path | None = None
    """None for a folder of the attempt's own."""
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """An attempt has ended."""

    attempt: Attempt
    exit_code: int | None
    """None if nobody knows."""
    why: str | None = None
    """``stopped`` at our wish, ``limit`` when its time was over, else what went wrong."""

    @property
    def was_stopped(self) -> bool:
        """Whether it ended because we wished it."""
        return self.why == "stopped"


@dataclass(frozen=True, slots=True)
class NeverRan:
    """An attempt has not run, and never will."""

    attempt: Attempt
    why: str


Report = Ran | NeverRan
Tell = Callable[[Report], None]


class Runner(Protocol):
    """Runs attempts, and tells how they end; the end of one may be told again."""

    def start(self, launch: Launch) -> None:
        """Start an attempt, or raise ``OSError``; its end is told later."""
        ...

    def recover(self, attempt: Attempt) -> bool:
        """Watch an attempt that an earlier server asked for; False if it never ran."""
        ...

    def stop(self, attempt: Attempt) -> None:
        """Ask an attempt to stop: with its signal first, then by force."""
        ...

    def output(self, attempt: Attempt, begin: int, size: int) -> tuple[int, bytes]:
        """Return printed bytes from the first still kept at or after ``begin``, and which."""
        ...

    def printed_bytes(self, attempt: Attempt) -> int:
        """Return how many bytes an attempt has printed."""
        ...

    def close(self) -> None:
        """Stop watching; what runs goes on."""
        ...


class ProcessRunner:
    """Runs attempts as plain processes."""

    def __init__(self, folder: Path, tell: Tell, log_file_bytes: int | None = None) -> None:
        self._folder = folder
        self._tell = tell
        self._log_file_bytes = log_file_bytes or shim.LOG_FILE_BYTES
        self._lock = threading.Lock()
        self._watched: dict[Attempt, _Watched] = {}
        self._selector = selectors.DefaultSelector()
        self._heard, self._call = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._heard, selectors.EVENT_READ)
        self._closing = False
        self._watcher = threading.Thread(target=self._watch, name="runner", daemon=True)
        self._watcher.start()

    def start(self, launch: Launch) -> None:
        """Start an attempt under a shim of its own."""
        folder = self.folder(launch.attempt)
        workdir = launch.workdir or folder / "work"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if launch.workdir is None:
            workdir.mkdir(exist_ok=True)
        order = json.dumps(_order(launch, workdir, self._log_file_bytes)).encode()
        pid = _spawned(folder, order)
        self._add(_Watched(launch.attempt, pid, os.pidfd_open(pid)))

    def recover(self, attempt: Attempt) -> bool:
        """Adopt a shim that lives, tell of one that has ended, or fence the attempt off."""
        if attempt in self._watched:
            return True
        folder = self.folder(attempt)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if _fenced(folder):
            return False
        words = (folder / shim.CLAIM).read_text()
        fd = _shim_alive(folder, int(words))
        if fd is None:
            self._tell(self._end(attempt))
        else:
            self._add(_Watched(attempt, int(words), fd))
        return True

    def stop(self, attempt: Attempt) -> None:
        """Ask the shim to stop its job."""
        with self._lock:
            watched = self._watched.get(attempt)
            if watched is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(watched.fd, signal.SIGTERM)

    def output(self, attempt: Attempt, begin: int, size: int) -> tuple[int, bytes]:
        """Return what a job printed, from the first byte still kept at or after ``begin``."""
        for first, path in _log_files(self.folder(attempt)):
            with suppress(FileNotFoundError):
                if begin < first + path.stat().st_size:
                    begin = max(begin, first)
                    with path.open("rb") as file:
                        file.seek(begin - first)
                        return begin, file.read(size)
        return begin, b""

    def printed_bytes(self, attempt: Attempt) -> int:
        """Return how many bytes a job has printed."""
        files = _log_files(self.folder(attempt))
        return files[-1][0] + files[-1][1].stat().st_size if files else 0

    def close(self) -> None:
        """Stop watching."""
        self._closing = True
        os.write(self._call, b".")
        self._watcher.join()
        for fd in (self._heard, self._call, *(one.fd for one in self._watched.values())):
            os.close(fd)
        self._selector.close()

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
            for key, _ in self._selector.select(LOOK_AGAIN_S if untold else None):
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

    def _end(self, attempt: Attempt) -> Report:
        folder = self.folder(attempt)
        if not folder.is_dir():
            return Ran(attempt, None, LOST)
        if _fenced(folder):
            return NeverRan(attempt, "Its shim ended before it had begun.")
        try:
            said: dict[str, Any] = json.loads((folder / shim.ENDED).read_text())
        except FileNotFoundError:
            return Ran(attempt, None, LOST)
        return Ran(attempt, said["exit_code"], said["why"])


@dataclass(frozen=True, slots=True)
class _Watched:
    attempt: Attempt
    pid: int
    fd: int
    """Refers to the shim's process, and to no other that gets its number later."""


def _order(launch: Launch, workdir: Path, log_file_bytes: int) -> dict[str, Any]:
    return {
        "processes": [
            {
                "argv": each.argv,
                "env": dict(each.env),
                "memory_bytes_max": each.memory_bytes_max,
            }
            for each in launch.processes
        ],
        "signal": launch.signal,
        "grace_s": launch.grace_s,
        "limit_s": launch.limit_s,
        "workdir": str(workdir),
        "log_file_bytes": log_file_bytes,
    }


def _spawned(folder: Path, order: bytes) -> int:
    """Start a shim in a session of its own and hand it its order; return its number.

    SIGTERM is blocked until it is ready for it.
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
            setsigmask=(signal.SIGTERM,),
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
