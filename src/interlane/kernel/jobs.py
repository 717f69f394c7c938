"""What becomes of jobs: the events of a job's life, taken into the state one by one.

Capacity is held when ``Start`` is decided, confirmed by ``Started`` and given back by
``StartFailed``, ``Finished``, ``Preempted``, ``Cancelled`` or the end of a machine, which
``Requeue`` tells (see ``machines``).  An elastic job may hold more from ``Grow`` on, which
``Grown`` confirms and ``GrowFailed`` gives back.
"""

from collections.abc import Callable

from interlane.kernel import reasons
from interlane.kernel.queue import QueuedJob
from interlane.kernel.shapes import Shape
from interlane.kernel.state import State
from interlane.model import (
    Cancelled,
    Event,
    Finished,
    GrowFailed,
    Grown,
    IllegalTransition,
    Job,
    Placement,
    Preempted,
    Recovered,
    Refuse,
    Requeue,
    Started,
    StartFailed,
    Submitted,
)
from interlane.model.lifecycle import JobState, advance


class Jobs:
    """Takes the events of jobs into the state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._entries = state.entries
        self._shapes = state.view.shapes(state.policy.placer.types)
        self.learn: dict[type[Event], Callable[..., None]] = {
            Submitted: self._submitted,
            Recovered: self._recovered,
            Started: self._started,
            StartFailed: self._start_failed,
            Grown: self._grown,
            GrowFailed: self._grow_failed,
            Preempted: self._preempted,
            Finished: self._finished,
            Cancelled: self._cancelled,
        }
        """What to do about each kind of event."""

    # -- jobs that are new here -------------------------------------------------------

    def _submitted(self, event: Submitted, now_s: float) -> None:
        self._line_up(event.job, 0.0, now_s)

    def _recovered(self, event: Recovered, now_s: float) -> None:
        if event.placement is None:
            self._line_up(event.job, event.ran_s, now_s)
        else:
            self._hold_again(event, event.placement, now_s)

    def _line_up(self, job: Job, ran_s: float, now_s: float) -> None:
        """Let a job wait, unless it can never run."""
        shape, state = self._shape_of_new(job), self._state
        if shape.generation != state.ledger.generation:
            state.view.never(shape)
        if shape.never is not None:
            state.actions.append(Refuse(job.id, shape.never))
            return
        self._accept(job, shape, ran_s, now_s)

    def _accept(self, job: Job, shape: Shape, ran_s: float, now_s: float) -> None:
        """Let a job wait."""
        state = self._state
        state.view.make_room_for(shape)
        plan = () if state.staging is None else state.staging.shapes(job)
        entry = self._entries[job.id] = QueuedJob(job, plan[0] if plan else shape, plan)
        entry.ran_s = ran_s
        state.enqueue(entry, now_s)
        if state.promise is not None and entry.group is not None:
            state.queue.bar(entry.group.number, -1)

    def _hold_again(self, event: Recovered, placement: Placement, now_s: float) -> None:
        """Hold what a job has that runs already, or let it wait.

        Nobody knows any more in which stage of its plan it started, so that what it borrowed
        counts as its own.
        """
        job, state = event.job, self._state
        shape = self._shape_of_new(job)
        plan = () if state.staging is None else state.staging.shapes(job)
        entry = QueuedJob(job, shape, plan)
        entry.ran_s = event.ran_s
        types = state.policy.placer.types
        fits = reasons.covers(state.ledger, job.request, placement, types)
        table = state.ledger.to_rows(placement, shape.profiles) if fits else None
        if table is None or not state.ledger.hold_again(table):
            self._wait_for_another(event, placement, shape, now_s)
            return
        self._entries[job.id] = entry
        state.hold(entry, placement, table, event.started_s)
        entry.state = JobState.GROWING if event.growing else JobState.RUNNING
        entry.growing = event.growing
        if entry.shape.grows and not event.growing:
            state.growth.want(entry, now_s)

    def _wait_for_another(
        self, event: Recovered, placement: Placement, shape: Shape, now_s: float
    ) -> None:
        """Let a job wait that ran where there is no place for it any more."""
        job, state = event.job, self._state
        gone = [one for one in placement.machines if not state.ledger.knows(one)]
        what = "is not there" if gone else "has no such room"
        why = f"The job ran on {', '.join(gone or placement.machines)}, which {what} any more."
        ran_s = now_s - event.started_s
        lost_s = job.unsaved_s(ran_s)
        kept_s = ran_s - (0.0 if state.policy.order.counts_lost_work else lost_s)
        self._accept(job, shape, event.ran_s + kept_s, now_s)
        state.actions.append(Requeue(job.id, why, lost_s))

    def _shape_of_new(self, job: Job) -> Shape:
        if job.id in self._entries:
            state = self._entries[job.id].state
            raise IllegalTransition(f"Job {job.id}", state.value, "Submitted")
        shape = self._shapes.get(job.request)
        if shape is None:
            shape = self._state.view.shape(job.request, self._state.policy.placer.types)
        return shape

    # -- jobs that are known ----------------------------------------------------------

    def _started(self, event: Started, now_s: float) -> None:
        entry = self._entries.get(event.job_id) or self._state.entry(event.job_id)
        if entry.state is JobState.STARTING:  # by far the most frequent event
            entry.state = JobState.RUNNING
            if entry.shape.grows:
                self._state.growth.want(entry, now_s)
        else:
            entry.state = advance(event.job_id, entry.state, Started)

    def _start_failed(self, event: StartFailed, now_s: float) -> None:
        entry = self._state.entry(event.job_id)
        self._back_to_queue(entry, StartFailed, now_s, kept_s=0.0)

    def _grown(self, event: Grown, now_s: float) -> None:
        entry = self._state.entry(event.job_id)
        entry.state = advance(event.job_id, entry.state, Grown)
        self._state.running.note_growth(entry, now_s)
        entry.growing = 0
        self._state.growth.want(entry, now_s)

    def _grow_failed(self, event: GrowFailed, now_s: float) -> None:
        entry = self._state.entry(event.job_id)
        entry.state = advance(event.job_id, entry.state, GrowFailed)
        self._state.release_growth(entry)
        self._state.growth.want(entry, now_s)

    def _preempted(self, event: Preempted, now_s: float) -> None:
        entry = self._state.entry(event.job_id)
        kept_s = max(0.0, now_s - entry.started_s - event.work_lost_s)
        self._back_to_queue(entry, Preempted, now_s, kept_s=kept_s)

    def _finished(self, event: Finished, now_s: float) -> None:
        job_id = event.job_id
        entry = self._entries.get(job_id) or self._state.entry(job_id)
        if entry.state is not JobState.RUNNING:
            advance(job_id, entry.state, Finished)
        self._state.release(entry, now_s)
        del self._entries[job_id]

    def _cancelled(self, event: Cancelled, now_s: float) -> None:
        state = self._state
        entry = state.entry(event.job_id)
        advance(event.job_id, entry.state, Cancelled)
        if entry.state is JobState.QUEUED:
            state.dequeue(entry, now_s)
            if state.growth.queue:
                state.epoch += 1  # what was kept for it may be grown into
        else:
            state.release(entry, now_s)
        del self._entries[event.job_id]

    def requeue(self, entry: QueuedJob, event: type[Event], why: str, now_s: float) -> None:
        """Let a job wait again whose place is gone, with the progress that it saved."""
        ran_s = now_s - entry.started_s
        lost_s = entry.job.unsaved_s(ran_s)
        self._back_to_queue(entry, event, now_s, kept_s=ran_s - lost_s)
        self._state.actions.append(Requeue(entry.job.id, why, lost_s))

    def _back_to_queue(
        self, entry: QueuedJob, event: type[Event], now_s: float, *, kept_s: float
    ) -> None:
        state = advance(entry.job.id, entry.state, event)
        self._state.release(entry, now_s)
        entry.state = state
        if self._state.policy.order.counts_lost_work and event is not StartFailed:
            kept_s = now_s - entry.started_s
        entry.ran_s += kept_s
        if entry.plan:
            entry.stage, entry.shape = 0, entry.plan[0]
        self._state.enqueue(entry, now_s)
