"""The shim of one attempt: a small process of its own that outlives the server.

    python -I -S shim.py RUN_DIR          the order comes on standard input, as JSON

It claims the attempt, starts the job's processes, keeps their output in a log that does not
grow without bound, stops them when told to or when their time is over, waits until none of
them is left, and writes down how they ended.  Files of a run's folder:

* ``claim``: exists once somebody has claimed the attempt, and is locked for as long as its
  shim lives.  It is linked into place locked already, so that there is no moment between.  It
  says whose it is, as JSON; see ``claims``.
* ``log.0``, ``log.16777216``, ...: what the job printed, each part named after the byte it
  begins with; the newest two are kept.
* ``ended``: how it ended, written whole or not at all.

SIGTERM asks the shim to stop the job: with the order's signal, and by force after its
grace.  SIGUSR1 asks it to end the job by force at once.  It is started with both blocked, so
that none comes too early.

This file is run alone, without the package and without site-packages, because it must start
quickly; so it imports the standard library only, and little of that.
"""

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import sys
import time

CLAIM, ENDED, LOG = "claim", "ended", "log."
FENCED = "fenced"
"""What a claim says that was made so that nobody runs the attempt any more."""

FORMAT = 1
"""Version of what ``claim`` and ``ended`` say."""

IDENTITY = ("job_id", "uid", "attempt")
"""What both say of whose they are."""

LOG_FILE_BYTES = 16 << 20
"""A part of the log that has grown to this is followed by another."""

LOG_FILES = 2

CHUNK_BYTES = 1 << 16
LOOK_EVERY_S = 0.5
"""Seconds between looks at clocks and at children when nothing else happens."""

KILL = signal.SIGUSR1
"""Asks a shim to end its job at once."""

COULD_NOT_START = 127
KILLED_BASE = 128
"""A process ended by signal n counts as exit code 128 + n, as shells say it."""

LOST_OUTPUT = b"\n[interlane: output is missing here; it could not be written]\n"

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def claim(folder: str, words: str) -> int | None:
    """Claim an attempt; return the locked file, or None if somebody has claimed it before."""
    mine = os.path.join(folder, f"{CLAIM}.{os.getpid()}")
    fd = os.open(mine, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, words.encode())
        os.fsync(fd)
        os.link(mine, os.path.join(folder, CLAIM))
        _sync(folder)
    except FileExistsError:
        os.close(fd)
        return None
    finally:
        os.unlink(mine)
    return fd


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class _Log:
    """Output in files named after the byte they begin with; only the newest two are kept."""

    def __init__(self, folder: str, file_bytes: int) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._begins = [0]
        self._size = 0
        """Bytes of all files, also of those that are gone."""
        self._fd = self._opened()
        self._lost = False

    def _opened(self) -> int:
        path = self._path(self._begins[-1])
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _path(self, begin: int) -> str:
        return os.path.join(self._folder, f"{LOG}{begin}")

    def write(self, data: bytes) -> None:
        """Append; a full disk costs output, never the job."""
        try:
            if self._lost:
                data, self._lost = LOST_OUTPUT + data, False
            while data:
                if self._size - self._begins[-1] >= self._file_bytes:
                    self._turn_over()
                room = self._begins[-1] + self._file_bytes - self._size
                written = os.write(self._fd, data[:room])
                self._size += written
                data = data[written:]
        except OSError:
            self._lost = True

    def _turn_over(self) -> None:
        self._begins.append(self._size)
        os.close(self._fd)
        self._fd = self._opened()
        if len(self._begins) > LOG_FILES:
            os.unlink(self._path(self._begins.pop(0)))


class _Shim:
    def __init__(self, folder: str, order: dict) -> None:  # type: ignore[type-arg]
        self.folder = folder
        self.order = order
        self.log = _Log(folder, order["log_file_bytes"])
        self.children: dict[int, int] = {}
        """Process -> its rank, of those that the order names and that have not ended."""
        self.code: int | None = None
        self.why: str | None = None
        """Why the job is being stopped; None while it is not."""
        self.force_at_s = float("inf")
        limit_s = order["limit_s"]
        self.limit_at_s = float("inf") if limit_s is None else time.monotonic() + limit_s

    def run(self) -> None:
        """Start everything, and wait until nothing of it is left."""
        ends, written = os.pipe2(os.O_CLOEXEC)
        alarm, rung = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, KILL, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        # A signal that comes between fork and exec waits: it must not meet our handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        for rank, process in enumerate(self.order["processes"]):
            self._start(rank, process, written)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.close(written)
        readers = [alarm, ends]
        while readers[1:] or self._anyone_left():
            ready, _, _ = select.select(readers, [], [], self._patience_s())
            if alarm in ready:
                self._hear(alarm)
            if ends in ready and not self._copy(ends):
                readers.remove(ends)
            self._reap()
            self._watch_clock()
            if not self.children and self.force_at_s == float("inf"):
                self._end_rest()

    def _start(self, rank: int, process: dict, output: int) -> None:  # type: ignore[type-arg]
        pid = os.fork()
        if pid == 0:
            self._become(process, output)
        self.children[pid] = rank

    def _become(self, process: dict, output: int) -> None:  # type: ignore[type-arg]
        """Turn the child into the job's process; never returns."""
        try:
            os.setsid()
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, KILL, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            memory_bytes = process["memory_bytes_max"]
            if memory_bytes is not None:
                resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(self.order["workdir"])
            os.execvpe(process["argv"][0], process["argv"], process["env"])
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            os.write(
                output, f"[interlane: could not start: {error.strerror}{where}]\n".encode()
            )
        finally:
            os._exit(COULD_NOT_START)

    def _hear(self, alarm: int) -> None:
        heard = os.read(alarm, 512)
        if signal.SIGTERM in heard and self.why is None:
            self._stop("stopped")
        if KILL in heard:
            self.why = self.why or "stopped"
            self._force()

    def _copy(self, ends: int) -> bool:
        data = os.read(ends, CHUNK_BYTES)
        if data:
            self.log.write(data)
        return bool(data)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self.children.pop(pid, None) is None:
                continue  # an orphan of the job's, not one of its own processes
            code = os.waitstatus_to_exitcode(status)
            code = code if code >= 0 else KILLED_BASE - code
            if self.code is None or (code and not self.code):
                self.code = code
            if code and self.children and self.why is None:
                self._stop("failed")  # a gang ends when one of it fails

    def _anyone_left(self) -> bool:
        return bool(self.children) or bool(_descendants())

    def _patience_s(self) -> float:
        now_s = time.monotonic()
        return max(0.0, min(LOOK_EVERY_S, self.force_at_s - now_s, self.limit_at_s - now_s))

    def _watch_clock(self) -> None:
        now_s = time.monotonic()
        if now_s >= self.limit_at_s and self.why is None:
            self._stop("limit")
        if now_s >= self.force_at_s:
            self._force()

    def _stop(self, why: str) -> None:
        """Ask the job to stop; make it when the grace is over."""
        self.why = why
        self.limit_at_s = float("inf")
        self.force_at_s = time.monotonic() + self.order["grace_s"]
        for pid in self.children:
            _signal_group(pid, self.order["signal"])

    def _force(self) -> None:
        """Kill everything that is left, again and again until nothing is."""
        self.force_at_s = time.monotonic() + LOOK_EVERY_S
        for pid in (*self.children, *_descendants()):
            _signal_group(pid, signal.SIGKILL)

    def _end_rest(self) -> None:
        """End what the job has left behind: it does not outlive the job."""
        left = len(_descendants())
        if left:
            said = f"[interlane: processes that the job left behind ({left}) end with it]\n"
            self.log.write(said.encode())
        self._force()

    def write_end(self) -> None:
        """Write down how the job ended, whole or not at all."""
        whose = {name: self.order["claim"].get(name) for name in IDENTITY}
        how = {"exit_code": self.code, "why": self.why, "at_s": time.time()}
        ended = {"format": FORMAT, **how, **whose}
        beside = os.path.join(self.folder, f"{ENDED}.new")
        text = json.dumps(ended).encode()
        while True:
            try:
                with open(beside, "wb") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(beside, os.path.join(self.folder, ENDED))
                _sync(self.folder)
            except FileNotFoundError:
                return  # the folder is gone, and with it everybody who could ask
            except OSError:
                time.sleep(1.0)  # a full disk: nothing may be lost, so there is no hurry
            else:
                return


def _descendants() -> list[int]:
    """Return the processes below this one; orphans of the job become its own children."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    words = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if words[0] != b"Z":
                parents.setdefault(int(words[1]), []).append(int(name))
    found, look = [], [os.getpid()]
    while look:
        below = parents.get(look.pop(), [])
        found += below
        look += below
    return found


def _signal_group(pid: int, number: int) -> None:
    for kill in (os.killpg, os.kill):  # alone, while it has no group yet
        try:
            kill(pid, number)
            return
        except (ProcessLookupError, PermissionError):
            pass


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main(folder: str) -> int:
    """Keep the attempt whose folder this is."""
    os.chdir("/")
    order = json.load(sys.stdin.buffer)
    shim = _Shim(folder, order)  # opens its log: without room for that, nothing is claimed
    words = {"format": FORMAT, "pid": os.getpid(), **order["claim"]}
    held = claim(folder, json.dumps(words))
    if held is None:
        return 1
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    shim.run()
    shim.write_end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
