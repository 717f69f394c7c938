"""Who goes first."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from interlane.model import MILLI, Demand, InvalidField, Job, JobId, one_task
from interlane.policy.base import Key, Order

NO_ESTIMATE_S: Final = 1e15
"""Jobs without an estimate go last where estimates decide; far beyond any run time."""

_LEVEL_STEP: Final = 1e12
"""Keeps levels apart from submission times inside one number."""


def estimate_s(job: Job) -> float:
    """Return the estimated length, or one beyond all others."""
    return NO_ESTIMATE_S if job.duration_s_estimate is None else job.duration_s_estimate


def counts_priority(order: Order) -> bool:
    """Tell whether jobs go in another order if their priorities differ, and nothing else."""
    low, high = (
        Job(JobId("any"), one_task(Demand(gpus=1)), 0.0, 0, 1.0, priority=priority)
        for priority in (0, 1)
    )
    return order.key(low, 0.0) != order.key(high, 0.0)


class _Plain:
    """The answers of an order that neither preempts nor keeps accounts."""

    __slots__ = ()

    @property
    def preempts(self) -> bool:
        """Never."""
        return False

    @property
    def keeps_accounts(self) -> bool:
        """Never."""
        return False

    @property
    def counts_lost_work(self) -> bool:
        """Only progress counts."""
        return False

    def rank(self, job: Job, ran_s: float) -> float:
        """All jobs are equal once they run."""
        return 0.0

    @property
    def rank_slope(self) -> float:
        """Running changes nothing."""
        return 0.0

    def rank_rises_after_s(self, job: Job, ran_s: float) -> float | None:
        """Never."""
        return None

    def account(self, job: Job) -> str:
        """Nobody counts."""
        return ""

    def share(self, account: str, gpu_milli_running: int) -> float:
        """Nobody counts."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Fifo(_Plain):
    """First come, first served."""

    def key(self, job: Job, ran_s: float) -> Key:
        """Order by time of submission."""
        return (job.submitted_s, 0.0)


@dataclass(frozen=True, slots=True)
class ShortestFirst(_Plain):
    """Shortest estimate first ("MLaaS in the Wild", section 6.1); long jobs may starve."""

    def key(self, job: Job, ran_s: float) -> Key:
        """Order by the estimated length."""
        return (estimate_s(job), 0.0)


@dataclass(frozen=True, slots=True)
class ShortestFirstWithAgeing(_Plain):
    """Shortest estimate first, but ``patience`` seconds of waiting are worth one of length.

    Nobody who comes later than ``patience`` times a job's own estimate can go before it, so
    that a long job's turn comes.
    """

    patience: float = 10.0

    def __post_init__(self) -> None:
        if self.patience <= 0:
            raise InvalidField("patience", self.patience, "it must be above 0")

    def key(self, job: Job, ran_s: float) -> Key:
        """Order by estimate less age; all age alike, so their order is fixed."""
        return (estimate_s(job) + job.submitted_s / self.patience, 0.0)


@dataclass(frozen=True, slots=True)
class ShortestRemainingFirst(_Plain):
    """Shortest remaining estimate first; a shorter newcomer takes a running job's place."""

    @property
    def preempts(self) -> bool:
        """Always."""
        return True

    @property
    def rank_slope(self) -> float:
        """Every second that a job runs is one second less to go."""
        return -1.0

    def key(self, job: Job, ran_s: float) -> Key:
        """Order by what is left of the estimate."""
        return (max(0.0, estimate_s(job) - ran_s), 0.0)

    def rank(self, job: Job, ran_s: float) -> float:
        """Rank by what is left of the estimate; a job past its estimate is never stopped."""
        return max(0.0, estimate_s(job) - ran_s)


@dataclass(frozen=True, slots=True)
class LeastAttainedService(_Plain):
    """Least GPU time received first, in discrete levels (Tiresias' 2D-LAS).

    A job falls one level each time its GPUs x seconds pass the next of ``levels_gpu_s``;
    within a level it is first come, first served.  Levels only ever fall, so that a job is
    stopped at most once a level.
    """

    levels_gpu_s: tuple[float, ...] = (3_250.0, 32_500.0, 325_000.0)

    def __post_init__(self) -> None:
        if any(
            b <= a for a, b in zip((0.0, *self.levels_gpu_s), self.levels_gpu_s, strict=False)
        ):
            raise InvalidField("levels_gpu_s", self.levels_gpu_s, "they must rise from above 0")

    @property
    def preempts(self) -> bool:
        """Always."""
        return True

    @property
    def counts_lost_work(self) -> bool:
        """Service received is received, whatever came of it."""
        return True

    def key(self, job: Job, ran_s: float) -> Key:
        """Order by level, then by time of submission."""
        return (self.rank(job, ran_s) * _LEVEL_STEP + job.submitted_s, 0.0)

    def rank(self, job: Job, ran_s: float) -> float:
        """Rank by level."""
        service_gpu_s = _gpus(job) * ran_s
        return float(sum(service_gpu_s >= level for level in self.levels_gpu_s))

    def rank_rises_after_s(self, job: Job, ran_s: float) -> float | None:
        """Return when the next level is reached."""
        gpus = _gpus(job)
        for level in self.levels_gpu_s:
            if gpus * ran_s < level:
                return (level - gpus * ran_s) / gpus
        return None


def _gpus(job: Job) -> float:
    """Return the GPUs that count as service; work without GPUs counts a little."""
    return max(job.request.gpu_milli / MILLI, 0.01)


@dataclass(frozen=True, slots=True)
class HighestResponseRatio(_Plain):
    """Longest wait relative to the estimated length first (HRRN): short first, none starve."""

    def key(self, job: Job, ran_s: float) -> Key:
        """Order by waiting time over estimated length, which grows while the job waits."""
        length_s = max(estimate_s(job), 1.0)
        return (job.submitted_s / length_s, -1.0 / length_s)


@dataclass(frozen=True, slots=True)
class PriorityWithAgeing(_Plain):
    """Highest priority first; ``age_s`` seconds of waiting are worth one step of priority.

    Only the priority itself stops running jobs, never age: otherwise the stopped job would
    age in turn and take its place back, for ever.
    """

    age_s: float = 3_600.0
    preemptive: bool = False

    def __post_init__(self) -> None:
        if self.age_s <= 0:
            raise InvalidField("age_s", self.age_s, "it must be above 0")

    @property
    def preempts(self) -> bool:
        """As set."""
        return self.preemptive

    def key(self, job: Job, ran_s: float) -> Key:
        """Order by priority, raised by age; all age alike, so their order is fixed."""
        return (job.submitted_s / self.age_s - job.priority, 0.0)

    def rank(self, job: Job, ran_s: float) -> float:
        """Rank by priority alone."""
        return -float(job.priority)


@dataclass(frozen=True, slots=True)
class FairShare(_Plain):
    """The account with the least running GPUs for its weight first, then by submission."""

    by: str = "user"
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.by not in ("user", "queue"):
            raise InvalidField("by", self.by, "it must be 'user' or 'queue'")
        for name, weight in self.weights.items():
            if weight <= 0:
                raise InvalidField(f"weight of {name}", weight, "it must be above 0")

    def key(self, job: Job, ran_s: float) -> Key:
        """Order by time of submission within an account."""
        return (job.submitted_s, 0.0)

    @property
    def keeps_accounts(self) -> bool:
        """Always."""
        return True

    def account(self, job: Job) -> str:
        """Charge the user or the queue."""
        return job.user if self.by == "user" else job.queue

    def share(self, account: str, gpu_milli_running: int) -> float:
        """Return running GPU share over weight."""
        return gpu_milli_running / self.weights.get(account, 1.0)
