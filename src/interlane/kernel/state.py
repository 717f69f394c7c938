"""What the phases of a decision share: who waits, who runs, what is free, what is promised.

Tables that must agree with one another are changed together, and only here: a job that waits,
holds a place or gives it back does so in all of them.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from interlane.kernel.growth import Growth
from interlane.kernel.ledger import Ledger
from interlane.kernel.lending import LentTypes
from interlane.kernel.queue import QueuedJob, WaitingJobs
from interlane.kernel.reservation import Reservation
from interlane.kernel.running import Running
from interlane.kernel.staging import Staging
from interlane.kernel.view import LedgerView
from interlane.model import (
    Action,
    Cluster,
    InvalidInput,
    JobId,
    Placement,
    Preempt,
    held_gpu_milli,
)
from interlane.model.lifecycle import JobState
from interlane.policy.place import RulePlacer
from interlane.policy.policy import Discipline, Policy
from interlane.tables import Table


class Phase(Protocol):
    """One step of a decision."""

    def __call__(self, now_s: float, actions: list[Action]) -> None:
        """Look at the state, change it, and add what should be done."""
        ...


class State:
    """All tables of one scheduler."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        order, placer = policy.order, policy.placer
        easy = policy.discipline is Discipline.EASY
        self.policy = policy
        self.ledger = Ledger(cluster)
        self.view = LedgerView(self.ledger)
        self.queue = WaitingJobs(order, notes_shortest=easy)
        self.running = Running(order, expects_ends=easy)
        self.growth = Growth(order, self.view, placer.types)
        plans = placer.plans if isinstance(placer, RulePlacer) else None
        self.staging = None if plans is None else Staging(plans, self.view, placer.types)
        """The stages of jobs, where the placer has plans for them."""
        self.lending = LentTypes(self.ledger, frozenset() if plans is None else plans.lent)
        self.entries: dict[JobId, QueuedJob] = {}
        """Jobs that wait or hold capacity; those that ended are forgotten."""
        self.actions: list[Action] = []
        """What learning found must be done, handed out by the next decision."""
        self.promise: Reservation | None = None
        """What is reserved for the head of the queue under EASY."""
        self.blocking: QueuedJob | None = None
        """The head that a strict queue waits for, as of the last decision."""
        self.stopping = 0
        """Jobs in state STOPPING; while there are any, nobody else is stopped."""
        self.epoch = 0
        """Rises when something became free since the last decision; lifts bars."""
        self._releases_seen = 0
        self._accounted = order.keeps_accounts

    def entry(self, job_id: JobId) -> QueuedJob:
        """Return what is known of a job."""
        entry = self.entries.get(job_id)
        if entry is None:
            raise InvalidInput(
                f"Job {job_id} is not known; it was never submitted or has ended."
            )
        return entry

    def begin_round(self) -> list[Action]:
        """Begin a decision; return what learning found must be done."""
        if self._releases_seen != self.ledger.releases:
            self._releases_seen = self.ledger.releases
            self.epoch += 1
        actions, self.actions = self.actions, []
        return actions

    def enqueue(self, entry: QueuedJob, now_s: float) -> None:
        """Let a job wait, in the stage of its plan that it is in."""
        self.queue.push(entry, now_s)
        if self.staging is not None:
            self.staging.enter(entry, now_s)

    def dequeue(self, entry: QueuedJob, now_s: float) -> None:
        """Let a job wait no longer; what was promised to it is promised no more."""
        self.queue.remove(entry, now_s)
        if self.promise is not None and self.promise.head is entry:
            self.promise = None

    def hold(
        self, entry: QueuedJob, placement: Placement, table: Table, since_s: float
    ) -> None:
        """Note that a job that starts, or was found running, has what the ledger holds."""
        entry.state = JobState.STARTING
        entry.refusal = None
        entry.claims = 0
        entry.rows = table
        entry.placement = placement
        entry.started_s = since_s
        self.running.add(entry)
        if entry.plan:
            self.lending.note(entry, table)
        if self._accounted:
            self._charge(entry, placement, 1)

    def hold_more(self, entry: QueuedJob, more: Placement, table: Table) -> None:
        """Note that a running job grows by what the ledger holds for it."""
        assert entry.rows is not None
        assert entry.placement is not None
        entry.state = JobState.GROWING
        entry.growing = len(table)
        entry.rows = np.concatenate([entry.rows, table])
        self.running.note_rows(entry)
        entry.placement += more
        if entry.plan:
            self.lending.note(entry, table)
        if self._accounted:
            self._charge(entry, more, 1)

    def release_growth(self, entry: QueuedJob) -> None:
        """Give back what a running job should have grown by."""
        assert entry.rows is not None
        assert entry.placement is not None
        kept = len(entry.rows) - entry.growing
        more = Placement(entry.placement.spots[kept:])
        self.ledger.release(entry.rows[kept:])
        entry.rows = entry.rows[:kept]
        self.running.note_rows(entry)
        entry.placement = Placement(entry.placement.spots[:kept])
        entry.growing = 0
        self.promise = None
        if self._accounted:
            self._charge(entry, more, -1)
        self.lending.note_shrunk(entry, entry.rows)

    def release(self, entry: QueuedJob, now_s: float) -> None:
        """Give back all that a job holds."""
        placement = entry.placement
        assert placement is not None
        assert entry.rows is not None
        if self.promise is not None and self.promise.improves_when(entry, now_s):
            self.promise = None
        if entry.state is JobState.STOPPING:
            self.stopping -= 1
        if self.lending.types:
            self.lending.note_released(entry, entry.rows)
        if entry.wants:
            self.growth.withdraw(entry, now_s)
        self.ledger.release(entry.rows)
        self.running.remove(entry)
        entry.rows = None
        entry.placement = None
        entry.growing = 0
        if self._accounted:
            self._charge(entry, placement, -1)

    def _charge(self, entry: QueuedJob, placement: Placement, sign: int) -> None:
        """Charge what a job holds to its account (1), or take it off (-1)."""
        account = self.policy.order.account(entry.job)
        gpu_milli = sign * held_gpu_milli(entry.job.request, placement)
        self.queue.charge(account, gpu_milli)
        self.growth.queue.charge(account, gpu_milli)

    def stop(
        self,
        victims: Iterable[QueuedJob],
        entry: QueuedJob,
        now_s: float,
        actions: list[Action],
    ) -> None:
        """Have running jobs stopped so that a waiting one may run."""
        entry.claims += 1
        for victim in victims:
            self.growth.withdraw(victim, now_s)
            victim.state = JobState.STOPPING
            self.stopping += 1
            actions.append(Preempt(victim.job.id, entry.job.id))
