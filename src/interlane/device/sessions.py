"""Who is on the devices: jobs, from their HELLO until their process is gone or they say BYE.

A connection that ends does not free memory: the death of the process does, which a pidfd
tells, or a BYE.
"""

import os
import selectors
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from interlane.device import wire
from interlane.device.activity import ancestors_of
from interlane.device.peers import Peer
from interlane.device.shared import SharedDevice
from interlane.device.shared_job import SharedJob
from interlane.device.tally import RunTallies
from interlane.device.wire import Flag, Frame, FrameKind
from interlane.lanes.actions import MemoryDemand
from interlane.lanes.events import AllReturned
from interlane.model import MILLI, JobId

GONE: Final = "Its process is gone."


class JobSession(NamedTuple):
    """A job, and where it is."""

    job: SharedJob
    device: SharedDevice


class JobSessions:
    """Takes jobs in, does what they ask, and lets them go."""

    def __init__(
        self,
        devices: Sequence[SharedDevice],
        selector: selectors.BaseSelector,
        *,
        room: int,
        gone: Callable[[int], None],
        knows_all: bool,
    ) -> None:
        """Begin with nobody.

        Args:
            devices: what is shared.
            selector: what waits for the death of processes.
            room: how many jobs there may be.
            gone: called with the number of each job that is let go.
            knows_all: whether nobody is on the devices but those who will be watched.
        """
        self.residents: dict[int, JobSession] = {}
        """By the job's own number."""
        self.runs = RunTallies()
        self._devices = devices
        self._selector = selector
        self._room = room
        self._gone = gone
        self._knows_all = knows_all

    # -- frames ----------------------------------------------------------------------------

    def take(self, peer: Peer, frame: Frame) -> None:
        """Do what a frame asks for, as far as its sender may."""
        resident = self.residents.get(peer.job)
        if resident is None:
            self._meet(peer, frame)
        elif frame.job != peer.job or not self._obey(*resident, frame):
            peer.noise += 1

    def _meet(self, peer: Peer, frame: Frame) -> None:
        wanted, count = frame.device, len(self._devices)
        if frame.kind is not FrameKind.HELLO or frame.job == 0:
            peer.refuse("Say HELLO first.")
        elif wanted != wire.ANY_DEVICE and wanted >= count:
            peer.refuse(f"There is no device {wanted}; there are {count}.")
        elif frame.job in self.residents:
            self._welcome_back(peer, frame)
        elif Flag.REATTACH in frame.flags:
            self._reattach(peer, frame)
        else:
            self._join(peer, frame)

    def _obey(self, job: SharedJob, device: SharedDevice, frame: Frame) -> bool:
        """Do what a job says; tell whether that changed anything that cannot be repeated."""
        if frame.kind is FrameKind.BYE:
            self.let_go(job.key)
            return True
        if job.page is None:
            return False  # not admitted: there is nothing yet that it could say
        if frame.kind is FrameKind.ACQUIRE:
            return device.want(job)
        if frame.kind in (FrameKind.RELEASE, FrameKind.YIELD):
            return device.take_back(job, frame)
        if frame.kind is FrameKind.RESIZE:
            device.observe(job, frame)
        elif frame.kind is FrameKind.EXTEND:
            device.extend(job, frame.first / 1e9)
        return False

    # -- coming ----------------------------------------------------------------------------

    def _join(self, peer: Peer, hello: Frame) -> None:
        if len(self.residents) >= self._room:
            peer.refuse(f"The daemon has {self._room} jobs, and room for no more.")
            return
        unknown = wire.UNKNOWN in (hello.first, hello.second)
        expected = None if unknown else MemoryDemand(hello.first, hello.second)
        device = self._choose(hello.device)
        job = self._new_job(peer, hello, device, expected)
        if job is None:
            peer.refuse(GONE)
            return
        device.join(job)
        if job.id not in device.jobs:
            self.let_go(job.key)

    def _reattach(self, peer: Peer, hello: Frame) -> None:
        """Take in a job that an earlier daemon admitted and no journal knows."""
        device = self._choose(hello.device)
        job = self._new_job(peer, hello, device, device.held(hello))
        if job is None:
            peer.refuse(GONE)
        else:
            device.reattach(job, hello)

    def _welcome_back(self, peer: Peer, hello: Frame) -> None:
        job, device = self.residents[hello.job]
        if job.pid != peer.pid:
            peer.refuse("Another process has this job.")
            return
        if job.line is not None:
            job.line.close()
        if hello.job in self.residents:
            job.line, peer.job = peer, job.key
            job.run = hello.run
            device.welcome_back(job, hello)
            self._end_recovery_if_complete()

    def _new_job(
        self, peer: Peer, hello: Frame, device: SharedDevice, expected: MemoryDemand | None
    ) -> SharedJob | None:
        """Return a job whose process is watched; None if there is no such process any more."""
        try:
            pidfd = os.pidfd_open(peer.pid)
        except OSError:
            return None
        name = hello.text or "job"
        job = SharedJob(
            self._fresh_id(name, peer.pid, hello.job),
            hello.job,
            peer.pid,
            name,
            expected,
            Flag.DECLARED in hello.flags,
            priority=hello.priority,
            total_s=hello.third / 1e9 if hello.third else None,
            processes=0 if Flag.GUEST in hello.flags else 1,
            share=min(hello.share, MILLI),
            run=hello.run,
            pidfd=pidfd,
            line=peer,
            ancestors=ancestors_of(peer.pid),
        )
        peer.job = job.key
        self.runs.came(job)
        self.watch(job, device)
        return job

    def _fresh_id(self, name: str, pid: int, key: int) -> JobId:
        taken = {resident.job.id for resident in self.residents.values()}
        job_id = JobId(f"{name}.{pid}")
        return JobId(f"{job_id}.{key:x}") if job_id in taken else job_id

    def _choose(self, wanted: int) -> SharedDevice:
        """Return the device that a job asked for, or else the one with the most room."""
        if wanted < len(self._devices):
            return self._devices[wanted]
        return max(self._devices, key=lambda one: (one.domain.book.free_bytes, -one.index))

    def watch(self, job: SharedJob, device: SharedDevice) -> None:
        """Know the job until its process is gone."""
        self.residents[job.key] = JobSession(job, device)
        self._selector.register(job.pidfd, selectors.EVENT_READ, lambda: self.let_go(job.key))

    # -- going -----------------------------------------------------------------------------

    def lost(self, peer: Peer) -> None:
        """Count a job as away whose connection has ended."""
        resident = self.residents.get(peer.job)
        if resident is None or resident.job.line is not peer:
            return
        resident.job.line = None
        if resident.job.page is None:  # it only waited
            self.let_go(peer.job)

    def let_go(self, key: int) -> None:
        """Let a job go: its process is gone, or it said so, or both at once."""
        resident = self.residents.pop(key, None)
        if resident is None:
            return
        job, device = resident
        self._selector.unregister(job.pidfd)
        os.close(job.pidfd)
        self.runs.left(job)
        device.leave(job)
        self._gone(key)
        if job.line is not None:
            job.line.close()
        self._end_recovery_if_complete()

    def close(self) -> None:
        """Let go of all descriptors; jobs go on and look for another daemon."""
        for job, _ in self.residents.values():
            os.close(job.pidfd)
            job.close_page()

    def _end_recovery_if_complete(self) -> None:
        away = any(job.line is None for job, _ in self.residents.values())
        if away or not self._knows_all:
            return
        for device in self._devices:
            if device.is_recovering:
                device.tell(AllReturned())
