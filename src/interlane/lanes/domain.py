"""One device: memory, lanes, leases.  Events in, actions out.

The daemon and the simulator drive this same object.  It holds no clock: every event comes with
the time at which it happened.  At most one job holds a lane at a time; jobs of different lanes
run side by side.  A holder keeps its lease over any number of iterations until it releases it
or is asked to give it up, so an iteration without hand-over costs nothing here.

Where ``names_heirs`` is set, a holder is told who is next while it still runs, so that it can
pass the lane on without asking.  Whoever was named may be running from then on, until the
holder's lease ends in another way: the holder decides, by ``Passed``, and at most once.

Each answer holds at most one ``Wake``, which replaces earlier ones: send ``Ticked`` then.

After a restart the domain starts with a grace period (``recovering_until_s``) in which jobs
that were alive say what they hold.  Nobody new is admitted and no lane is granted until it is
over, because a holder that has not come back yet may still be running in it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import assert_never

from interlane.lanes.actions import (
    Admit,
    Grant,
    KeepWaiting,
    LaneAction,
    LaneId,
    Lease,
    Name,
    RefuseTenant,
    Revoke,
)
from interlane.lanes.events import (
    AllReturned,
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
    Stalled,
    Switched,
    Yielded,
)
from interlane.lanes.memory import PATIENCE, Budget, Change, LaneBook
from interlane.lanes.order import LaneOrder
from interlane.lanes.quantum import HangRule, Quantum, TurnRule
from interlane.lanes.sharing import Sharing
from interlane.lanes.tenant import Tenant
from interlane.model import (
    CapacityViolated,
    InvalidField,
    JobId,
    Refusal,
    Ticked,
    Tier,
    Wake,
)

_NEWEST = 0.25
"""Weight of the newest lease in the usual length of an iteration."""


@dataclass(slots=True)
class _Turns:
    """Who runs in a lane."""

    lease: Lease | None = None
    revoked_s: float | None = None
    """Since when the holder is asked to stop."""
    deadline_s: float = inf
    """When the holder counts as hung; infinite until it is asked to stop."""
    extended_until_s: float = 0.0
    """Before when it does not, because it said so."""
    revoke_at_s: float = inf
    """When the holder is to be asked, as things stand."""
    virtual_s: float = 0.0
    """The least virtual time of those that take part; never falls."""
    successors: dict[JobId, int] = field(default_factory=dict)
    """Jobs that the holder may pass the lane to, with the epochs of their leases."""
    named: JobId | None = None
    """The successor whom the holder was told of last."""
    last: JobId | None = None
    """Who holds the lane, or held it last."""

    def vacate(self) -> None:
        """Nobody runs here any more."""
        self.lease = self.revoked_s = None
        self.deadline_s = self.revoke_at_s = inf
        self.extended_until_s = 0.0
        self.successors = {}
        self.named = None

    def extend(self, until_s: float) -> None:
        """Give the holder until then, asked to stop or not."""
        self.extended_until_s = max(self.extended_until_s, until_s)
        if self.revoked_s is not None:
            self.deadline_s = max(self.deadline_s, until_s)

    def disinherit(self, job_id: JobId) -> None:
        """Forget a job that is gone."""
        self.successors.pop(job_id, None)
        self.named = None if self.named == job_id else self.named


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane as users see it."""

    lane: LaneId
    size_bytes: int
    tenants: tuple[JobId, ...]
    waiting: tuple[JobId, ...]
    lease: Lease | None


@dataclass(frozen=True, slots=True)
class DomainView:
    """A device as users see it."""

    budget: Budget
    booked_bytes: int
    lanes: tuple[LaneView, ...]
    waiting: Mapping[JobId, Refusal]
    """Jobs that are not admitted, and why."""
    quantum_s: float
    recovering_until_s: float | None


@dataclass(slots=True)
class _Answer:
    actions: list[LaneAction] = field(default_factory=list)
    stirred: set[LaneId] = field(default_factory=set)
    """Lanes in which somebody may have become next."""


class Domain:
    """The state machine of one device."""

    def __init__(
        self,
        budget: Budget,
        order: LaneOrder,
        *,
        sharing: Sharing | None = None,
        patience: int = PATIENCE,
        turns: TurnRule | None = None,
        hangs: HangRule | None = None,
        recovering_until_s: float | None = None,
        last_epoch: int = 0,
        names_successors: bool = False,
    ) -> None:
        self.book = LaneBook(budget, sharing, patience)
        """Memory; read it, change it only through events."""
        self._order = order
        self._quantum = Quantum(TurnRule() if turns is None else turns)
        self.hangs = HangRule() if hangs is None else hangs
        """When holders count as hung."""
        self._tenants: dict[JobId, Tenant] = {}
        """Everybody, admitted or waiting."""
        self._turns: dict[LaneId, _Turns] = {}
        self._epoch = last_epoch
        """Of the latest lease; must exceed those of the domain before a restart."""
        self._names_successors = names_successors
        self._serial = 0
        self.switches = 0
        """Leases so far that went to another job than the one before in their lane."""
        self._recovering_until_s = recovering_until_s
        self.book.is_open = recovering_until_s is None

    # Questions

    @property
    def tenants(self) -> Mapping[JobId, Tenant]:
        """All jobs, admitted or waiting; look, do not change."""
        return self._tenants

    @property
    def quantum_s(self) -> float:
        """The present length of a turn."""
        return self._quantum.turn_s

    @property
    def leases(self) -> tuple[Lease, ...]:
        """Leases that are out, by lane."""
        return tuple(turns.lease for turns in self._turns.values() if turns.lease is not None)

    def lease_of(self, job_id: JobId) -> Lease | None:
        """Return the lease that a job holds."""
        return next((lease for lease in self.leases if lease.job_id == job_id), None)

    def successor_of(self, lease: Lease, epoch: int) -> JobId | None:
        """Return whom the holder of a lease may pass the lane to under this epoch."""
        successors = self._turns[lease.lane].successors
        return next((job_id for job_id, named in successors.items() if named == epoch), None)

    def may_run(self, job_id: JobId) -> bool:
        """Tell whether a job holds its lane, or may have it from the holder by now."""
        lane = self.book.lane_of(job_id)
        if lane is None:
            return False
        turns = self._turns[lane.id]
        holds = turns.lease is not None and turns.lease.job_id == job_id
        return holds or job_id in turns.successors

    def overdue(self, now_s: float) -> tuple[Lease, ...]:
        """Return leases whose holders were asked to stop and are hung by now."""
        return tuple(
            turns.lease
            for turns in self._turns.values()
            if turns.lease is not None and turns.deadline_s <= now_s
        )

    def view(self) -> DomainView:
        """Return the device as users see it."""
        return DomainView(
            budget=self.book.budget,
            booked_bytes=self.book.booked_bytes,
            lanes=tuple(
                LaneView(
                    lane_id,
                    lane.size_bytes,
                    tuple(lane.tenants),
                    tuple(tenant.job_id for tenant in self._waiting_in(lane_id)),
                    self._turns[lane_id].lease,
                )
                for lane_id, lane in self.book.lanes.items()
            ),
            waiting={job_id: self.book.why_waits(job_id) for job_id in self.book.waiting},
            quantum_s=self.quantum_s,
            recovering_until_s=self._recovering_until_s,
        )

    def check(self) -> None:
        """Raise if the state does not balance or a lease is out without right."""
        self.book.check()
        for lane_id, turns in self._turns.items():
            lane = self.book.lanes[lane_id]
            if (turns.lease is not None) != lane.busy:
                raise CapacityViolated(f"Lane {lane_id} is busy without a lease, or idle with.")
            if turns.lease is None:
                continue
            if lane.tenants[turns.lease.job_id].ephemeral_bytes > lane.booked_bytes:
                raise CapacityViolated(f"Lane {lane_id} is smaller than its holder needs.")

    # Changes

    def handle(self, event: LaneEvent, now_s: float) -> tuple[LaneAction, ...]:
        """Take one event in, return what should be done about it."""
        answer = _Answer()
        self._learn(event, now_s, answer)
        for lane_id in sorted(answer.stirred):
            self._serve(lane_id, now_s, answer)
        wake = self._wake(now_s)
        return (*answer.actions, wake) if wake is not None else tuple(answer.actions)

    def _learn(self, event: LaneEvent, now_s: float, answer: _Answer) -> None:
        match event:
            case Joined():
                self._join(event, now_s, answer)
            case Reattached():
                self._reattach(event, now_s, answer)
            case IterationWanted(job_id):
                self._want(self._known(job_id), now_s, answer)
            case Released(job_id, epoch, iterations):
                self._release(job_id, epoch, iterations, now_s, answer)
            case Yielded(job_id, epoch, iterations):
                self._release(job_id, epoch, iterations, now_s, answer)
                self._want(self._known(job_id), now_s, answer)
            case Passed():
                self._pass_on(event, now_s, answer)
            case MemoryObserved(job_id, demand):
                self._known(job_id)
                self._take(self.book.observe(job_id, demand), now_s, answer)
            case Moved(job_id, lane_id):
                self._move(self._known(job_id), lane_id, now_s, answer)
            case Extended(job_id, epoch, until_s):
                turns = self._turns_of(job_id, epoch)
                if turns is not None:
                    turns.extend(until_s)
            case Stalled(job_id, epoch, hung_at_s):
                turns = self._turns_of(job_id, epoch)
                if turns and turns.lease and self._waiting_in(turns.lease.lane):
                    self._revoke(turns, turns.lease, hung_at_s, now_s, answer)
            case Switched(way_s, warm_up_s):
                self._quantum.learn(way_s, warm_up_s)
            case AllReturned():
                self._end_grace(now_s, answer)
            case Left(job_id):
                self._leave(self._known(job_id), now_s, answer)
            case Ticked():
                answer.stirred.update(self._turns)
                if self._recovering_until_s is not None and now_s >= self._recovering_until_s:
                    self._end_grace(now_s, answer)
            case _:
                assert_never(event)

    def _known(self, job_id: JobId) -> Tenant:
        if job_id not in self._tenants:
            raise InvalidField("job", job_id, "it is not on this device")
        return self._tenants[job_id]

    def _join(self, event: Joined, now_s: float, answer: _Answer) -> None:
        tenant = self._new_tenant(event)
        outcome = self.book.request(
            event.job_id,
            event.demand,
            processes=event.processes,
            urgency=self._order.urgency(tenant),
        )
        if isinstance(outcome, Refusal):
            answer.actions.append(RefuseTenant(event.job_id, outcome))
            return
        self._tenants[event.job_id] = tenant
        self._take(outcome, now_s, answer)
        if event.job_id in self.book.waiting:
            answer.actions.append(KeepWaiting(event.job_id, self.book.why_waits(event.job_id)))

    def _new_tenant(self, event: Joined | Reattached) -> Tenant:
        self._serial += 1
        return Tenant(
            event.job_id, self._serial, event.priority, event.total_s, weight=event.weight
        )

    def _reattach(self, event: Reattached, now_s: float, answer: _Answer) -> None:
        turns = self._turns.get(event.lane, _Turns())
        if event.epoch is not None and turns.lease is not None:
            refusal = Refusal(
                Tier.INVALID,
                f"Lane {event.lane} is held by {turns.lease.job_id} already.",
                "Stop the job: two cannot have held one lane.",
            )
            answer.actions.append(RefuseTenant(event.job_id, refusal))
            return
        self.book.reattach(
            event.job_id, event.demand, event.lane, event.lane_bytes, processes=event.processes
        )
        tenant = self._new_tenant(event)
        tenant.attained_s = event.attained_s
        self._tenants[event.job_id] = tenant
        self._turns[event.lane] = turns
        answer.actions.append(Admit(event.job_id, event.lane, event.demand))
        if event.epoch is not None:
            self._epoch = max(self._epoch, event.epoch)
            self._hand_over(event.lane, tenant, event.epoch, now_s)
        answer.stirred.add(event.lane)

    def _want(self, tenant: Tenant, now_s: float, answer: _Answer) -> None:
        if tenant.takes_part:
            return
        lane = self.book.lane_of(tenant.job_id)
        if lane is not None:
            self._order.enters(tenant, self._virtual_s(lane.id, now_s), is_new=False)
            answer.stirred.add(lane.id)
        tenant.wanted_since_s = now_s

    def _release(
        self, job_id: JobId, epoch: int, iterations: int, now_s: float, answer: _Answer
    ) -> None:
        """Take the lease back; a stale epoch changes nothing."""
        turns = self._turns_of(job_id, epoch)
        if turns is None or turns.lease is None:
            return
        lane_id = turns.lease.lane
        self._virtual_s(lane_id, now_s)
        self._charge(self._tenants[job_id], iterations, now_s)
        turns.vacate()
        answer.stirred.add(lane_id)
        self._take(self.book.boundary(lane_id), now_s, answer)

    def _pass_on(self, event: Passed, now_s: float, answer: _Answer) -> None:
        """Book whom the holder passed the lane to; nobody, if that job is gone by now."""
        turns = self._turns_of(event.job_id, event.epoch)
        if turns is None or turns.lease is None:
            return
        lane_id = turns.lease.lane
        successor = self.successor_of(turns.lease, event.successor_epoch)
        self._release(event.job_id, event.epoch, event.iterations, now_s, answer)
        if successor is not None:
            self._hand_over(lane_id, self._tenants[successor], event.successor_epoch, now_s)

    def _move(
        self, tenant: Tenant, lane_id: LaneId | None, now_s: float, answer: _Answer
    ) -> None:
        before = self.book.lane_of(tenant.job_id)
        if before is None or self.may_run(tenant.job_id):
            return
        changes = self.book.move(tenant.job_id, lane_id)
        after = self.book.lane_of(tenant.job_id)
        if after is None or after is before:
            return
        if before.id in self.book.lanes:
            answer.stirred.add(before.id)
        else:
            del self._turns[before.id]
        turns = self._turns.setdefault(after.id, _Turns())
        self._order.enters(tenant, turns.virtual_s, is_new=True)
        self._take(changes, now_s, answer)
        answer.stirred.add(after.id)

    def _leave(self, tenant: Tenant, now_s: float, answer: _Answer) -> None:
        lane = self.book.lane_of(tenant.job_id)
        held_it = tenant.held_since_s is not None
        if lane is not None:
            self._virtual_s(lane.id, now_s)
        self._charge(tenant, 0, now_s)
        del self._tenants[tenant.job_id]
        if lane is not None:
            if held_it:
                self._turns[lane.id].vacate()
            else:
                self._turns[lane.id].disinherit(tenant.job_id)
            answer.stirred.add(lane.id)
        self._take(self.book.leave(tenant.job_id, held_lane=held_it), now_s, answer)
        if lane is not None and lane.id not in self.book.lanes:
            del self._turns[lane.id]
            answer.stirred.discard(lane.id)

    def _take(self, changes: Iterable[Change], now_s: float, answer: _Answer) -> None:
        """Pass the book's changes on; those who came in take part from now on."""
        for change in changes:
            answer.actions.append(change)
            if not isinstance(change, Admit):
                continue
            self._turns.setdefault(change.lane, _Turns())
            virtual_s = self._virtual_s(change.lane, now_s, but=change.job_id)
            self._order.enters(self._tenants[change.job_id], virtual_s, is_new=True)
            answer.stirred.add(change.lane)

    # Turns

    def _serve(self, lane_id: LaneId, now_s: float, answer: _Answer) -> None:
        """Grant an idle lane, or see whether its holder should give way."""
        turns = self._turns[lane_id]
        turns.revoke_at_s = inf
        waiting = self._waiting_in(lane_id)
        if not waiting or self._recovering_until_s is not None:
            return
        if turns.lease is None:
            answer.actions.append(self._grant(lane_id, waiting, now_s))
            waiting = self._waiting_in(lane_id)
        if not waiting or turns.lease is None:
            return
        if self._names_successors:
            self._name(turns, turns.lease, self._order.pick(waiting, now_s), answer)
        if turns.revoked_s is not None:
            return
        holder = self._tenants[turns.lease.job_id]
        turn_ends_s = turns.lease.granted_s + turns.lease.quantum_s
        turns.revoke_at_s = self._order.revoke_at_s(holder, waiting, turn_ends_s, now_s)
        if turns.revoke_at_s <= now_s:
            hung_at_s = now_s + self.hangs.allowed_s(holder.iteration_s)
            self._revoke(turns, turns.lease, hung_at_s, now_s, answer)

    def _revoke(
        self, turns: _Turns, lease: Lease, hung_at_s: float, now_s: float, answer: _Answer
    ) -> None:
        """Ask the holder to stop, unless it was asked before."""
        turns.deadline_s = max(min(turns.deadline_s, hung_at_s), turns.extended_until_s)
        turns.revoke_at_s = inf
        if turns.revoked_s is None:
            turns.revoked_s = now_s
            answer.actions.append(Revoke(lease))

    def _name(self, turns: _Turns, lease: Lease, successor: Tenant, answer: _Answer) -> None:
        """Let the holder know who is next, if that is news."""
        if successor.job_id == turns.named:
            return
        if successor.job_id not in turns.successors:
            self._epoch += 1
            turns.successors[successor.job_id] = self._epoch
        turns.named = successor.job_id
        answer.actions.append(Name(lease, successor.job_id, turns.successors[successor.job_id]))

    def _waiting_in(self, lane_id: LaneId) -> list[Tenant]:
        tenants = (self._tenants[job_id] for job_id in self.book.lanes[lane_id].tenants)
        return [tenant for tenant in tenants if tenant.wanted_since_s is not None]

    def _grant(self, lane_id: LaneId, waiting: list[Tenant], now_s: float) -> Grant:
        tenant = self._order.pick(waiting, now_s)
        self._epoch += 1
        return Grant(self._hand_over(lane_id, tenant, self._epoch, now_s))

    def _hand_over(self, lane_id: LaneId, tenant: Tenant, epoch: int, now_s: float) -> Lease:
        turns, job_id = self._turns[lane_id], tenant.job_id
        before = None if turns.last == job_id else turns.last
        self.switches += before is not None
        turns.last = job_id
        turns.lease = Lease(job_id, lane_id, epoch, now_s, self.quantum_s, before)
        tenant.wanted_since_s = None
        tenant.held_since_s = now_s
        tenant.last_turn = epoch
        self.book.began(lane_id)
        return turns.lease

    def _virtual_s(self, lane_id: LaneId, now_s: float, but: JobId | None = None) -> float:
        """Move the lane's virtual time up to its slowest participant but this one."""
        turns = self._turns[lane_id]
        taking_part = [
            tenant.virtual_at(now_s)
            for tenant in map(self._tenants.__getitem__, self.book.lanes[lane_id].tenants)
            if tenant.takes_part and tenant.job_id != but
        ]
        turns.virtual_s = max(turns.virtual_s, min(taking_part, default=turns.virtual_s))
        return turns.virtual_s

    def _turns_of(self, job_id: JobId, epoch: int) -> _Turns | None:
        """Return the lane held by this job under this epoch; None if that is past."""
        lane = self.book.lane_of(job_id)
        turns = None if lane is None else self._turns[lane.id]
        if turns is None or turns.lease is None:
            return None
        return turns if (turns.lease.job_id, turns.lease.epoch) == (job_id, epoch) else None

    def _charge(self, tenant: Tenant, iterations: int, now_s: float) -> None:
        held_s = tenant.held_s(now_s)
        tenant.attained_s += held_s
        tenant.virtual_s += held_s / tenant.weight
        tenant.held_since_s = None
        tenant.iterations += iterations
        if iterations > 0:
            usual_s = (
                tenant.iteration_s if tenant.iteration_s is not None else held_s / iterations
            )
            tenant.iteration_s = usual_s + _NEWEST * (held_s / iterations - usual_s)

    # Time

    def _end_grace(self, now_s: float, answer: _Answer) -> None:
        self._recovering_until_s = None
        self._take(self.book.open(), now_s, answer)
        answer.stirred.update(self._turns)

    def _wake(self, now_s: float) -> Wake | None:
        due_s = [turns.revoke_at_s for turns in self._turns.values()]
        due_s += [t.deadline_s for t in self._turns.values() if t.deadline_s > now_s]
        if self._recovering_until_s is not None:
            due_s.append(self._recovering_until_s)
        at_s = min(due_s, default=inf)
        return None if at_s == inf else Wake(at_s)
