"""Files, processes, signals and the clock, as code on a simulated machine sees them.

Each class stands for a module of the system.  It has what that code uses of the module, and
nothing else: what is missing here must not reach the real system by accident.
"""

import errno
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Final

from interlane.device.activity import Activity
from interlane.testing.simulated.disk import fault
from interlane.testing.simulated.ends import (
    Bell,
    Nothing,
    OpenedFile,
    OpenEnd,
    Pipe,
    PipeIn,
    PipeOut,
    ProcessRef,
)
from interlane.testing.simulated.machine import Process, SimulatedMachine

NOBODY_WAITS: Final = 0.0
ENVIRONMENT: Final = {"PATH": "/bin", "HOME": "/root", "USER": "root", "LANG": "C"}
Program = Callable[[tuple[str, ...]], int]


class On:
    """The machine that code runs on now."""

    machine: SimulatedMachine
    programs: Mapping[str, Program]
    """What runs under which word of a command line."""


on: Final = On()


def _text(path: "str | os.PathLike[str]") -> str:
    return os.fspath(path)


def _proc(path: str) -> bytes | None:
    """Return what a file below ``/proc`` says; None for other files."""
    if not path.startswith("/proc/"):
        return None
    machine = on.machine
    if path == "/proc/sys/kernel/random/boot_id":
        return machine.boot.encode()
    if path in ("/proc/self/cgroup", "/proc/self/mountinfo"):
        return b""  # there are no control groups here
    _, _, number, what = path.split("/", 3)
    process = machine.processes.get(int(number)) if number.isdigit() else None
    if process is None:
        raise fault(errno.ENOENT, path)
    if what == "stat":
        return _stat_line(process)
    if not process.is_alive:
        return b""
    if what == "environ":
        return b"\0".join(f"{name}={value}".encode() for name, value in process.env.items())
    if what == "cmdline":
        return "\0".join(process.argv).encode()
    raise fault(errno.ENOENT, path)


def _stat_line(process: Process) -> bytes:
    parent = 0 if process.parent is None else process.parent.pid
    words = ["S" if process.is_alive else "Z", parent, process.group, process.session]
    words += [0] * 15 + [process.started]
    return f"{process.pid} ({process.name}) {' '.join(map(str, words))}".encode()


class File:
    """A file as ``open`` returns it: what is written stays in the process until flushed."""

    def __init__(self, number: int, mode: str) -> None:
        self._number = number
        self._is_text = "b" not in mode
        self._unwritten = b""
        self.closed = False

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._number

    def read(self, size: int = -1) -> "str | bytes":
        """Return what is left of it."""
        data = b""
        while more := posix.read(self._number, 1 << 16):
            data += more
        return data.decode("utf-8", "replace") if self._is_text else data

    def write(self, data: "str | bytes") -> int:
        """Keep something to be written."""
        self._unwritten += data.encode() if isinstance(data, str) else data
        return len(data)

    def flush(self) -> None:
        """Write what was kept."""
        while self._unwritten:
            written = posix.write(self._number, self._unwritten)
            self._unwritten = self._unwritten[written:]

    def seek(self, at: int) -> None:
        """Go to a byte."""
        end = on.machine.current.end(self._number)
        assert isinstance(end, OpenedFile)
        end.at = at

    def close(self) -> None:
        """Write what was kept, and let go."""
        if not self.closed:
            self.closed = True
            try:
                self.flush()
            finally:
                posix.close(self._number)

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Told:
    """A file that the system makes up when it is read."""

    def __init__(self, data: bytes, mode: str) -> None:
        self._data = data if "b" in mode else data.decode()

    def read(self) -> "str | bytes":
        return self._data

    def __enter__(self) -> "_Told":
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing is left open."""


class Posix:
    """The module ``os``."""

    environ = ENVIRONMENT
    devnull, pathsep = os.devnull, os.pathsep
    stat_result = os.stat_result
    PathLike = os.PathLike
    WNOHANG, W_OK, PRIO_PROCESS = os.WNOHANG, os.W_OK, os.PRIO_PROCESS
    POSIX_SPAWN_DUP2, POSIX_SPAWN_OPEN = os.POSIX_SPAWN_DUP2, os.POSIX_SPAWN_OPEN
    O_RDONLY, O_WRONLY, O_RDWR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
    O_CREAT, O_EXCL, O_TRUNC, O_APPEND = os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND
    O_CLOEXEC, O_NONBLOCK = os.O_CLOEXEC, os.O_NONBLOCK
    EFD_CLOEXEC, EFD_NONBLOCK = os.EFD_CLOEXEC, os.EFD_NONBLOCK
    MFD_CLOEXEC, MFD_ALLOW_SEALING = os.MFD_CLOEXEC, os.MFD_ALLOW_SEALING
    strerror, fsencode, fspath = staticmethod(os.strerror), staticmethod(os.fsencode), os.fspath
    waitstatus_to_exitcode = staticmethod(os.waitstatus_to_exitcode)
    getuid = staticmethod(os.getuid)

    def __init__(self) -> None:
        self.path = SimpleNamespace(
            join=os.path.join,
            dirname=os.path.dirname,
            abspath=os.path.abspath,
            samestat=os.path.samestat,
            exists=self.exists,
        )

    # -- files ------------------------------------------------------------------------

    def exists(self, path: "str | os.PathLike[str]") -> bool:
        """Tell whether something lies at a path."""
        on.machine.enter()
        try:
            return on.machine.disk.find(_text(path)) is not None
        except NotADirectoryError:
            return False

    def open(self, path: "str | os.PathLike[str]", flags: int, mode: int = 0o777) -> int:
        """Open a file."""
        machine, name = on.machine, _text(path)
        process = machine.enter("make" if flags & os.O_CREAT else "open")
        if name in (os.devnull, "/proc/self/oom_score_adj"):
            return process.put(Nothing())
        disk = machine.disk
        disk.now_s = machine.now_s + machine.wall_s
        node = disk.find(name)
        if node is None or (flags & os.O_CREAT and flags & os.O_EXCL):
            if not flags & os.O_CREAT:
                raise fault(errno.ENOENT, name)
            node = disk.make(name, is_folder=False)
            node.mode = mode
        if flags & os.O_TRUNC:
            node.data.clear()
        return process.put(OpenedFile(node, name, appends=bool(flags & os.O_APPEND)))

    def fdopen(
        self, number: int, mode: str = "r", buffering: int = -1, encoding: str = ""
    ) -> File:
        """Return a descriptor as a file."""
        return File(number, mode)

    def read(self, number: int, size: int) -> bytes:
        """Read from something open; wait if that is what it takes."""
        process = on.machine.enter()
        end = process.end(number)
        if not end.is_ready():
            if not end.is_blocking:
                raise BlockingIOError(errno.EAGAIN, "Try again")
            on.machine.wait(end.is_ready)
        return end.read(size)

    def write(self, number: int, data: bytes) -> int:
        """Write to something open; a disk may take a part of it."""
        machine = on.machine
        end = machine.enter().end(number)
        if isinstance(end, OpenedFile):
            if "write" in machine.lacks and machine.rng.random() < machine.shortage:
                kept = machine.rng.randrange(len(data) + 1)
                if not kept:
                    raise fault(errno.ENOSPC)
                data = data[:kept]
            end.node.changed_s = machine.now_s + machine.wall_s
        return end.write(bytes(data))

    def close(self, number: int) -> None:
        """Let go of something open."""
        process = on.machine.enter()
        end = process.end(number)
        del process.ends[number]
        process.kept.discard(number)
        _drop(end)

    def fsync(self, number: int) -> None:
        """Let what was written outlive a loss of power."""
        end = on.machine.enter("write").end(number)
        assert isinstance(end, OpenedFile)
        on.machine.disk.sync(end.node, end.path)

    def fstat(self, number: int) -> os.stat_result:
        """Return what ``stat`` says of something open."""
        end = on.machine.enter().end(number)
        assert isinstance(end, OpenedFile)
        return end.node.stat()

    def ftruncate(self, number: int, size: int) -> None:
        """Cut a file short, or fill it up."""
        end = on.machine.enter().end(number)
        assert isinstance(end, OpenedFile)
        end.node.data[:] = end.node.data[:size].ljust(size, b"\0")

    def link(self, path: str, other: str) -> None:
        """Give a file another name."""
        on.machine.enter("make")
        on.machine.disk.link(path, other)

    def unlink(self, path: "str | os.PathLike[str]") -> None:
        """Remove a file."""
        on.machine.enter()
        on.machine.disk.remove(_text(path))

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        on.machine.enter()
        on.machine.disk.remove(path, is_folder=True)

    def replace(self, path: str, other: str) -> None:
        """Move a file to where another may be."""
        on.machine.enter("make")
        on.machine.disk.rename(path, other)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder."""
        on.machine.enter()
        if path == "/proc":
            return [str(pid) for pid in on.machine.processes]
        return sorted(on.machine.disk.folder(path))

    def walk(
        self, path: str, *, topdown: bool = True
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """Yield nothing: there are no control groups here."""
        return iter(())

    def access(self, path: str, mode: int) -> bool:
        """Allow nothing that is not asked for otherwise."""
        return False

    # -- pipes and others -------------------------------------------------------------

    def pipe2(self, flags: int) -> tuple[int, int]:
        """Return the two ends of a pipe."""
        process = on.machine.enter("pipe")
        pipe = Pipe()
        ends: tuple[OpenEnd, OpenEnd] = PipeOut(pipe), PipeIn(pipe)
        for end in ends:
            end.is_blocking = not flags & os.O_NONBLOCK
        return process.put(ends[0]), process.put(ends[1])

    def pidfd_open(self, pid: int) -> int:
        """Return a reference to a process."""
        machine = on.machine
        process = machine.enter("open")
        found = machine.processes.get(pid)
        if found is None:
            raise fault(errno.ESRCH)
        return process.put(ProcessRef(lambda: not found.is_alive, found))

    def eventfd(self, value: int, flags: int) -> int:
        """Return a bell."""
        bell = Bell()
        bell.rung = value
        return on.machine.enter("open").put(bell)

    def eventfd_write(self, number: int, value: int) -> None:
        """Ring."""
        bell = on.machine.enter().end(number)
        assert isinstance(bell, Bell)
        bell.rung += value

    def eventfd_read(self, number: int) -> int:
        """Return how often it was rung since this was last asked."""
        bell = on.machine.enter().end(number)
        assert isinstance(bell, Bell)
        if not bell.rung:
            raise BlockingIOError(errno.EAGAIN, "Try again")
        rung, bell.rung = bell.rung, 0
        return rung

    def memfd_create(self, name: str, flags: int = 0) -> int:
        """Return a file without a name."""
        process = on.machine.enter("open")
        return process.put(_read_only(b""))

    def set_inheritable(self, number: int, inheritable: bool) -> None:  # noqa: FBT001 - as it is there
        """Say whether a program that takes over keeps it."""
        kept = on.machine.enter().kept
        (kept.add if inheritable else kept.discard)(number)

    def dup2(self, number: int, other: int) -> int:
        """Let another number refer to the same; a program that takes over keeps it."""
        process = on.machine.enter()
        return process.put(process.end(number), other, kept=True)

    # -- processes --------------------------------------------------------------------

    def getpid(self) -> int:
        """Return the number of the process."""
        return on.machine.current.pid

    def getppid(self) -> int:
        """Return the number of its parent."""
        parent = on.machine.enter().parent
        return 0 if parent is None else parent.pid

    def setsid(self) -> None:
        """Lead a session of its own."""
        process = on.machine.enter()
        process.session = process.group = process.pid

    def chdir(self, path: str) -> None:
        """Go nowhere: all paths are absolute."""
        on.machine.enter()

    def umask(self, mask: int) -> int:
        """Mask nothing."""
        return 0

    def sched_getaffinity(self, pid: int) -> set[int]:
        """Return the cores that there are."""
        return set(on.machine.cores)

    def sched_setaffinity(self, pid: int, cores: Iterable[int]) -> None:
        """Stay where it is: turns are drawn."""

    def setpriority(self, which: int, who: int, priority: int) -> None:
        """Change nothing: turns are drawn."""

    def kill(self, pid: int, number: int) -> None:
        """Send a signal."""
        machine = on.machine
        machine.enter()
        process = machine.processes.get(pid)
        if process is None:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        machine.send(process, number)

    def killpg(self, group: int, number: int) -> None:
        """Send all of a group a signal; whoever sends it comes last."""
        machine = on.machine
        me = machine.enter()
        found = [one for one in machine.processes.values() if one.group == group]
        if not found:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        for process in sorted(found, key=lambda one: one is me):
            machine.send(process, number)

    def waitpid(self, pid: int, flags: int) -> tuple[int, int]:
        """Return a child that has ended, and how."""
        machine = on.machine
        process = machine.enter()

        def ended() -> Process | None:
            mine = [one for one in process.children if pid in (-1, one.pid)]
            if not mine:
                raise ChildProcessError(errno.ECHILD, "No child processes")
            return next((one for one in mine if not one.is_alive), None)

        if not flags & os.WNOHANG:
            machine.wait(lambda: ended() is not None)
        found = ended()
        if found is None:
            return 0, 0
        machine.reap(found)
        assert found.status is not None
        return found.pid, found.status

    def posix_spawn(
        self,
        program: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        file_actions: Sequence[tuple[int | str, ...]] = (),
        setsid: bool = False,
        setsigmask: Iterable[int] = (),
    ) -> int:
        """Start a program in a process of its own."""
        machine = on.machine
        parent = machine.enter("fork")
        words = tuple(map(str, argv))
        process = machine.start(_word(words), lambda: _program(words), parent)
        process.argv, process.env = words, dict(env)
        process.blocked = set(setsigmask)
        for what, *rest in file_actions:
            if what == os.POSIX_SPAWN_DUP2:
                source, target = rest
                process.put(parent.end(int(source)), int(target), kept=True)
            else:
                process.put(Nothing(), int(rest[0]), kept=True)
        if setsid:
            process.session = process.group = process.pid
        return process.pid

    def execvpe(self, program: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Become another program; never returns."""
        machine = on.machine
        process = machine.enter("open")
        for number in [one for one in process.ends if one not in process.kept]:
            _drop(process.ends.pop(number))
        process.handlers = {
            number: how for number, how in process.handlers.items() if how is signal.SIG_IGN
        }
        process.wakeup = -1
        process.argv, process.env, process.name = tuple(argv), dict(env), "job"
        machine.exit(_program(process.argv))

    def _exit(self, code: int) -> None:
        on.machine.enter()
        on.machine.exit(code)


posix: Final = Posix()


def _drop(end: OpenEnd) -> None:
    end.refs -= 1
    if end.refs == 0:
        end.closed()


def _read_only(data: bytes) -> OpenedFile:
    from interlane.testing.simulated.disk import Node

    return OpenedFile(Node(0, data=bytearray(data)))


def _word(argv: tuple[str, ...]) -> str:
    """Return the word of a command line that says what runs."""
    return next((word for word in on.programs if any(one.endswith(word) for one in argv)), "?")


def _program(argv: tuple[str, ...]) -> int:
    word = _word(argv)
    return on.programs[word](argv)


def fork(child: Callable[[], None]) -> int:
    """Fork, and let the child do this."""
    machine = on.machine
    parent = machine.enter("fork")

    def body() -> int:
        child()
        return 0

    process = machine.start(f"{parent.name}+", body, parent)
    process.argv, process.env = parent.argv, parent.env
    process.blocked, process.handlers = set(parent.blocked), dict(parent.handlers)
    process.wakeup = parent.wakeup
    for number, end in parent.ends.items():
        process.put(end, number, kept=number in parent.kept)
    return process.pid


def open_file(
    path: "str | os.PathLike[str]",
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
) -> "File | _Told":
    """Open a file, as the built-in function does."""
    if mode[0] == "r" and (known := _proc(_text(path))) is not None:
        on.machine.enter("open")
        return _Told(known, mode)
    flags = {
        "r": os.O_RDONLY,
        "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
        "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    }[mode[0]]
    return File(posix.open(path, flags), mode)


class Times:
    """The module ``time``."""

    def monotonic(self) -> float:
        """Return the seconds since the machine started."""
        return on.machine.now_s

    def monotonic_ns(self) -> int:
        """Return the same in nanoseconds."""
        return round(on.machine.now_s * 1e9)

    def time(self) -> float:
        """Return what the clock says."""
        return on.machine.now_s + on.machine.wall_s

    def sleep(self, seconds: float) -> None:
        """Wait."""
        machine = on.machine
        machine.enter()
        machine.wait(lambda: False, seconds)


class Locks:
    """The module ``fcntl``."""

    LOCK_EX, LOCK_SH, LOCK_NB = 2, 1, 4
    F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL, F_ADD_SEALS = 2, 4, 1, 1033

    def fcntl(self, number: int, what: int, value: int) -> int:
        """Change nothing."""
        return 0

    def flock(self, which: "int | File", how: int) -> None:
        """Lock a file for whoever has opened it."""
        machine = on.machine
        number = which if isinstance(which, int) else which.fileno()
        end = machine.enter().end(number)
        assert isinstance(end, OpenedFile)
        node, alone = end.node, bool(how & self.LOCK_EX)

        def is_free() -> bool:
            others = node.shared - {end}
            return node.exclusive in (None, end) and not (alone and others)

        if not is_free():
            if how & self.LOCK_NB:
                raise BlockingIOError(errno.EAGAIN, "Try again")
            machine.wait(is_free)
        if alone:
            node.exclusive = end
        else:
            node.shared.add(end)


class SignalCalls:
    """The module ``signal``."""

    SIGTERM, SIGKILL, SIGCHLD = signal.SIGTERM, signal.SIGKILL, signal.SIGCHLD
    SIGUSR1, SIGPIPE, SIGINT = signal.SIGUSR1, signal.SIGPIPE, signal.SIGINT
    SIG_BLOCK, SIG_SETMASK = signal.SIG_BLOCK, signal.SIG_SETMASK
    SIG_DFL, SIG_IGN = signal.SIG_DFL, signal.SIG_IGN
    Signals = signal.Signals
    valid_signals = staticmethod(signal.valid_signals)

    def signal(self, number: int, handler: object) -> object:
        """Say what a signal does."""
        process = on.machine.enter()
        before = process.handlers.get(number, signal.SIG_DFL)
        process.handlers[number] = handler
        return before

    def set_wakeup_fd(self, number: int, *, warn_on_full_buffer: bool = True) -> int:
        """Say where signals are written."""
        process = on.machine.enter()
        before, process.wakeup = process.wakeup, number
        return before

    def pthread_sigmask(self, how: int, mask: Iterable[int]) -> None:
        """Block signals, or let them come."""
        process = on.machine.enter()
        blocked = set(mask) | (process.blocked if how == signal.SIG_BLOCK else set())
        on.machine.unblock(process, blocked)

    def sigwait(self, wanted: Iterable[int]) -> int:
        """Wait for one of some signals."""
        machine, among = on.machine, set(wanted)
        process = machine.enter()
        machine.wait(lambda: bool(process.pending & among))
        number = min(process.pending & among)
        process.pending.discard(number)
        return number

    def pidfd_send_signal(self, number: int, what: int) -> None:
        """Send a signal to whom a reference names."""
        machine = on.machine
        end = machine.enter().end(number)
        assert isinstance(end, ProcessRef)
        assert isinstance(end.process, Process)
        if machine.processes.get(end.process.pid) is not end.process:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        machine.send(end.process, what)


class ResourceLimits:
    """The module ``resource``."""

    RLIMIT_NOFILE, RLIMIT_CORE, RLIMIT_DATA = 7, 4, 2

    def getrlimit(self, which: int) -> tuple[int, int]:
        """Return what is usual."""
        return 1024, 4096

    def setrlimit(self, which: int, limits: tuple[int, int]) -> None:
        """Limit nothing: shortages are drawn."""
        on.machine.enter()


class Native:
    """The module ``ctypes``, of which ``prctl`` is used."""

    def CDLL(self, name: object) -> "Native":
        """Return the library."""
        return self

    def prctl(self, option: int, value: int, *rest: int) -> int:
        """Set what a process gets when its parent ends, or that it adopts orphans."""
        process = on.machine.enter()
        if option == 1:
            process.death_signal = value
        else:
            process.adopts = bool(value)
        return 0


class RandomCalls:
    """The module ``secrets``."""

    def token_hex(self, size: int) -> str:
        """Return so many bytes in digits."""
        return f"{on.machine.rng.getrandbits(8 * size):0{2 * size}x}"

    def randbits(self, bits: int) -> int:
        """Return a number of so many bits."""
        return on.machine.rng.getrandbits(bits)


class _Stdin:
    @property
    def buffer(self) -> File:
        """Return the standard input of the process."""
        return File(0, "rb")


class _Stderr:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        """Nobody reads it."""


class Interpreter:
    """The module ``sys``."""

    executable, byteorder = "/usr/bin/python3", "little"
    stdin, stderr = _Stdin(), _Stderr()
    argv: Final[list[str]] = []
    path: Final[list[str]] = []


class ProcessWatch:
    """``device.activity``: here nobody sees how busy a process is, and nobody has parents."""

    Activity = Activity

    def activity_of(self, pid: int) -> None:
        """Know nothing."""

    def ancestors_of(self, pid: int) -> frozenset[int]:
        """Know nobody."""
        return frozenset()
