"""A body in virtual time for devices with lanes: the same ``Domain`` that a daemon drives.

A job is started on the host when it is admitted, then runs its iterations in its lane.  It
runs alone at the pace it was measured at; beside others it is slowed down as far as they
want more than one device together.  A lane that passes from one job to another loses the
switch.  A holder that is asked to stop does so at the end of its iteration.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf

from interlane.lanes.actions import (
    Admit,
    Confine,
    Grant,
    KeepWaiting,
    LaneId,
    Lease,
    MemoryDemand,
    Name,
    RefuseTenant,
    Resize,
    Revoke,
)
from interlane.lanes.domain import Domain
from interlane.lanes.events import (
    IterationWanted,
    Joined,
    LaneEvent,
    Left,
    MemoryObserved,
    Released,
    Yielded,
)
from interlane.model import InvalidField, JobId, Refusal, Ticked, Wake

_ROUNDING = 1e-9
"""Iterations are counted as whole within this part of one."""


@dataclass(frozen=True, slots=True)
class LaneJob:
    """A program that runs iterations on a device, and what is true about it."""

    id: JobId
    submitted_s: float
    iterations: int
    iteration_s: float
    """Alone on the device."""
    needs: MemoryDemand
    startup_s: float = 0.0
    """On the host, once, between admission and the first iteration."""
    filled: float = 1.0
    """Share of the device that it keeps busy when alone."""
    priority: int = 0
    says: MemoryDemand | None = None
    """What it declares; None when nothing is known, so that it is measured."""
    total_s: float | None = None
    """What it says its iterations take in all."""
    requests_s: tuple[float, ...] = ()
    """When each iteration becomes ready; empty if one follows the other."""

    def __post_init__(self) -> None:
        for name in ("submitted_s", "startup_s"):
            if not 0 <= getattr(self, name) < inf:
                raise InvalidField(name, getattr(self, name), "it must be 0 or above")
        if self.iterations < 1:
            raise InvalidField("iterations", self.iterations, "it must be at least 1")
        if not 0 < self.iteration_s < inf:
            raise InvalidField("iteration_s", self.iteration_s, "it must be above 0")
        if not 0 < self.filled <= 1:
            raise InvalidField("filled", self.filled, "it must be above 0 and at most 1")
        if self.requests_s and len(self.requests_s) != self.iterations:
            raise InvalidField(
                "requests_s", len(self.requests_s), "it must be one an iteration"
            )

    @property
    def device_s(self) -> float:
        """Device time of the whole job, alone."""
        return self.iterations * self.iteration_s


@dataclass(slots=True)
class LaneOutcome:
    """What became of a job."""

    job: LaneJob
    device: int
    admitted_s: float | None = None
    first_run_s: float | None = None
    finished_s: float | None = None
    device_s: float = 0.0
    """Time for which it held a lane."""
    turns: int = 0
    confined: bool = False
    """Whether it needed more than there was."""
    refusal: Refusal | None = None
    """Why it was never admitted."""
    latencies_s: list[float] = field(default_factory=list)
    """Of each request, where the job serves requests."""

    @property
    def completion_s(self) -> float | None:
        """From submission to the end."""
        return None if self.finished_s is None else self.finished_s - self.job.submitted_s

    @property
    def waited_s(self) -> float | None:
        """From submission to the first iteration."""
        return None if self.first_run_s is None else self.first_run_s - self.job.submitted_s


@dataclass(frozen=True, slots=True)
class Physics:
    """What sharing costs on the simulated devices."""

    switch_s: float = 0.0
    """Lost when a lane passes to another job."""
    contention: float = 0.0
    """Extra slowdown for each whole device that is wanted beyond the one there is."""

    def slow_down(self, wanted: float) -> float:
        """Return how many times longer iterations take when this many devices are wanted."""
        return max(1.0, wanted + self.contention * (wanted - 1.0))


@dataclass(slots=True)
class _Run:
    """A lease in use: the iterations up to the next stop."""

    lease: Lease
    job: LaneJob
    iterations: int
    left_s: float
    """Until the stop, at the pace of a job alone; a switch counts like work."""

    def stop_early(self) -> None:
        """End after the iteration under way."""
        under_way = ceil(self.left_s / self.job.iteration_s - _ROUNDING)
        skipped = min(self.iterations, max(1, under_way)) - 1
        self.iterations -= skipped
        self.left_s -= skipped * self.job.iteration_s


@dataclass(slots=True)
class _Progress:
    """How far a job has come."""

    done: int = 0
    arrived: int = 0
    """Requests that have come in; all iterations where none are awaited."""


class _Device:
    """One device: its domain, and what runs on it."""

    def __init__(self, number: int, domain: Domain, physics: Physics) -> None:
        self.number = number
        self.domain = domain
        self.outcomes: dict[JobId, LaneOutcome] = {}
        self.busy_s = 0.0
        """Time in which at least one lane ran."""
        self._physics = physics
        self._runs: dict[LaneId, _Run] = {}
        self._progress: dict[JobId, _Progress] = {}
        self._pending: list[tuple[float, int, LaneEvent]] = []
        """What will happen at its time, whatever the domain actions."""
        self._serials = count()
        self._now_s = 0.0
        self._wake_s = inf

    @property
    def jobs(self) -> int:
        """Jobs that are not over."""
        return len(self.domain.tenants)

    def submit(self, job: LaneJob, now_s: float) -> None:
        """Take a job at its time."""
        self._move(now_s)
        self.outcomes[job.id] = LaneOutcome(job, self.number)
        self._progress[job.id] = _Progress(arrived=0 if job.requests_s else job.iterations)
        self._feed(Joined(job.id, job.says, job.priority, job.total_s))

    def next_s(self) -> float:
        """Return when something happens next."""
        slow_down = self._slow_down()
        ends_s = (self._now_s + run.left_s * slow_down for run in self._runs.values())
        pending_s = self._pending[0][0] if self._pending else inf
        return min(pending_s, self._wake_s, min(ends_s, default=inf))

    def advance(self, now_s: float) -> None:
        """Let happen what falls due at this time."""
        self._move(now_s)
        for run in [run for run in self._runs.values() if self._is_due(run)]:
            self._stop(run)
        while self._pending and self._pending[0][0] <= now_s:
            self._feed(heappop(self._pending)[2])
        if self._wake_s <= now_s:
            self._wake_s = inf
            self._feed(Ticked())

    def _is_due(self, run: _Run) -> bool:
        # Far from time zero, what is left may be too little to move the clock.
        return run.left_s <= _ROUNDING or self._now_s + run.left_s <= self._now_s

    def _move(self, now_s: float) -> None:
        passed_s = now_s - self._now_s
        if passed_s > 0 and self._runs:
            slow_down = self._slow_down()
            self.busy_s += passed_s
            for run in self._runs.values():
                run.left_s -= passed_s / slow_down
                self.outcomes[run.job.id].device_s += passed_s
        self._now_s = now_s

    def _slow_down(self) -> float:
        return self._physics.slow_down(sum(run.job.filled for run in self._runs.values()))

    def _feed(self, event: LaneEvent) -> None:
        if isinstance(event, IterationWanted):
            self._note_request(event.job_id)
        if isinstance(event, MemoryObserved) and event.job_id not in self.domain.tenants:
            return
        self._wake_s = inf
        for action in self.domain.handle(event, self._now_s):
            match action:
                case Admit(job_id):
                    self._start(self.outcomes[job_id])
                case Grant(lease):
                    self._run(lease)
                case Revoke(lease):
                    self._runs[lease.lane].stop_early()
                case RefuseTenant(job_id, refusal):
                    self.outcomes[job_id].refusal = refusal
                case Confine(job_id):
                    self.outcomes[job_id].confined = True
                case Wake(at_s):
                    self._wake_s = at_s
                case Name() | KeepWaiting() | Resize():
                    pass

    def _note_request(self, job_id: JobId) -> None:
        progress = self._progress[job_id]
        progress.arrived = min(progress.arrived + 1, self.outcomes[job_id].job.iterations)

    def _start(self, outcome: LaneOutcome) -> None:
        outcome.admitted_s = self._now_s
        ready_s = self._now_s + outcome.job.startup_s
        for request_s in outcome.job.requests_s or (ready_s,):
            self._later(max(request_s, ready_s), IterationWanted(outcome.job.id))

    def _later(self, at_s: float, event: LaneEvent) -> None:
        heappush(self._pending, (at_s, next(self._serials), event))

    def _run(self, lease: Lease) -> None:
        outcome = self.outcomes[lease.job_id]
        job, progress = outcome.job, self._progress[lease.job_id]
        outcome.turns += 1
        if outcome.first_run_s is None:
            outcome.first_run_s = self._now_s
            if job.says != job.needs:
                self._later(self._now_s + job.iteration_s, MemoryObserved(job.id, job.needs))
        iterations = 1 if job.requests_s else job.iterations - progress.done
        cost_s = 0.0 if lease.taken_from is None else self._physics.switch_s
        left_s = cost_s + iterations * job.iteration_s
        self._runs[lease.lane] = _Run(lease, job, iterations, left_s)

    def _stop(self, run: _Run) -> None:
        del self._runs[run.lease.lane]
        progress, outcome = self._progress[run.job.id], self.outcomes[run.job.id]
        progress.done += run.iterations
        if run.job.requests_s:
            came_s = run.job.requests_s[progress.done - 1]
            outcome.latencies_s.append(self._now_s - came_s)
        if progress.done == run.job.iterations:
            outcome.finished_s = self._now_s
            self._feed(Left(run.job.id))
            return
        gave_up = Yielded if progress.arrived > progress.done else Released
        self._feed(gave_up(run.job.id, run.lease.epoch, run.iterations))


@dataclass(frozen=True, slots=True)
class LaneRun:
    """A finished simulation."""

    outcomes: tuple[LaneOutcome, ...]
    """In the order in which the jobs were given."""
    switches: int
    busy_s: float
    """Summed over devices."""


def play(
    jobs: Sequence[LaneJob],
    domains: Iterable[Domain],
    physics: Physics | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> LaneRun:
    """Run jobs on devices with lanes; each goes to the device with the fewest jobs."""
    rules = Physics() if physics is None else physics
    devices = [_Device(number, domain, rules) for number, domain in enumerate(domains)]
    for at, job in enumerate(sorted(jobs, key=lambda job: job.submitted_s)):
        _until(devices, job.submitted_s)
        least = min(
            devices, key=lambda one: (one.jobs, -one.domain.book.free_bytes, one.number)
        )
        least.submit(job, job.submitted_s)
        if tell is not None:
            tell(at, len(jobs))
    _until(devices, inf)
    found = {job_id: one for device in devices for job_id, one in device.outcomes.items()}
    return LaneRun(
        tuple(found[job.id] for job in jobs),
        sum(device.domain.switches for device in devices),
        sum(device.busy_s for device in devices),
    )


def _until(devices: Sequence[_Device], end_s: float) -> None:
    """Let every device live until this time; they do not touch one another."""
    for device in devices:
        while (at_s := device.next_s()) < inf and at_s <= end_s:
            device.advance(at_s)
