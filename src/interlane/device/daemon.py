"""The executor daemon: one for a machine, one domain for each device that it shares.

One thread, one selector: connections (``peers``) bring frames, jobs (``reception``) come and
go, devices (``shared``) say whose turn it is.  Whatever a client does to its own page or
connection hurts nobody else.
"""

import json
import os
import selectors
import signal
import socket
from contextlib import suppress
from time import monotonic
from typing import Final

from interlane.device import limits, recovery, rendezvous
from interlane.device.hung import press
from interlane.device.journal import MemoryJournal
from interlane.device.peers import Peer, Peers
from interlane.device.sessions import JobSessions
from interlane.device.settings import DeviceSettings
from interlane.device.shared import SharedDevice
from interlane.device.shared_job import SharedJob
from interlane.device.specs import DeviceSpec
from interlane.device.status import report_now
from interlane.device.talk import log
from interlane.device.trials import Trials
from interlane.device.wire import Frame, FrameKind
from interlane.lanes.domain import Domain
from interlane.lanes.memory import Budget
from interlane.lanes.order import make_order
from interlane.lanes.quantum import HangRule, TurnRule
from interlane.lanes.report import DaemonReport, document_of
from interlane.lanes.sharing import MeasuredSlowDown, OverlapIfItPays, make_sharing
from interlane.model import Ticked

TICK_S: Final = 1.0
LEAST_QUANTUM_S: Final = 0.02


class Daemon:
    """Listens, decides through its domains, and survives its clients."""

    def __init__(self, settings: DeviceSettings) -> None:
        self.settings = settings
        self._selector = selectors.DefaultSelector()
        self._tick_s = 0.0
        self._needed_s = monotonic()
        """When there was last a job or a question."""
        self._stopping = False
        self._said_trouble: str | None = None
        rendezvous.make_directory(settings.socket.parent)
        self._lock, is_first = rendezvous.only_daemon(settings.socket)
        self._journal = MemoryJournal(settings.socket.with_suffix(".journal"))
        known = self._journal.read()
        if is_first and known is None:
            known = []
        found = recovery.survivors(known or (), len(settings.devices))
        wait_s = settings.hung_after_s if found else 0.0
        if known is None:
            wait_s = settings.grace_s
        self._trials: list[Trials] = []
        self.devices = [
            self._device(at, spec, wait_s) for at, spec in enumerate(settings.devices)
        ]
        self._reception = JobSessions(
            self.devices,
            self._selector,
            room=limits.room_for_jobs(),
            gone=self._journal.drop,
            knows_all=known is not None,
        )
        if known is None:
            self._journal.distrust("jobs of the daemon before are waited for")
        else:
            self._journal.begin(record for record, _ in found)
        for record, job in found:
            self._reception.watch(job, self.devices[record.device])
            recovery.inherit(self.devices[record.device], job, record)
        self._peers = Peers(
            rendezvous.listening(settings.socket),
            self._selector,
            take=self._take,
            lost=self._reception.lost,
            served=lambda: rendezvous.served_users(settings.socket),
        )
        self.published = self._report()
        """What is reported, as of the last tick, for other threads."""

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
            names_successors=True,
        )
        device = SharedDevice(index, spec, domain, monotonic, self._keep)
        if isinstance(sharing, OverlapIfItPays):
            self._trials.append(Trials(device, slow_down, sharing))
        device.tell(Ticked())
        return device

    # -- the loop --------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until told to stop."""
        limits.raise_limits()
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
        self._peers.drop_broken()
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
        self._peers.drop_broken()

    def _pause_s(self) -> float:
        now_s = monotonic()
        due_s = [self._tick_s]
        due_s += [device.wake_s for device in self.devices if device.wake_s is not None]
        due_s += [device.holders.look_s(now_s) for device in self.devices]
        return max(0.0, min(due_s) - now_s)

    def _tick(self, now_s: float) -> None:
        self._peers.tick(now_s)
        for device in self.devices:
            device.count_switches(now_s)
            device.look(now_s)
            for job in device.overdue(now_s):
                press(job, now_s, self.settings)
        if not any(device.is_recovering for device in self.devices):
            self._journal.mend()
        if self._reception.residents:
            self._needed_s = now_s
        elif now_s - self._needed_s > self.settings.leave_after_s:
            self.stop()
        self.published = self._report()

    def _write_journal(self) -> None:
        for device in self.devices:
            for job_id in device.changed:
                self._keep(device.jobs[job_id], device)
            device.changed.clear()
        if self._journal.trouble != self._said_trouble:
            self._said_trouble = self._journal.trouble
            log(self._said_trouble or "the journal is complete again")

    def _keep(self, job: SharedJob, device: SharedDevice) -> None:
        self._journal.keep(recovery.record_of(job, device))

    def close(self) -> None:
        """Let everything go; jobs go on and look for another daemon."""
        self._peers.close_all()
        self._reception.close()
        self._selector.close()
        self._journal.close()
        with suppress(OSError):
            self.settings.socket.unlink()
        os.close(self._lock)

    # -- frames ----------------------------------------------------------------------------

    def _take(self, peer: Peer, frame: Frame) -> None:
        if frame.kind is FrameKind.STATUS:
            peer.noise += 1
            self._needed_s = monotonic()
            self._tell_status(peer, frame.run)
        else:
            self._reception.take(peer, frame)

    def _tell_status(self, peer: Peer, run: int) -> None:
        """Answer with a file: a status may be longer than a message."""
        answer = json.dumps(document_of(self._report(run))).encode()
        try:
            with os.fdopen(os.memfd_create("interlane-status"), "wb", buffering=0) as file:
                file.write(answer)
                peer.send(Frame(FrameKind.STATUS, first=len(answer)), (file.fileno(),))
        except OSError as error:
            peer.refuse(f"The daemon cannot answer ({error.strerror}); ask again.")

    def _report(self, run: int = 0) -> DaemonReport:
        tallied = self._reception.runs.of(run)
        return report_now(self.settings, self.devices, self._journal.trouble, run, tallied)
