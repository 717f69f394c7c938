"""Which tasks are worth a strong GPU: a model of how much of one they will use.

PAI sorts tasks by a predicted computation efficiency, from their parallelism, their model and
earlier runs ("MLaaS in the Wild", NSDI 2022, section 6.1).  Here that is the share of a GPU
that each instance is expected to use.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from interlane.model import MILLI, Job, Request

CPU_BOUND: Final = frozenset({"ctr", "graphlearn", "rl"})
"""Families that spend most of their time on CPUs (section 6.2)."""

CPU_BOUND_PART: Final = 0.1
"""The part of the GPU asked for that those use; three in four use less than a tenth."""

_Key = TypeVar("_Key")

HISTORY_COUNTS: Final = 2.0
"""Earlier runs from which a program counts for more than what it is like."""


class PerformanceModel(Protocol):
    """Says how much of a GPU a job will use."""

    def gpu_use(self, job: Job) -> float:
        """Return the share of a GPU that each instance is expected to use, 0 to 1."""
        ...


@dataclass(frozen=True, slots=True)
class AsAsked:
    """Expect what is asked for, and little of that from families that wait for CPUs."""

    def gpu_use(self, job: Job) -> float:
        """Return the largest share asked of a GPU."""
        return asked_share(job.request) * (CPU_BOUND_PART if job.family in CPU_BOUND else 1.0)


@dataclass(frozen=True, slots=True)
class PastRun:
    """What was measured of one earlier job."""

    program: str
    family: str
    instances: int
    asked: float
    """Share of a GPU that each instance asked for."""
    used: float
    """Share of a GPU that each instance used."""


Kind = tuple[str, int, int]
"""Family, band of parallelism, band of the share asked for."""


@dataclass(frozen=True, slots=True)
class FromHistory:
    """Expect what earlier runs used: of the same program, else of jobs of the same kind.

    A program's mean is drawn towards that of its kind as long as it has few runs, and a
    kind's towards the mean of all.
    """

    by_program: Mapping[str, tuple[float, float]]
    """Program -> sum of what was used, and runs."""
    by_kind: Mapping[Kind, tuple[float, float]]
    overall: float

    @staticmethod
    def fit(runs: Iterable[PastRun]) -> "FromHistory":
        """Return the model of these runs."""
        programs: dict[str, tuple[float, float]] = {}
        kinds: dict[Kind, tuple[float, float]] = {}
        total, count = 0.0, 0
        for run in runs:
            if run.program:
                _add(programs, run.program, run.used)
            _add(kinds, kind_of(run.family, run.instances, run.asked), run.used)
            total, count = total + run.used, count + 1
        overall = total / count if count else 0.0
        return FromHistory(MappingProxyType(programs), MappingProxyType(kinds), overall)

    def gpu_use(self, job: Job) -> float:
        """Return the mean of what is known, nearest first."""
        asked = asked_share(job.request)
        if not asked:
            return 0.0
        kind = kind_of(job.family, job.request.instances, asked)
        alike = _drawn(self.by_kind.get(kind), self.overall)
        return _drawn(self.by_program.get(job.program), alike)


def asked_share(request: Request) -> float:
    """Return the largest share that a task asks of each GPU; 0 without any."""
    return max(
        (task.demand.gpu_milli / MILLI for task in request.tasks if task.demand.gpus),
        default=0.0,
    )


def kind_of(family: str, instances: int, asked: float) -> Kind:
    """Return the kind of a job: family, and parallelism and share asked for in bands."""
    return family, min(instances.bit_length(), 8), round(asked * 4)


def _add(sums: dict[_Key, tuple[float, float]], key: _Key, used: float) -> None:
    total, count = sums.get(key, (0.0, 0.0))
    sums[key] = total + used, count + 1.0


def _drawn(known: tuple[float, float] | None, towards: float) -> float:
    total, count = known or (0.0, 0.0)
    return (total + HISTORY_COUNTS * towards) / (count + HISTORY_COUNTS)
