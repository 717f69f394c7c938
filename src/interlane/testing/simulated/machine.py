"""A machine: processes with threads, signals and descriptors, a clock, and what goes wrong.

Every thread is a greenlet.  Whatever it asks of the system is a moment at which another may go
on instead, at which its process may die, and at which the machine may lack something.  A random
generator decides all of it, so that a seed plays the same way again.
"""

import errno
import signal
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Final

from greenlet import getcurrent, greenlet

from interlane.testing.simulated.disk import Disk, fault
from interlane.testing.simulated.ends import OpenEnd, drop

PIDS: Final = range(300, 1_000)
"""Few, so that numbers are used again."""
TICKS_PER_S: Final = 100
CALL_S: Final = 1e-6
"""What a call of the system takes: no two moments are the same."""
STEPS_MAX: Final = 200_000
"""Without time passing; then something runs in circles."""
BUDGETS: Final = (1, 4, 16, 48)
"""Calls of the system that a thread makes before another may go on."""
SHORTAGES: Final[Mapping[str, tuple[int, ...]]] = {
    "open": (errno.EMFILE, errno.ENFILE),
    "make": (errno.ENOSPC, errno.EMFILE, errno.EDQUOT),
    "write": (errno.ENOSPC, errno.EDQUOT),
    "fork": (errno.EAGAIN, errno.ENOMEM),
    "pipe": (errno.EMFILE, errno.ENFILE),
}
"""What calls fail with when the machine lacks something."""
IGNORED: Final = (signal.SIGCHLD, signal.SIGCONT, signal.SIGWINCH)
"""Signals that do nothing unless somebody asks for them."""


class Gone(BaseException):
    """Its process has ended: nothing that runs on for it changes anything."""


class RanInCircles(Exception):
    """Threads go on for ever without time passing."""


@dataclass(eq=False, slots=True)
class Thread:
    """One flow of a process."""

    process: "Process"
    greenlet: greenlet
    ready: Callable[[], bool] | None = None
    """What it waits for; None while it can go on."""
    until_s: float = inf
    """When it waits no longer."""
    is_over: bool = False


@dataclass(eq=False, slots=True)
class Process:
    """A process, until somebody has heard of its end."""

    pid: int
    parent: "Process | None"
    name: str
    """What it is, for whoever plays."""
    session: int = 0
    group: int = 0
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    begun_s: float = 0.0
    started: int = 0
    children: "list[Process]" = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    ends: dict[int, OpenEnd] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    """Descriptors that stay open when another program takes over."""
    status: int | None = None
    """As ``waitpid`` tells it; None while it lives."""
    blocked: set[int] = field(default_factory=set)
    pending: set[int] = field(default_factory=set)
    handlers: dict[int, object] = field(default_factory=dict)
    wakeup: int = -1
    adopts: bool = False
    """Whether those below it fall to it when their parents end."""
    death_signal: int = 0
    fuse: int | None = None
    """Calls of the system after which it is killed."""

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.status is None

    def put(self, end: OpenEnd, at: int | None = None, *, kept: bool = False) -> int:
        """Give something open a number, the lowest unless told otherwise."""
        if at is None:
            at = next(number for number in range(len(self.ends) + 4) if number not in self.ends)
        elif at in self.ends:
            drop(self.ends[at])
        end.refs += 1
        self.ends[at] = end
        (self.kept.add if kept else self.kept.discard)(at)
        return at

    def end(self, number: int) -> OpenEnd:
        """Return what a number refers to."""
        found = self.ends.get(number)
        if found is None:
            raise fault(errno.EBADF)
        return found


class SimulatedMachine:
    """See the module's text."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.disk = Disk(rng)
        self.now_s = 1_000.0
        """Since the machine started."""
        self.wall_s = 1_700_000_000.0
        """What the clock says beyond that; somebody may set it."""
        self.boot = f"boot-{rng.getrandbits(32):08x}"
        self.processes: dict[int, Process] = {}
        self.threads: list[Thread] = []
        self.shortage = 0.0
        """How often calls fail for lack of something."""
        self.lacks: Container[str] = SHORTAGES.keys()
        """What kinds of calls do."""
        self.failures: list[tuple[Process, Exception]] = []
        """What threads have raised of which nobody knew."""
        self.calls = 0
        self.cores = {0}
        self._next_pid = PIDS[0]
        self._budget = 0
        self.init = Process(1, None, "init", adopts=True)
        self.processes[1] = self.init
        self.current = self.init
        self.thread: Thread | None = None

    # -- processes --------------------------------------------------------------------

    def start(self, name: str, body: Callable[[], int | None], by: Process) -> Process:
        """Start a process that does something and then exits with what that returns."""
        process = Process(self._fresh_pid(), by, name)
        process.session, process.group = by.session, by.group
        process.begun_s, process.started = self.now_s, round(self.now_s * TICKS_PER_S)
        self.processes[process.pid] = process
        by.children.append(process)

        def run() -> None:
            code = body()
            self.exit(code or 0)

        self.run_in(process, run, is_main=True)
        return process

    def _fresh_pid(self) -> int:
        while self._next_pid in self.processes:
            self._next_pid += 1
            if self._next_pid >= PIDS[-1]:
                self._next_pid = PIDS[0]
        return self._next_pid

    def run_in(
        self, process: Process, body: Callable[[], object], *, is_main: bool = False
    ) -> Thread:
        """Let a thread of a process do something; with the main one, the process fails, too."""

        def run() -> None:
            try:
                body()
            except Gone:
                pass
            except Exception as error:
                self.failures.append((process, error))
                if is_main:
                    self._quietly_exit(1)
            finally:
                thread.is_over = True
                if thread in process.threads:
                    process.threads.remove(thread)
                    self.threads.remove(thread)

        thread = Thread(process, greenlet(run))
        process.threads.append(thread)
        self.threads.append(thread)
        return thread

    def _quietly_exit(self, code: int) -> None:
        with suppress(Gone):
            self.exit(code)

    def exit(self, code: int) -> None:
        """End the process that asks; never returns."""
        if self.current.is_alive:
            self.end(self.current, (code & 0xFF) << 8)
        raise Gone

    def end(self, process: Process, status: int) -> None:
        """End a process, without a word."""
        if not process.is_alive:
            return
        process.status, process.fuse = status, None
        for thread in list(process.threads):
            self.threads.remove(thread)
            process.threads.remove(thread)
            if thread is not self.thread and thread.greenlet:
                self._cut_short(thread)
        for end in process.ends.values():
            drop(end)
        process.ends.clear()
        self._orphan(process)
        self._tell_parent(process)

    def _cut_short(self, thread: Thread) -> None:
        """Let a thread of a process that has ended run out; whatever it asks for is refused."""
        before = self.current, self.thread
        self.current, self.thread = thread.process, thread
        thread.greenlet.parent = getcurrent()
        try:
            thread.greenlet.throw(Gone)
        finally:
            self.current, self.thread = before

    def _orphan(self, process: Process) -> None:
        children, process.children = process.children, []
        for child in children:
            above = process.parent
            while above is not None and not (above.adopts and above.is_alive):
                above = above.parent
            child.parent = above or self.init
            child.parent.children.append(child)
            if child.is_alive and child.death_signal:
                self.send(child, child.death_signal)
            if not child.is_alive:
                self._tell_parent(child)

    def _tell_parent(self, process: Process) -> None:
        parent = process.parent
        if parent is None or parent is self.init:
            self.reap(process)
        else:
            self.send(parent, signal.SIGCHLD)

    def reap(self, process: Process) -> None:
        """Forget a process that has ended."""
        if self.processes.get(process.pid) is process:
            del self.processes[process.pid]
        if process.parent is not None and process in process.parent.children:
            process.parent.children.remove(process)

    def send(self, process: Process, number: int) -> None:
        """Send a signal; whoever ends by it raises ``Gone`` if that is who asks."""
        if not process.is_alive or number == 0:
            return
        if number != signal.SIGKILL and number in process.blocked:
            process.pending.add(number)
            return
        handler = process.handlers.get(number, signal.SIG_DFL)
        if number == signal.SIGKILL or (handler is signal.SIG_DFL and number not in IGNORED):
            self.end(process, number)
            if process is self.current:
                raise Gone
        elif callable(handler) and process.wakeup >= 0:
            process.end(process.wakeup).write(bytes([number]))

    def unblock(self, process: Process, blocked: set[int]) -> None:
        """Block these signals and no others; those that waited come now."""
        process.blocked = blocked
        for number in sorted(process.pending - blocked):
            process.pending.discard(number)
            self.send(process, number)

    @contextmanager
    def acting(self, process: Process) -> Iterator[None]:
        """Let whoever plays act as a process; ``Gone`` comes out when that ends."""
        before = self.current
        self.current = process
        try:
            yield
        finally:
            self.current = before

    # -- calls of the system ----------------------------------------------------------

    def enter(self, kind: str = "") -> Process:
        """Begin a call of the system: anything may happen now."""
        process = self.current
        if not process.is_alive:
            raise Gone
        self.calls += 1
        if process.fuse is not None:
            process.fuse -= 1
            if process.fuse < 0:
                self.end(process, signal.SIGKILL)
                raise Gone
        if self.thread is not None:
            self._budget -= 1
            if self._budget <= 0:
                self._hand_over(self.thread)
        self.now_s += CALL_S
        if kind in self.lacks and self.shortage and self.rng.random() < self.shortage:
            raise fault(self.rng.choice(SHORTAGES[kind]))
        return process

    def _hand_over(self, thread: Thread) -> None:
        parent = thread.greenlet.parent
        assert parent is not None
        parent.switch()

    def wait(self, ready: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until something holds; return whether it does."""
        if not self.current.is_alive:
            raise Gone
        if ready():
            return True
        until_s = inf if timeout_s is None else self.now_s + timeout_s
        thread = self.thread
        if thread is None:
            return self._pump(ready, until_s)
        thread.until_s = until_s
        thread.ready = lambda: ready() or self.now_s >= until_s
        self._hand_over(thread)
        return ready()

    def _pump(self, ready: Callable[[], bool], until_s: float) -> bool:
        """Let others go on until something holds for whoever plays."""
        process = self.current
        for _ in range(STEPS_MAX):
            if not process.is_alive:
                raise Gone
            if ready():
                return True
            if self.now_s >= until_s:
                return False
            if not self.step():
                next_s = min(until_s, self.next_s())
                if next_s == inf:
                    raise RanInCircles("Everybody waits for somebody else.")
                self.now_s = max(self.now_s, next_s)
        raise RanInCircles("Whoever plays waits for ever.")

    # -- whose turn it is -------------------------------------------------------------

    def step(self) -> bool:
        """Let one thread go on for a while; False if none can."""
        threads = self.threads
        if not threads:
            return False
        first = int(self.rng.random() * len(threads))
        for at in range(first - len(threads), first):  # from the one that was drawn, around
            thread = threads[at]
            if thread.ready is None or thread.ready():
                self._resume(thread)
                return True
        return False

    def _resume(self, thread: Thread) -> None:
        before = self.current, self.thread
        self.current, self.thread = thread.process, thread
        thread.ready, thread.until_s = None, inf
        self._budget = self.rng.choice(BUDGETS)
        thread.greenlet.parent = getcurrent()
        try:
            thread.greenlet.switch()
        finally:
            self.current, self.thread = before

    def next_s(self) -> float:
        """Return when somebody waits no longer."""
        return min((one.until_s for one in self.threads if one.ready is not None), default=inf)

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due."""
        end_s, steps = self.now_s + seconds, 0
        while True:
            if self.step():
                steps += 1
                if steps > STEPS_MAX:
                    raise RanInCircles(f"{STEPS_MAX} steps without time passing.")
                continue
            next_s = self.next_s()
            if next_s > end_s:
                break
            if next_s > self.now_s:
                steps = 0
            self.now_s = max(self.now_s, next_s)
        self.now_s = max(self.now_s, end_s)

    def lose_power(self) -> None:
        """Let the machine go down and come back, without processes and what was not synced."""
        for process in list(self.processes.values()):
            if process is not self.init:
                process.death_signal, process.adopts = 0, False
        for process in list(self.processes.values()):
            if process is not self.init and process.is_alive:
                self.end(process, signal.SIGKILL)
        self.processes = {1: self.init}
        self.init.children.clear()
        self.disk.lose_power()
        self.boot = f"boot-{self.rng.getrandbits(32):08x}"
