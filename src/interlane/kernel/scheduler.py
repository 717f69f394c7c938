"""The brain: events in, actions out.

``learn`` takes one event into the state; ``decide`` looks at the state and returns what should
be done.  ``handle`` does both.  Events of the same moment are learned together before anybody
decides, so that nobody profits from the order in which they happened to be reported.

The kernel knows no clock, no random generator of its own and no body: the simulator, this
machine and Kubernetes feed it the same events and get the same actions.

Capacity is held when ``Start`` is decided, confirmed by ``Started`` and given back by
``StartFailed``, ``Finished``, ``Preempted``, ``Cancelled`` or the end of a machine, which
``Requeue`` tells (see ``machines``).  An elastic job
may hold more from ``Grow`` on, which ``Grown`` confirms and ``GrowFailed`` gives back.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from interlane.kernel import compiled, reasons
from interlane.kernel.closeness import Choices, Portion
from interlane.kernel.growth import Growth, Want, held_instances
from interlane.kernel.ledger import Ledger, Table
from interlane.kernel.lifecycle import HOLDING, JobState, advance
from interlane.kernel.machines import MachineEvents
from interlane.kernel.queue import QueuedJob, QueueGroup, WaitingJobs
from interlane.kernel.reservation import Reservation
from interlane.kernel.running import Deserving, Running, allocators_for, victims_for
from interlane.kernel.staging import Staging
from interlane.kernel.view import LedgerView, RequestShape
from interlane.model import (
    Action,
    Cancelled,
    CapacityViolated,
    Cluster,
    Event,
    Finished,
    Grow,
    GrowFailed,
    Grown,
    IllegalTransition,
    InvalidInput,
    Job,
    JobId,
    MachineLost,
    Placement,
    Preempt,
    Preempted,
    Recovered,
    Refusal,
    Refuse,
    Requeue,
    Spot,
    Start,
    Started,
    StartFailed,
    Submitted,
    Ticked,
    Tier,
    Wake,
    held_gpu_milli,
)
from interlane.policy import rows
from interlane.policy.base import GangSpread, PlacementRule
from interlane.policy.place import RulePlacer
from interlane.policy.policy import Discipline, Policy

CLAIMS_MAX = 2
"""Places that may be made for a job in vain: room by count is not always a placement."""

BACKFILL_DEPTH = 100
"""Jobs of one shape that a backfilling pass looks at, as cluster managers bound it too."""


class Scheduler:
    """Decides who runs where; see the module's text."""

    def __init__(self, cluster: Cluster, policy: Policy, seed: int = 0) -> None:
        self.policy = policy
        self._ledger = Ledger(cluster)
        self._view = LedgerView(self._ledger)
        easy = policy.discipline is Discipline.EASY
        self._queue = WaitingJobs(policy.order, notes_shortest=easy)
        self._running = Running(policy.order, expects_ends=easy)
        self._shapes = self._view.shapes(policy.placer.types)
        self._preempts = policy.order.preempts
        self._exact = policy.discipline is Discipline.EASY
        """Whether room must be counted to the last: reservations look at single machines."""
        self._accounted = policy.order.keeps_accounts
        self._is_rule = isinstance(policy.placer, RulePlacer)
        """Compiled rules place by count, so that their placements need no second count."""
        self._rule = self._rule_without_rng()
        """The placer's rule if the kernel may carry it out by itself."""
        self._staging = self._staging_of_plans()
        """The stages of jobs, where the placer has plans for them."""
        self._rng = Random(seed)
        """The placer's random generator; nothing else draws from them."""
        self._entries: dict[JobId, QueuedJob] = {}
        """Jobs that wait or hold capacity; those that ended are forgotten."""
        self._actions: list[Action] = []
        """Actions that learning produced, handed out by the next decision."""
        self._growth = Growth(policy.order, self._view, policy.placer.types)
        self._grown_epoch = -1
        """The epoch in which all have grown as far as they could."""
        self._stopping = 0
        """Jobs in state STOPPING; while there are any, nobody else is stopped."""
        self._borrowers: dict[JobId, QueuedJob] = {}
        """Jobs on machines that are only lent to them, in the order of their starts."""
        self._lendable = self._machines_of_types(self._lent_types)
        """Which machines may be lent, by their numbers."""
        self._returned = 0
        """How often who has a right to them gave such machines back."""
        self._machines = MachineEvents(self._ledger, self._running, self._requeue)
        self._reservation: Reservation | None = None
        self._blocking: QueuedJob | None = None
        """The head that a strict queue waits for, as of the last decision."""
        self._wake_s: float | None = None
        """When the last ``Wake`` was asked for; None once it has come."""
        self._epoch = 0
        """Rises when something became free since the last decision; lifts bars."""
        self._releases_seen = 0
        self._learn: dict[type[Event], Callable[..., None]] = {
            Submitted: self._submitted,
            Recovered: self._recovered,
            Started: self._started,
            StartFailed: self._start_failed,
            Grown: self._grown,
            GrowFailed: self._grow_failed,
            Preempted: self._preempted,
            Finished: self._finished,
            Cancelled: self._cancelled,
            Ticked: self._ticked,
            **dict.fromkeys(self._machines.learn, self._machine_event),
        }

    def _rule_without_rng(self) -> PlacementRule | None:
        placer = self.policy.placer
        if not isinstance(placer, RulePlacer) or placer.rule.spread is GangSpread.SAMPLE:
            return None
        return placer.rule

    def _staging_of_plans(self) -> Staging | None:
        placer = self.policy.placer
        if not isinstance(placer, RulePlacer) or placer.plans is None:
            return None
        return Staging(placer.plans, self._view, placer.types)

    @property
    def _lent_types(self) -> frozenset[str]:
        return frozenset() if self._staging is None else self._staging.lent

    def _machines_of_types(self, types: frozenset[str]) -> NDArray[np.bool_]:
        found = np.zeros(self._ledger.height, np.bool_)
        for number, machine in self._ledger.numbered():
            found[number] = machine.gpu_type in types or bool(machine.gpu_types & types)
        return found

    # -- events in, actions out ---------------------------------------------------------

    def handle(self, event: Event, now_s: float) -> tuple[Action, ...]:
        """Take one event in and return what should be done about it."""
        self.learn(event, now_s)
        return self.decide(now_s)

    def handle_all(self, events: Iterable[Event], now_s: float) -> tuple[Action, ...]:
        """Take all events of one moment in and return what should be done about them."""
        for event in events:
            self.learn(event, now_s)
        return self.decide(now_s)

    def learn(self, event: Event, now_s: float) -> None:
        """Take one event into the state without deciding anything."""
        self._learn[type(event)](event, now_s)

    def decide(self, now_s: float) -> tuple[Action, ...]:
        """Return what should be done now."""
        if self._releases_seen != self._ledger.releases:
            self._releases_seen = self._ledger.releases
            self._epoch += 1
        actions, self._actions = self._actions, []
        queue = self._queue
        if queue:
            queue.refresh(now_s)
            self._walk(now_s, actions)
            if self._staging is not None:
                self._follow_plans(self._staging, now_s, actions)
            if self._preempts and queue and not self._stopping:
                self._make_way(now_s, actions)
                self._action_to_wake(now_s, actions)
            elif self._staging is not None and queue:
                self._action_to_wake(now_s, actions)
            if queue and not self._running and self._ledger.is_whole:
                self._give_up(now_s, actions)
        if self._growth.queue and self._may_grow():
            self._grow(now_s, actions)
        return tuple(actions)

    # -- questions --------------------------------------------------------------------

    @property
    def cluster(self) -> Cluster:
        """The machines that are known now, lost and drained ones included."""
        return self._ledger.cluster

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return len(self._queue)

    @property
    def view(self) -> LedgerView:
        """What placers see."""
        return self._view

    def state(self, job_id: JobId) -> JobState | None:
        """Return where a job stands; None for one that is unknown or has ended."""
        entry = self._entries.get(job_id)
        return None if entry is None else entry.state

    def placement(self, job_id: JobId) -> Placement | None:
        """Return where a job holds capacity."""
        entry = self._entries.get(job_id)
        return None if entry is None else entry.placement

    def explain(self, job_id: JobId, now_s: float) -> Refusal | None:
        """Return why a job waits, by the state of the last decision; None if it does not."""
        entry = self._entries.get(job_id)
        if entry is None or entry.state is not JobState.QUEUED:
            return None
        refusal = entry.refusal or self._refusal_by_capacity(entry)
        if refusal is not None:
            return refusal
        if self.policy.discipline is Discipline.STRICT and self._blocking not in (None, entry):
            assert self._blocking is not None
            return reasons.behind(self._blocking.job.id)
        if self._reservation is not None and self._reservation.head is not entry:
            head = self._reservation.head.job.id
            return reasons.behind(head, reserved_at_s=self._reservation.at_s)
        return reasons.not_yet_considered()

    def ahead(self, job_id: JobId, now_s: float) -> tuple[JobId, ...]:
        """Return the waiting jobs that go before a waiting job, the first of them first."""
        mine = self._urgency(self._entry(job_id), now_s)
        return tuple(other for key, other in self._line(now_s) if key < mine)

    def line(self, now_s: float) -> tuple[JobId, ...]:
        """Return all waiting jobs, the first to go first."""
        return tuple(job_id for _, job_id in self._line(now_s))

    def _line(self, now_s: float) -> list[tuple[tuple[float, float, int], JobId]]:
        waiting = (e for e in self._entries.values() if e.state is JobState.QUEUED)
        return sorted((self._urgency(entry, now_s), entry.job.id) for entry in waiting)

    def _urgency(self, entry: QueuedJob, now_s: float) -> tuple[float, float, int]:
        share = self._queue.share(self.policy.order.account(entry.job))
        value, slope = entry.key
        return share, value + slope * now_s, entry.job.serial

    def _refusal_by_capacity(self, entry: QueuedJob) -> Refusal | None:
        for part in entry.shape.parts:
            self._view.catch_up(part.profile)
            if self._view.sums[part.profile] < part.least:
                return self._view.why_not_now(entry.shape)
        return reasons.scattered(self._ledger, entry.shape)

    def check(self) -> None:
        """Raise if the state does not balance; expensive, for tests and paranoid runs."""
        held = [entry.rows for entry in self._running if entry.rows is not None]
        self._ledger.check(held)
        for entry in self._entries.values():
            holds = entry.state in HOLDING
            if holds != (entry.slot >= 0) or holds != (entry.rows is not None):
                raise CapacityViolated(f"Job {entry.job.id} is {entry.state.value} but its "
                                       f"holdings say otherwise.")  # fmt: skip
            if (entry.state is JobState.QUEUED) != (entry.group is not None):
                raise CapacityViolated(f"Job {entry.job.id} is {entry.state.value} but the "
                                       f"queue says otherwise.")  # fmt: skip
            if holds:
                _check_instances(entry)

    # -- learning ---------------------------------------------------------------------

    def _submitted(self, event: Submitted, now_s: float) -> None:
        self._line_up(event.job, 0.0, now_s)

    def _recovered(self, event: Recovered, now_s: float) -> None:
        if event.placement is None:
            self._line_up(event.job, event.ran_s, now_s)
        else:
            self._hold_again(event, event.placement, now_s)

    def _line_up(self, job: Job, ran_s: float, now_s: float) -> None:
        """Let a job wait that is new here, unless it can never run."""
        shape = self._shape_of_new(job)
        if shape.generation != self._ledger.generation:
            self._view.never(shape)
        if shape.never is not None:
            self._actions.append(Refuse(job.id, shape.never))
            return
        self._accept(job, shape, ran_s, now_s)

    def _accept(self, job: Job, shape: RequestShape, ran_s: float, now_s: float) -> None:
        """Let a job wait that is new here."""
        self._view.make_room_for(shape)
        plan = () if self._staging is None else self._staging.shapes(job)
        entry = self._entries[job.id] = QueuedJob(job, plan[0] if plan else shape, plan)
        entry.ran_s = ran_s
        self._wait(entry, now_s)
        if self._reservation is not None and entry.group is not None:
            self._queue.bar(entry.group.number, -1)

    def _hold_again(self, event: Recovered, placement: Placement, now_s: float) -> None:
        """Hold what a job holds that is new here and runs already, or let it wait.

        Nobody knows any more in which stage of its plan it started, so that what it borrowed
        counts as its own.
        """
        job = event.job
        shape = self._shape_of_new(job)
        plan = () if self._staging is None else self._staging.shapes(job)
        entry = QueuedJob(job, shape, plan)
        entry.ran_s = event.ran_s
        types = self.policy.placer.types
        fits = reasons.covers(self._ledger, job.request, placement, types)
        table = self._ledger.to_rows(placement, shape.profiles) if fits else None
        if table is None or not self._ledger.hold_again(table):
            self._wait_for_another(event, placement, shape, now_s)
            return
        self._entries[job.id] = entry
        self._note_held(entry, placement, table, event.started_s)
        entry.state = JobState.GROWING if event.growing else JobState.RUNNING
        entry.growing = event.growing
        if entry.shape.grows and not event.growing:
            self._want_more(entry, now_s)

    def _wait_for_another(
        self, event: Recovered, placement: Placement, shape: RequestShape, now_s: float
    ) -> None:
        """Let a job wait that ran where there is no place for it any more."""
        job = event.job
        gone = [one for one in placement.machines if not self._ledger.knows(one)]
        what = "is not there" if gone else "has no such room"
        why = f"The job ran on {', '.join(gone or placement.machines)}, which {what} any more."
        lost_s = _unsaved_s(job, event.started_s, now_s)
        counts_all = self.policy.order.counts_lost_work
        kept_s = now_s - event.started_s - (0.0 if counts_all else lost_s)
        self._accept(job, shape, event.ran_s + kept_s, now_s)
        self._actions.append(Requeue(job.id, why, lost_s))

    def _shape_of_new(self, job: Job) -> RequestShape:
        if job.id in self._entries:
            raise IllegalTransition(
                f"Job {job.id}", self._entries[job.id].state.value, "Submitted"
            )
        shape = self._shapes.get(job.request)
        return (
            self._view.shape(job.request, self.policy.placer.types) if shape is None else shape
        )

    def _started(self, event: Started, now_s: float) -> None:
        entry = self._entries.get(event.job_id) or self._entry(event.job_id)
        if entry.state is JobState.STARTING:  # by far the most frequent event
            entry.state = JobState.RUNNING
            if entry.shape.grows:
                self._want_more(entry, now_s)
        else:
            entry.state = advance(event.job_id, entry.state, Started)

    def _start_failed(self, event: StartFailed, now_s: float) -> None:
        self._back_to_queue(self._entry(event.job_id), StartFailed, now_s, kept_s=0.0)

    def _grown(self, event: Grown, now_s: float) -> None:
        entry = self._entry(event.job_id)
        entry.state = advance(event.job_id, entry.state, Grown)
        self._running.note_growth(entry, now_s)
        entry.growing = 0
        self._want_more(entry, now_s)

    def _grow_failed(self, event: GrowFailed, now_s: float) -> None:
        entry = self._entry(event.job_id)
        entry.state = advance(event.job_id, entry.state, GrowFailed)
        assert entry.rows is not None
        assert entry.placement is not None
        kept = len(entry.rows) - entry.growing
        more = Placement(entry.placement.spots[kept:])
        self._ledger.release(entry.rows[kept:])
        self._returned += 1
        entry.rows = entry.rows[:kept]
        entry.placement = Placement(entry.placement.spots[:kept])
        entry.growing = 0
        self._reservation = None
        if self._accounted:
            self._charge(entry, more, -1)
        if entry.borrows:
            self._forget_borrowing(entry)
            self._note_borrowing(entry, entry.rows)
        self._want_more(entry, now_s)

    def _want_more(self, entry: QueuedJob, now_s: float) -> None:
        """Let a job that may grow wait for what it lacks."""
        self._growth.want(entry, now_s)
        self._grown_epoch = -1

    def _preempted(self, event: Preempted, now_s: float) -> None:
        entry = self._entry(event.job_id)
        kept_s = max(0.0, now_s - entry.started_s - event.work_lost_s)
        self._back_to_queue(entry, Preempted, now_s, kept_s=kept_s)

    def _finished(self, event: Finished, now_s: float) -> None:
        job_id = event.job_id
        entry = self._entries.get(job_id) or self._entry(job_id)
        if entry.state is not JobState.RUNNING:
            advance(job_id, entry.state, Finished)
        self._let_go(entry, now_s)
        del self._entries[job_id]

    def _cancelled(self, event: Cancelled, now_s: float) -> None:
        entry = self._entry(event.job_id)
        advance(event.job_id, entry.state, Cancelled)
        if entry.state is JobState.QUEUED:
            self._queue.remove(entry, now_s)
            self._drop_reservation(entry)
            if self._growth.queue:
                self._epoch += 1  # what was kept for it may be grown into
        else:
            self._let_go(entry, now_s)
        del self._entries[event.job_id]

    def _machine_event(self, event: Event, now_s: float) -> None:
        """Take in what became of a machine; whatever was promised is promised anew."""
        generation = self._ledger.generation
        self._machines.learn[type(event)](event, now_s)
        self._reservation = None
        if not isinstance(event, MachineLost):
            self._returned += 1
        if generation != self._ledger.generation:
            self._view.follow_machines()
            self._lendable = self._machines_of_types(self._lent_types)
            if self._staging is not None:
                self._staging.forget_shapes()

    def _requeue(self, entry: QueuedJob, event: type[Event], why: str, now_s: float) -> None:
        """Let a job wait again whose place is gone, with the progress that it saved."""
        lost_s = _unsaved_s(entry.job, entry.started_s, now_s)
        self._back_to_queue(entry, event, now_s, kept_s=now_s - entry.started_s - lost_s)
        self._actions.append(Requeue(entry.job.id, why, lost_s))

    def _ticked(self, event: Ticked, now_s: float) -> None:
        self._wake_s = None

    def _entry(self, job_id: JobId) -> QueuedJob:
        entry = self._entries.get(job_id)
        if entry is None:
            raise InvalidInput(
                f"Job {job_id} is not known; it was never submitted or has ended."
            )
        return entry

    def _back_to_queue(
        self, entry: QueuedJob, event: type[Event], now_s: float, *, kept_s: float
    ) -> None:
        state = advance(entry.job.id, entry.state, event)
        self._let_go(entry, now_s)
        entry.state = state
        if self.policy.order.counts_lost_work and event is not StartFailed:
            kept_s = now_s - entry.started_s
        entry.ran_s += kept_s
        if entry.plan:
            entry.stage, entry.shape = 0, entry.plan[0]
        self._wait(entry, now_s)

    def _wait(self, entry: QueuedJob, now_s: float) -> None:
        """Let a job wait, in the stage of its plan that it is in."""
        self._queue.push(entry, now_s)
        if self._staging is not None:
            self._staging.enter(entry, now_s)

    def _let_go(self, entry: QueuedJob, now_s: float) -> None:
        """Give back what a job holds."""
        assert entry.rows is not None
        if self._reservation is not None and self._reservation.improves_when(entry, now_s):
            self._reservation = None
        if entry.state is JobState.STOPPING:
            self._stopping -= 1
        if entry.borrows:
            self._forget_borrowing(entry)
        elif self._lent_types and self._lendable[entry.rows[:, compiled.AT_MACHINE]].any():
            self._returned += 1
        if entry.wants:
            self._growth.withdraw(entry, now_s)
        self._ledger.release(entry.rows)
        self._running.remove(entry)
        placement = entry.placement
        assert placement is not None
        entry.rows = None
        entry.placement = None
        entry.growing = 0
        if self._accounted:
            self._charge(entry, placement, -1)

    def _charge(self, entry: QueuedJob, placement: Placement, sign: int) -> None:
        """Charge what a job holds to its account (1), or take it off (-1)."""
        account = self.policy.order.account(entry.job)
        gpu_milli = sign * held_gpu_milli(entry.job.request, placement)
        self._queue.charge(account, gpu_milli)
        self._growth.queue.charge(account, gpu_milli)

    # -- deciding ---------------------------------------------------------------------

    def _walk(self, now_s: float, actions: list[Action]) -> None:
        """Start whoever may start, in order, as the discipline allows."""
        discipline = self.policy.discipline
        self._blocking = None
        if discipline is Discipline.SKIP:
            self._walk_greedily(now_s, actions)
            return
        head = self._start_heads(now_s, actions)
        if head is None or discipline is Discipline.STRICT:
            self._blocking = head
            return
        if self._reservation is None or not self._reservation.serves(head, now_s):
            self._reservation = Reservation(head, self._running, self._ledger, now_s)
            self._epoch += 1
        self._backfill(self._reservation, now_s, actions)

    def _follow_plans(self, staging: Staging, now_s: float, actions: list[Action]) -> None:
        """Let jobs whose stage is over try the next one, and cancel what was lent."""
        while over := staging.due(now_s):
            for entry in over:
                self._queue.remove(entry, now_s)
                self._drop_reservation(entry)
                entry.stage += 1
                entry.shape = entry.plan[entry.stage]
                entry.refusal = None
                self._wait(entry, now_s)
            self._walk(now_s, actions)
        if self._borrowers and not self._stopping:
            self._reclaim(now_s, actions)

    def _walk_greedily(self, now_s: float, actions: list[Action]) -> None:
        while self._queue:
            number, table = self._take_next(self._queue, now_s, only_with_room=True)
            if number < 0:
                return
            entry = self._queue.head(number, now_s)
            if table is not None:
                self._note_start(entry, table, now_s, actions)
            elif not self._try_start(entry, now_s, actions):
                self._queue.bar(number, self._epoch)

    def _start_heads(self, now_s: float, actions: list[Action]) -> QueuedJob | None:
        """Start the head of the queue while it fits; return the head that does not."""
        while self._queue:
            number, table = self._take_next(self._queue, now_s, only_with_room=False)
            entry = self._queue.head(number, now_s)
            if table is not None:
                self._note_start(entry, table, now_s, actions)
                continue
            part = entry.shape.parts[0]
            if self._view.sums[part.profile] < part.least:
                return entry
            if not self._try_start(entry, now_s, actions):
                return entry
        return None

    def _take_next(
        self, queue: WaitingJobs, now_s: float, *, only_with_room: bool
    ) -> tuple[int, Table | None]:
        """Pick the next group and hold a place for its head if a compiled rule finds one."""
        if self._rule is None:
            return self._pick(queue, now_s, only_with_room=only_with_room), None
        view, ledger = self._view, self._ledger
        rule, out = view.compiled_rule(self._rule), view.out
        ledger.make_way(len(out))
        if view.change_lists != ledger.change_lists:
            view.follow_change_list()
        number, count, ledger.changed = compiled.start_next(
            queue.profiles, queue.waited_for, queue.active, queue.actives, queue.keys,
            queue.groups, now_s, self._epoch, only_with_room, self._exact, rule.score,
            rule.spread, rule.gpu_choice, rule.choices, rule.typical, rule.weights,
            view.nowhere, view.rng, ledger.asks, ledger.free, ledger.total, ledger.brief,
            ledger.shares, ledger.changes, ledger.changed, view.cursors, view.rooms, view.sums,
            view.scores, out,
        )  # fmt: skip
        return number, (out[:count].copy() if count else None)

    def _pick(self, queue: WaitingJobs, now_s: float, *, only_with_room: bool) -> int:
        view, ledger = self._view, self._ledger
        if view.change_lists != ledger.change_lists:
            view.follow_change_list()
        number: int = compiled.catch_up_and_pick(
            queue.profiles, queue.waited_for, ledger.asks, ledger.free, ledger.brief,
            ledger.changes, ledger.changed, view.cursors, view.rooms, view.sums, queue.active,
            queue.actives, queue.keys, queue.groups, now_s, self._epoch, only_with_room,
            self._exact,
        )  # fmt: skip
        return number

    def _try_start(self, entry: QueuedJob, now_s: float, actions: list[Action]) -> bool:
        answer = self._place(entry)
        if isinstance(answer, Refusal):
            entry.refusal = answer
            return False
        return self._start(entry, answer, now_s, actions)

    def _place(
        self, entry: QueuedJob, avoid: NDArray[np.bool_] | None = None
    ) -> Placement | Refusal:
        """Ask the placer for a place apart from some machines, as close as the job wants."""
        if not entry.shape.is_close:
            return self._ask(entry.job, entry.shape, avoid, planned=bool(entry.plan))
        held: list[int] = []
        if isinstance(entry, Want) and entry.of.rows is not None:
            held = entry.of.rows[:, compiled.AT_MACHINE].tolist()
        nowhere = self._view.nowhere if avoid is None else avoid
        for portions in Choices(entry.shape, self._view, self._ledger, nowhere, held):
            placement = self._place_portions(entry, portions)
            if placement is not None:
                return placement
        return self._view.why_not_now(entry.shape)

    def _place_portions(
        self, entry: QueuedJob, portions: tuple[Portion, ...]
    ) -> Placement | None:
        """Return where all portions of a job go, or None if one of them has no place."""
        spots: list[Spot] = []
        for portion in portions:
            job, shape = entry.job, entry.shape
            if portion.request is not None:
                job = replace(job, request=portion.request)
                types = self.policy.placer.types
                shape = self._view.staged_shape(portion.request, types, shape.stage)
            answer = self._ask(job, shape, portion.avoid, planned=bool(entry.plan))
            if isinstance(answer, Refusal) or self._strays(answer, portion.avoid):
                return None
            if portion.request is None:
                return answer
            spots += [replace(spot, task=portion.tasks[spot.task]) for spot in answer.spots]
        return Placement(tuple(spots))

    def _strays(self, placement: Placement, avoid: NDArray[np.bool_]) -> bool:
        """Return whether a placer went to machines that it was not offered."""
        return any(
            not self._ledger.knows(machine) or avoid[self._ledger.number(machine)]
            for machine in placement.machines
        )

    def _ask(
        self, job: Job, shape: RequestShape, avoid: NDArray[np.bool_] | None, *, planned: bool
    ) -> Placement | Refusal:
        """Ask the placer for a place apart from some machines."""
        placer = self.policy.placer
        if not isinstance(placer, RulePlacer):
            view = self._view if avoid is None else self._view.without(avoid)
            return placer.place(job, view, self._rng)
        if avoid is None and not planned:
            return placer.place(job, self._view, self._rng)
        draws = placer.rule.spread is GangSpread.SAMPLE
        seed = self._rng.getrandbits(53) if draws else 0
        return self._view.choose_shape(shape, placer.rule, seed, avoid)

    def _start(
        self, entry: QueuedJob, placement: Placement, now_s: float, actions: list[Action]
    ) -> bool:
        """Hold a placement and decide the start; the referee may say no."""
        table = self._checked_rows(entry, placement)
        if table is None or not self._ledger.hold(table):
            entry.refusal = Refusal(
                Tier.INVALID,
                f"The placer {self.policy.placer!r} proposed a placement that does not hold "
                "what was asked or does not fit.",
                "This is a fault of the placer; use another.",
            )
            return False
        self._note_start(entry, table, now_s, actions, placement)
        return True

    def _note_start(
        self,
        entry: QueuedJob,
        table: Table,
        now_s: float,
        actions: list[Action],
        placement: Placement | None = None,
    ) -> None:
        """Decide the start of a job whose place is held; rows are put in words if need be."""
        if placement is None:
            placement = self._ledger.to_placement(table)
        self._queue.remove(entry, now_s)
        self._note_held(entry, placement, table, now_s)
        actions.append(Start(entry.job.id, placement))
        if self._reservation is not None:
            self._drop_reservation(entry)

    def _note_held(
        self, entry: QueuedJob, placement: Placement, table: Table, started_s: float
    ) -> None:
        """Note what a job holds that starts, or was found running."""
        entry.state = JobState.STARTING
        entry.refusal = None
        entry.claims = 0
        entry.rows = table
        entry.placement = placement
        entry.started_s = started_s
        self._running.add(entry)
        if entry.plan:
            self._note_borrowing(entry, table)
        if self._accounted:
            self._charge(entry, placement, 1)

    def _note_borrowing(self, entry: QueuedJob, table: Table) -> None:
        """Note whether a job has started on a machine that is only lent to it."""
        stage = entry.shape.stage
        if stage is None or not stage.lent:
            return
        if self._lendable[table[:, compiled.AT_MACHINE]].any():
            entry.borrows = True
            self._borrowers[entry.job.id] = entry

    def _forget_borrowing(self, entry: QueuedJob) -> None:
        entry.borrows = False
        del self._borrowers[entry.job.id]

    def _checked_rows(self, entry: QueuedJob, placement: Placement) -> Table | None:
        """Return a placement as rows if it places what the job asks for."""
        if self._is_rule:
            return self._ledger.to_rows(placement, entry.shape.profiles)
        types = self.policy.placer.types
        if not reasons.covers(self._ledger, entry.job.request, placement, types):
            return None
        # The view may have chosen it for another demand, so that its rows prove nothing.
        self._ledger.forget_proposal()
        return self._ledger.to_rows(placement, entry.shape.profiles)

    def _drop_reservation(self, entry: QueuedJob) -> None:
        if self._reservation is not None and self._reservation.head is entry:
            self._reservation = None

    # -- backfilling ------------------------------------------------------------------

    def _backfill(self, promise: Reservation, now_s: float, actions: list[Action]) -> None:
        """Start whoever fits and does not delay the head.

        A group from which nobody may pass stays barred until something becomes free, the
        promise changes or somebody joins it: time alone only shortens what may pass.
        """
        while len(self._queue) > 1:
            self._bar_who_delays(promise, now_s)
            number = self._pick(self._queue, now_s, only_with_room=True)
            if number < 0:
                return
            if not self._backfill_from(number, promise, now_s, actions):
                self._queue.bar(number, self._epoch)

    def _bar_who_delays(self, promise: Reservation, now_s: float) -> None:
        """Bar all groups at once from which nobody may pass, by the room of the last pick."""
        queue, view, ledger = self._queue, self._view, self._ledger
        compiled.bar_who_delays(
            queue.active, queue.actives, queue.keys, queue.groups, self._epoch,
            promise.at_s - now_s, ledger.asks, view.rooms, view.sums, promise.reserved,
            promise.spare,
        )  # fmt: skip

    def _backfill_from(
        self, number: int, promise: Reservation, now_s: float, actions: list[Action]
    ) -> bool:
        """Start the first job of a group that may pass; return whether there was one.

        Whether a long job may pass depends on its shape alone, so one is tried for all.
        """
        long_refused = False
        for entry in self._queue.group(number).line.in_order(now_s, BACKFILL_DEPTH):
            is_short = promise.is_short(entry, now_s)
            if entry is promise.head or (long_refused and not is_short):
                continue
            placement = self._harmless(entry, promise, is_short=is_short)
            if placement is not None and self._start(entry, placement, now_s, actions):
                assert entry.rows is not None
                if not is_short:
                    promise.take(entry.rows)
                return True
            if is_short:
                return False
            long_refused = True
        return False

    def _harmless(
        self, entry: QueuedJob, promise: Reservation, *, is_short: bool
    ) -> Placement | None:
        """Return a placement that does not delay the head."""
        if self._is_rule and not is_short:
            apart = self._place(entry, promise.machines)
            if isinstance(apart, Placement):
                return apart
        answer = self._place(entry)
        if isinstance(answer, Refusal):
            return None
        table = self._checked_rows(entry, answer)
        if table is None or not (is_short or promise.spares(table)):
            return None
        return answer

    # -- growing ----------------------------------------------------------------------

    def _may_grow(self) -> bool:
        """Return whether somebody might grow now: room is grown into after all who wait."""
        if self._stopping or self._grown_epoch == self._epoch:
            return False
        return self.policy.discipline is not Discipline.STRICT or not self._queue

    def _grow(self, now_s: float, actions: list[Action]) -> None:
        """Give running jobs more of what they asked for while there is room.

        Nobody who waits fits at this point; what was promised to the head is left alone.
        """
        queue = self._growth.queue
        queue.refresh(now_s)
        promise = self._reservation if self._queue else None
        while queue:
            if promise is None:
                number, table = self._take_next(queue, now_s, only_with_room=True)
            else:
                number, table = self._pick(queue, now_s, only_with_room=True), None
            if number < 0:
                break
            want = queue.head(number, now_s)
            assert isinstance(want, Want)
            if table is None:
                table = self._take_for(want, promise, now_s)
            if table is None:
                queue.bar(number, self._epoch)
            else:
                self._note_growth(want, table, now_s, actions)
        self._grown_epoch = self._epoch

    def _take_for(self, want: Want, promise: Reservation | None, now_s: float) -> Table | None:
        """Hold a place for what a job lacks, the long way; None if there is none."""
        is_short = (
            promise is None or self._running.expected_end_s(want.of, now_s) <= promise.at_s
        )
        if promise is None:
            answer = self._place(want)
            placement = answer if isinstance(answer, Placement) else None
        else:
            placement = self._harmless(want, promise, is_short=is_short)
        table = None if placement is None else self._checked_rows(want, placement)
        if table is None or not self._ledger.hold(table):
            return None
        if promise is not None and not is_short:
            promise.take(table)
        return table

    def _note_growth(
        self, want: Want, table: Table, now_s: float, actions: list[Action]
    ) -> None:
        """Decide that a job grows into a place that is held."""
        entry = want.of
        assert entry.rows is not None
        assert entry.placement is not None
        table[:, compiled.AT_TASK] = want.task
        more = self._ledger.to_placement(table)
        self._growth.withdraw(entry, now_s)
        entry.state = JobState.GROWING
        entry.growing = len(table)
        entry.rows = np.concatenate([entry.rows, table])
        entry.placement += more
        if entry.plan:
            self._note_borrowing(entry, table)
        if self._accounted:
            self._charge(entry, more, 1)
        actions.append(Grow(entry.job.id, more))

    # -- preemption -------------------------------------------------------------------

    def _make_way(self, now_s: float, actions: list[Action]) -> None:
        """Decide to stop running jobs for the first waiting job that deserves it more."""
        order, rule = self.policy.order, self.policy.preemption
        deserving = self._running.deserving(now_s)
        idle = self._ledger.idle()
        heads = self._heads(now_s)
        if self.policy.discipline is not Discipline.SKIP:
            heads = heads[:1]  # nobody else could use the place that is made
        for entry in heads:
            if entry.claims == CLAIMS_MAX or not self._could_make_way(entry, deserving, idle):
                continue
            victims = victims_for(entry, self._running, self._ledger, order, rule, now_s)
            if victims:
                self._stop(victims, entry, now_s, actions)
                return

    def _reclaim(self, now_s: float, actions: list[Action]) -> None:
        """Decide to stop borrowers for the first waiting job with a right to their machines."""
        groups = [g for g in self._queue.entitled() if g.in_vain != self._reclaimable(g)]
        if not groups:
            return
        lent_milli = sum(e.job.request.gpu_milli for e in self._borrowers.values())
        heads = [self._queue.head(group.number, now_s) for group in groups]
        heads.sort(key=lambda e: (e.key[0] + e.key[1] * now_s, e.job.serial))
        for entry in heads:
            if entry.claims == CLAIMS_MAX or not self._could_reclaim(entry, lent_milli):
                continue
            rule = self.policy.preemption
            victims, asked_all = allocators_for(
                entry, self._borrowers, self._ledger, rule, now_s
            )
            if victims:
                self._stop(victims, entry, now_s, actions)
                return
            if asked_all and entry.group is not None:
                entry.group.in_vain = self._reclaimable(entry.group)

    def _reclaimable(self, group: QueueGroup) -> int:
        """Return a count that rises when the group may reclaim what it could not before.

        Borrowers take what is free and give back what is lent, which makes no difference to
        jobs that use machines of these types only.
        """
        lent = self._lent_types
        only = all(part.types and part.types <= lent for part in group.shape.parts)
        return self._returned if only else self._ledger.releases

    def _could_reclaim(self, entry: QueuedJob, lent_milli: int) -> bool:
        """Return whether borrowers hold enough to matter: a first look."""
        free = self._ledger.free
        slots = slice(rows.FREE, rows.FREE + rows.slots_of(free))
        for task, part in zip(entry.job.request.tasks, entry.shape.parts, strict=True):
            may = self._ledger.asks[part.profile, rows.ASK_TYPES] & free[:, rows.TYPES]
            idle = int(np.maximum(free[may != 0, slots], 0).sum())
            if idle + lent_milli < task.least * task.demand.gpu_milli_total:
                return False
        return True

    def _could_make_way(
        self, entry: QueuedJob, deserving: Deserving, idle: tuple[int, int]
    ) -> bool:
        """Return whether all less deserving jobs together hold enough: a first look."""
        rank = self.policy.order.rank(entry.job, entry.ran_s)
        jobs, gpu_milli, cpu_milli = deserving.held_above(rank)
        request = entry.job.request
        return (
            jobs > 0
            and gpu_milli + idle[0] >= request.least_gpu_milli
            and cpu_milli + idle[1] >= request.least_cpu_milli
        )

    def _stop(
        self, victims: list[QueuedJob], entry: QueuedJob, now_s: float, actions: list[Action]
    ) -> None:
        entry.claims += 1
        for victim in victims:
            self._growth.withdraw(victim, now_s)
            victim.state = JobState.STOPPING
            self._stopping += 1
            actions.append(Preempt(victim.job.id, entry.job.id))

    def _heads(self, now_s: float) -> list[QueuedJob]:
        """Return the head of every group, most urgent first."""
        queue = self._queue
        heads = [queue.head(int(n), now_s) for n in queue.active[: queue.actives]]
        heads.sort(key=lambda e: (e.key[0] + e.key[1] * now_s, e.job.serial))
        return heads

    def _action_to_wake(self, now_s: float, actions: list[Action]) -> None:
        """Ask to be woken when a rank rises, or a protection or a stage of a plan ends."""
        moments_s = [self._running.next_rise_s()]
        if self._staging is not None:
            moments_s.append(self._staging.next_s())
        min_run_s = self.policy.preemption.min_run_s
        if min_run_s > 0 and (self._preempts or self._borrowers):
            moments_s.append(self._running.protection_ends_s(now_s, min_run_s))
        wake_s = min((at_s for at_s in moments_s if at_s is not None), default=None)
        if wake_s is not None and wake_s != self._wake_s:
            self._wake_s = wake_s
            actions.append(Wake(wake_s))

    # -- giving up --------------------------------------------------------------------

    def _give_up(self, now_s: float, actions: list[Action]) -> None:
        """Refuse heads that cannot be placed although the whole cluster is idle.

        Whoever would fit if machines had not left waits for others.
        """
        if not all(isinstance(action, Requeue) for action in actions):
            return
        if self._staging is not None and self._staging.next_s() is not None:
            return  # somebody's next stage may do
        for entry in self._heads(now_s):
            if self._view.never(entry.shape) is not None:
                continue
            why = self.explain(entry.job.id, now_s)
            reason = why.reason if why is not None else "The placer found no place."
            self._queue.remove(entry, now_s)
            self._drop_reservation(entry)
            del self._entries[entry.job.id]
            refusal = Refusal(
                Tier.NEVER_FITS,
                f"It does not fit on the idle cluster: {reason}",
                "Ask for less.",
            )
            actions.append(Refuse(entry.job.id, refusal))
            return


def _unsaved_s(job: Job, started_s: float, now_s: float) -> float:
    """Return the progress that an attempt loses with its machine: since its last checkpoint."""
    ran_s = now_s - started_s
    return ran_s % job.checkpoint_s if job.checkpoint_s > 0 else ran_s


def _check_instances(entry: QueuedJob) -> None:
    """Raise if a gang has fewer instances than it needs or more than it asked for."""
    for number, task in enumerate(entry.job.request.tasks):
        held = held_instances(entry, number)
        if not task.least <= held <= task.instances:
            raise CapacityViolated(
                f"Job {entry.job.id} holds {held} instances of {task.role}, which needs "
                f"{task.least} to {task.instances}."
            )
