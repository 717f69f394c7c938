"""The device daemon and the clients of jobs, on a simulated machine.

Jobs come, run iterations, pass their lane on, hang and go; jobs and the daemon are killed at
any call of the system; the disk is full, so that the journal is lost.  Whoever keeps daemons
alive starts the next one soon.
"""

import signal
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from interlane.device.lane_request import LaneRequest
from interlane.device.specs import DeviceSpec
from interlane.model.errors import Rejected, Unreachable
from interlane.testing.contract import ContractBroken, demand
from interlane.testing.simulated.calls import on
from interlane.testing.simulated.ends import Line
from interlane.testing.simulated.loading import simulated
from interlane.testing.simulated.machine import Process, SimulatedMachine
from interlane.testing.simulated.paths import DiskPath

SOCKET: Final = DiskPath("/run/lanes/share.sock")
CAPACITY_BYTES: Final = 1 << 30
HUNG_AFTER_S: Final = 5.0
RESTART_S: Final = 0.05
"""A daemon takes this long to start, at least."""
REST_S: Final = 300.0
"""In which all jobs must end once nothing goes wrong."""
JOBS_MAX: Final = 8
FULL_DISK: Final = frozenset({"write", "make"})
PATIENCE_S: Final = 120.0
REFUSED, ALONE = 3, 4
"""How jobs end that were refused, or found no daemon."""


@dataclass(eq=False)
class _Memory:
    """The memory of a job, as its client measures it."""

    persistent_bytes: int
    ephemeral_bytes: int
    measures = True

    def live(self) -> int:
        return self.persistent_bytes

    def peak(self) -> int:
        return self.persistent_bytes + self.ephemeral_bytes

    def glance(self) -> tuple[int, int]:
        return self.live(), self.peak()

    def mark(self) -> int:
        return self.peak()

    def reset_peak(self) -> None:
        """Nothing is remembered."""

    def trim(self) -> int:
        return 0

    def fence(self) -> None:
        on.machine.enter()

    def limit(self, nbytes: int | None) -> None:
        """Nobody takes more than was said."""


@dataclass(eq=False)
class _Job:
    """A job, and where it is."""

    process: Process
    memory: _Memory
    iterations: int
    place: tuple[int, int] | None = None
    """Its device and its lane, while it is admitted."""
    is_inside: bool = False
    hangs: bool = False
    is_killed: bool = False
    """By whoever plays, or for hanging."""


class SharingWorld:
    """One script of jobs that share devices; what must hold is checked after every event."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.machine = on.machine = SimulatedMachine(rng)
        self.machine.disk.make("/run", is_folder=True)
        self.machine.lacks = FULL_DISK
        on.programs = {}
        self.events = 0
        self._specs = tuple(
            DeviceSpec("cpu", CAPACITY_BYTES) for _ in range(rng.choice((1, 1, 2)))
        )
        self._order = rng.choice(("fair", "fifo", "srtf", "priority"))
        self._names = iter(range(1_000_000))
        self._jobs: list[_Job] = []
        self._hang_rate = rng.choice((0.0, 0.0, 0.005))
        self._shortage = rng.choice((0.0, 0.0, 0.2))
        self._daemon: Any = None
        self._process: Process | None = None

    # -- processes --------------------------------------------------------------------

    def _start_daemon(self) -> None:
        self._process = self.machine.start("daemon", self._serve, self.machine.init)

    def _serve(self) -> int:
        self.machine.wait(lambda: False, RESTART_S)
        settings = simulated("interlane.device.settings").DeviceSettings(
            self._specs, SOCKET, self._order, "turns", hung_after_s=HUNG_AFTER_S
        )
        daemon = simulated("interlane.device.daemon").Daemon(settings)
        self._daemon = daemon
        daemon.run()
        return 0

    def _start_job(self) -> None:
        if len([one for one in self._jobs if one.process.is_alive]) >= JOBS_MAX:
            return
        rng = self.rng
        memory = _Memory(rng.choice((32, 128, 400)) << 20, rng.choice((16, 128, 500)) << 20)
        request = LaneRequest(
            f"job-{next(self._names)}",
            rng.choice((0, 65_535)),
            rng.choice((0, 5)),
            rng.choice((None, 3.0)),
            memory.persistent_bytes,
            memory.ephemeral_bytes,
            is_declared=rng.random() < 0.7,
            share=rng.choice((0, 250)),
            patience_s=PATIENCE_S,
        )
        job: _Job
        process = self.machine.start("job", lambda: self._run(job, request), self.machine.init)
        job = _Job(process, memory, rng.choice((3, 20, 100)))
        self._jobs.append(job)

    def _run(self, job: _Job, request: LaneRequest) -> int:
        """Be a job: the client is the real one."""
        machine, rng = self.machine, self.rng
        try:
            client = simulated("interlane.device.client").DeviceClient(
                request, SOCKET, lambda name: job.memory
            )
        except Rejected:
            return REFUSED
        except Unreachable:
            return ALONE
        for _ in range(job.iterations):
            self._note_place(job, client)
            client.begin()
            self._enter(job, client)
            job.hangs = rng.random() < self._hang_rate
            machine.wait(lambda: False, 1e9 if job.hangs else rng.choice((0.0, 0.001, 0.05)))
            job.is_inside = False
            client.end()
            machine.wait(lambda: False, rng.choice((0.0, 0.0, 0.001, 0.01, 0.4)))
        job.place = None  # who says goodbye has given its memory back before
        client.close()
        return 0

    def _note_place(self, job: _Job, client: Any) -> None:  # noqa: ANN401 - of a simulated module
        admission = client._link.admission
        job.place = admission.device, admission.lane

    def _enter(self, job: _Job, client: Any) -> None:  # noqa: ANN401 - of a simulated module
        """Begin an iteration: nobody else is inside one on this lane, and memory suffices."""
        self._note_place(job, client)
        job.is_inside = True
        there = [one for one in self._jobs if one.process.is_alive and one.place is not None]
        inside = [one for one in there if one.is_inside and one.place == job.place]
        if len(inside) != 1:
            names = ", ".join(str(one.process.pid) for one in inside)
            raise ContractBroken("no two holders of a lane", f"{names} run on {job.place}.")
        self._check_memory(there)

    def _check_memory(self, there: list[_Job]) -> None:
        used: dict[int, int] = {}
        for one in there:
            assert one.place is not None
            bytes_ = one.memory.peak() if one.is_inside else one.memory.live()
            used[one.place[0]] = used.get(one.place[0], 0) + bytes_
        for device, bytes_ in used.items():
            what = f"{bytes_ >> 20} MiB are used of device {device}."
            demand(bytes_ <= CAPACITY_BYTES, "within the memory of a device", what)

    # -- the script -------------------------------------------------------------------

    def play(self, events: int) -> int:
        """Play a script; return how many events there were."""
        self._start_daemon()
        moves = (
            (self._start_job, 4),
            (self._kill_job, 1),
            (self._kill_job_soon, 2),
            (self._cut_line, 0.5),
            (self._kill_daemon, 0.5),
            (self._kill_daemon_soon, 1),
            (self._fill_disk, 0.5),
            (self._pass_time, 6),
        )
        weights = [weight * self.rng.choice((0.2, 1.0, 3.0)) for _, weight in moves]
        while self.events < events:
            if self.rng.random() < 0.2:
                (move, _), *_ = self.rng.choices(moves, weights)
                move()
            elif not self.machine.step():
                self.machine.advance(0.001)
            self.events += 1
            self.audit()
        self._come_to_rest()
        return self.events

    def _alive(self) -> list[_Job]:
        return [one for one in self._jobs if one.process.is_alive]

    def _kill_job(self) -> None:
        alive = self._alive()
        if alive:
            job = self.rng.choice(alive)
            job.is_killed = True
            self.machine.end(job.process, signal.SIGKILL)

    def _kill_job_soon(self) -> None:
        alive = self._alive()
        if alive:
            job = self.rng.choice(alive)
            job.is_killed = True
            job.process.fuse = self.rng.randrange(100)

    def _cut_line(self) -> None:
        """Let the connection of a job end, while both sides live."""
        alive = self._alive()
        if alive:
            ends = self.rng.choice(alive).process.ends.values()
            for line in [one for one in ends if isinstance(one, Line) and one.other]:
                line.hang_up()

    def _kill_daemon(self) -> None:
        if self._process is not None and self._process.is_alive:
            self.machine.end(self._process, signal.SIGKILL)

    def _kill_daemon_soon(self) -> None:
        if self._process is not None:
            self._process.fuse = self.rng.randrange(400)

    def _fill_disk(self) -> None:
        self.machine.shortage = 0.0 if self.machine.shortage else self._shortage

    def _pass_time(self) -> None:
        self.machine.advance(self.rng.choice((0.001, 0.02, 0.5)))

    # -- what must hold ---------------------------------------------------------------

    def audit(self) -> None:
        """Check what must hold at every moment, and start a daemon if there is none."""
        for process, error in self.machine.failures:
            if isinstance(error, ContractBroken):
                raise error
            if process.name == "daemon" and not isinstance(error, OSError):
                raise ContractBroken("the daemon survives", repr(error)) from error
            if process.name == "job":
                raise ContractBroken("jobs survive", repr(error)) from error
        self.machine.failures.clear()
        assert self._process is not None
        if not self._process.is_alive:
            self._daemon = None
            self._start_daemon()
        elif self._daemon is not None:
            _check_books(self._daemon)

    def _come_to_rest(self) -> None:
        """Let nothing go wrong: all jobs come to their ends, or are ended for hanging."""
        self.machine.shortage = self._hang_rate = 0.0
        for process in self.machine.processes.values():
            process.fuse = None
        end_s = self.machine.now_s + REST_S
        while self._alive() and self.machine.now_s < end_s:
            self.machine.advance(0.5)
            self.audit()
            for job in self._alive():
                if job.hangs and job.is_inside and len(self._alive()) == 1:
                    self.machine.end(job.process, signal.SIGKILL)  # nobody waits for it
        left = [str(one.process.pid) for one in self._alive()]
        demand(not left, "every job gets its turns", f"{', '.join(left)} did not.")
        for job in self._jobs:
            is_known = job.process.status in (0, REFUSED << 8)
            what = f"{job.process.pid} ended with {job.process.status}."
            demand(is_known or job.is_killed or job.hangs, "ends are true", what)


def _check_books(daemon: Any) -> None:  # noqa: ANN401 - of a simulated module
    """Check what the daemon believes: one lease for a lane, and no memory that is not there."""
    for device in daemon.devices:
        leases = device.domain.leases
        if len({lease.lane for lease in leases}) != len(leases):
            what = f"{leases} are given on device {device.index}."
            raise ContractBroken("one lease for a lane", what)
        free = device.domain.book.free_bytes
        if not device.is_recovering:
            demand(free >= 0, "the books balance", f"{free} bytes of {device.index} are free.")


def check_sharing(seed: int, events: int) -> int:
    """Play one script of sharing and raise ``ContractBroken`` if it breaks a clause."""
    return SharingWorld(Random(seed)).play(events)
