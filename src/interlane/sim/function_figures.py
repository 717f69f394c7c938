"""What came of functions in a simulated run, and what they cost the jobs beside them."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from interlane.metrics.summary import quantile
from interlane.policy.colocate.gpus import LIMIT

HOUR_S: Final = 3_600.0
LATENCY_PERCENTS: Final = (50, 95, 99)
NOBODY: Final = "no training"


def use_class(use: float | None) -> str:
    """Return the class of a job by how busy it keeps a GPU alone."""
    if use is None:
        return NOBODY
    return "light" if use < 0.4 else "medium" if use < 0.75 else "heavy"


@dataclass
class ClassUse:
    """GPUs on which jobs of one class run."""

    gpu_s: float = 0.0
    jobs_s: float = 0.0
    """GPU-seconds that the jobs kept busy."""
    functions_s: float = 0.0
    """GPU-seconds that functions kept busy beside them."""

    @property
    def use(self) -> float:
        """Mean share of these GPUs that was kept busy."""
        return (self.jobs_s + self.functions_s) / max(1e-9, self.gpu_s)


@dataclass
class FunctionFigures:
    """Counts of a run; see ``summary`` for what is told of them."""

    limit: float = LIMIT
    requests: int = 0
    cold: int = 0
    """Requests that waited for a replica to load."""
    missed: int = 0
    """Requests that were not answered by their deadline, or never."""
    loads: int = 0
    evicted: int = 0
    """Replicas that had to go for a job or a promise."""
    replica_s: float = 0.0
    passed_s: float = 0.0
    classes: dict[str, ClassUse] = field(default_factory=dict)
    job_gpu_s: float = 0.0
    """GPU-seconds that jobs ran."""
    job_work_s: float = 0.0
    """GPU-seconds that the same work takes without functions."""
    job_h: float = 0.0
    """Job-hours, each judged by itself; the last of a job may be a part of one."""
    job_h_broken: float = 0.0
    """Those in which the job lost more than its limit."""
    _latency_s: list[float] = field(default_factory=list, repr=False)
    _weight: list[int] = field(default_factory=list, repr=False)
    _hours: dict[int, tuple[float, float]] = field(default_factory=dict, repr=False)
    """Job -> seconds of its running hour, and those of them that it lost."""

    def served(self, latency_s: float, weight: int, *, is_cold: bool, is_late: bool) -> None:
        """Count requests that were answered."""
        self._latency_s.append(latency_s)
        self._weight.append(weight)
        if is_cold:
            self.cold += weight
        if is_late:
            self.missed += weight

    def worked(self, functions_s: float, job_use: float | None) -> None:
        """Count what functions did on a GPU, beside a job of this use or nobody."""
        self._class(job_use).functions_s += functions_s

    def trained(self, number: int, gpus: int, use: float, slowed: float, step_s: float) -> None:
        """Count what a job did in a step."""
        self.job_gpu_s += gpus * step_s
        self.job_work_s += gpus * step_s / slowed
        found = self._class(use)
        found.gpu_s += gpus * step_s
        found.jobs_s += gpus * step_s * use / slowed
        ran_s, lost_s = self._hours.get(number, (0.0, 0.0))
        ran_s, lost_s = ran_s + step_s, lost_s + step_s * (1.0 - 1.0 / slowed)
        self._hours[number] = ran_s, lost_s
        if ran_s >= HOUR_S:
            self.ended(number)

    def ended(self, number: int) -> None:
        """Judge the hour of a job that has passed, or a part of one."""
        ran_s, lost_s = self._hours.pop(number, (0.0, 0.0))
        self.job_h += ran_s / HOUR_S
        if lost_s > self.limit * ran_s:
            self.job_h_broken += ran_s / HOUR_S

    def passed(self, step_s: float, replicas: int, gpus: int) -> None:
        """Count a step of the whole cluster."""
        self.passed_s += step_s
        self.replica_s += replicas * step_s
        self._class(None).gpu_s += gpus * step_s

    def _class(self, use: float | None) -> ClassUse:
        return self.classes.setdefault(use_class(use), ClassUse())

    @property
    def slowdown(self) -> float:
        """Mean slowdown of jobs by functions, over the GPU time that they ran."""
        return self.job_gpu_s / self.job_work_s if self.job_work_s else 1.0

    @property
    def broken(self) -> float:
        """Part of job-hours that lost more than their limit."""
        return self.job_h_broken / max(1e-9, self.job_h)

    @property
    def late(self) -> float:
        """Part of requests that missed their deadline."""
        return self.missed / max(1, self.requests)

    @property
    def use(self) -> float:
        """Mean share of all GPUs that was kept busy."""
        all_s = sum(one.gpu_s for one in self.classes.values())
        used_s = sum(one.jobs_s + one.functions_s for one in self.classes.values())
        return used_s / max(1e-9, all_s)

    def summary(self) -> dict[str, object]:
        """Return what is told of functions."""
        latency_s, weight = np.array(self._latency_s), np.array(self._weight, np.int64)
        functions_s = sum(one.functions_s for one in self.classes.values())
        all_s = sum(one.gpu_s for one in self.classes.values())
        return {
            "requests": self.requests,
            "cold_starts": self.cold,
            **{
                f"p{percent}_latency_s": quantile(latency_s, weight, percent / 100)
                for percent in LATENCY_PERCENTS
            },
            "deadline_misses": self.missed,
            "deadline_miss_ratio": self.late,
            "replica_loads": self.loads,
            "replica_evictions": self.evicted,
            "replica_h": self.replica_s / HOUR_S,
            "best_effort_gpu_h": functions_s / HOUR_S,
            "best_effort_ratio": functions_s / max(1e-9, all_s),
            "job_slowdown_mean": self.slowdown,
            "job_hours_over_limit_ratio": self.broken,
        }
