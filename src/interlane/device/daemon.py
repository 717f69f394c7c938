"""The executor daemon: one for a machine, one domain for each device that it shares.

One thread, one selector.  Whatever a client sends is read as a frame or ends the connection;
whatever a client does to its own page or connection hurts nobody else.  A connection that ends
does not free memory: the death of the process does, which a pidfd tells, or a BYE.

After a crash the next daemon reads the journal and waits for the jobs whose processes live.
Until all of them are back, or a grace period is over, nobody comes in and no lane is granted.
"""

import errno
import fcntl
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final

from interlane.device import page, rendezvous, wire
from interlane.device.journal import Journal, Record, started_ticks
from interlane.device.memory import most
from interlane.device.shared import SharedDevice, SharedJob
from interlane.device.specs import DeviceSpec
from interlane.device.status import status_of
from interlane.device.trials import Trials
from interlane.device.wire import Flag, Frame, Kind
from interlane.lanes.domain import Domain
from interlane.lanes.facts import Recovered
from interlane.lanes.memory import Budget
from interlane.lanes.order import make_order
from interlane.lanes.quantum import HangRule, TurnRule
from interlane.lanes.sharing import (
    MeasuredSlowDown,
    Overlap,
    OverlapIfItPays,
    Serialise,
    Sharing,
    SlowDown,
)
from interlane.lanes.wishes import Demand, LaneId
from interlane.model import MILLI, InvalidInput, JobId, Ticked, UnknownName

GRACE_S: Final = 3.0
"""How long a new daemon waits for jobs of the one before; jobs knock every 0.4 s."""
STRANGERS: Final = 512
"""Connections that may be open without having said who they are."""
STRANGER_S: Final = 5.0
FRAMES_PER_TURN: Final = 32
"""Frames read from one connection before others are looked at."""
NOISE_PER_TICK: Final = 1000
"""Frames that change nothing, after which a connection is closed."""
TICK_S: Final = 1.0
LEAST_QUANTUM_S: Final = 0.02
FINISHED_RUNS: Final = 4096
PRESS_AFTER_S: Final = 5.0
"""From the warning of a hung job to its termination, and from there to its killing."""
NICE: Final = -10
NOTHING: Final = Demand(0, 0)
_SPARE_DESCRIPTORS: Final = 64
_DESCRIPTORS_PER_JOB: Final = 4


@dataclass(frozen=True, slots=True)
class Settings:
    """What a daemon is told when it starts."""

    devices: tuple[DeviceSpec, ...]
    socket: Path
    order: str = "fair"
    sharing: str = "measured"
    hung_after_s: float = 30.0
    kills_hung: bool = True
    grace_s: float = GRACE_S
    leave_after_s: float = inf
    """Without jobs and without questions for so long, the daemon ends by itself."""


@dataclass(slots=True, eq=False)
class Peer:
    """One connection."""

    line: socket.socket
    pid: int
    since_s: float
    broken: Callable[["Peer"], None]
    job: SharedJob | None = None
    device: SharedDevice | None = None
    noise: int = 0
    """Frames since the last tick that changed nothing."""

    def send(self, frame: Frame, descriptors: Sequence[int] = ()) -> None:
        """Send a frame; a client that does not read what it is sent is cut off."""
        try:
            if descriptors:
                socket.send_fds(self.line, [wire.packed(frame)], list(descriptors))
            else:
                self.line.send(wire.packed(frame))
        except OSError:
            self.broken(self)


@dataclass(slots=True)
class RunTally:
    """What became of one ``share run``."""

    jobs: int = 0
    iterations: int = 0
    busy_ns: int = 0
    waited_ns: int = 0
    present_ns: int = 0
    needed: Demand = NOTHING
    """The most that any of its jobs was measured to need."""

    def add(self, job: SharedJob) -> None:
        """Add what a job has done."""
        self.iterations += job.word(page.ITERATIONS)
        self.busy_ns += job.word(page.BUSY_NS)
        self.waited_ns += job.word(page.WAITED_NS)
        self.present_ns += job.present_ns
        self.needed = most((self.needed, job.measured or NOTHING))


class Daemon:
    """Listens, decides through its domains, and survives its clients."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.started_s = monotonic()
        self._selector = selectors.DefaultSelector()
        self._peers: OrderedDict[int, Peer] = OrderedDict()
        self._broken: list[Peer] = []
        self._jobs: dict[int, tuple[SharedJob, SharedDevice]] = {}
        """By the job's own number."""
        self._pidfds: dict[int, int] = {}
        """By the job's own number."""
        self.runs: OrderedDict[int, RunTally] = OrderedDict()
        self._tick_s = 0.0
        self._needed_s = self.started_s
        """When there was last a job or a question."""
        self._stopping = False
        self._said_trouble: str | None = None
        rendezvous.make_directory(settings.socket.parent)
        self._lock, is_first = _only_daemon(settings.socket)
        self._journal = Journal(settings.socket.with_suffix(".journal"))
        known = self._journal.read()
        records = [] if known is None else [one for one in known if self._lives(one)]
        wait_s = 0.0 if known is not None or is_first else settings.grace_s
        self._trials: list[Trials] = []
        self.devices = [
            self._device(at, spec, settings.hung_after_s if records else wait_s)
            for at, spec in enumerate(settings.devices)
        ]
        self._journal.begin(records)
        for record in records:
            self._inherit(record)
        self._room = _room_for_jobs()
        self._listener = _listening(settings.socket)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self.published = status_of(self)
        """The status as of the last tick, for other threads."""

    def _device(self, index: int, spec: DeviceSpec, wait_s: float) -> SharedDevice:
        now_s = monotonic()
        slow_down = MeasuredSlowDown()
        sharing = make_sharing(self.settings.sharing, slow_down)
        domain = Domain(
            Budget(spec.capacity_bytes, spec.context_bytes),
            make_order(self.settings.order),
            sharing=sharing,
            turns=TurnRule(least_s=LEAST_QUANTUM_S),
            hangs=HangRule(least_s=self.settings.hung_after_s),
            recovering_until_s=now_s + wait_s if wait_s else None,
            # Later than any epoch of a daemon before, without anything on disk.
            last_epoch=int(now_s * 1e6),
            names_heirs=True,
        )
        device = SharedDevice(index, spec, domain, monotonic)
        if isinstance(sharing, OverlapIfItPays):
            self._trials.append(Trials(device, slow_down, sharing))
        device.tell(Ticked())
        return device

    # -- the loop --------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until told to stop."""
        _raise_limits()
        wake, woken = socket.socketpair()
        wake.setblocking(False)
        woken.setblocking(False)
        before = signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        handlers = {
            number: signal.signal(number, lambda *_: self.stop())
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        self._selector.register(wake, selectors.EVENT_READ, lambda: wake.recv(512))
        try:
            while not self._stopping:
                self.turn()
        finally:
            signal.set_wakeup_fd(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self.close()

    def stop(self) -> None:
        """Leave the loop at its next turn."""
        self._stopping = True

    def turn(self, wait_s: float | None = None) -> None:
        """Deal with what happens, and wait for it: as long as there is nothing to do."""
        for key, _ in self._selector.select(self._pause_s() if wait_s is None else wait_s):
            key.data()
        self._drop_broken()
        now_s = monotonic()
        for device in self.devices:
            device.settle()
            if device.wake_s is not None and device.wake_s <= now_s:
                device.tell(Ticked())
            device.recall(now_s)
        for trials in self._trials:
            trials.look(now_s)
        if now_s >= self._tick_s:
            self._tick_s = now_s + TICK_S
            self._tick(now_s)
        self._write_journal()
        self._drop_broken()

    def _pause_s(self) -> float:
        now_s = monotonic()
        due_s = [self._tick_s]
        due_s += [device.wake_s for device in self.devices if device.wake_s is not None]
        due_s += [device.look_s(now_s) for device in self.devices]
        return max(0.0, min(due_s) - now_s)

    def _tick(self, now_s: float) -> None:
        for peer in [one for one in self._peers.values() if one.job is None]:
            if now_s - peer.since_s > STRANGER_S:
                self._close(peer)
        for peer in self._peers.values():
            peer.noise = 0
        for device in self.devices:
            device.count_switches(now_s)
            for lease in device.domain.overdue(now_s):
                self._press(device.jobs[lease.job_id], now_s)
        self._journal.mend()
        if self._jobs:
            self._needed_s = now_s
        elif now_s - self._needed_s > self.settings.leave_after_s:
            self.stop()
        self.published = status_of(self)

    def close(self) -> None:
        """Let everything go; jobs go on and look for another daemon."""
        for peer in list(self._peers.values()):
            self._close(peer)
        self._selector.unregister(self._listener)
        self._listener.close()
        self._selector.close()
        self._journal.close()
        for pidfd in self._pidfds.values():
            os.close(pidfd)
        for job, _ in self._jobs.values():
            job.close_page()
        with suppress(OSError):
            self.settings.socket.unlink()
        os.close(self._lock)

    # -- connections -----------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(FRAMES_PER_TURN):
            try:
                line, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    return
                self._close_oldest_stranger()
                return
            self._greet(line)

    def _greet(self, line: socket.socket) -> None:
        line.setblocking(False)
        pid, uid = _credentials(line)
        peer = Peer(line, pid, monotonic(), self._broken.append)
        strangers = sum(one.job is None for one in self._peers.values())
        if uid not in (os.getuid(), 0):
            self._refuse(peer, f"The daemon serves user {os.getuid()}, you are user {uid}.")
        elif len(self._jobs) >= self._room:
            self._refuse(peer, f"The daemon has {self._room} jobs, and room for no more.")
        else:
            if strangers >= STRANGERS:
                self._close_oldest_stranger()
            self._peers[line.fileno()] = peer
            self._selector.register(line, selectors.EVENT_READ, lambda: self._hear(peer))

    def _refuse(self, peer: Peer, why: str) -> None:
        peer.send(Frame(Kind.REJECT, text=why))
        peer.line.close()

    def _close_oldest_stranger(self) -> None:
        oldest = next((one for one in self._peers.values() if one.job is None), None)
        if oldest is not None:
            self._close(oldest)

    def _close(self, peer: Peer) -> None:
        """End a connection; a job behind it counts as away."""
        if self._peers.pop(peer.line.fileno(), None) is None:
            return
        self._selector.unregister(peer.line)
        peer.line.close()
        if peer.job is not None and peer.job.line is peer:
            peer.job.line = None
            if peer.device is not None and peer.job.page is None:  # it only waited
                self._forget(peer.job.key)

    def _drop_broken(self) -> None:
        while self._broken:
            peer = self._broken.pop()
            if peer.line.fileno() >= 0:
                self._hear(peer)  # it may have said BYE before it hung up
            if peer.line.fileno() >= 0:
                self._close(peer)

    def _hear(self, peer: Peer) -> None:
        """Take in what a connection brings."""
        for _ in range(FRAMES_PER_TURN):
            try:
                message = peer.line.recv(wire.FRAME_BYTES + 1)
            except BlockingIOError:
                return
            except ConnectionResetError:
                continue  # it left with our words unread; its own are still there
            except OSError:
                message = b""
            frame = wire.read(message)
            if frame is None or peer.noise > NOISE_PER_TICK:
                if message:
                    peer.send(
                        Frame(Kind.REJECT, text="This is not what the daemon understands.")
                    )
                self._close(peer)
                return
            self._take(peer, frame)
            if peer.line.fileno() < 0:
                return

    # -- frames ----------------------------------------------------------------------------

    def _take(self, peer: Peer, frame: Frame) -> None:
        if frame.kind is Kind.STATUS:
            peer.noise += 1
            self._needed_s = monotonic()
            self._tell_status(peer, frame.run)
        elif peer.job is None or peer.device is None:
            self._meet(peer, frame)
        elif frame.job == peer.job.key:
            self._obey(peer, peer.job, peer.device, frame)
        else:
            peer.noise += 1

    def _meet(self, peer: Peer, frame: Frame) -> None:
        wanted = frame.device
        if frame.kind is not Kind.HELLO or frame.job == 0:
            self._end(peer, "Say HELLO first.")
        elif wanted != wire.ANY_DEVICE and wanted >= len(self.devices):
            self._end(peer, f"There is no device {wanted}; there are {len(self.devices)}.")
        elif frame.job in self._jobs:
            self._welcome_back(peer, frame)
        elif Flag.REATTACH in frame.flags:
            self._reattach(peer, frame)
        else:
            self._join(peer, frame)

    def _end(self, peer: Peer, why: str) -> None:
        peer.send(Frame(Kind.REJECT, text=why))
        self._close(peer)

    def _obey(self, peer: Peer, job: SharedJob, device: SharedDevice, frame: Frame) -> None:
        if frame.kind is Kind.BYE:
            self._forget(job.key)
            peer.job = peer.device = None
            self._close(peer)
        elif job.page is None:
            peer.noise += 1  # not admitted: there is nothing yet that it could say
        elif frame.kind is Kind.ACQUIRE:
            peer.noise += not device.want(job)
        elif frame.kind in (Kind.RELEASE, Kind.YIELD):
            peer.noise += not device.take_back(job, frame)
        elif frame.kind is Kind.RESIZE:
            peer.noise += 1
            device.observe(job, frame.first, frame.second)
        elif frame.kind is Kind.EXTEND:
            peer.noise += 1
            device.extend(job, frame.first / 1e9)
        else:
            peer.noise += 1

    # -- jobs ------------------------------------------------------------------------------

    def _join(self, peer: Peer, frame: Frame) -> None:
        device = self._choose(frame.device)
        unknown = wire.UNKNOWN in (frame.first, frame.second)
        job = self._new_job(peer, frame, None if unknown else Demand(frame.first, frame.second))
        if job is None:
            self._end(peer, "Its process is gone.")
            return
        self._enrol(peer, job, device)
        device.join(job)
        if job.id not in device.jobs:
            self._forget(job.key)
            peer.job = peer.device = None
            self._close(peer)

    def _reattach(self, peer: Peer, frame: Frame) -> None:
        """Take in a job that an earlier daemon admitted and no journal knows."""
        device = self._choose(frame.device)
        job = self._new_job(peer, frame, device.held(frame))
        if job is None:
            self._end(peer, "Its process is gone.")
            return
        self._enrol(peer, job, device)
        device.reattach(job, frame)

    def _welcome_back(self, peer: Peer, frame: Frame) -> None:
        job, device = self._jobs[frame.job]
        if job.pid != peer.pid:
            self._end(peer, "Another process has this job.")
            return
        if isinstance(job.line, Peer):
            self._close(job.line)
        if frame.job in self._jobs:
            job.line, peer.job, peer.device = peer, job, device
            job.run = frame.run
            device.welcome_back(job, frame)
            self._end_recovery_if_complete()

    def _new_job(self, peer: Peer, frame: Frame, expected: Demand | None) -> SharedJob | None:
        """Return a job whose process is watched; None if there is no such process any more."""
        try:
            self._pidfds[frame.job] = os.pidfd_open(peer.pid)
        except OSError:
            return None
        taken = {job.id for job, _ in self._jobs.values()}
        name = frame.text or "job"
        job_id = JobId(f"{name}.{peer.pid}")
        if job_id in taken:
            job_id = JobId(f"{name}.{peer.pid}.{frame.job:x}")
        return SharedJob(
            job_id,
            frame.job,
            peer.pid,
            name,
            frame.run,
            monotonic(),
            expected,
            Flag.DECLARED in frame.flags,
            frame.priority,
            frame.third / 1e9 if frame.third else None,
            0 if Flag.GUEST in frame.flags else 1,
            min(frame.share, MILLI),
            peer,
        )

    def _enrol(self, peer: Peer, job: SharedJob, device: SharedDevice) -> None:
        peer.job, peer.device = job, device
        if job.run:
            self._tally(job.run).jobs += 1
        self._watch(job, device)

    def _watch(self, job: SharedJob, device: SharedDevice) -> None:
        """Know the job until its process is gone."""
        key = job.key
        self._jobs[key] = job, device
        self._selector.register(
            self._pidfds[key], selectors.EVENT_READ, lambda: self._forget(key)
        )

    def _forget(self, key: int) -> None:
        """Let a job go: its process is gone, or it said so, or both at once."""
        if key not in self._jobs:
            return
        job, device = self._jobs.pop(key)
        pidfd = self._pidfds.pop(key)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        if job.run:
            self._tally(job.run).add(job)
        device.leave(job)
        self._journal.drop(key)
        if isinstance(job.line, Peer):
            peer, job.line = job.line, None
            peer.job = peer.device = None
            self._close(peer)
        self._end_recovery_if_complete()

    def _tally(self, run: int) -> RunTally:
        while len(self.runs) >= FINISHED_RUNS:
            self.runs.popitem(last=False)
        return self.runs.setdefault(run, RunTally())

    def _choose(self, wanted: int) -> SharedDevice:
        """Return the device that a job asked for, or else the one with the most room."""
        if wanted < len(self.devices):
            return self.devices[wanted]
        return max(self.devices, key=lambda one: (one.domain.book.free_bytes, -one.index))

    def _press(self, job: SharedJob, now_s: float) -> None:
        """Warn of a hung holder, then terminate it, then kill it."""
        if now_s < max(job.overdue_next_s, job.extended_until_s):
            return
        job.overdue_stage += 1
        job.overdue_next_s = now_s + min(PRESS_AFTER_S, self.settings.hung_after_s)
        if job.overdue_stage == 1:
            what = "is inside one iteration for too long, and others wait"
        elif not self.settings.kills_hung:
            return
        else:
            number = signal.SIGTERM if job.overdue_stage == 2 else signal.SIGKILL
            with suppress(OSError):
                signal.pidfd_send_signal(self._pidfds[job.key], number)
            what = f"does not answer and was sent {number.name}"
        say(f"{job.id} {what}")

    # -- after a crash ---------------------------------------------------------------------

    def _lives(self, record: Record) -> bool:
        """Watch the process of a recorded job; tell whether it and its device exist."""
        try:
            pidfd = os.pidfd_open(record.pid)
        except OSError:
            return False
        lives = started_ticks(record.pid) == record.started
        if not lives or record.device >= len(self.settings.devices):
            os.close(pidfd)
            return False
        self._pidfds[record.key] = pidfd
        return True

    def _inherit(self, record: Record) -> None:
        """Book what a job of the daemon before holds, until it is back or dead."""
        device = self.devices[record.device]
        demand = Demand(record.persistent_bytes, record.ephemeral_bytes)
        job = SharedJob(
            JobId(record.job_id),
            record.key,
            record.pid,
            record.name,
            0,
            monotonic(),
            demand,
            record.is_declared,
            record.priority,
            processes=record.processes,
            share=record.share,
        )
        self._watch(job, device)
        device.inherit(job, demand, LaneId(record.lane), record.lane_bytes)

    def _end_recovery_if_complete(self) -> None:
        if all(job.line is not None for job, _ in self._jobs.values()):
            for device in self.devices:
                if device.is_recovering:
                    device.tell(Recovered())

    def _write_journal(self) -> None:
        for device in self.devices:
            for job_id in device.changed:
                self._journal.keep(_record(device.jobs[job_id], device))
            device.changed.clear()
        if self._journal.trouble != self._said_trouble:
            self._said_trouble = self._journal.trouble
            say(self._said_trouble or "the journal is complete again")

    @property
    def journal_trouble(self) -> str | None:
        """Why the journal is not complete."""
        return self._journal.trouble

    # -- status ----------------------------------------------------------------------------

    def _tell_status(self, peer: Peer, run: int) -> None:
        """Answer with a file: a status may be longer than a message."""
        answer = json.dumps(status_of(self, run)).encode()
        try:
            descriptor = os.memfd_create("interlane-status", os.MFD_CLOEXEC)
        except OSError:
            self._end(peer, "The daemon is out of descriptors; ask again.")
            return
        try:
            os.write(descriptor, answer)
            peer.send(Frame(Kind.STATUS, first=len(answer)), (descriptor,))
        finally:
            os.close(descriptor)


SHARING: Final[Mapping[str, Callable[[SlowDown], Sharing]]] = {
    "measured": OverlapIfItPays,
    "turns": lambda _: Serialise(),
    "beside": lambda _: Overlap(),
}
"""How jobs spread over lanes, by name."""


def make_sharing(name: str, slow_down: SlowDown) -> Sharing:
    """Return the sharing of this name."""
    if name not in SHARING:
        raise UnknownName("sharing", name, SHARING)
    return SHARING[name](slow_down)


def say(what: str) -> None:
    """Write a line of the log; a log that cannot be written is not worth a crash."""
    with suppress(OSError, ValueError):
        print(f"interlane daemon: {what}", file=sys.stderr, flush=True)


def _record(job: SharedJob, device: SharedDevice) -> Record:
    lane = device.domain.book.lane_of(job.id)
    assert lane is not None
    demand = lane.tenants[job.id]
    return Record(
        key=job.key,
        job_id=job.id,
        name=job.name,
        pid=job.pid,
        started=started_ticks(job.pid) or 0,
        device=device.index,
        lane=lane.id,
        lane_bytes=lane.size_bytes,
        persistent_bytes=demand.persistent_bytes,
        ephemeral_bytes=demand.ephemeral_bytes,
        priority=job.priority,
        is_declared=job.is_declared,
        processes=job.processes,
        share=job.share,
    )


def _only_daemon(path: Path) -> tuple[int, bool]:
    """Lock the place for this daemon; tell, too, whether there has never been one here."""
    lock = path.with_suffix(".lock")
    is_first = not lock.exists()
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InvalidInput(
            f"a device daemon runs at {path} already; stop it, or name another --socket."
        ) from None
    return descriptor, is_first


def _listening(path: Path) -> socket.socket:
    """Listen; the path appears when somebody answers there, and not before."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        listener.bind(str(fresh))
    finally:
        os.umask(before)
    listener.listen(1024)
    listener.setblocking(False)
    fresh.replace(path)
    return listener


def _credentials(line: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end, as the kernel knows them."""
    size = struct.calcsize("iII")
    pid, uid, _ = struct.unpack(
        "iII", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return pid, uid


def _room_for_jobs() -> int:
    """Return how many jobs there are descriptors for."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (hard - STRANGERS - _SPARE_DESCRIPTORS) // _DESCRIPTORS_PER_JOB)


def _raise_limits() -> None:
    """Take what the system allows of descriptors and priority.

    Every hand-over waits for this process, so it should not wait for others.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
