"""One shared device: tells its domain events, and carries its actions out on jobs."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from interlane.device import page
from interlane.device.holders import Holders
from interlane.device.memory import most, with_margin
from interlane.device.room import DeviceRoom
from interlane.device.shared_job import SharedJob
from interlane.device.specs import DeviceSpec
from interlane.device.still import StillJobs
from interlane.device.tally import JobTally
from interlane.device.wire import Flag, Frame, FrameKind
from interlane.lanes.actions import (
    Admit,
    Confine,
    Grant,
    KeepWaiting,
    LaneAction,
    LaneId,
    Lease,
    MemoryDemand,
    Name,
    RefuseTenant,
    Resize,
    Revoke,
)
from interlane.lanes.domain import Domain
from interlane.lanes.events import (
    Extended,
    IterationWanted,
    Joined,
    LaneEvent,
    Left,
    MemoryObserved,
    Moved,
    Passed,
    Reattached,
    Released,
    Yielded,
)
from interlane.model import JobId, Wake
from interlane.model.amounts import written

LEND_S: Final = 5.0
"""How long a job in which nothing runs has to lend its lane, before it counts as hung."""


@dataclass(slots=True)
class SharedDevice:
    """A device, its domain, and the jobs on it."""

    index: int
    spec: DeviceSpec
    domain: Domain
    clock: Callable[[], float]
    keep: Callable[[SharedJob, "SharedDevice"], None] = lambda job, device: None
    """Called before a job is told that it is in: that must outlive a crash."""
    jobs: dict[JobId, SharedJob] = field(default_factory=dict)
    holders: Holders = field(init=False)
    wake_s: float | None = None
    past: JobTally = field(default_factory=JobTally)
    """Of jobs that have left."""
    switches_per_s: float = 0.0
    """Over the last second or so."""
    _counted: tuple[int, float] = (0, 0.0)
    changed: set[JobId] = field(default_factory=set)
    """Jobs whose booking may have changed since the journal was written."""
    _events: deque[LaneEvent] = field(default_factory=deque)
    _brought: dict[JobId, int] = field(default_factory=dict)
    """Epochs of leases that jobs bring along, until they are admitted again."""
    _moves: dict[JobId, LaneId | None] = field(default_factory=dict)
    """Jobs that are to go to another lane at their next boundary."""
    _freed: tuple[LaneId, int] | None = None
    """The lane that is being given up, and when that began."""
    room: DeviceRoom = field(init=False)
    _still: StillJobs = field(default_factory=StillJobs)

    def __post_init__(self) -> None:
        self.holders = Holders(self.domain, self.jobs)
        self.room = DeviceRoom(self.spec, self.domain, self.jobs)

    def describe(self) -> str:
        """Return the device in words."""
        cores = ", ".join(map(str, sorted(self.spec.cores)))
        room = f"{self.spec.name} with {written(self.spec.capacity_bytes)}"
        return f"{room}, cores {cores}" if cores else room

    def tell(self, event: LaneEvent) -> None:
        """Tell the domain an event, and carry out what follows."""
        self._events.append(event)
        while self._events:
            self.wake_s = None
            for action in self.domain.handle(self._events.popleft(), self.clock()):
                self._carry_out(action)
            if not self._events:
                self._events.extend(self.room.offers())

    def _carry_out(self, action: LaneAction) -> None:
        match action:
            case Admit(job_id, lane, demand):
                self._admit(self.jobs[job_id], lane, demand, self._brought.pop(job_id, 0))
            case KeepWaiting(job_id, refusal):
                self.jobs[job_id].answer(FrameKind.QUEUED, refusal)
            case RefuseTenant(job_id, refusal):
                self.jobs.pop(job_id).answer(FrameKind.REJECT, refusal)
            case Grant(lease):
                self._grant(lease)
            case Revoke(lease):
                self.jobs[lease.job_id].revoke(lease.epoch)
            case Name(lease, successor, epoch):
                self.jobs[lease.job_id].name_successor(self.jobs[successor], epoch)
            case Resize(lane, _):
                self.changed.update(self.domain.book.lanes[lane].tenants)
            case Confine(job_id, _, booked):
                self._confine(self.jobs[job_id], booked)
            case Wake(at_s):
                self.wake_s = at_s

    # -- who is here -----------------------------------------------------------------------

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
            self.room.forget(job.id)
            self._moves.pop(job.id, None)
            self.changed.discard(job.id)
            self.past.add(job)
            if job.id in self.domain.tenants:
                self.tell(Left(job.id))
        if lane is not None:
            self.holders.flag(lane.id)
        job.close_page()

    def inherit(
        self,
        job: SharedJob,
        demand: MemoryDemand,
        lane: LaneId,
        lane_bytes: int,
        epoch: int = 0,
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
        self._admit(job, lane.id, lane.tenants[job.id], hello.epoch)
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

    def _admit(self, job: SharedJob, lane: LaneId, demand: MemoryDemand, epoch: int) -> None:
        self.keep(job, self)
        if job.page is None and not job.limit_bytes:
            job.limit_bytes = self.room.limit_of(job, demand)
        job.admit(
            Frame(
                FrameKind.ADMIT,
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
        )

    # -- memory ----------------------------------------------------------------------------

    def held(self, frame: Frame) -> MemoryDemand:
        """Return the memory that a job says it has, within what can be true."""
        capacity = self.spec.capacity_bytes
        return MemoryDemand(min(frame.first, capacity), min(frame.second, capacity))

    def observe(self, job: SharedJob, frame: Frame) -> None:
        """Book what a job was measured to need; never less than it declared."""
        job.measured = needs = self.held(frame)
        job.gave_way = job.gives_way
        booked = with_margin(needs)
        if job.is_declared and job.expected is not None and not job.gives_way:
            booked = most((job.expected, needs))
        self.tell(MemoryObserved(job.id, booked))

    def _confine(self, job: SharedJob, booked: MemoryDemand) -> None:
        """Hold a job to what is booked, from its next boundary on."""
        job.confine(max(1, booked.peak_bytes))
        self.changed.add(job.id)
        lease = self.domain.lease_of(job.id)
        if lease is None:
            job.ring()
        else:
            job.revoke(lease.epoch)

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

    # -- turns -----------------------------------------------------------------------------

    def want(self, job: SharedJob) -> bool:
        """Note that a job has an iteration to run; tell whether that is news."""
        self.settle()
        if self.domain.tenants[job.id].takes_part:
            return False
        self.tell(IterationWanted(job.id))
        lane = self.domain.book.lane_of(job.id)
        if lane is not None:
            self.holders.flag(lane.id)
        return True

    def extend(self, job: SharedJob, seconds: float) -> None:
        """Give the holder more time to its next boundary."""
        self.settle()
        lease = self.domain.lease_of(job.id)
        if lease is not None:
            self.tell(Extended(job.id, lease.epoch, self.clock() + seconds))

    def take_back(self, job: SharedJob, frame: Frame) -> bool:
        """Take a lease back that its holder gives up (RELEASE, or YIELD to get it again).

        Tell whether there was one: what comes from the past changes nothing.
        """
        self.settle()
        lease = self.domain.lease_of(job.id)
        if lease is None or lease.epoch != frame.epoch:
            return False
        event = Yielded if frame.kind is FrameKind.YIELD else Released
        with self._given_up(lease, job) as iterations:
            self.tell(event(job.id, lease.epoch, iterations))
        return True

    def settle(self) -> None:
        """Book which holders have passed their lanes on since this was last asked."""
        for lease in self.domain.leases:
            job = self.jobs[lease.job_id]
            successor_epoch = job.word(page.PASSED)
            if successor_epoch > lease.epoch:  # else it tells of an earlier lease
                self._book_pass(lease, job, successor_epoch)

    def _book_pass(self, lease: Lease, job: SharedJob, successor_epoch: int) -> None:
        heir = self.domain.successor_of(lease, successor_epoch)
        with self._given_up(lease, job) as iterations:
            self.tell(Passed(job.id, lease.epoch, successor_epoch, iterations))
            if heir is None:  # it died while the lane was on its way: the next one has it
                return
            successor = self.jobs[heir]
            inherited = self.domain.lease_of(heir)
            assert inherited is not None
            self._start(successor, inherited)
            # The holder may have been stopped, or killed, before it could tell its successor.
            if successor.word(page.EPOCH) != successor_epoch:
                successor.grant(inherited, self.index)
        if successor.id in self._moves:
            successor.revoke(successor_epoch)

    @contextmanager
    def _given_up(self, lease: Lease, job: SharedJob) -> Iterator[int]:
        """Yield how many iterations a lease had, to tell of its end; then learn from it."""
        switched = job.switched()
        job.end_lease()
        self._freed = lease.lane, job.word(page.GAVE_NS)
        yield job.lease_iterations
        self._freed = None
        if self._moves:
            self._move_idle()
        # The next holder is on its way; only now is there time for anything else.
        if switched is not None:
            self.tell(switched)

    def recall(self, now_s: float) -> None:
        """Ask holders for their lanes that run nothing while others wait."""
        for idle in self.holders.idle(now_s):
            self.tell(idle)
            self.jobs[idle.job_id].revoke(idle.epoch)  # until it has heard

    def look(self, now_s: float) -> None:
        """See which jobs do nothing: their lanes and their memory go to whoever waits."""
        inside = self.holders.inside()
        seen = {job.id: job for job in (*inside, *self.room.suspects())}
        still = self._still.look(seen.values())
        for job in inside:
            if job.id in still:
                self._borrow(job, now_s)
            else:
                job.still_since_s = None
        self.room.ask(still)
        self.room.widen()
        for job, refusal in list(self.room.hopeless()):
            job.answer(FrameKind.REJECT, refusal)
            if job.line is not None:
                job.line.close()

    def _borrow(self, job: SharedJob, now_s: float) -> None:
        """Ask for the lane of a job inside an iteration in which nothing runs."""
        lease = self.domain.lease_of(job.id)
        if lease is None:
            return
        if job.still_since_s is None:
            job.still_since_s = now_s
        job.write(page.STILL_NS, job.word(page.BEGAN_NS))
        self.tell(self.holders.stalled(lease, now_s))
        job.ring()

    def overdue(self, now_s: float) -> list[SharedJob]:
        """Return holders that count as hung."""
        for overlong in self.holders.overlong(now_s):
            self.tell(overlong)
        hung = [self.jobs[lease.job_id] for lease in self.domain.overdue(now_s)]
        return [job for job in hung if not self._may_lend(job, now_s)]

    def _may_lend(self, job: SharedJob, now_s: float) -> bool:
        """Tell whether a job need not be pressed, because nothing runs in its iteration."""
        if not job.word(page.BEGAN_NS):
            return False
        if job.still_since_s is not None:
            return now_s - job.still_since_s < LEND_S
        return job.id in self._still.new

    def _grant(self, lease: Lease) -> None:
        job = self.jobs[lease.job_id]
        if job.line is None:  # it went away while it waited: others are not to wait for it
            self._events.append(Released(job.id, lease.epoch, 0))
            return
        job.begin_lease()
        job.grant(lease, self.index)
        self._start(job, lease)

    def _start(self, job: SharedJob, lease: Lease) -> None:
        """Keep the accounts of a lease from here on."""
        if self._freed is not None and self._freed[0] == lease.lane:
            job.took_from_ns = self._freed[1] if lease.taken_from is not None else 0
        job.told_at_grant = job.told
        job.write(page.TRIMS, self.is_crowded)
        self.holders.flag(lease.lane)

    # -- lanes -----------------------------------------------------------------------------

    def move(self, job_id: JobId, lane: LaneId | None) -> None:
        """Let a job go to another lane, or to one of its own, at its next boundary."""
        self._moves[job_id] = lane
        lease = self.domain.lease_of(job_id)
        if lease is None:
            self._move_idle()
        else:
            self.jobs[job_id].revoke(lease.epoch)

    def _move_idle(self) -> None:
        """Move those who are to be moved and do not run."""
        for job_id in [one for one in self._moves if not self.domain.may_run(one)]:
            lane = self._moves.pop(job_id)
            before = self.domain.book.lane_of(job_id)
            if before is None:
                continue
            self.tell(Moved(job_id, lane))
            self.holders.flag(before.id)
            self.changed.add(job_id)

    # -- accounts --------------------------------------------------------------------------

    def count_switches(self, now_s: float) -> None:
        """Note how often lanes are handed over; to be called now and then."""
        before, since_s = self._counted
        self._counted = self.domain.switches, now_s
        self.switches_per_s = (self.domain.switches - before) / max(now_s - since_s, 1e-3)

    @property
    def total(self) -> JobTally:
        """What all jobs have done so far."""
        return self.past.with_those(self.jobs.values())
