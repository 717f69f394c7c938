"""The phase of preemption: running jobs make way for a waiting one that deserves it more."""

from interlane.kernel.queue import QueuedJob
from interlane.kernel.running import Deserving
from interlane.kernel.state import State
from interlane.kernel.victims import CLAIMS_MAX, victims_for
from interlane.kernel.waking import Waking
from interlane.model import Action
from interlane.policy.policy import Discipline


class PreemptPhase:
    """Stops the running jobs that lose the least, for the first job that may take a place."""

    def __init__(self, state: State, waking: Waking) -> None:
        self._state = state
        self._waking = waking

    def __call__(self, now_s: float, actions: list[Action]) -> None:
        """Make way, unless others are being stopped already."""
        if self._state.queue and not self._state.stopping:
            self._make_way(now_s, actions)
            self._waking(now_s, actions)

    def _make_way(self, now_s: float, actions: list[Action]) -> None:
        state, order = self._state, self._state.policy.order
        deserving = state.running.deserving(now_s)
        idle = state.ledger.idle()
        heads = state.queue.heads(now_s)
        if state.policy.discipline is not Discipline.SKIP:
            heads = heads[:1]  # nobody else could use the place that is made
        for entry in heads:
            if entry.claims == CLAIMS_MAX or not self._could_make_way(entry, deserving, idle):
                continue
            rule = state.policy.preemption
            victims = victims_for(entry, state.running, state.ledger, order, rule, now_s)
            if victims:
                state.stop(victims, entry, now_s, actions)
                return

    def _could_make_way(
        self, entry: QueuedJob, deserving: Deserving, idle: tuple[int, int]
    ) -> bool:
        """Return whether all less deserving jobs together hold enough: a first look."""
        rank = self._state.policy.order.rank(entry.job, entry.ran_s)
        jobs, gpu_milli, cpu_milli = deserving.held_above(rank)
        request = entry.job.request
        return (
            jobs > 0
            and gpu_milli + idle[0] >= request.least_gpu_milli
            and cpu_milli + idle[1] >= request.least_cpu_milli
        )
