"""Plans in the kernel: which stage a waiting job is in, and when its next one begins.

A job in a stage is a job of another shape, so it waits in another group and the rule that jobs
of one group all fit or none does still holds.  Only those are put on the list of time-outs
that are still waiting after a decision: most jobs start at once.
"""

from heapq import heappop, heappush
from math import inf

from interlane.kernel.queue import QueuedJob
from interlane.kernel.shapes import Shape
from interlane.kernel.view import LedgerView
from interlane.model import Job, Request
from interlane.policy.base import Plans, PlanStage, TypeRule


class Staging:
    """The plans of waiting jobs."""

    def __init__(self, plans: Plans, view: LedgerView, types: TypeRule) -> None:
        self._plans = plans
        self.lent = plans.lent
        """Types of machines that any stage borrows."""
        self._view = view
        self._types = types
        self._shapes: dict[tuple[Request, tuple[PlanStage, ...]], tuple[Shape, ...]] = {}
        self._new: list[tuple[float, int, QueuedJob]] = []
        """(due, ticket, job) of those that entered a stage since the last decision."""
        self._due: list[tuple[float, int, QueuedJob]] = []
        """The same of those that went on waiting, by time; void once the ticket is another."""

    def shapes(self, job: Job) -> tuple[Shape, ...]:
        """Return what the job is in each stage of its plan; stages in vain are left out."""
        key = job.request, self._plans.stages(job)
        shapes = self._shapes.get(key)
        if shapes is None:
            every = [self._view.staged_shape(key[0], self._types, one) for one in key[1]]
            shapes = tuple(shape for shape in every if self._view.never(shape) is None)
            self._shapes[key] = shapes
            for shape in shapes:
                shape.reclaims = self._has_a_right(shape)
        return shapes

    def forget_shapes(self) -> None:
        """Make plans anew: the machines are others, and so are the stages in vain."""
        self._shapes.clear()

    def _has_a_right(self, shape: Shape) -> bool:
        """Return whether the shape may use a machine that is only lent to others."""
        if shape.stage is None or shape.stage.lent:
            return False
        lent = self.lent
        return bool(lent) and any(not part.types or part.types & lent for part in shape.parts)

    def enter(self, entry: QueuedJob, now_s: float) -> None:
        """Note that a job has begun to wait in its stage; the last one has no end."""
        stage = entry.shape.stage
        if stage is not None and stage.timeout_s < inf and entry.stage + 1 < len(entry.plan):
            self._new.append((now_s + stage.timeout_s, entry.ticket, entry))

    def due(self, now_s: float) -> list[QueuedJob]:
        """Return the jobs that were looked at and whose stage is over, in order."""
        for item in self._new:
            if _waits(item):
                heappush(self._due, item)
        self._new.clear()
        over: list[QueuedJob] = []
        while self._due and (self._due[0][0] <= now_s or not _waits(self._due[0])):
            item = heappop(self._due)
            if _waits(item):
                over.append(item[2])
        return over

    def next_s(self) -> float | None:
        """Return when the next stage ends."""
        return self._due[0][0] if self._due else None


def _waits(item: tuple[float, int, QueuedJob]) -> bool:
    entry = item[2]
    return entry.group is not None and entry.ticket == item[1]
