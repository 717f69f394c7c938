"""The phase of plans: jobs whose stage is over try the next, and what was lent is reclaimed."""

import numpy as np

from interlane.kernel.queue import QueuedJob
from interlane.kernel.staging import Staging
from interlane.kernel.state import Phase, State
from interlane.kernel.victims import CLAIMS_MAX, allocators_for
from interlane.model import Action
from interlane.tables import ASK_TYPES, FREE, TYPES
from interlane.tables.compiled import slots_of


class FollowPlans:
    """Leads waiting jobs through the stages of their plans."""

    def __init__(self, state: State, staging: Staging, walk: Phase) -> None:
        self._state = state
        self._staging = staging
        self._walk = walk

    def __call__(self, now_s: float, actions: list[Action]) -> None:
        """Let jobs whose stage is over try the next one, and cancel what was lent."""
        state = self._state
        while over := self._staging.due(now_s):
            for entry in over:
                state.dequeue(entry, now_s)
                entry.stage += 1
                entry.shape = entry.plan[entry.stage]
                entry.refusal = None
                state.enqueue(entry, now_s)
            self._walk(now_s, actions)
        if state.lending.borrowers and not state.stopping:
            self._reclaim(now_s, actions)

    def _reclaim(self, now_s: float, actions: list[Action]) -> None:
        """Stop borrowers for the first waiting job with a right to their machines."""
        state, lending = self._state, self._state.lending
        groups = [g for g in state.queue.entitled() if g.in_vain != lending.reclaimable(g)]
        if not groups:
            return
        lent_milli = sum(e.job.request.gpu_milli for e in lending.borrowers.values())
        for entry in state.queue.heads(now_s, [group.number for group in groups]):
            if entry.claims == CLAIMS_MAX or not self._could_reclaim(entry, lent_milli):
                continue
            rule = state.policy.preemption
            victims, all_asked = allocators_for(
                entry, lending.borrowers, state.ledger, rule, now_s
            )
            if victims:
                state.stop(victims, entry, now_s, actions)
                return
            if all_asked and entry.group is not None:
                entry.group.in_vain = lending.reclaimable(entry.group)

    def _could_reclaim(self, entry: QueuedJob, lent_milli: int) -> bool:
        """Return whether borrowers hold enough to matter: a first look."""
        ledger = self._state.ledger
        free = ledger.free
        slots = slice(FREE, FREE + slots_of(free))
        for task, part in zip(entry.job.request.tasks, entry.shape.parts, strict=True):
            may = ledger.asks[part.profile, ASK_TYPES] & free[:, TYPES]
            idle = int(np.maximum(free[may != 0, slots], 0).sum())
            if idle + lent_milli < task.least * task.demand.gpu_milli_total:
                return False
        return True
