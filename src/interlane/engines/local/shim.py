"""The shim of one attempt: a small process of its own that outlives the server.

    python -I -S shim.py RUN_DIR          the order comes on standard input, as JSON

It claims the attempt, starts the job's processes, keeps their output in a log that does not
grow without bound, stops them when told to or when their time is over, waits until none of
them is left, and writes down how they ended.

There are two of it.  The one that was started is the watcher: it passes signals on to the
other, which does the work, and outlives it.  If that one is killed, what it has started falls
to the watcher, which ends all of it and writes down what has happened; if the watcher is
killed, the other ends the job.  All processes of the job are in a group (``attempt_group``)
before they run anything of the job's, and none does before all have been forked.

Files of a run's folder:

* ``claim``: exists once somebody has claimed the attempt, and is locked for as long as its
  shim lives.  It is linked into place locked already, so that there is no moment between.  It
  says whose it is, as JSON; see ``claims``.
* ``begun``: exists once the job's processes may begin.
* ``log.0``, ``log.16777216``, ...: what the job printed, each part named after the byte it
  begins with; the newest two are kept.
* ``ended``: how it ended, written whole or not at all.
* ``terminal``: of a job that has one, the socket at which one attaches; see ``terminal``.

SIGTERM asks the shim to stop the job: with the order's signal, and by force after its
grace.  SIGUSR1 asks it to end the job by force at once.  It is started with both blocked, so
that none comes too early.

This file is run alone, without the package and without site-packages, because it must start
quickly; so it imports the standard library only, and little of that.
"""

import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import sys
import time
from functools import partial

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    from attempt_group import AttemptGroup, descendants  # type: ignore[import-not-found]
else:
    from interlane.engines.local.attempt_group import AttemptGroup, descendants
TYPE_CHECKING = False  # as checkers read it; the module of this name takes its time to import
if TYPE_CHECKING:
    from interlane.engines.local.terminal import JobTerminal

CLAIM, BEGUN, ENDED, LOG = "claim", "begun", "ended", "log."
FENCED = "fenced"
"""What a claim says that was made so that nobody runs the attempt any more."""

FORMAT = 2
"""Version of what ``claim`` and ``ended`` say."""

FORMAT_BEGUN = 2
"""From this version on a shim leaves a mark when its job begins."""

TELLS = 3
"""The descriptor on which a shim tells its server that the job begins."""

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

SHORTAGES = (
    *(errno.EMFILE, errno.ENFILE, errno.EAGAIN),
    *(errno.ENOMEM, errno.ENOSPC, errno.EDQUOT),
)
"""Errors that say what the machine lacks, which is no fault of the job's."""

SHORT_CODE = 64
"""With this and its place among ``SHORTAGES`` a shim ends that could claim nothing for one."""

EXEC_TRIES = 5
"""How often a program is started that could not be for lack of something."""

OOM_SCORE_FILE, OOM_SCORE = "/proc/self/oom_score_adj", b"500"
"""Jobs are ended before the server, shims and others when the machine runs out of memory."""

CUT_OFF, MEMORY, HUNG_UP = "cut off", "memory", "nobody was at its terminal"
"""Why a job ended: its shim was killed; all of it had more memory than it may; it was left
alone at its terminal."""

COULD_NOT_START = 127
KILLED_BASE = 128
"""A process ended by signal n counts as exit code 128 + n, as shells say it."""

WATCHER_KILLED = "The watcher of its shim was killed."
LOST_OUTPUT = b"\n[interlane: output is missing here; it could not be written]\n"

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def claim(folder: str, words: str) -> int | None:
    """Claim an attempt; return the locked file, or None if somebody has claimed it before."""
    mine = os.path.join(folder, f"{CLAIM}.{os.getpid()}")
    try:
        os.unlink(mine)  # of one that had our number and was killed here
    except FileNotFoundError:
        pass
    fd = os.open(mine, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, words.encode())
        os.fsync(fd)
        os.link(mine, os.path.join(folder, CLAIM))
        _keep(folder)
    except FileExistsError:
        os.close(fd)
        return None
    finally:
        os.unlink(mine)
    return fd


def _keep(folder: str) -> None:
    """Let a claim outlive a loss of power; one that might not is withdrawn, for nothing ran."""
    try:
        sync(folder)
    except OSError:
        os.unlink(os.path.join(folder, CLAIM))
        raise


def sync(folder: str) -> None:
    """Let what was made in a folder outlive a loss of power."""
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
        self.group = AttemptGroup(order["group"])
        self.watcher = os.getpid()
        self.has_begun = False
        self.log = _Log(folder, order["log_file_bytes"])
        self.children: dict[int, int] = {}
        """Process -> its rank, of those that the order names and that have not ended."""
        self.code: int | None = None
        self.why: str | None = None
        """Why the job is being stopped; None while it is not."""
        self.force_at_s = float("inf")
        self.terminal: JobTerminal | None = None
        limit_s = order["limit_s"]
        self.limit_at_s = float("inf") if limit_s is None else time.monotonic() + limit_s

    def run(self) -> None:
        """Start everything, and wait until nothing of it is left."""
        self.terminal = _terminal(self.folder, self.order)  # not before: the watcher has none
        ends, written = self._output()
        alarm, rung = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, KILL, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        # A signal that comes between fork and exec waits: it must not meet our handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        _end_with_parent(self.watcher, KILL)
        self._start_all(written)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.close(written)
        readers = [alarm] if self.terminal is not None else [alarm, ends]
        while readers[1:] or self._anyone_left() or self._is_shown():
            if alarm in self._turn(readers, ends):
                self._hear(alarm)
            self._reap()
            self._watch_clock()
            if not self.children and self.force_at_s == float("inf"):
                self._end_rest()
        if self.terminal is not None:
            self.terminal.close()

    def _output(self) -> tuple[int, int]:
        """Return where the job's output comes out, and where it goes in."""
        account = self.order["account"]
        if self.terminal is not None:
            if account is not None:
                self.terminal.give_to(account["uid"], account["gid"])
            return self.terminal.master, self.terminal.slave
        ends, written = os.pipe2(os.O_CLOEXEC)
        if account is not None:  # it may open its own output by name
            os.fchown(written, account["uid"], account["gid"])
        return ends, written

    def _is_shown(self) -> bool:
        """Tell whether a terminal has something left that was printed."""
        return self.terminal is not None and self.terminal.is_open

    def _turn(self, readers: list, ends: int) -> list:  # type: ignore[type-arg]
        """Wait for something, and take in what the job prints; return what can be read."""
        terminal = self.terminal
        if terminal is None:
            ready, _, _ = select.select(readers, [], [], self._patience_s())
            if ends in ready and not self._copy(ends):
                readers.remove(ends)
            return ready
        wanted, room = [*readers, *terminal.readers()], terminal.writers()
        ready, roomy, _ = select.select(wanted, room, [], self._patience_s())
        self.log.write(terminal.turn(ready, roomy))
        return ready

    def _start_all(self, output: int) -> None:
        """Fork all processes, then let them begin; where one cannot be forked, none begins."""
        gate, opened = os.pipe2(os.O_CLOEXEC)
        heard, told = os.pipe2(os.O_CLOEXEC)
        try:
            for rank, process in enumerate(self.order["processes"]):
                child = partial(self._child, process, (gate, opened, told), output, os.getpid())
                self.children[_fork(child)] = rank
            os.close(told)
            told = -1
            self._hear_all(heard)
            self._mark_begun()
            self.has_begun = True
            os.write(opened, b"." * len(self.children))
            self._tell_begun()
        finally:  # whoever waits at a gate that is closed ends
            for fd in (gate, opened, heard, told):
                if fd >= 0:
                    os.close(fd)

    def _mark_begun(self) -> None:
        """Leave a mark for servers that come later; without room for it, nothing begins."""
        path = os.path.join(self.folder, BEGUN)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def _tell_begun(self) -> None:
        """Tell the server, if it is still there and listens."""
        if "tells" not in self.order:
            return
        try:
            os.write(self.order["tells"], b".")
        except OSError:
            pass
        os.close(self.order["tells"])

    def _child(self, process: dict, gates: tuple, output: int, shim: int) -> None:  # type: ignore[type-arg]
        """Wait for the others of the gang, and become a process of the job; never returns."""
        gate, opened, told = gates
        os.close(opened)
        needs = self._enter(gate, told, shim)
        self._become(process, output, shim, needs)

    def _hear_all(self, heard: int) -> None:
        """Wait until all have joined the group; raise why one could not."""
        said = b""
        while more := os.read(heard, CHUNK_BYTES):
            said += more
        if any(said) or len(said) < len(self.children):
            number = max(said, default=0) or errno.EAGAIN
            raise OSError(number, os.strerror(number))

    def _enter(self, gate: int, told: int, shim: int) -> tuple[int, int]:
        """Join the group, say so, and wait until all have; return what was opened before.

        Whatever the machine may lack for it is had before anything of the gang begins: later
        it would be the job that fails.
        """
        try:
            os.setsid()
            _end_with_parent(shim, signal.SIGKILL)
            self.group.join()
            needs = os.open(os.devnull, os.O_RDONLY), os.open(OOM_SCORE_FILE, os.O_WRONLY)
            os.write(told, b"\0")
            os.close(told)
            if os.read(gate, 1):
                return needs
        except BaseException as error:  # whatever it is: this child must not go on as a shim
            try:
                number = getattr(error, "errno", None) or errno.EIO
                os.write(told, bytes([min(number, 255)]))
            finally:
                os._exit(COULD_NOT_START)
        os._exit(COULD_NOT_START)

    def _become(self, process: dict, output: int, shim: int, needs: tuple[int, int]) -> None:  # type: ignore[type-arg]
        """Turn the child into the job's process; never returns."""
        nothing, oom_score = needs
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, KILL, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            _limit(process, self.order["descriptors"])
            os.write(oom_score, OOM_SCORE)
            if self.terminal is not None:
                self.terminal.control()
            else:
                os.dup2(nothing, 0)
                os.dup2(output, 1)
                os.dup2(output, 2)
            if self.order["account"] is not None:
                _become_account(self.order["account"])
                _end_with_parent(shim, signal.SIGKILL)  # who becomes another forgets it
            os.chdir(self.order["workdir"])
            _execute(process)
        except (OSError, ValueError, OverflowError) as error:
            os.write(output, f"[interlane: could not start: {_said(error)}]\n".encode())
        finally:
            os._exit(COULD_NOT_START)

    def _hear(self, alarm: int) -> None:
        heard = os.read(alarm, 512)
        if signal.SIGTERM in heard and self.why is None:
            self._stop("stopped")
        if KILL in heard:
            self.why = self.why or ("stopped" if os.getppid() == self.watcher else CUT_OFF)
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
        return bool(self.children) or self._left() != set()

    def _left(self) -> set[int] | None:
        """Return what is left of the job, wherever it has gone; None if that cannot be told."""
        try:
            return {*descendants(os.getpid()), *self.group.processes()}
        except OSError:
            return None

    def _patience_s(self) -> float:
        now_s = time.monotonic()
        return max(0.0, min(LOOK_EVERY_S, self.force_at_s - now_s, self.limit_at_s - now_s))

    def _watch_clock(self) -> None:
        now_s = time.monotonic()
        if now_s >= self.limit_at_s and self.why is None:
            self._stop("limit")
        if self.terminal is not None and self.why is None and now_s >= self.terminal.away_at_s:
            self._stop(HUNG_UP)
        if self.why in (None, "failed") and self.group.memory_kills():
            self.why = MEMORY  # those that are left do not know that some are missing
            self._force()
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
        try:
            self.group.kill()
        except OSError:
            pass  # the machine lacks something; it comes round again
        for pid in (*self.children, *(self._left() or ())):
            _signal_group(pid, signal.SIGKILL)

    def _end_rest(self) -> None:
        """End what the job has left behind: it does not outlive the job."""
        left = len(self._left() or ())
        if left:
            said = f"[interlane: processes that the job left behind ({left}) end with it]\n"
            self.log.write(said.encode())
        self._force()

    def end(self) -> dict:  # type: ignore[type-arg]
        """Return how the job ended."""
        cause = WATCHER_KILLED if self.why == CUT_OFF else None
        return {"exit_code": self.code, "why": self.why, "cause": cause}


def _terminal(folder: str, order: dict) -> "JobTerminal | None":  # type: ignore[type-arg]
    """Return a job's terminal, if it has one; others do without what that takes."""
    if order.get("terminal") is None:
        return None
    if __name__ == "__main__":
        import terminal  # type: ignore[import-not-found]
    else:
        from interlane.engines.local import terminal
    made: JobTerminal = terminal.JobTerminal(folder, order["terminal"])
    return made


def _write_end(folder: str, order: dict, how: dict) -> None:  # type: ignore[type-arg]
    """Write down how the job ended, whole or not at all."""
    beside = os.path.join(folder, f"{ENDED}.new")
    whose = {name: order["claim"].get(name) for name in IDENTITY}
    ended = {"format": FORMAT, **how, "at_s": time.time(), **whose}
    text = json.dumps(ended).encode()
    while True:
        try:
            with open(beside, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, os.path.join(folder, ENDED))
            sync(folder)
        except FileNotFoundError:
            return  # the folder is gone, and with it everybody who could ask
        except IsADirectoryError as error:
            _put_aside(error.filename2 or error.filename)
        except OSError:
            time.sleep(1.0)  # a full disk: nothing may be lost, so there is no hurry
        else:
            return


def _put_aside(path: str) -> None:
    """Move a folder out of the way that the job has put in the place of a file."""
    try:
        os.rename(path, f"{path}.{time.time_ns()}")
    except OSError:
        time.sleep(1.0)


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error)


def _limit(process: dict, descriptors: int) -> None:  # type: ignore[type-arg]
    """Take on the limits of a job's process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(descriptors, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory_bytes = process["memory_bytes_max"]
    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


def _become_account(account: dict) -> None:  # type: ignore[type-arg]
    """Give up all rights but those of an account, for good."""
    os.setgroups(account["groups"])
    os.setresgid(account["gid"], account["gid"], account["gid"])
    os.setresuid(account["uid"], account["uid"], account["uid"])
    os.umask(0o077)


def _execute(process: dict) -> None:  # type: ignore[type-arg]
    """Become the program; what the machine lacks for it, it may have again in a moment."""
    for turn in range(EXEC_TRIES):
        try:
            os.execvpe(process["argv"][0], process["argv"], process["env"])
        except OSError as error:
            if error.errno not in SHORTAGES or turn == EXEC_TRIES - 1:
                raise
            time.sleep(0.1 * 4**turn)


def _signal_group(pid: int, number: int) -> None:
    for kill in (os.killpg, os.kill):  # alone, while it has no group yet
        try:
            kill(pid, number)
            return
        except (ProcessLookupError, PermissionError):
            pass


def _fork(child: partial) -> int:  # type: ignore[type-arg]
    """Fork; the child does this and never returns."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    return pid


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _end_with_parent(parent: int, number: int) -> None:
    """Have a signal come when the parent ends; one that has ended already sends it no more."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _work(shim: _Shim) -> None:
    """Run the job; where the machine lacks what that takes, it has never begun."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        shim.run()
        ended = shim.end()
    except OSError as error:
        if shim.has_begun:
            raise
        _end_all(shim.group)
        ended = {"exit_code": None, "why": None, "lacks": error.errno}
    _write_end(shim.folder, shim.order, ended)


def _watch(worker: int) -> int:
    """Pass signals on until the other has ended; return its exit code, or minus a signal."""
    while True:
        number = signal.sigwait((signal.SIGTERM, KILL, signal.SIGCHLD))
        if number != signal.SIGCHLD:
            os.kill(worker, number)
        ended = _reaped()
        if worker in ended:
            return os.waitstatus_to_exitcode(ended[worker])


def _reaped() -> dict[int, int]:
    """Take note of all children that have ended."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def _end_all(group: AttemptGroup) -> None:
    """Kill whatever is left of the job, until nothing is."""
    while True:
        try:
            left = {*descendants(os.getpid()), *group.processes()}
            if not left:
                return
            group.kill()
            for pid in left:
                _signal_group(pid, signal.SIGKILL)
        except OSError:
            pass  # the machine lacks something; there is no hurry
        time.sleep(0.02)
        _reaped()


def _how(code: int) -> str:
    if code < 0:
        return f"Its shim was killed by {signal.Signals(-code).name}."
    return f"Its shim failed with exit code {code}; shim.err in its folder says why."


def main(folder: str) -> int:
    """Keep the attempt whose folder this is."""
    os.chdir("/")
    order = json.load(sys.stdin.buffer)
    if "tells" in order:
        os.set_inheritable(order["tells"], False)
    group = AttemptGroup(order["group"])
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    try:
        shim = _Shim(folder, order)  # opens its log: without room for that, nothing is claimed
        words = {"format": FORMAT, "pid": os.getpid(), **order["claim"]}
        held = claim(folder, json.dumps(words))
    except OSError as error:
        group.remove()
        if error.errno not in SHORTAGES:
            raise
        return SHORT_CODE + SHORTAGES.index(error.errno)
    if held is None:
        group.remove()
        return 1
    try:
        worker = _fork(partial(_work, shim))
    except OSError as error:
        _write_end(folder, order, {"exit_code": None, "why": None, "lacks": error.errno})
        group.remove()
        return 0
    if "tells" in order:
        os.close(order["tells"])
    code = _watch(worker)
    if code:
        _end_all(group)
        if not os.path.exists(os.path.join(folder, ENDED)):
            _write_end(folder, order, {"exit_code": None, "why": CUT_OFF, "cause": _how(code)})
    group.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
