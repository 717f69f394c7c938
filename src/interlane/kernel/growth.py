"""Elastic gangs: jobs that run with fewer instances than they could use, and wait for more.

What a task lacks waits as if it were a job of its own, in a queue of its own behind all jobs
that wait.  So wants are grouped by shape, kept in the policy's order and placed by the same
compiled code as jobs, and no decision looks at every running job.
"""

from collections.abc import Iterator
from dataclasses import replace

from interlane.kernel.queue import QueuedJob, WaitingJobs
from interlane.kernel.shapes import Domain, Shape
from interlane.kernel.view import LedgerView
from interlane.model import Closeness, Job, Request, Task
from interlane.policy.base import Order, PlanStage, TypeRule
from interlane.tables import AT_INSTANCES, AT_MACHINE, AT_TASK

_TASKS_MAX = 1 << 10
"""Wants of one job come in the order of its tasks; their serials leave room for so many."""


class Want(QueuedJob):
    """What one task of a running job lacks: any number of instances, from 1 to all of them."""

    __slots__ = ("of", "task")

    def __init__(self, of: QueuedJob, task: int, job: Job, shape: Shape) -> None:
        super().__init__(job, shape, (shape,) if of.plan else ())
        self.of = of
        self.task = task
        self.ran_s = of.ran_s


class Growth:
    """Who wants to grow."""

    def __init__(self, order: Order, view: LedgerView, types: TypeRule) -> None:
        self.queue = WaitingJobs(order)
        """The wants of all jobs."""
        self.done_in_epoch = -1
        """The epoch in which all have grown as far as they could."""
        self._view = view
        self._types = types
        self._requests: dict[tuple[Task, int, Closeness], Request] = {}

    def want(self, entry: QueuedJob, now_s: float) -> None:
        """Let a running job wait for whatever it lacks."""
        self.done_in_epoch = -1
        wants = tuple(self._wants(entry))
        for want in wants:
            self.queue.push(want, now_s)
        entry.wants = wants

    def withdraw(self, entry: QueuedJob, now_s: float) -> None:
        """Let a job wait for nothing more."""
        for want in entry.wants:
            self.queue.remove(want, now_s)
        entry.wants = ()

    def _wants(self, entry: QueuedJob) -> Iterator[Want]:
        job, stage, within = entry.job, entry.shape.stage, self._within(entry)
        for number, task in enumerate(job.request.tasks):
            lacking = task.instances - held_instances(entry, number)
            if not task.grows or not lacking:
                continue
            request = self._request(task, lacking, job.request.closeness)
            serial = job.serial * _TASKS_MAX + number
            asks = replace(job, request=request, serial=serial)
            yield Want(entry, number, asks, self._shape(request, stage, within))

    def _within(self, entry: QueuedJob) -> Domain | None:
        """Return the domain that the job must stay in, if so."""
        same = entry.job.request.closeness.same
        if same is None or entry.rows is None:
            return None
        return same, self._view.domain_of(same, int(entry.rows[0, AT_MACHINE]))

    def _request(self, task: Task, lacking: int, closeness: Closeness) -> Request:
        key = task, lacking, closeness
        request = self._requests.get(key)
        if request is None:
            more = replace(task, instances=lacking, instances_min=1)
            # The domain that it must stay in is that of the instances that it has.
            request = Request((more,), replace(closeness, same=None))
            self._requests[key] = request
        return request

    def _shape(self, request: Request, stage: PlanStage | None, within: Domain | None) -> Shape:
        if stage is None and within is None:
            return self._view.shape(request, self._types)
        return self._view.staged_shape(request, self._types, stage, within)


def held_instances(entry: QueuedJob, task: int) -> int:
    """Return how many instances of a task a job holds capacity for."""
    assert entry.rows is not None
    of_task = entry.rows[:, AT_TASK] == task
    return int(entry.rows[of_task, AT_INSTANCES].sum())
