"""What may be asked of a scheduler between two decisions: why a job waits, and behind whom."""

from interlane.kernel import reasons
from interlane.kernel.growth import held_instances
from interlane.kernel.queue import QueuedJob
from interlane.kernel.state import State
from interlane.model import CapacityViolated, JobId, Refusal
from interlane.model.lifecycle import HOLDING, JobState

Urgency = tuple[float, float, int]
"""The share of its account, its key now, and its serial; the smallest goes first."""


class Questions:
    """Answers from the state of the last decision."""

    def __init__(self, state: State) -> None:
        self._state = state

    def explain(self, job_id: JobId, now_s: float) -> Refusal | None:
        """Return why a job waits; None if it does not."""
        state = self._state
        entry = state.entries.get(job_id)
        if entry is None or entry.state is not JobState.QUEUED:
            return None
        refusal = entry.refusal or self._refusal_by_capacity(entry)
        if refusal is not None:
            return refusal
        if state.blocking is not None and state.blocking is not entry:
            return reasons.behind(state.blocking.job.id)
        if state.promise is not None and state.promise.head is not entry:
            head = state.promise.head.job.id
            return reasons.behind(head, reserved_in_s=state.promise.at_s - now_s)
        return reasons.not_yet_considered()

    def _refusal_by_capacity(self, entry: QueuedJob) -> Refusal | None:
        view = self._state.view
        for part in entry.shape.parts:
            view.catch_up(part.profile)
            if view.sums[part.profile] < part.least:
                return view.why_not_now(entry.shape)
        return reasons.scattered(self._state.ledger, entry.shape)

    def ahead(self, job_id: JobId, now_s: float) -> tuple[JobId, ...]:
        """Return the waiting jobs that go before a waiting job, the first of them first."""
        mine = self._urgency(self._state.entry(job_id), now_s)
        return tuple(other for key, other in self._line(now_s) if key < mine)

    def line(self, now_s: float) -> tuple[JobId, ...]:
        """Return all waiting jobs, the first to go first."""
        return tuple(job_id for _, job_id in self._line(now_s))

    def _line(self, now_s: float) -> list[tuple[Urgency, JobId]]:
        waiting = (e for e in self._state.entries.values() if e.state is JobState.QUEUED)
        return sorted((self._urgency(entry, now_s), entry.job.id) for entry in waiting)

    def _urgency(self, entry: QueuedJob, now_s: float) -> Urgency:
        share = self._state.queue.share(self._state.policy.order.account(entry.job))
        value, slope = entry.key
        return share, value + slope * now_s, entry.job.serial

    def check(self) -> None:
        """Raise if the tables do not balance."""
        state = self._state
        state.ledger.check([entry.rows for entry in state.running if entry.rows is not None])
        for entry in state.entries.values():
            holds = entry.state in HOLDING
            if holds != (entry.slot >= 0) or holds != (entry.rows is not None):
                raise CapacityViolated(f"Job {entry.job.id} is {entry.state.value} but its "
                                       f"holdings say otherwise.")  # fmt: skip
            if (entry.state is JobState.QUEUED) != (entry.group is not None):
                raise CapacityViolated(f"Job {entry.job.id} is {entry.state.value} but the "
                                       f"queue says otherwise.")  # fmt: skip
            if holds:
                _check_instances(entry)


def _check_instances(entry: QueuedJob) -> None:
    """Raise if a gang has fewer instances than it needs or more than it asked for."""
    for number, task in enumerate(entry.job.request.tasks):
        held = held_instances(entry, number)
        if not task.least <= held <= task.instances:
            raise CapacityViolated(
                f"Job {entry.job.id} holds {held} instances of {task.role}, which needs "
                f"{task.least} to {task.instances}."
            )
