"""How much is drawn, and all that is drawn before instances are."""

from dataclasses import dataclass

import numpy as np

from interlane.model import InvalidField
from interlane.traces.synth_pai import shares as of
from interlane.traces.synth_pai.deal import Ints, Rng
from interlane.traces.synth_pai.machines import MachineColumns, make_machines
from interlane.traces.synth_pai.population import Groups, draw_groups
from interlane.traces.synth_pai.runs import JobColumns, Tasks, draw_jobs, tasks_of
from interlane.traces.synth_pai.use import Habits, draw_habits


@dataclass(frozen=True, slots=True)
class Scope:
    """How much to draw: days, share of the published rate and machines, seed."""

    days: float = float(of.FULL_DAYS)
    scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.days <= 3650:
            raise InvalidField("days", self.days, "it must be above 0 and at most 3650")
        if not 0 < self.scale <= 10:
            raise InvalidField("scale", self.scale, "it must be above 0 and at most 10")
        if not 0 <= self.seed < 2**63:
            raise InvalidField("seed", self.seed, "it must be 0 or more and below 2^63")
        if self.jobs < 1:
            rule = f"it must be larger, for {self.days:g} days hold no job at this scale"
            raise InvalidField("scale", self.scale, rule)

    @property
    def jobs(self) -> int:
        """Jobs to draw."""
        return round(of.JOBS_PER_DAY * self.days * self.scale)

    @property
    def users(self) -> int:
        """Users to draw; a part of the trace has more than its part of them."""
        part = min(1.0, self.scale * self.days / of.FULL_DAYS)
        return max(4, round(of.USERS * float(np.sqrt(part))))


@dataclass(frozen=True)
class TracePlan:
    """A trace down to its tasks, and the random generator for the rest."""

    machines: MachineColumns
    groups: Groups
    jobs: JobColumns
    tasks: Tasks
    habits: Habits
    heat_rng: Rng
    batches_rng: Rng
    metrics_rng: Rng

    @property
    def end_s(self) -> Ints:
        """When each job ends."""
        return self.jobs.start_s + self.jobs.run_s


def plan(scope: Scope) -> TracePlan:
    """Draw machines, groups, jobs and tasks; the same scope gives the same."""
    streams = np.random.SeedSequence(scope.seed).spawn(6)
    people, times, uses, *rest = map(np.random.default_rng, streams)
    machines = make_machines(scope.scale)
    gpus = np.bincount(machines.kind, machines.gpus, len(of.KINDS)).astype(float)
    groups = draw_groups(
        people,
        jobs=scope.jobs,
        users=scope.users,
        span_s=(scope.days + of.TAIL_DAYS) * of.DAY_S,
        gpus=gpus,
    )
    jobs = draw_jobs(times, groups, scope.days)
    tasks = tasks_of(groups, jobs)
    return TracePlan(machines, groups, jobs, tasks, draw_habits(uses, groups), *rest)
