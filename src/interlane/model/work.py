"""Work: a job is tasks (roles), a task is instances, an instance is one demand.

Nothing here says how long a job really takes.  True lengths live in the simulator's world
only; a policy sees an estimate at most.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from interlane.model.errors import InvalidField, InvalidInput
from interlane.model.ids import JobId
from interlane.model.machine import Label
from interlane.model.units import MILLI


@dataclass(frozen=True, slots=True)
class Demand:
    """What one instance needs, in whole units so that sums stay exact.

    ``gpu_milli`` and ``gpu_memory_mib`` are asked of *each* of the ``gpus``: two GPUs with
    ``gpu_milli=500`` are half of one card and half of another.  Count and share are kept
    apart because "2.5 GPUs" does not say how many cards.
    """

    gpus: int = 0
    gpu_milli: int = MILLI
    gpu_memory_mib: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_types: frozenset[str] = frozenset()
    """GPU types that will do; empty means any."""
    selectors: frozenset[Label] = frozenset()
    """Labels that a machine must have, all of them."""
    tolerations: frozenset[Label] = frozenset()
    """Taints that a machine may have; it may have no others."""

    def __post_init__(self) -> None:
        for field in ("gpus", "gpu_memory_mib", "cpu_milli", "memory_mib"):
            if getattr(self, field) < 0:
                raise InvalidField(field, getattr(self, field), "it must be 0 or more")
        if not 0 < self.gpu_milli <= MILLI:
            raise InvalidField("gpu_milli", self.gpu_milli, f"it must be 1 to {MILLI} per GPU")

    @property
    def gpu_milli_total(self) -> int:
        """GPU share over all the GPUs of one instance."""
        return self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Task:
    """One role of a job: so many instances of one demand.

    A task is a gang: at least ``instances_min`` instances (all, unless said otherwise)
    start in the same moment or none does.  One that started with fewer than all grows later,
    unless it must stay on one machine or is fixed.
    """

    demand: Demand
    instances: int = 1
    instances_min: int | None = None
    same_machine: bool = False
    role: str = "worker"
    is_fixed: bool = False
    """Whether it keeps the instances that it started with."""

    def __post_init__(self) -> None:
        if self.instances < 1:
            raise InvalidField("instances", self.instances, "a task has at least 1")
        least = self.instances_min
        if least is not None and not 1 <= least <= self.instances:
            raise InvalidField("instances_min", least, f"it must be 1 to {self.instances}")

    @property
    def least(self) -> int:
        """Instances without which the task does not start."""
        return self.instances if self.instances_min is None else self.instances_min

    @property
    def grows(self) -> bool:
        """Whether the task may run with fewer instances at first and get more later."""
        return self.least < self.instances and not (self.same_machine or self.is_fixed)


@dataclass(frozen=True, slots=True)
class Closeness:
    """How close to each other the instances of a job, of all its tasks, want to be.

    Each names a level of the cluster's topology, or ``machine``.
    """

    same: str | None = None
    """All in one domain of this level, or the job does not start."""
    pack: str | None = None
    """In as few domains of this level as can be had now."""
    spread: str | None = None
    """Over as many domains of this level as can be had now."""

    def __post_init__(self) -> None:
        if self.pack is not None and self.spread is not None:
            raise InvalidField(
                "spread", self.spread, "pack wants the opposite; name one of them"
            )


ANYWHERE: Final = Closeness()


class Request:
    """What a job asks for: its tasks, comparable and quick to hash.

    Jobs that ask for the same thing share one ``Request``, so that the queue can treat
    them as one shape.
    """

    __slots__ = ("__dict__", "_hash", "closeness", "tasks")

    tasks: tuple[Task, ...]
    closeness: Closeness

    def __init__(self, tasks: tuple[Task, ...], closeness: Closeness = ANYWHERE) -> None:
        if not tasks:
            raise InvalidInput("A job has no tasks; it needs at least one.")
        self.tasks = tasks
        self.closeness = closeness
        self._hash = hash((tasks, closeness))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Request)
            and self.tasks == other.tasks
            and self.closeness == other.closeness
        )

    def __repr__(self) -> str:
        return f"Request({self.tasks!r})"

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    @cached_property
    def instances(self) -> int:
        """Instances over all tasks."""
        return sum(task.instances for task in self.tasks)

    @cached_property
    def is_elastic(self) -> bool:
        """Whether a task may start with fewer instances than it can use."""
        return any(task.least < task.instances for task in self.tasks)

    @cached_property
    def grows(self) -> bool:
        """Whether a task may get more instances after the start."""
        return any(task.grows for task in self.tasks)

    @cached_property
    def least_ratio(self) -> float:
        """Share of its instances without which the job does not start."""
        return sum(task.least for task in self.tasks) / self.instances

    @cached_property
    def least_gpu_milli(self) -> int:
        """GPU share without which the job does not start."""
        return sum(task.least * task.demand.gpu_milli_total for task in self.tasks)

    @cached_property
    def least_cpu_milli(self) -> int:
        """CPU without which the job does not start."""
        return sum(task.least * task.demand.cpu_milli for task in self.tasks)

    @cached_property
    def gpu_milli(self) -> int:
        """GPU share of the whole job."""
        return sum(task.instances * task.demand.gpu_milli_total for task in self.tasks)

    @cached_property
    def cpu_milli(self) -> int:
        """CPU of the whole job."""
        return sum(task.instances * task.demand.cpu_milli for task in self.tasks)


@dataclass(frozen=True, slots=True)
class Job:
    """All that a policy may know of a job before it ends: an estimate, not the truth.

    ``serial`` breaks every tie: the trace's own numbering, or the order of submission.
    """

    id: JobId
    request: Request
    submitted_s: float
    serial: int
    duration_s_estimate: float | None = None
    user: str = ""
    queue: str = ""
    priority: int = 0
    checkpoint_s: float = 0.0
    """Seconds between checkpoints; 0 means that a preempted job loses nothing."""
    program: str = ""
    """What recurs: jobs of one program run the same code."""
    family: str = ""
    """Family of the model, such as ``ctr`` or ``bert``, where it is known."""

    def unsaved_s(self, ran_s: float) -> float:
        """Return how much of an attempt is lost with its machine: since its last checkpoint."""
        return ran_s % self.checkpoint_s if self.checkpoint_s > 0 else ran_s


def one_task(demand: Demand, instances: int = 1) -> Request:
    """Return the request of a job with a single role."""
    return Request((Task(demand, instances),))
