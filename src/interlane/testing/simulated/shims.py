"""The engine of this machine on a simulated one: real shims, watchers, claims and groups.

A job is a small program here that ends when it is told to.  It may ignore that it is to stop,
and leave processes behind that no longer belong to its session.
"""

import signal
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any, Final

from interlane.live.driver.clock import Timed
from interlane.live.files.job import JobSpec
from interlane.live.port import Attempt, Engine, Launch, Observation, Output, Stop, Tell
from interlane.model import (
    Device,
    JobId,
    Machine,
    MachineId,
    Occupied,
    Placement,
    Spot,
    with_devices,
)
from interlane.testing.contract import ContractBroken
from interlane.testing.delivery import Killed
from interlane.testing.engines import Limits
from interlane.testing.simulated.calls import fork, on, posix
from interlane.testing.simulated.loading import simulated
from interlane.testing.simulated.machine import Gone, Process, SimulatedMachine
from interlane.testing.simulated.paths import DiskPath
from interlane.testing.worlds import Hands

COMMAND: Final = "simulated-job"
HERE: Final = MachineId("here")
FOLDERS: Final = ("/state-a", "/state-b")
WAIT_S: Final = 1.5
"""Seconds for which processes go on when a script lets time pass, at most."""
PACE: Final = 12
"""Turns of threads that pass between two moves, at most."""
SHIMS: Final = ("shim.py", "shim.py+")
"""Watchers, and shims that they watch; what these fork is called so, too, until it runs."""


class ServedEngine:
    """A real engine in a server of the simulated machine; see ``live.port.Engine``."""

    def __init__(self, machine: SimulatedMachine, folder: str, gpus: Machine) -> None:
        self._machine = machine
        self.process = machine.start("server", _serve, machine.init)
        with self._acting():
            state = DiskPath(folder)
            simulated("interlane.live.folder").prepare(state)
            self._lock = simulated("interlane.live.folder").lock(state)
            devices = simulated("interlane.device.inventory").emulated(gpus)
            groups = simulated("interlane.engines.local.groups").AttemptGroups()
            make = simulated("interlane.engines.local.engine").LocalEngine
            self._engine: Any = make(state, devices, groups=groups)
        self.traits = self._engine.traits

    @contextmanager
    def _acting(self) -> Iterator[None]:
        try:
            with self._machine.acting(self.process):
                yield
        except Gone:
            raise Killed from None

    def start(self, tell: Tell) -> None:
        """Begin to report, as long as the server lives."""

        def heard(report: Any) -> None:  # noqa: ANN401 - of the engine's own classes
            if self.process.is_alive:
                tell(report)

        with self._acting():
            self._engine.start(heard)

    def close(self) -> None:
        """Die."""
        self._machine.end(self.process, signal.SIGKILL)

    def check(self, job: JobSpec, user: str, *, is_admin: bool = False) -> None:
        """Pass the question on."""
        with self._acting():
            self._engine.check(job, user, is_admin=is_admin)

    def discard(self, key: str, *, was_cancelled: bool, why: str) -> None:
        """Pass the request on."""
        with self._acting():
            self._engine.discard(key, was_cancelled=was_cancelled, why=why)

    def observe(self, known: Collection[Attempt]) -> Observation:
        """Look, while everybody else goes on."""
        with self._acting():
            seen: Observation = self._engine.observe(known)
        return seen

    def begin(self, launch: Launch) -> None:
        """Pass it on."""
        with self._acting():
            self._engine.begin(launch)

    def grow(self, launch: Launch) -> None:
        """Pass it on."""
        with self._acting():
            self._engine.grow(launch)

    def stop(self, attempt: Attempt, how: Stop) -> None:
        """Pass it on."""
        with self._acting():
            self._engine.stop(attempt, how)

    def output(self, attempt: Attempt, begin: int, size: int) -> Output:
        """Pass the question on."""
        with self._acting():
            found: Output = self._engine.output(attempt, begin, size)
        return found


def _serve() -> None:
    on.machine.wait(lambda: False)


class ShimWorld:
    """One machine with real shims; see ``testing.engines.EngineWorld``."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.machine = on.machine = SimulatedMachine(rng)
        gpus = rng.randint(1, 3)
        self._whole = Machine(HERE, "EMULATED", gpus, 4_000, 65_536, 16_384)
        self.machine.cores = set(range(gpus))
        self._sights: dict[frozenset[int], dict[MachineId, Machine]] = {}
        on.programs = {"shim.py": _shim, COMMAND: self._job}
        has_copies = rng.random() < 0.5
        self._lacks = rng.random() < 0.7
        self.limits = Limits(
            gpus,
            2,
            elastic=False,
            restores=has_copies,
            keeps_traces=True,
            keeps_cancels=not self._lacks,
            pace=PACE,
        )
        self._folders = FOLDERS[:1] if has_copies else FOLDERS
        self._hands = Hands()
        self._shortage = rng.choice((0.0, 0.0, 0.002, 0.02)) if self._lacks else 0.0
        self._mishaps = rng.random() < 0.8
        self._weights = [rng.choice((0.2, 1.0, 1.0, 4.0)) for _ in range(8)]
        self._server: ServedEngine | None = None
        self._begun: Counter[tuple[Attempt, int]] = Counter()
        self._most_begun: dict[Attempt, int] = {}
        self._members: dict[Attempt, list[tuple[int, Spot, Process]]] = {}
        self._exits: dict[Attempt, int | None] = {}

    # -- what the suite asks ----------------------------------------------------------

    def engine(self) -> Engine:
        """Start a server, at times on another folder."""
        machine, cores = self.machine, self.machine.cores
        machine.shortage, machine.cores = 0.0, set(range(self._whole.gpus))
        self._server = ServedEngine(machine, self._rng.choice(self._folders), self._whole)
        machine.cores = cores
        return self._server

    def engine_died(self, engine: Engine) -> None:
        """Kill the server."""
        assert isinstance(engine, ServedEngine)
        engine.close()

    def clock(self, at_least_s: float) -> Timed:
        """Return a clock that is set by hand."""
        return self._hands

    def wait(self, seconds: float) -> None:
        """Let time pass; for processes, less of it."""
        self._hands.at_s += seconds
        self.machine.advance(min(seconds, WAIT_S))
        self._look_after()

    def command(self) -> str:
        """Return the word under which jobs run."""
        return COMMAND

    def running(self) -> Mapping[Attempt, Placement]:
        """Return attempts of which any process lives, whatever has become of the others."""
        found = {}
        for attempt, members in list(self._members.items()):
            alive = [one for one in members if one[2].is_alive]
            self._members[attempt] = alive
            ranks = {rank: spot for rank, spot, _ in alive}
            if ranks:
                found[attempt] = Placement(tuple(ranks.values()))
            else:
                del self._members[attempt]
        return found

    def begun(self) -> Mapping[Attempt, int]:
        """Return how often a process of each attempt has begun."""
        return self._most_begun

    def exits(self) -> Mapping[Attempt, int | None]:
        """Return the exit codes that attempts were told, or came to."""
        return self._exits

    def struck(self) -> frozenset[Attempt]:
        """Return none: nobody here ends a part of an attempt."""
        return frozenset()

    def machines(self) -> Mapping[MachineId, Machine]:
        """Return this machine."""
        cores = frozenset(self.machine.cores)
        if cores not in self._sights:
            self._sights[cores] = {HERE: self._with(cores)}
        return self._sights[cores]

    def _with(self, cores: frozenset[int]) -> Machine:
        """Return this machine with some of its devices."""
        whole = self._whole
        if len(cores) == whole.gpus:
            return whole
        devices = [whole.device(gpu) for gpu in range(whole.gpus)]
        left = [
            one if gpu in cores else Device(one.type, one.memory_mib, 0)
            for gpu, one in enumerate(devices)
        ]
        return with_devices(HERE, left, cpu_milli=whole.cpu_milli, memory_mib=whole.memory_mib)

    def drained(self) -> frozenset[MachineId]:
        """Return nothing: nobody drains it but our operators."""
        return frozenset()

    def occupied(self) -> Mapping[MachineId, Occupied]:
        """Return nothing."""
        return {}

    def withdrawn(self) -> frozenset[str]:
        """Return nothing: nothing comes in through this engine."""
        return frozenset()

    def finish(self, attempt: Attempt, exit_code: int) -> None:
        """Tell an attempt to end; the first word counts."""
        self._exits.setdefault(attempt, exit_code)

    def work(self) -> bool:
        """Let a thread go on for a while; what a machine lacks, it lacks from now on."""
        self.machine.shortage = self.machine.shortage or self._shortage
        did = self.machine.step()
        self._look_after()
        return did

    def _look_after(self) -> None:
        """Notice that the server has died, or that one of its threads has."""
        if self._server is None:
            return
        for process, error in self.machine.failures:
            if process.name == "server":
                raise ContractBroken("no thread fails", repr(error)) from error
        self.machine.failures.clear()
        if not self._server.process.is_alive:
            raise Killed

    def calm(self) -> None:
        """Let nothing go wrong any more."""
        self._mishaps = False
        self._shortage = self.machine.shortage = 0.0
        for process in self.machine.processes.values():
            process.fuse = None

    def restore(self) -> None:
        """Let all devices be there."""
        self.machine.cores = set(range(self._whole.gpus))

    # -- mishaps ----------------------------------------------------------------------

    def mishap(self) -> None:
        """Let one of several things happen."""
        if not self._mishaps:
            return
        mishaps = (
            self._kill_shim,
            self._kill_shim_soon,
            self._kill_job,
            self._kill_server_soon,
            self._lack,
            self._set_clock,
            self._lose_device,
            self._lose_power,
        )
        (mishap,) = self._rng.choices(mishaps, self._weights)
        mishap()

    def _any_shim(self) -> Process | None:
        found = [
            one for one in self.machine.processes.values() if one.name in SHIMS and one.is_alive
        ]
        return self._rng.choice(found) if found else None

    def _kill_shim(self) -> None:
        process = self._any_shim()
        if process is not None:
            self.machine.end(process, signal.SIGKILL)

    def _kill_shim_soon(self) -> None:
        process = self._any_shim()
        if process is not None:
            process.fuse = self._rng.randrange(60)

    def _kill_job(self) -> None:
        """Kill a process of a job that was not told to end."""
        running = [one for one in self.running() if one not in self._exits]
        if running:
            attempt = self._rng.choice(running)
            _, _, process = self._rng.choice(self._members[attempt])
            if process.name == "job":
                self._exits[attempt] = 128 + signal.SIGKILL
            self.machine.end(process, signal.SIGKILL)

    def _kill_server_soon(self) -> None:
        if self._server is not None:
            self._server.process.fuse = self._rng.randrange(300)

    def _lack(self) -> None:
        """Let the machine lack something, or have it again."""
        if self._lacks:
            self.machine.shortage = self._rng.choice((self._shortage, 0.1))

    def _set_clock(self) -> None:
        self.machine.wall_s += self._rng.choice((-86_400.0, 3_600.0, 86_400.0))

    def _lose_device(self) -> None:
        lost = self._rng.randrange(self._whole.gpus)
        self.machine.cores ^= {lost}

    def _lose_power(self) -> None:
        """Let the machine go down with its server, and come back."""
        self.machine.lose_power()
        raise Killed

    # -- programs ---------------------------------------------------------------------

    def _job(self, argv: tuple[str, ...]) -> int:
        machine = self.machine
        process, env = machine.current, machine.current.env
        attempt = Attempt(
            JobId(env["INTERLANE_JOB_ID"]),
            int(env["INTERLANE_ATTEMPT"]),
            env["INTERLANE_JOB_UID"],
        )
        rank, devices = int(env["INTERLANE_NODE_RANK"]), env["INTERLANE_DEVICES"]
        spot = Spot(HERE, tuple(map(int, devices.split(","))) if devices else ())
        self._begun[attempt, rank] += 1
        times = self._begun[attempt, rank]
        self._most_begun[attempt] = max(times, self._most_begun.get(attempt, 0))
        members = self._members.setdefault(attempt, [])
        members.append((rank, spot, process))
        if self._rng.random() < 0.2:
            process.handlers[signal.SIGTERM] = signal.SIG_IGN
        if self._rng.random() < 0.2:
            stays = self._rng.choice((_left_behind, _left_silently))
            child = machine.processes[fork(stays)]
            child.name = "left"
            members.append((rank, spot, child))
        machine.wait(lambda: attempt in self._exits)
        return self._exits[attempt] or 0


def _shim(argv: tuple[str, ...]) -> int:
    code: int = simulated("interlane.engines.local.shim").main(argv[-1])
    return code


def _left_silently() -> None:
    """Stay as daemons do, with nothing open that is the job's."""
    for number in list(on.machine.current.ends):
        posix.close(number)
    _left_behind()


def _left_behind() -> None:
    """Leave the session of the job, and stay."""
    posix.setsid()
    on.machine.wait(lambda: False)
