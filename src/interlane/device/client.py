"""A job's side: ask for the device, run iterations on a lease, give it back when asked.

An iteration without a hand-over is a look at one word of shared memory: no message, no system
call.  A lease is kept from iteration to iteration until the daemon wants it back.  Two threads
share the state, under ``_state``:

* the job's own, which begins and ends iterations, and waits for grants;
* a watcher, asleep until the daemon rings (give the lease back now if no iteration runs, or
  nothing runs in it; say what the job holds) or dies (connect again, while the job goes on with
  the lease that it has); now and then it looks whether the job's memory has grown.

Nothing here imports torch.
"""

import os
import secrets
import select
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from time import monotonic_ns, sleep
from typing import Final, TypeVar

from interlane.device import wire
from interlane.device.admission import BACKOFF_S, admitted, admitted_in_time, say_queued
from interlane.device.backends.base import Backend
from interlane.device.lane_request import LaneRequest
from interlane.device.link import Link, NoDaemon
from interlane.device.needs import JobMemory
from interlane.device.page import (
    ADMITTED_NS,
    ASKED,
    BEGAN_NS,
    BOUNDARY_NS,
    BUSY_NS,
    EPOCH,
    FIRST_NS,
    GAVE_NS,
    ITERATIONS,
    LIMIT_BYTES,
    PASSED,
    PEAK_BYTES,
    REVOKE,
    STILL_NS,
    TAKEN_NS,
    TRIMS,
    USED_BYTES,
    WAITED_NS,
    WANTED,
)
from interlane.device.talk import say
from interlane.device.wire import Flag, Frame, FrameKind
from interlane.lanes.actions import MemoryDemand
from interlane.model.errors import Rejected
from interlane.model.units import MILLI

LONG_GAP_NS: Final = 2_000_000
"""A job that takes longer than this between iterations gives its lease back if it is wanted;
a model that is asked as seldom does in any case, so that nobody waits for it to be idle."""
LONGEST_GAP_NS: Final = 2 * LONG_GAP_NS
"""Longer gaps count as this, so that one pause does not make a job look slow for long."""
LONG_REST_S: Final = 1.0
"""A job that rests for longer after an iteration says so, or it would count as hung."""
LOOK_NS: Final = 50_000_000
"""How often a job that iterates looks whether its memory has grown."""
WATCH_MS: Final = 1000
WATCH_CLOSELY_MS: Final = 100
"""How often its watcher does: closely while what is booked is not known from iterations."""
COUNTERS: Final = (BEGAN_NS, BOUNDARY_NS, ITERATIONS, BUSY_NS, WAITED_NS, ADMITTED_NS)
"""Words of the page that go along to a new daemon."""


Item = TypeVar("Item")


class Iteration:
    """The body of a ``with`` that is one iteration."""

    __slots__ = ("_begin", "_end")

    def __init__(self, client: "DeviceClient") -> None:
        self._begin = client.begin
        self._end = client.end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *exception: object) -> None:
        self._end()


class DeviceClient:
    """A job that shares a device."""

    def __init__(
        self, request: LaneRequest, path: Path, backend_of: Callable[[str], Backend]
    ) -> None:
        self._request = request
        self._path = path
        self._job = secrets.randbits(63) | 1
        self.lends = False
        """Whether an iteration in which nothing runs may be cut short: whoever says where
        iterations are says so."""
        self.failed = False
        """Whether the job ended by an error: what it needed until then is no measure."""
        self._state = threading.Lock()
        self._connecting = threading.Lock()
        self._inside = False
        self._epoch = 0
        """Of the lease that the job holds; 0: it holds none."""
        self._newest_epoch = 0
        """Of all leases so far: what is told of older ones comes too late."""
        self._waiting = False
        self._closed = False
        self._began_ns = 0
        self._look_ns = 0
        """When to look again whether memory has grown."""
        self._answered = 0
        """How often the daemon was told what it asked for."""
        self._asked_ns = self._boundary_ns = monotonic_ns()
        self._iterations = 0
        self._taken_at = 0
        """Iterations that had ended when the present lease was taken up."""
        self._extended = 0, 0
        """The number of the iteration that takes longer, and until when."""
        self._busy_ns = 0
        self._waited_ns = 0
        self._iteration = Iteration(self)
        # A guest serves requests: until it is known better, they come one at a time.
        self._gap_ns = LONGEST_GAP_NS if request.is_guest else 0
        self._link = admitted_in_time(path, request.hello(self._job), request.patience_s)
        self._words = self._link.page.words
        self._words[ADMITTED_NS] = monotonic_ns()
        # What the process holds by now is not the job's: so late, and not earlier.
        self._backend = backend_of(self._link.admission.text)
        self._needs = JobMemory(self._backend)
        self._arrive(self._link.admission)
        threading.Thread(target=self._watch, name="interlane", daemon=True).start()

    # -- what a job calls -----------------------------------------------------------------

    def iteration(self) -> "Iteration":
        """Run one iteration on the device, as the body of a ``with``."""
        return self._iteration

    def each(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items; what is done with one is an iteration, and fetching the next is not."""
        for item in items:
            with self._iteration:
                yield item

    # What is not locked below is right because a watcher that finds no iteration under way acts
    # only on a revoked lease, and the job looks at the flag after it has said it is inside.

    def begin(self) -> None:
        """Begin an iteration; wait for the device if somebody else has it."""
        if self._inside:
            return
        self._inside = True
        self._asked_ns = now_ns = monotonic_ns()
        words = self._words
        if self._epoch > words[REVOKE]:
            self._began_ns = words[BEGAN_NS] = now_ns
        else:
            self._inside = False
            self._begin_slowly()

    def end(self) -> None:
        """End the iteration; give the lease back if somebody is to have it."""
        if not self._inside:
            return
        if self._request.pace:
            self._rest()
        now_ns = monotonic_ns()
        words = self._words
        self._iterations = iterations = self._iterations + 1
        self._busy_ns += now_ns - self._began_ns
        words[BEGAN_NS] = 0
        words[BOUNDARY_NS] = now_ns
        words[ITERATIONS] = iterations
        words[BUSY_NS] = self._busy_ns
        self._inside = False
        if (
            self._epoch <= words[REVOKE]
            or words[WANTED]
            or iterations >= self._needs.due
            or now_ns >= self._look_ns
            or self._request.is_guest
        ):
            self._end_slowly()
            # On a busy machine a hand-over takes longer than the job's own pause after it.
            now_ns = monotonic_ns()
        self._boundary_ns = now_ns

    @property
    def inside(self) -> bool:
        """Whether an iteration runs."""
        return self._inside

    @property
    def closed(self) -> bool:
        """Whether the job has left the device."""
        return self._closed

    @property
    def revoked(self) -> bool:
        """Whether the lease is wanted back."""
        return self._epoch <= int(self._words[REVOKE])

    @property
    def iterations(self) -> int:
        """How many iterations have ended."""
        return self._iterations

    def extend(self, seconds: float) -> None:
        """Say that the current iteration will take this much longer than usual."""
        with self._state:
            self._extended = self._iterations, monotonic_ns() + round(seconds * 1e9)
            self._say_extended()

    def _rest(self) -> None:
        """Make the iteration as long as it is on a device with its part of the cores.

        The lease is kept meanwhile: jobs that share the device have that part together.
        """
        took_s = (monotonic_ns() - self._began_ns) / 1e9
        rest_s = took_s * (MILLI / self._request.pace - 1)
        if rest_s > LONG_REST_S:
            self.extend(rest_s)
        sleep(rest_s)

    def _say_extended(self) -> None:
        iteration, until_ns = self._extended
        left_ns = until_ns - monotonic_ns()
        if iteration == self._iterations and left_ns > 0:
            self._send(Frame(FrameKind.EXTEND, self._job, first=left_ns))

    def overran(self) -> None:
        """Say that the job ran out of what it is held to: it will need more the next time."""
        with self._state:
            self._tell(self._needs.after_overrun())

    def close(self) -> None:
        """Leave the device for good; an iteration that nothing has ended ends here.

        Who shares no device is held to no part of one.
        """
        self.end()
        with self._state:
            if self._closed:
                return
            if not self.failed:
                self._tell(self._needs.last())
            self._closed = True
            self._epoch = 0
            self._needs.obey(0)
            self._send(Frame(FrameKind.BYE, self._job))
            # The watcher sleeps on these descriptors: wake it, and it closes them.
            with suppress(OSError):
                self._link.line.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        """Let others run while this process ends; its memory is its own until it is gone."""
        self.end()
        with self._state:
            if self._closed:
                return
            if not self.failed:
                self._tell(self._needs.last())
            if self._epoch:
                self._give_back(FrameKind.RELEASE)

    def __enter__(self) -> "DeviceClient":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def forget(self) -> None:
        """Drop everything in a forked child, whose parent goes on; say nothing."""
        if not self._closed:
            self._closed = True
            self._epoch = 0
            self._link.close()

    # -- the rare parts of an iteration ----------------------------------------------------

    def _end_slowly(self) -> None:
        with self._state:
            # A moving mean over about eight gaps: above the limit when half of them are.
            if self._iterations == self._taken_at + 1:
                self._words[FIRST_NS] = self._words[BOUNDARY_NS] - self._began_ns
            gap_ns = min(self._asked_ns - self._boundary_ns, LONGEST_GAP_NS)
            self._gap_ns += (gap_ns - self._gap_ns) >> 3
            wanted = self._words[WANTED] or self._request.is_guest
            if self._epoch and (self.revoked or (wanted and self._gap_ns > LONG_GAP_NS)):
                self._give_back(FrameKind.RELEASE)
            else:
                self._link.hear()  # so that there is less to do when it matters
            self._needs.obey(int(self._words[LIMIT_BYTES]))
            # Measuring takes a while, and needs no lease.
            self._words[USED_BYTES], self._words[PEAK_BYTES] = self._backend.glance()
            self._tell(self._needs.reached(self._iterations))
            self._look_ns = monotonic_ns() + LOOK_NS

    def _enter(self) -> None:
        self._inside = True
        self._began_ns = self._words[BEGAN_NS] = monotonic_ns()
        self._waited_ns += self._began_ns - self._asked_ns
        self._words[WAITED_NS] = self._waited_ns

    def _tell(self, needs: MemoryDemand | None) -> None:
        if needs is not None:
            self._send(
                Frame(
                    FrameKind.RESIZE,
                    self._job,
                    first=needs.persistent_bytes,
                    second=needs.ephemeral_bytes,
                )
            )

    def _give_back(self, kind: FrameKind) -> None:
        """Give the lease back, with all work done and, where room is short, the cache empty."""
        link, words = self._link, self._words
        if link.is_lost:
            return
        words[GAVE_NS] = monotonic_ns()
        self._backend.fence()
        if words[TRIMS]:
            self._backend.trim()
        if self._pass_on(link):
            self._epoch = 0
            if kind is FrameKind.YIELD:
                self._send(Frame(FrameKind.ACQUIRE, self._job))
        # A lease that nobody hears us give back is kept: nobody else can have it meanwhile.
        elif self._send(Frame(kind, self._job, epoch=self._epoch)):
            self._epoch = 0

    def _pass_on(self, link: Link) -> bool:
        """Hand the lane to the successor, if there is one.

        The daemon reads of it in the page whenever it looks, and tells the successor once more
        if it has not heard: so it does not matter what happens to this process between two
        lines.
        """
        successor_epoch = link.successor()
        if successor_epoch <= self._epoch:
            return False
        self._words[PASSED] = successor_epoch
        link.tell_successor(successor_epoch)
        return True

    def _send(self, frame: Frame) -> bool:
        try:
            self._link.line.send(wire.packed(frame))
        except OSError:
            return False
        return True

    # -- waiting for a grant ---------------------------------------------------------------

    # All that wait for a lane do so on the same core.  Who passes it on woke up there and is
    # about to sleep, so that this core is awake; another can take longer to wake up than all
    # the rest of a hand-over takes.

    def _begin_slowly(self) -> None:
        cores = sorted(os.sched_getaffinity(0))
        while True:
            with self._state:
                link = self._link
                if not self.revoked:  # connected again, lease and all
                    self._enter()
                    return
                if self._epoch:
                    self._give_back(FrameKind.YIELD)
                else:
                    self._send(Frame(FrameKind.ACQUIRE, self._job))
                self._waiting = True
            try:
                _go_to([cores[link.admission.lane % len(cores)]])
                taken = self._take_up(link)
            finally:
                _go_to(cores)
                self._waiting = False
            if taken:
                return
            if self._closed:
                raise Rejected("the job has left the device: begin no more iterations.")
            self._connect_again(link)

    def _take_up(self, link: Link) -> bool:
        """Wait for a lease, and begin the first iteration on it; tell whether one came."""
        while (epoch := link.epoch()) is not None:
            if epoch <= self._newest_epoch:
                continue
            with self._state:
                if link.is_lost or self._closed:
                    return False
                self._epoch = self._newest_epoch = self._words[EPOCH] = epoch
                self._needs.obey(self._words[LIMIT_BYTES])
                self._enter()
                self._words[TAKEN_NS], self._words[FIRST_NS] = self._began_ns, 0
                self._taken_at = self._iterations
                return True
        return False

    # -- the watcher -----------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._closed:
            link = self._link
            poll = select.poll()
            poll.register(link.bell, select.POLLIN)
            poll.register(link.line, select.POLLHUP)
            pause_ms = WATCH_CLOSELY_MS if self._needs.is_rough else WATCH_MS
            happened = [descriptor for descriptor, _ in poll.poll(pause_ms)]
            if link.bell in happened:
                with suppress(BlockingIOError):
                    os.eventfd_read(link.bell)
                self._answer_bell()
            elif happened and not self._closed:
                self._connect_again(link)
            elif not self._closed:
                with self._state:
                    self._tell(self._needs.look())
        self._link.close()

    def _answer_bell(self) -> None:
        with self._state:
            if self._closed:
                return
            if self._words[ASKED] != self._answered:
                self._answered = int(self._words[ASKED])
                self._tell(self._needs.held())
            if self._waiting:
                return
            if self._inside:
                self._lend()
                return
            self._needs.obey(int(self._words[LIMIT_BYTES]))
            revoked_epoch = int(self._words[REVOKE])
            if revoked_epoch > self._newest_epoch:
                # The wait for this lease was interrupted, so that it was never taken up.
                self._epoch = self._newest_epoch = revoked_epoch
            if self._epoch and self.revoked:
                self._give_back(FrameKind.RELEASE)

    def _lend(self) -> None:
        """Give the lease back in the middle of an iteration in which nothing runs.

        If the job wakes up this very moment, it runs ungated until it next comes to a gate.
        """
        words = self._words
        if not self.lends or not self.revoked or words[STILL_NS] != words[BEGAN_NS]:
            return
        self._inside = False
        words[BEGAN_NS] = 0
        words[BOUNDARY_NS] = monotonic_ns()
        # What it holds in the middle of an iteration stays, while the lane is used by others.
        self._tell(self._needs.held())
        self._give_back(FrameKind.RELEASE)

    def _connect_again(self, lost: Link) -> None:
        """Find a daemon again, however long it takes, unless another thread has."""
        with self._connecting:
            if self._link is not lost or self._closed:
                return
            with self._state:
                lost.is_lost = True
            say("the device daemon is gone; the job goes on and looks for a new one")
            rejected, pauses_s = "", chain(BACKOFF_S, repeat(BACKOFF_S[-1]))
            while not self._closed:
                sleep(next(pauses_s))
                try:
                    self._adopt(admitted(self._path, self._hello_again(), say_queued), lost)
                    return
                except Rejected as error:
                    if str(error) != rejected:
                        rejected = str(error)
                        say(f"the new daemon does not take the job: {rejected}")
                except (NoDaemon, OSError):
                    pass

    def _hello_again(self) -> Frame:
        """Say what this job has: its place, its lease, and the memory it holds."""
        with self._state:
            hello, admission = self._request.hello(self._job), self._link.admission
            booked = Flag.DECLARED in hello.flags or self._needs.told is None
            measured = self._needs.measured
            return hello._replace(
                device=admission.device,
                lane=admission.lane,
                flags=hello.flags | Flag.REATTACH | (Flag.HOLDS if self._epoch else Flag.NONE),
                epoch=self._epoch,
                first=max(measured.persistent_bytes, admission.first if booked else 0),
                second=max(measured.ephemeral_bytes, admission.second if booked else 0),
            )

    def _adopt(self, link: Link, lost: Link) -> None:
        """Go over to a new daemon with all counters."""
        with self._state:
            words = link.page.words
            for word in COUNTERS:
                words[word] = self._words[word]
            self._link, self._words, self._answered = link, words, 0
            if self._epoch:
                self._epoch = link.admission.epoch
            self._say_extended()
        lost.close()

    def _arrive(self, admission: Frame) -> None:
        """Take the place that the daemon gave: these cores, this much memory."""
        self._needs.obey(self._words[LIMIT_BYTES])
        if admission.third:
            cores = [core for core in range(64) if admission.third >> core & 1]
            _go_to(cores)


def _go_to(cores: list[int]) -> None:
    """Let the thread run on these cores only; where they are not to be had, it stays."""
    with suppress(OSError):
        os.sched_setaffinity(0, cores)
