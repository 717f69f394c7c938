"""The lane book: who is admitted, and how many bytes each lane has.

The device's memory holds the persistent bytes of every admitted job side by side, and one
ephemeral region per lane, used by one of the lane's jobs at a time.  The book keeps

    sum of persistent + sum of lanes + processes x context + reserve  <=  capacity

after every change, and every lane at least as large as the largest ephemeral need in it.
Reusing a lane costs its persistent bytes as much as opening one does, and a lane that is
resized for a newcomer only grows; without both, the rule of Salus' Algorithm 1 (MLSys 2020)
overcommits.

A lane changes size only while nobody runs in it.  Until then the larger of the old and the
new size is booked, so that neither the running iteration nor the next one can lack memory.

Waiting jobs may be passed by others that fit, but by at most ``patience`` that came later;
after that the way is closed to later jobs until the passed one is in.  So whoever is not
refused is admitted at the latest when all those have left that were admitted before it and
those at most ``patience`` others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from interlane.lanes.actions import Admit, Confine, LaneId, MemoryDemand, Resize
from interlane.lanes.sharing import Overlap, Sharing
from interlane.model import CapacityViolated, InvalidField, JobId, Refusal, Tier

PATIENCE: Final = 8
"""Later jobs that may be admitted before a waiting one."""

Change = Admit | Resize | Confine


@dataclass(frozen=True, slots=True)
class Budget:
    """What a device has to give."""

    capacity_bytes: int
    context_bytes: int = 0
    """What each process holds on the device beside its tensors."""
    reserve_bytes: int = 0
    """Never given away."""

    def __post_init__(self) -> None:
        for name in ("capacity_bytes", "context_bytes", "reserve_bytes"):
            if getattr(self, name) < 0:
                raise InvalidField(name, getattr(self, name), "it must not be below 0")

    @property
    def usable_bytes(self) -> int:
        """What may be booked, contexts included."""
        return max(0, self.capacity_bytes - self.reserve_bytes)


@dataclass(slots=True)
class Lane:
    """An ephemeral region and the jobs that take turns in it."""

    id: LaneId
    size_bytes: int
    """In effect now."""
    target_bytes: int
    """In effect from the next boundary on: at least the largest ephemeral need of a tenant."""
    tenants: dict[JobId, MemoryDemand] = field(default_factory=dict)
    """In order of admission."""
    busy: bool = False
    """Whether an iteration may be under way."""

    @property
    def booked_bytes(self) -> int:
        """What the lane may hold before or after its next boundary."""
        return max(self.size_bytes, self.target_bytes)

    @property
    def needed_bytes(self) -> int:
        """The largest ephemeral need of a tenant."""
        return max((demand.ephemeral_bytes for demand in self.tenants.values()), default=0)


@dataclass(frozen=True, slots=True)
class _Asker:
    """A job that waits to be admitted."""

    job_id: JobId
    demand: MemoryDemand
    processes: int
    urgency: float
    """Smaller is tried first."""
    serial: int
    """In order of arrival."""


class LaneBook:
    """Books persistent bytes and lanes of one device; admits whoever fits.

    Every change returns what follows from it: admissions, lanes of a new size, jobs to be held
    to what they have.
    """

    def __init__(
        self, budget: Budget, sharing: Sharing | None = None, patience: int = PATIENCE
    ) -> None:
        if patience < 0:
            raise InvalidField("patience", patience, "it must not be below 0")
        self.budget = budget
        self.is_open = True
        """While False, nobody is admitted; see ``open``."""
        self._sharing: Sharing = Overlap() if sharing is None else sharing
        self._patience = patience
        self._lanes: dict[LaneId, Lane] = {}
        self._lane_of: dict[JobId, LaneId] = {}
        self._processes: dict[JobId, int] = {}
        self._waiting: dict[JobId, _Asker] = {}
        """In order of arrival."""
        self._passed: dict[JobId, int] = {}
        """How many later jobs were admitted before each waiting one."""
        self._held_bytes = 0
        """Persistent bytes and contexts of the admitted."""
        self._inherited_bytes = 0
        """What re-attached jobs hold in all, when that is more than there is."""
        self._serial = 0
        self._next_lane = 0

    # Questions

    @property
    def lanes(self) -> Mapping[LaneId, Lane]:
        """All lanes; look, do not change."""
        return self._lanes

    @property
    def waiting(self) -> tuple[JobId, ...]:
        """Jobs that wait to be admitted, in order of arrival."""
        return tuple(self._waiting)

    @property
    def booked_bytes(self) -> int:
        """Persistent bytes, contexts and lanes."""
        return self._held_bytes + sum(lane.booked_bytes for lane in self._lanes.values())

    @property
    def free_bytes(self) -> int:
        """What may still be booked; below 0 only after jobs re-attached with more."""
        return self.budget.usable_bytes - self.booked_bytes

    def lane_of(self, job_id: JobId) -> Lane | None:
        """Return the lane of an admitted job."""
        lane_id = self._lane_of.get(job_id)
        return None if lane_id is None else self._lanes[lane_id]

    def booked(self, job_id: JobId) -> MemoryDemand:
        """Return what an admitted job may use."""
        return self._lanes[self._lane_of[job_id]].tenants[job_id]

    def why_waits(self, job_id: JobId) -> Refusal:
        """Say why a waiting job is not admitted now."""
        asker = self._waiting[job_id]
        if not self.is_open:
            return Refusal(
                Tier.ORDER,
                "Jobs from before a restart may still hold memory here.",
                "It is looked at again when the grace period ends.",
            )
        first = self._barrier()
        if first is not None and first.serial < asker.serial:
            return Refusal(
                Tier.ORDER,
                f"{first.job_id} was passed {self._passed[first.job_id]} times and goes first.",
                f"It is looked at again when {first.job_id} is admitted.",
                blocked_by=first.job_id,
            )
        return Refusal(
            Tier.CAPACITY,
            f"It needs {self._least_bytes(asker):,} bytes, of which "
            f"{max(0, self.free_bytes):,} are free.",
            "It is looked at again whenever a job leaves or needs less.",
        )

    # Changes

    def request(
        self,
        job_id: JobId,
        demand: MemoryDemand | None,
        *,
        processes: int = 1,
        urgency: float = 0.0,
    ) -> Refusal | list[Change]:
        """Ask for a job to be admitted; None asks for the device alone.

        A refusal means never.  Otherwise the job waits, unless it is among the admitted.
        """
        if job_id in self._lane_of or job_id in self._waiting:
            raise InvalidField("job", job_id, "it is on this device already")
        context_bytes = processes * self.budget.context_bytes
        if demand is None:
            demand = MemoryDemand(max(0, self.budget.usable_bytes - context_bytes), 0)
        if demand.peak_bytes + context_bytes > self.budget.usable_bytes:
            return self._never(demand, context_bytes)
        self._serial += 1
        self._waiting[job_id] = _Asker(job_id, demand, processes, urgency, self._serial)
        self._passed[job_id] = 0
        return self._admit_waiting()

    def reattach(
        self,
        job_id: JobId,
        demand: MemoryDemand,
        lane_id: LaneId,
        lane_bytes: int,
        *,
        processes: int = 1,
    ) -> list[Change]:
        """Book what a job says it holds already, even if that is more than there is."""
        if job_id in self._lane_of or job_id in self._waiting:
            raise InvalidField("job", job_id, "it is on this device already")
        size_bytes = max(lane_bytes, demand.ephemeral_bytes)
        lane = self._lanes.get(lane_id)
        if lane is None:
            lane = self._lanes[lane_id] = Lane(lane_id, size_bytes, size_bytes)
            self._next_lane = max(self._next_lane, lane_id + 1)
        lane.size_bytes = max(lane.size_bytes, size_bytes)
        lane.target_bytes = max(lane.target_bytes, size_bytes)
        self._enter(lane, job_id, demand, processes)
        if self.free_bytes < 0:
            self._inherited_bytes = self.booked_bytes
        return []

    def leave(self, job_id: JobId, *, held_lane: bool = False) -> list[Change]:
        """Take a job out, waiting or admitted; whoever fits now comes in.

        ``held_lane`` says that it was the one to run in its lane, so that nobody does now.
        """
        if job_id in self._waiting:
            self._forget_waiting(job_id)
            return self._admit_waiting()
        lane = self._lanes[self._lane_of.pop(job_id)]
        demand = lane.tenants.pop(job_id)
        processes = self._processes.pop(job_id)
        self._held_bytes -= demand.persistent_bytes + processes * self.budget.context_bytes
        lane.busy = lane.busy and not held_lane
        if not lane.tenants:
            del self._lanes[lane.id]
        return [*self._fit_lane(lane), *self._admit_waiting()]

    def observe(self, job_id: JobId, demand: MemoryDemand) -> list[Change]:
        """Book what a job was measured to need, as far as there is room.

        Less frees memory, and whoever fits now comes in.  More than there is room for leaves
        the rest unbooked, with the decision to hold the job to what it has.
        """
        if job_id in self._waiting:
            return self._correct_waiting(job_id, demand)
        lane = self._lanes[self._lane_of[job_id]]
        before = lane.tenants[job_id]
        free_bytes = self.free_bytes
        persistent_bytes = min(
            demand.persistent_bytes, before.persistent_bytes + max(0, free_bytes)
        )
        free_bytes -= persistent_bytes - before.persistent_bytes
        ephemeral_bytes = min(demand.ephemeral_bytes, lane.booked_bytes + max(0, free_bytes))
        booked = MemoryDemand(persistent_bytes, ephemeral_bytes)
        lane.tenants[job_id] = booked
        self._held_bytes += persistent_bytes - before.persistent_bytes
        changes = self._fit_lane(lane)
        if booked != demand:
            changes.append(Confine(job_id, demand, booked))
        return [*changes, *self._admit_waiting()]

    def move(self, job_id: JobId, lane_id: LaneId | None) -> list[Change]:
        """Put a job that is not running into another lane, or into one of its own (None).

        Nothing changes where there is no room: what the lane it leaves gives up is not
        counted, because that may be free only after a boundary.
        """
        home = self._lanes[self._lane_of[job_id]]
        demand = home.tenants[job_id]
        target = home if lane_id is None else self._lanes.get(lane_id, home)
        if lane_id is None and len(home.tenants) > 1:
            target = Lane(LaneId(self._next_lane), 0, 0)
        if target is home or demand.ephemeral_bytes - target.booked_bytes > self.free_bytes:
            return []
        self._next_lane += target.id == self._next_lane
        self._lanes[target.id] = target
        target.tenants[job_id] = home.tenants.pop(job_id)
        target.target_bytes = max(target.target_bytes, demand.ephemeral_bytes)
        self._lane_of[job_id] = target.id
        if not home.tenants:
            del self._lanes[home.id]
        return [*self._settle(target), *self._fit_lane(home), *self._admit_waiting()]

    def began(self, lane_id: LaneId) -> None:
        """Note that iterations run in the lane: it keeps its size until the next boundary."""
        self._lanes[lane_id].busy = True

    def boundary(self, lane_id: LaneId) -> list[Change]:
        """Note that nobody runs in the lane, so that it may take its new size."""
        lane = self._lanes[lane_id]
        lane.busy = False
        resized = self._settle(lane)
        return [*resized, *self._admit_waiting()] if resized else []

    def open(self) -> list[Change]:
        """Admit from now on."""
        self.is_open = True
        return self._admit_waiting()

    def check(self) -> None:
        """Raise if the state does not balance."""
        for sentence in self._broken():
            raise CapacityViolated(sentence)

    # Inside

    def _broken(self) -> Iterator[str]:
        allowed_bytes = max(self.budget.usable_bytes, self._inherited_bytes)
        if self.booked_bytes > allowed_bytes:
            yield f"{self.booked_bytes} bytes are booked of {allowed_bytes}."
        held_bytes = sum(
            demand.persistent_bytes + self._processes[job_id] * self.budget.context_bytes
            for lane in self._lanes.values()
            for job_id, demand in lane.tenants.items()
        )
        if held_bytes != self._held_bytes:
            yield f"{self._held_bytes} bytes are counted as held, which sum to {held_bytes}."
        for lane in self._lanes.values():
            if not lane.tenants:
                yield f"lane {lane.id} has nobody in it."
            if lane.needed_bytes > lane.target_bytes:
                yield f"lane {lane.id} will have less than its tenants need."
            if not lane.busy and lane.size_bytes != lane.target_bytes:
                yield f"lane {lane.id} is at a boundary and has not taken its size."
        homes = {job: lane.id for lane in self._lanes.values() for job in lane.tenants}
        if homes != self._lane_of or homes.keys() & self._waiting.keys():
            yield "a job is in two places."

    def _never(self, demand: MemoryDemand, context_bytes: int) -> Refusal:
        return Refusal(
            Tier.NEVER_FITS,
            f"It needs {demand.peak_bytes + context_bytes:,} bytes at its peak "
            f"({demand.persistent_bytes:,} persistent, {demand.ephemeral_bytes:,} ephemeral, "
            f"{context_bytes:,} for its context), the device can give "
            f"{self.budget.usable_bytes:,}.",
            "Make the job smaller (its batch, say) or the budget larger.",
        )

    def _admit_waiting(self) -> list[Change]:
        changes: list[Change] = []
        while (found := self._next_to_admit()) is not None:
            changes += self._take_in(*found)
        return changes

    def _next_to_admit(self) -> tuple[_Asker, Lane | None] | None:
        """Return who comes in next, with the lane to share (None opens one)."""
        if not self.is_open or self.free_bytes < 0:
            return None
        barrier = self._barrier()
        for asker in sorted(self._waiting.values(), key=lambda one: (one.urgency, one.serial)):
            if barrier is not None and asker.serial > barrier.serial:
                continue
            if (found := self._find_lane(asker)) is not None:
                return found
        return None

    def _barrier(self) -> _Asker | None:
        """Return the first waiting job that may not be passed any more."""
        return next(
            (
                one
                for one in self._waiting.values()
                if self._passed[one.job_id] >= self._patience
            ),
            None,
        )

    def _find_lane(self, asker: _Asker) -> tuple[_Asker, Lane | None] | None:
        left_bytes = self.free_bytes - self._fixed_bytes(asker)
        if left_bytes < 0:
            return None
        ephemeral_bytes = asker.demand.ephemeral_bytes
        lanes = list(self._lanes.values())
        tenants = [tuple(lane.tenants) for lane in lanes]
        may_open = not lanes or self._sharing.opens_lane(asker.job_id, tenants)
        if may_open and ephemeral_bytes <= left_bytes:
            return asker, None
        fitting = [lane for lane in lanes if ephemeral_bytes - lane.booked_bytes <= left_bytes]
        if not fitting:
            return None
        return asker, min(fitting, key=lambda lane: self._preference(asker, lane))

    def _preference(self, asker: _Asker, lane: Lane) -> tuple[float, int, int, int]:
        """Rank lanes to share: clash first, then least growth, then tightest fit."""
        return (
            -self._sharing.clash(asker.job_id, tuple(lane.tenants)),
            max(0, asker.demand.ephemeral_bytes - lane.booked_bytes),
            lane.booked_bytes,
            lane.id,
        )

    def _fixed_bytes(self, asker: _Asker) -> int:
        return asker.demand.persistent_bytes + asker.processes * self.budget.context_bytes

    def _least_bytes(self, asker: _Asker) -> int:
        """Return what must be free for the job to come in: the largest lane grows least."""
        largest = max((lane.booked_bytes for lane in self._lanes.values()), default=0)
        return self._fixed_bytes(asker) + max(0, asker.demand.ephemeral_bytes - largest)

    def _take_in(self, asker: _Asker, lane: Lane | None) -> list[Change]:
        self._forget_waiting(asker.job_id)
        for other in self._waiting.values():
            if other.serial < asker.serial:
                self._passed[other.job_id] += 1
        if lane is None:
            lane = Lane(LaneId(self._next_lane), 0, 0)
            self._lanes[lane.id] = lane
            self._next_lane += 1
        self._enter(lane, asker.job_id, asker.demand, asker.processes)
        lane.target_bytes = max(lane.target_bytes, asker.demand.ephemeral_bytes)
        return [*self._settle(lane), Admit(asker.job_id, lane.id, asker.demand)]

    def _enter(self, lane: Lane, job_id: JobId, demand: MemoryDemand, processes: int) -> None:
        lane.tenants[job_id] = demand
        self._lane_of[job_id] = lane.id
        self._processes[job_id] = processes
        self._held_bytes += demand.persistent_bytes + processes * self.budget.context_bytes

    def _fit_lane(self, lane: Lane) -> list[Change]:
        """Aim the lane at what its tenants need; drop what was inherited as it goes."""
        changes: list[Change] = []
        if lane.id in self._lanes:
            lane.target_bytes = lane.needed_bytes
            changes = self._settle(lane)
        self._inherited_bytes = min(self._inherited_bytes, self.booked_bytes)
        return changes

    def _settle(self, lane: Lane) -> list[Change]:
        if lane.busy or lane.size_bytes == lane.target_bytes:
            return []
        lane.size_bytes = lane.target_bytes
        return [Resize(lane.id, lane.size_bytes)]

    def _forget_waiting(self, job_id: JobId) -> None:
        del self._waiting[job_id], self._passed[job_id]

    def _correct_waiting(self, job_id: JobId, demand: MemoryDemand) -> list[Change]:
        asker = self._waiting[job_id]
        context_bytes = asker.processes * self.budget.context_bytes
        if demand.peak_bytes + context_bytes > self.budget.usable_bytes:
            return []
        self._waiting[job_id] = replace(asker, demand=demand)
        return self._admit_waiting()
