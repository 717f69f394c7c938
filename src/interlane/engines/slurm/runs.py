"""What has become of each attempt, by what Slurm shows and by nothing else."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final

from interlane.engines.slurm.claims import LEFT, HeldClaim, LaunchedClaim, is_marked
from interlane.engines.slurm.machines import NodeGpus, gpus_of, placement_of
from interlane.engines.slurm.reading import OVER, RUNNING, WAITING, SlurmJob, SlurmNode
from interlane.engines.slurm.wanted import tasks_of
from interlane.live.port import Attempt, Ended
from interlane.model import JobId, Placement, Spot


class RunStage(Enum):
    """How far a run has come."""

    HELD = "held"
    """Nothing of it begins until it is released."""
    WAITS = "waits"
    RUNS = "runs"
    BREAKS = "breaks"
    """Some of a gang has ended, and the rest must."""
    OVER = "over"


_MILDEST: Final = {"COMPLETED": 2, "CANCELLED": 1}
"""Of a gang, what ended for another reason says why it ended: we cancel the rest."""


@dataclass(frozen=True, slots=True)
class SlurmRun:
    """An attempt as Slurm shows it."""

    attempt: Attempt
    jobs: tuple[SlurmJob, ...]
    """One; of a gang that we submitted, one for each instance that there is."""
    stage: RunStage
    instances: int = 1
    is_brought: bool = True
    """Whether ``sbatch`` brought it, rather than we."""

    @property
    def ids(self) -> tuple[str, ...]:
        """What Slurm calls its jobs."""
        return tuple(job.id for job in self.jobs)

    @property
    def has_begun(self) -> bool:
        """Whether all of it has run or runs: what has run had nodes."""
        whole = len(self.jobs) == self.instances
        return whole and all(job.nodes and job.started_s for job in self.jobs)

    @property
    def started_s(self) -> float:
        """When all of it ran."""
        return max(job.started_s for job in self.jobs)

    def ended(self, *, was_stopped: bool) -> Ended:
        """Return how it ended."""
        worst = min(self.jobs, key=lambda job: (_MILDEST.get(job.state, 0), job.ended_s))
        if was_stopped:
            return Ended(self.attempt, worst.exit_code or None, "stopped")
        match worst.state:
            case "NODE_FAIL" | "BOOT_FAIL" | "PREEMPTED" | "REVOKED" | "LAUNCH_FAILED":
                cause = f"Slurm says {worst.state} of job {worst.id}."
                return Ended(self.attempt, None, "lost", cause=cause)
            case "TIMEOUT" | "DEADLINE":
                return Ended(self.attempt, None, "limit")
            case "OUT_OF_MEMORY":
                return Ended(self.attempt, None, "memory")
            case "CANCELLED":
                return Ended(self.attempt, None, "cancelled")
            case "COMPLETED":
                return Ended(self.attempt, 0)
            case _ if worst.exit_code:
                return Ended(self.attempt, worst.exit_code)
            case _:  # it failed, and not by itself
                cause = f"Slurm says {worst.state} of job {worst.id} ({worst.reason})."
                return Ended(self.attempt, None, "cut off", cause=cause)


@dataclass(frozen=True)
class SlurmListing:
    """Everything as Slurm showed it at one moment."""

    jobs: Sequence[SlurmJob]
    nodes: Sequence[SlurmNode]
    partitions: frozenset[str]
    """Those that we schedule; empty for all."""
    marked_only: bool = True
    """Whether only jobs are ours that were held for us."""
    nodes_by_name: Mapping[str, NodeGpus] = field(init=False)

    def __post_init__(self) -> None:
        gpus = {node.name: gpus_of(node.gres) for node in self.nodes}
        object.__setattr__(self, "nodes_by_name", gpus)

    @cached_property
    def shards(self) -> int:
        """Into how many parts a GPU is cut, at most."""
        each = (most for node in self.nodes_by_name.values() for most in node.shards)
        return max(each, default=0)

    @cached_property
    def brought(self) -> dict[str, SlurmJob]:
        """Jobs of users that are ours to schedule, by key."""
        ours = (one for job in self.jobs if self._is_ours(job) for one in tasks_of(job))
        return {job.key: job for job in ours}

    def _is_ours(self, job: SlurmJob) -> bool:
        if self.partitions and job.partition not in self.partitions:
            return False
        if isinstance(job.claim, LaunchedClaim) or self._is_bound(job):
            return False
        return not self.marked_only or _is_for_us(job)

    def _is_bound(self, job: SlurmJob) -> bool:
        """Tell whether a user has said where a job goes, so that we cannot."""
        return self.marked_only and job.is_bound and job.claim is None

    @property
    def bound(self) -> list[SlurmJob]:
        """Jobs that are held for us, although their users say where they go."""
        return [
            job for job in self.jobs if self._is_bound(job) and job.is_held and _is_for_us(job)
        ]

    @property
    def apart(self) -> frozenset[str]:
        """The keys of users' jobs that have not ended and are not ours to schedule."""
        theirs = (job for job in self.jobs if job.state not in OVER and not self._is_ours(job))
        return frozenset(one.key for job in theirs for one in tasks_of(job))

    @cached_property
    def by_id(self) -> dict[str, SlurmJob]:
        """The same by what users call them."""
        return {job.id: job for job in self.brought.values()}

    @cached_property
    def launched(self) -> dict[Attempt, list[tuple[LaunchedClaim, SlurmJob]]]:
        """Jobs that we submitted, by attempt."""
        found: dict[Attempt, list[tuple[LaunchedClaim, SlurmJob]]] = {}
        for job in self.jobs:
            if isinstance(job.claim, LaunchedClaim):
                found.setdefault(job.claim.attempt, []).append((job.claim, job))
        return found

    @cached_property
    def runs(self) -> dict[Attempt, SlurmRun]:
        """The present run of each job of ours."""
        found = {}
        for job in self.brought.values():
            run = run_of_brought(job, self.numbers(job)[-1])
            found[run.attempt] = run
        for attempt, parts in self.launched.items():
            found[attempt] = _run_of_launched(attempt, parts)
        return found

    def numbers(self, job: SlurmJob) -> Sequence[int]:
        """Return which attempts the runs of a job were since its claim, the present one last.

        Where we only look on nobody asks for any, and they are counted.
        """
        if not self.marked_only:
            return range(1, job.restarts + 2)
        return numbers_of(job)

    @property
    def foreign(self) -> Iterable[SlurmJob]:
        """Jobs that run and are not ours."""
        ours = {job.number for run in self.runs.values() for job in run.jobs}
        return (job for job in self.jobs if job.state in RUNNING and job.number not in ours)

    def place(self, run: SlurmRun) -> Placement:
        """Return where a run is; instances in the order of their ranks."""
        if run.is_brought:
            return placement_of(run.jobs[0], self.nodes_by_name)
        return Placement(
            tuple(
                Spot(spot.machine, spot.gpus, 1, claim.task)
                for claim, job in self.launched[run.attempt]
                for spot in placement_of(job, self.nodes_by_name).spots
            )
        )


def _is_for_us(job: SlurmJob) -> bool:
    """Tell whether a job is ours: the snippet for submissions says so, or its user did.

    Somebody else may have released it; one that we gave back to Slurm says so.
    """
    by_user = is_marked(job.comment) and not job.admin_comment.startswith(LEFT)
    return by_user or is_marked(job.admin_comment) or isinstance(job.claim, HeldClaim)


def numbers_of(job: SlurmJob) -> list[int]:
    """Return which attempts the runs of a user's job were since its claim."""
    claim = job.held_claim
    runs = range(claim.restarts, max(claim.restarts, job.restarts) + 1)
    return [claim.attempt_number(restarts) for restarts in runs]


def run_of_brought(job: SlurmJob, number: int) -> SlurmRun:
    """Return the present run of a job that ``sbatch`` brought."""
    stage = RunStage.OVER
    if job.is_held:
        stage = RunStage.HELD
    elif job.state in WAITING:
        stage = RunStage.WAITS
    elif job.state in RUNNING:
        stage = RunStage.RUNS
    return SlurmRun(Attempt(JobId(job.id), number, job.key), (job,), stage)


def _run_of_launched(attempt: Attempt, parts: list[tuple[LaunchedClaim, SlurmJob]]) -> SlurmRun:
    parts.sort(key=lambda part: part[0].instance)
    jobs = tuple(job for _, job in parts)
    instances = parts[0][0].instances
    return SlurmRun(attempt, jobs, _stage(jobs, instances), instances, is_brought=False)


def _stage(jobs: Sequence[SlurmJob], instances: int) -> RunStage:
    waits = sum(job.state in WAITING for job in jobs)
    runs = sum(job.state in RUNNING for job in jobs)
    done = sum(job.state == "COMPLETED" for job in jobs)
    if not waits and not runs:
        return RunStage.OVER
    if waits + runs + done < len(jobs):
        return RunStage.BREAKS
    if runs + done == instances:
        return RunStage.RUNS
    return RunStage.HELD if all(job.is_held for job in jobs) else RunStage.WAITS
