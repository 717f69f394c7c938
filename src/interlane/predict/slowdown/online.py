"""Keep a table true while co-runs are measured.

Every measurement does three things.  Its cell moves.  What it was off by moves all cells of the
same victim and the same aggressor: recursive least squares on each workload's sensitivity and
pressure, which learns as much from few co-runs as fitting everything anew.  And a miss of the
bound counts towards an alarm (CUSUM): when misses come faster than promised, or enough was
learned, ``is_due`` asks for a refit of the model, which is slow and happens elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from interlane.predict.slowdown.bounds import ALPHA
from interlane.predict.slowdown.pairs import Floats
from interlane.predict.slowdown.table import SlowdownTable

REMEMBERED: Final = 0.9995
"""What is left of a sensitivity or pressure with every further measurement."""
PRIOR: Final = 0.05
"""Standard deviation of a sensitivity or pressure before anything was measured."""
OFF: Final = 0.1
"""Standard deviation of what sensitivity and pressure do not explain."""
REFIT_AFTER: Final = 200
"""New measurements after which a refit is due."""


@dataclass
class Residuals:
    """Sensitivity and pressure of every workload on one GPU type, learned one by one."""

    workloads: int
    remembered: float = REMEMBERED
    effects: Floats = field(init=False)
    covariance: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.effects = np.zeros(2 * self.workloads)
        self.covariance = PRIOR**2 * np.eye(2 * self.workloads)

    def learn(self, victim: int, aggressor: int, off: float) -> None:
        """Take one measurement in: by how much the model's estimate was off."""
        both = [victim, self.workloads + aggressor]
        towards = self.covariance[:, both].sum(1)
        gain = towards / (OFF**2 + towards[both].sum())
        self.effects += gain * (off - self.effects[both].sum())
        self.covariance -= np.outer(gain, towards)
        # What is not measured goes back to where it began, and is as uncertain as then.
        self.effects *= self.remembered
        self.covariance *= self.remembered**2
        self.covariance[np.diag_indices_from(self.covariance)] += (
            1.0 - self.remembered**2
        ) * PRIOR**2

    def take_over(self, old: "Residuals", stay: Sequence[int]) -> None:
        """Begin with what was known of the first of these workloads, by their old places."""
        here = [*range(len(stay)), *range(self.workloads, self.workloads + len(stay))]
        there = [*stay, *(old.workloads + one for one in stay)]
        self.effects[here] = old.effects[there]
        self.covariance[np.ix_(here, here)] = old.covariance[np.ix_(there, there)]

    @property
    def shift(self) -> Floats:
        """What to add to every estimate, victim x aggressor."""
        return self.effects[: self.workloads, None] + self.effects[self.workloads :]


@dataclass
class Alarm:
    """Rises when bounds are missed more often than promised."""

    promised: float = ALPHA
    slack: float = 0.1
    limit: float = 4.0
    level: float = 0.0

    def learn(self, *, missed: bool) -> None:
        """Count one measurement."""
        self.level = max(0.0, self.level + missed - self.promised - self.slack)

    @property
    def rings(self) -> bool:
        """Whether the model no longer describes what is measured."""
        return self.level > self.limit


@dataclass
class Online:
    """A table, and all that keeps it true."""

    table: SlowdownTable
    alarm: Alarm = field(default_factory=Alarm)
    residuals: list[Residuals] = field(init=False)
    since_fit: int = 0

    def __post_init__(self) -> None:
        gpus = len(self.table.profiles.gpu_types)
        self.residuals = [Residuals(len(self.table.profiles)) for _ in range(gpus)]

    def learn(
        self, gpu: int, victim: int, aggressor: int, throughput: float, now_s: float
    ) -> bool:
        """Take a measured co-run in; tell whether it kept the bound.

        Nothing is learned of what the table has no cell for, or from what is no ratio.
        """
        if min(gpu, victim, aggressor) < 0 or not (np.isfinite(throughput) and throughput > 0):
            return True
        table = self.table
        kept = bool(throughput >= table.lower[gpu, victim, aggressor])
        self.alarm.learn(missed=not kept)
        off = np.log(throughput) - table.prior[gpu, victim, aggressor]
        self.residuals[gpu].learn(victim, aggressor, float(off))
        table.shift[gpu] = self.residuals[gpu].shift
        table.measured(gpu, victim, aggressor, throughput, now_s)
        table.refresh(gpu, now_s)
        self.since_fit += 1
        return kept

    @property
    def is_due(self) -> bool:
        """Whether the model should be fitted anew."""
        return self.alarm.rings or self.since_fit >= REFIT_AFTER
