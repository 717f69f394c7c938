"""One shared device: tells its domain facts, and carries its wishes out on jobs."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from time import monotonic_ns
from typing import Final, Protocol

from interlane.device import page
from interlane.device.amounts import written
from interlane.device.memory import most, with_margin
from interlane.device.page import Page, make_page
from interlane.device.specs import DeviceSpec
from interlane.device.wire import U64, Flag, Frame, Kind
from interlane.lanes.domain import Domain
from interlane.lanes.facts import (
    Fact,
    Joined,
    Left,
    Moved,
    Observed,
    Passed,
    Reattached,
    Released,
    Switched,
    Wanted,
    Yielded,
)
from interlane.lanes.wishes import (
    Admit,
    Confine,
    Demand,
    Grant,
    LaneId,
    Lease,
    Name,
    Queue,
    Refuse,
    Resize,
    Revoke,
    Wish,
)
from interlane.model import MILLI, JobId, Refusal, Wake

LEAST_SHARE: Final = 0.25
"""Part of a device that must be free for a job of unknown demand to start beside others."""
IDLE_S: Final = 0.005
"""A lease on which nothing happens for so long goes to others, if there are any."""
LOOK_AGAIN_S: Final = 0.01
LOOK_AT_LEAST_S: Final = 0.05
"""How often holders are looked at while others wait for them: not oftener, not more seldom."""
MOST_HEIRS: Final = 32
"""That a holder is told of in one lease: it reads of them only when it gives that up."""
LONGEST_SWITCH_NS: Final = 10_000_000_000


class Line(Protocol):
    """A connection to a job."""

    def send(self, frame: Frame, descriptors: Sequence[int] = ()) -> None:
        """Send a frame; a line that cannot take it is closed later."""
        ...


@dataclass(slots=True, eq=False)
class SharedJob:
    """A job of the daemon, from its HELLO until its process is gone or it says BYE."""

    id: JobId
    key: int
    """The job's own number, by which it is known again."""
    pid: int
    name: str
    run: int
    joined_s: float
    expected: Demand | None
    """What the job said it needs; None: nobody knows yet."""
    is_declared: bool
    """Whether the job is held to that."""
    priority: int = 0
    total_s: float | None = None
    processes: int = 1
    """With a context on the device; 0 for a guest in the process of another job."""
    share: int = 0
    """Thousandths of the device that it holds; 0: all of it."""
    line: Line | None = None
    """None while the job is away: its memory stays booked until its process is gone."""
    page: Page | None = None
    bell: int = -1
    baton: int = -1
    """Where the holder before writes the epoch of the lease that it passes to this job."""
    told_of: Page | None = None
    """The page of the heir that the job was told of last."""
    told: int = 0
    """How often it was told of one."""
    told_at_grant: int = 0
    iterations_before: int = 0
    busy_before_ns: int = 0
    """Until the present lease."""
    took_from_ns: int = 0
    """When the holder before began to give the lane up for this job; 0: nobody did."""
    measured: Demand | None = None
    overdue_stage: int = 0
    overdue_next_s: float = 0.0
    extended_until_s: float = 0.0

    def word(self, which: int) -> int:
        """Return a word of the job's page."""
        return 0 if self.page is None else int(self.page.words[which])

    @property
    def weight(self) -> float:
        """Its share of turns against those of others."""
        return (self.share or MILLI) / MILLI

    @property
    def present_ns(self) -> int:
        """How long the job has been on a device, under whichever daemon."""
        admitted_ns = self.word(page.ADMITTED_NS)
        return monotonic_ns() - admitted_ns if admitted_ns else 0

    def write(self, which: int, value: int) -> None:
        """Write a word of the job's page."""
        if self.page is not None:
            self.page.words[which] = value & U64

    def begin_lease(self) -> None:
        """Count from here on; the job does not run yet."""
        self.iterations_before = self.word(page.ITERATIONS)
        self.busy_before_ns = self.word(page.BUSY_NS)

    @property
    def lease_iterations(self) -> int:
        """Iterations of the present lease."""
        return max(0, self.word(page.ITERATIONS) - self.iterations_before)

    def switched(self) -> Switched | None:
        """Return what taking the lane over cost, if it was taken over from somebody."""
        way_ns = self.word(page.TAKEN_NS) - self.took_from_ns
        if not self.took_from_ns or not 0 < way_ns < LONGEST_SWITCH_NS:
            return None
        first_ns, others = self.word(page.FIRST_NS), self.lease_iterations - 1
        if not first_ns or others < 1:
            return Switched(way_ns / 1e9, None)
        others_ns = self.word(page.BUSY_NS) - self.busy_before_ns - first_ns
        return Switched(way_ns / 1e9, (first_ns - others_ns / others) / 1e9)

    def ring(self) -> None:
        """Wake the job's watcher."""
        if self.bell >= 0:
            with suppress(OSError):
                os.eventfd_write(self.bell, 1)

    def send(self, frame: Frame, descriptors: Sequence[int] = ()) -> None:
        """Send the job a frame, if it is there."""
        if self.line is not None:
            self.line.send(frame, descriptors)

    def close_page(self) -> None:
        """Let go of what is shared with the job."""
        if self.page is not None:
            self.page.close()
            os.close(self.bell)
            os.close(self.baton)
        self.page, self.bell, self.baton = None, -1, -1


@dataclass(slots=True)
class SharedDevice:
    """A device, its domain, and the jobs on it."""

    index: int
    spec: DeviceSpec
    domain: Domain
    clock: Callable[[], float]
    jobs: dict[JobId, SharedJob] = field(default_factory=dict)
    wake_s: float | None = None
    switches: int = 0
    """Hand-overs from one job to another so far."""
    past_iterations: int = 0
    past_busy_ns: int = 0
    """Of jobs that have left."""
    switches_per_s: float = 0.0
    """Over the last second or so."""
    _counted: tuple[int, float] = (0, 0.0)
    changed: set[JobId] = field(default_factory=set)
    """Jobs whose booking may have changed since the journal was written."""
    _facts: deque[Fact] = field(default_factory=deque)
    _brought: dict[JobId, int] = field(default_factory=dict)
    """Epochs of leases that jobs bring along, until they are admitted again."""
    _wanted: dict[LaneId, int] = field(default_factory=dict)
    """How many wait for each lane that is held."""
    _moves: dict[JobId, LaneId | None] = field(default_factory=dict)
    """Jobs that are to go to another lane at their next boundary."""
    _last_holder: dict[LaneId, JobId] = field(default_factory=dict)
    _freed: tuple[LaneId, JobId, int] | None = None
    """The lane that is being given up, by whom, and when it began to."""
    _offered: dict[JobId, int] = field(default_factory=dict)
    """What was last offered to jobs that do not know what they need."""

    def describe(self) -> str:
        """Return the device in words."""
        cores = (
            f", cores {', '.join(map(str, sorted(self.spec.cores)))}" if self.spec.cores else ""
        )
        return f"{self.spec.name} with {written(self.spec.capacity_bytes)}{cores}"

    # -- facts -----------------------------------------------------------------------------

    def tell(self, fact: Fact) -> None:
        """Tell the domain a fact, and carry out what follows."""
        self._facts.append(fact)
        while self._facts:
            self.wake_s = None
            for wish in self.domain.handle(self._facts.popleft(), self.clock()):
                self._carry_out(wish)
            if not self._facts:
                self._facts.extend(self._offers())

    def join(self, job: SharedJob) -> None:
        """Let a job ask for admission."""
        self.jobs[job.id] = job
        self.tell(
            Joined(job.id, job.expected, job.priority, job.total_s, job.processes, job.weight)
        )

    def leave(self, job: SharedJob) -> None:
        """Take a job out; its memory is free."""
        self.settle()
        lane = self.domain.book.lane_of(job.id)
        if self.jobs.pop(job.id, None) is not None:
            self._offered.pop(job.id, None)
            self._moves.pop(job.id, None)
            self.changed.discard(job.id)
            self.past_iterations += job.word(page.ITERATIONS)
            self.past_busy_ns += job.word(page.BUSY_NS)
            if job.id in self.domain.tenants:
                self.tell(Left(job.id))
        if lane is not None:
            self.flag_wanted(lane.id)
        job.close_page()

    def held(self, hello: Frame) -> Demand:
        """Return the memory that a job says it holds, within what can be true."""
        most = self.spec.capacity_bytes
        return Demand(min(hello.first, most), min(hello.second, most))

    def inherit(
        self, job: SharedJob, demand: Demand, lane: LaneId, lane_bytes: int, epoch: int = 0
    ) -> None:
        """Book what a job holds since before this daemon; it may not be here itself."""
        self.jobs[job.id] = job
        brought = epoch if self._is_free(lane) else 0
        if brought:
            self._brought[job.id] = brought
        self.tell(
            Reattached(
                job.id,
                demand,
                lane,
                lane_bytes,
                job.priority,
                job.total_s,
                job.processes,
                epoch=brought or None,
                weight=job.weight,
            )
        )

    def reattach(self, job: SharedJob, hello: Frame) -> None:
        """Take in a job that holds memory since before this daemon."""
        demand = self.held(hello)
        epoch = hello.epoch if Flag.HOLDS in hello.flags else 0
        self.inherit(job, demand, LaneId(hello.lane), demand.ephemeral_bytes, epoch)
        if epoch and self.domain.lease_of(job.id) is None:
            job.write(page.REVOKE, epoch)

    def welcome_back(self, job: SharedJob, hello: Frame) -> None:
        """Take up again with a job that was away."""
        self.settle()
        lane = self.domain.book.lane_of(job.id)
        if lane is None:
            return
        if self.is_recovering and Flag.HOLDS in hello.flags:
            size_bytes = lane.size_bytes
            self.tell(Left(job.id))
            self.inherit(job, self.held(hello), lane.id, size_bytes, hello.epoch)
            return
        lease = self.domain.lease_of(job.id)
        self.admit(job, lane.id, lane.tenants[job.id], hello.epoch)
        if lease is None:
            job.write(page.REVOKE, hello.epoch)
        elif lease.epoch != hello.epoch:
            self.tell(Released(job.id, lease.epoch, 0))

    @property
    def is_recovering(self) -> bool:
        """Whether jobs from before this daemon are waited for."""
        return not self.domain.book.is_open

    def _is_free(self, lane: LaneId) -> bool:
        return all(lease.lane != lane for lease in self.domain.leases)

    def want(self, job: SharedJob) -> bool:
        """Note that a job has an iteration to run; tell whether that is news."""
        self.settle()
        tenant = self.domain.tenants[job.id]
        if tenant.wanted_since_s is not None or tenant.held_since_s is not None:
            return False
        self.tell(Wanted(job.id))
        lane = self.domain.book.lane_of(job.id)
        if lane is not None:
            self.flag_wanted(lane.id)
        return True

    def move(self, job_id: JobId, lane: LaneId | None) -> None:
        """Let a job go to another lane, or to one of its own, at its next boundary."""
        self._moves[job_id] = lane
        lease = self.domain.lease_of(job_id)
        if lease is None:
            self._move_idle()
        else:
            self._revoke(lease)

    def _move_idle(self) -> None:
        """Move those who are to be moved and do not run."""
        for job_id in [one for one in self._moves if not self.domain.may_run(one)]:
            lane = self._moves.pop(job_id)
            before = self.domain.book.lane_of(job_id)
            if before is None:
                continue
            self.tell(Moved(job_id, lane))
            self.flag_wanted(before.id)
            self.changed.add(job_id)

    def extend(self, job: SharedJob, seconds: float) -> None:
        """Give the holder more time to its next boundary."""
        job.extended_until_s = self.clock() + seconds

    def take_back(self, job: SharedJob, frame: Frame) -> bool:
        """Take a lease back that its holder gives up (RELEASE, or YIELD to get it again).

        Tell whether there was one: what comes from the past changes nothing.
        """
        self.settle()
        lease = self.domain.lease_of(job.id)
        if lease is None or lease.epoch != frame.epoch:
            return False
        fact = Yielded if frame.kind is Kind.YIELD else Released
        with self._given_up(lease, job) as iterations:
            self.tell(fact(job.id, lease.epoch, iterations))
        return True

    def settle(self) -> None:
        """Book which holders have passed their lanes on since this was last asked."""
        for lease in self.domain.leases:
            job = self.jobs[lease.job_id]
            heir_epoch = job.word(page.PASSED)
            heir = self.domain.heir_of(lease, heir_epoch)
            if heir is not None:
                self._book_pass(lease, job, self.jobs[heir], heir_epoch)

    def _book_pass(
        self, lease: Lease, job: SharedJob, heir: SharedJob, heir_epoch: int
    ) -> None:
        with self._given_up(lease, job) as iterations:
            self.tell(Passed(job.id, lease.epoch, heir_epoch, iterations))
            inherited = self.domain.lease_of(heir.id)
            assert inherited is not None
            self._start(heir, inherited)
            # The holder may have been stopped, or killed, before it could tell its heir.
            if heir.word(page.EPOCH) != heir_epoch:
                self._send_grant(heir, inherited)
        if heir.id in self._moves:
            self._revoke(inherited)

    @contextmanager
    def _given_up(self, lease: Lease, job: SharedJob) -> Iterator[int]:
        """Yield how many iterations a lease had, to tell of its end; then learn from it."""
        switched = job.switched()
        job.took_from_ns = job.overdue_stage = 0
        job.overdue_next_s = job.extended_until_s = 0.0
        self._freed = lease.lane, job.id, job.word(page.GAVE_NS)
        yield job.lease_iterations
        self._freed = None
        if self._moves:
            self._move_idle()
        # The next holder is on its way; only now is there time for anything else.
        if switched is not None:
            self.tell(switched)

    def observe(self, job: SharedJob, persistent_bytes: int, ephemeral_bytes: int) -> None:
        """Book what a job was measured to need; never less than it declared."""
        capacity = self.spec.capacity_bytes
        needs = Demand(min(persistent_bytes, capacity), min(ephemeral_bytes, capacity))
        job.measured = needs
        booked = with_margin(needs)
        if job.is_declared and job.expected is not None:
            booked = most((job.expected, needs))
        self.tell(Observed(job.id, booked))

    def _offers(self) -> Iterator[Fact]:
        """Offer what is free to jobs that wait without knowing what they need."""
        book = self.domain.book
        if not book.lanes or not book.is_open:
            return
        for job_id in book.waiting:
            spare = book.free_bytes - self.spec.context_bytes
            if (
                self.jobs[job_id].expected is None
                and spare >= LEAST_SHARE * book.budget.usable_bytes
                and self._offered.get(job_id) != spare
            ):
                self._offered[job_id] = spare
                yield Observed(job_id, Demand(spare, 0))
                return

    # -- wishes ----------------------------------------------------------------------------

    def _carry_out(self, wish: Wish) -> None:
        match wish:
            case Admit(job_id, lane, demand):
                self.admit(self.jobs[job_id], lane, demand, self._brought.pop(job_id, 0))
            case Queue(job_id, refusal):
                self.jobs[job_id].send(_about(self.jobs[job_id], Kind.QUEUED, refusal))
            case Refuse(job_id, refusal):
                job = self.jobs.pop(job_id)
                job.send(_about(job, Kind.REJECT, refusal))
            case Grant(lease):
                self._grant(lease)
            case Revoke(lease):
                self._revoke(lease)
            case Name(lease, heir, epoch):
                self._name(self.jobs[lease.job_id], self.jobs[heir], epoch)
            case Resize(lane, _):
                self.changed.update(self.domain.book.lanes[lane].tenants)
            case Confine(job_id, _, booked):
                self._confine(self.jobs[job_id], booked)
            case Wake(at_s):
                self.wake_s = at_s

    def _confine(self, job: SharedJob, booked: Demand) -> None:
        """Hold a job to what is booked, from its next lease on."""
        job.write(page.LIMIT_BYTES, max(1, booked.peak_bytes))
        self.changed.add(job.id)
        lease = self.domain.lease_of(job.id)
        if lease is not None:
            self._revoke(lease)

    def admit(self, job: SharedJob, lane: LaneId, demand: Demand, epoch: int = 0) -> None:
        """Give a job its page and tell it that it is in."""
        self.changed.add(job.id)
        job.close_page()
        job.told_of, job.told = None, 0
        job.page, descriptor = make_page()
        job.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        grants, job.baton = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if job.is_declared and job.expected is not None:
                job.write(page.LIMIT_BYTES, job.expected.peak_bytes)
            frame = Frame(
                Kind.ADMIT,
                job.key,
                self.index,
                job.priority,
                lane,
                epoch=epoch,
                first=demand.persistent_bytes,
                second=demand.ephemeral_bytes,
                third=self.spec.core_bits,
                text=self.spec.name,
            )
            job.send(frame, (descriptor, job.bell, grants))
        finally:
            os.close(descriptor)
            os.close(grants)

    def _grant(self, lease: Lease) -> None:
        job = self.jobs[lease.job_id]
        if job.line is None:  # it went away while it waited: others are not to wait for it
            self._facts.append(Released(job.id, lease.epoch, 0))
            return
        job.begin_lease()
        self._send_grant(job, lease)
        self._start(job, lease)

    def _send_grant(self, job: SharedJob, lease: Lease) -> None:
        quantum_ns = round(lease.quantum_s * 1e9)
        job.send(
            Frame(
                Kind.GRANT,
                job.key,
                self.index,
                lane=lease.lane,
                epoch=lease.epoch,
                first=quantum_ns,
            )
        )

    def _start(self, job: SharedJob, lease: Lease) -> None:
        """Keep the accounts of a lease from here on."""
        if job.id != self._last_holder.get(lease.lane, job.id):
            self.switches += 1
        self._last_holder[lease.lane] = job.id
        if self._freed is not None and self._freed[0] == lease.lane:
            job.took_from_ns = self._freed[2] if self._freed[1] != job.id else 0
        job.told_at_grant = job.told
        job.write(page.TRIMS, self.is_crowded)
        self.flag_wanted(lease.lane)

    def _name(self, holder: SharedJob, heir: SharedJob, epoch: int) -> None:
        """Give the holder what it needs to pass its lane on: an epoch, where to write it."""
        holder.write(page.HEIR, 0)
        heir.begin_lease()
        if holder.told_of is not heir.page:
            if heir.page is None or holder.told - holder.told_at_grant >= MOST_HEIRS:
                return
            holder.told_of = heir.page
            holder.told += 1
            holder.send(Frame(Kind.HEIR, holder.key), (heir.baton,))
            holder.write(page.TOLD, holder.told)
        holder.write(page.HEIR, epoch)

    def _revoke(self, lease: Lease) -> None:
        job = self.jobs[lease.job_id]
        job.write(page.REVOKE, lease.epoch)
        if not job.word(page.BEGAN_NS):
            job.ring()

    def count_switches(self, now_s: float) -> None:
        """Note how often lanes are handed over; to be called now and then."""
        switches, since_s = self._counted
        self.switches_per_s = (self.switches - switches) / max(now_s - since_s, 1e-3)
        self._counted = self.switches, now_s

    @property
    def iterations(self) -> int:
        """Iterations of all jobs so far."""
        return self.past_iterations + sum(
            job.word(page.ITERATIONS) for job in self.jobs.values()
        )

    @property
    def busy_s(self) -> float:
        """Time inside iterations of all jobs so far."""
        busy_ns = sum(job.word(page.BUSY_NS) for job in self.jobs.values())
        return (self.past_busy_ns + busy_ns) / 1e9

    def look_s(self, now_s: float) -> float:
        """Return when to look again at holders that others wait for.

        That is when one would be idle for too long, if its iteration takes as long as usual.
        """
        looks_s = [
            self._idle_s(one, now_s) for one in self.domain.leases if one.lane in self._wanted
        ]
        return max(min(looks_s, default=inf), now_s + LOOK_AGAIN_S)

    def _idle_s(self, lease: Lease, now_s: float) -> float:
        job, usual_s = self.jobs[lease.job_id], self.domain.tenants[lease.job_id].iteration_s
        began_s = job.word(page.BEGAN_NS) / 1e9
        if not began_s:
            return max(job.word(page.BOUNDARY_NS) / 1e9, lease.granted_s) + IDLE_S
        ends_s = min(began_s + (usual_s or 0.0), now_s + LOOK_AT_LEAST_S)
        return max(ends_s, now_s) + IDLE_S

    def recall(self, now_s: float) -> None:
        """Ask holders for their lease on which nothing happens while others wait.

        No order keeps a lane idle for a job that may come back to it in an hour.
        """
        for lease in self.domain.leases:
            if not self._wanted.get(lease.lane):
                continue
            job = self.jobs[lease.job_id]
            if not job.word(page.BEGAN_NS) and self._idle_s(lease, now_s) <= now_s:
                job.write(page.REVOKE, lease.epoch)
                job.ring()

    def flag_wanted(self, lane: LaneId) -> None:
        """Let the holder of a lane know whether somebody waits for it."""
        if lane not in self.domain.book.lanes:
            self._wanted.pop(lane, None)
            self._last_holder.pop(lane, None)
            return
        tenants = self.domain.book.lanes[lane].tenants
        waiting = sum(self.domain.tenants[one].wanted_since_s is not None for one in tenants)
        holder = next(
            (one for one in tenants if self.domain.tenants[one].held_since_s is not None), None
        )
        if holder is not None:
            self.jobs[holder].write(page.WANTED, waiting)
        if holder is not None and waiting:
            self._wanted[lane] = waiting
        else:
            self._wanted.pop(lane, None)

    @property
    def is_crowded(self) -> bool:
        """Whether jobs must give cached memory back, because not all peaks fit at once."""
        book = self.domain.book
        peaks = sum(
            demand.peak_bytes + self.jobs[job_id].processes * self.spec.context_bytes
            for lane in book.lanes.values()
            for job_id, demand in lane.tenants.items()
        )
        return peaks > book.budget.usable_bytes


def _about(job: SharedJob, kind: Kind, refusal: Refusal) -> Frame:
    return Frame(kind, job.key, text=f"{refusal.reason} {refusal.remedy}")
