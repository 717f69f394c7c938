"""Plain twins of the kernel: slow, short, and obviously right.

The kernel decides by shape, with a compiled index; these walk over every waiting job and
every GPU.  Tests compare the two, start for start.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from interlane.kernel.ledger import Ledger
from interlane.model import MILLI, Cluster, Demand, Job, Machine, Occupied, Request, Task
from interlane.policy.base import Order, TypeRule


@dataclass
class Host:
    """What one machine has left."""

    machine: Machine
    cpu_milli: int
    memory_mib: int
    gpu_milli: list[int]
    gpu_memory_mib: list[int]

    @classmethod
    def idle(cls, machine: Machine, taken: Occupied | None = None) -> "Host":
        """Return a machine on which nothing of ours runs, and others have what they took.

        They cannot have more than there is.
        """
        if machine.pooled:
            milli, memory_mib = [machine.gpu_milli], [machine.gpu_memory_mib]
        else:
            devices = [machine.device(number) for number in range(machine.gpus)]
            milli = [device.compute_milli for device in devices]
            memory_mib = [device.memory_mib for device in devices]
        host = cls(machine, machine.cpu_milli, machine.memory_mib, milli, memory_mib)
        if taken is not None:
            host._give_to_others(taken)
        return host

    def _give_to_others(self, taken: Occupied) -> None:
        self.cpu_milli = max(0, self.cpu_milli - taken.cpu_milli)
        self.memory_mib = max(0, self.memory_mib - taken.memory_mib)
        for gpu in taken.gpus:
            at = 0 if self.machine.pooled else gpu.index
            if at < len(self.gpu_milli):
                self.gpu_milli[at] = max(0, self.gpu_milli[at] - gpu.milli)
                self.gpu_memory_mib[at] = max(0, self.gpu_memory_mib[at] - gpu.memory_mib)

    def gpus_for(self, needs: Demand, types: TypeRule) -> tuple[int, ...] | None:
        """Return the GPUs that an instance would use, or None if it does not fit."""
        if not needs.selectors <= set(self.machine.labels):
            return None
        if not set(self.machine.taints) <= needs.tolerations:
            return None
        if _lacks(self.cpu_milli, needs.cpu_milli) or _lacks(self.memory_mib, needs.memory_mib):
            return None
        if needs.gpus == 0:
            return ()
        if self.machine.pooled:
            right = self._is_of(self.machine.gpu_type, needs, types)
            fits = self.gpu_milli[0] >= needs.gpu_milli_total
            enough = not _lacks(self.gpu_memory_mib[0], needs.gpu_memory_mib)
            return () if right and fits and enough else None
        able = [
            gpu
            for gpu in range(self.machine.gpus)
            if self._is_of(self.machine.device(gpu).type, needs, types)
            and self._shares(gpu, needs) > 0
        ]
        if needs.gpus == 1:
            able.sort(key=lambda gpu: self.gpu_milli[gpu])
        elif needs.gpu_milli < MILLI:
            able.sort(key=lambda gpu: -self._shares(gpu, needs))
        return tuple(sorted(able[: needs.gpus])) if len(able) >= needs.gpus else None

    def _is_of(self, gpu_type: str, needs: Demand, types: TypeRule) -> bool:
        allowed = types.binding(needs)
        return not allowed or gpu_type in allowed | {Ledger.wildcard}

    def _shares(self, gpu: int, needs: Demand) -> int:
        shares = self.gpu_milli[gpu] // needs.gpu_milli
        if needs.gpu_memory_mib:
            shares = min(shares, self.gpu_memory_mib[gpu] // needs.gpu_memory_mib)
        return shares

    def change(self, needs: Demand, gpus: tuple[int, ...], sign: int) -> None:
        """Take one instance (1) or give it back (-1)."""
        self.cpu_milli -= sign * needs.cpu_milli
        self.memory_mib -= sign * needs.memory_mib
        if self.machine.pooled:
            self.gpu_milli[0] -= sign * needs.gpu_milli_total
        for gpu in gpus:
            self.gpu_milli[gpu] -= sign * needs.gpu_milli
            self.gpu_memory_mib[gpu] -= sign * needs.gpu_memory_mib


def _lacks(free: int, wanted: int) -> bool:
    """Return whether something that is wanted is not there; who wants none lacks none."""
    return free < wanted and wanted > 0


class Seat(NamedTuple):
    """One instance and where it is."""

    host: Host
    needs: Demand
    gpus: tuple[int, ...]


Held = list[Seat]


def first_fit(job: Job, hosts: Sequence[Host], types: TypeRule) -> list[Held] | None:
    """Take every instance in machine order, task by task, or nothing and return None."""
    held: list[Held] = []
    for task in job.request.tasks:
        seats: Held = []
        held.append(seats)
        if task.same_machine:
            _together(task, hosts, types, seats)
        else:
            _up_to(task.instances, task.demand, hosts, types, seats)
        if len(seats) < task.least:
            give_back(held)
            return None
    return held


def _up_to(
    most: int, needs: Demand, hosts: Sequence[Host], types: TypeRule, held: Held
) -> None:
    while len(held) < most and _one(needs, hosts, types, held):
        pass


def _one(needs: Demand, hosts: Sequence[Host], types: TypeRule, held: Held) -> bool:
    for host in hosts:
        gpus = host.gpus_for(needs, types)
        if gpus is not None:
            host.change(needs, gpus, 1)
            held.append(Seat(host, needs, gpus))
            return True
    return False


def _together(task: Task, hosts: Sequence[Host], types: TypeRule, held: Held) -> None:
    for host in hosts:
        here: Held = []
        _up_to(task.least, task.demand, [host], types, here)
        if len(here) == task.least:
            held += here
            return
        give_back([here])


def give_back(held: list[Held]) -> None:
    """Undo what was taken."""
    for seats in held:
        for host, needs, gpus in seats:
            host.change(needs, gpus, -1)


@dataclass(eq=False)
class NaiveRun:
    """A job that runs: what it holds, the work that is left and how fast it goes."""

    job: Job
    held: list[Held]
    """Seats of each task."""
    left_s: float
    since_s: float

    @property
    def speed(self) -> float:
        """The share of its instances that an elastic gang has."""
        request = self.job.request
        return sum(map(len, self.held)) / request.instances if request.is_elastic else 1.0

    @property
    def end_s(self) -> float:
        """When it ends if it goes on like this."""
        return self.since_s + self.left_s / self.speed

    def settle(self, now_s: float) -> None:
        """Note the work that is done, before the speed changes."""
        self.left_s = max(0.0, self.left_s - (now_s - self.since_s) * self.speed)
        self.since_s = now_s


@dataclass
class NaiveScheduler:
    """Greedy skip, job by job: whoever fits starts, in order; lengths are known.

    When nobody fits, running gangs that lack instances get them, in order, one task of each
    and then the next.
    """

    cluster: Cluster
    order: Order
    types: TypeRule
    hosts: list[Host] = field(init=False)
    running_milli: dict[str, int] = field(default_factory=dict)
    refused: set[Request] = field(default_factory=set)
    """Requests that did not fit since something was last given back; a walk passes once."""
    grown: dict[str, list[float]] = field(default_factory=dict)
    """When each job grew."""

    def __post_init__(self) -> None:
        self.hosts = [Host.idle(machine) for machine in self.cluster]

    def run(self, jobs: Sequence[Job], true_s: Sequence[float]) -> dict[str, float]:
        """Return when each job starts; those that never do are left out."""
        jobs_in = list(zip(jobs, true_s, strict=True))
        waiting: list[tuple[Job, float]] = []
        running: list[NaiveRun] = []
        starts: dict[str, float] = {}
        while jobs_in or running:
            now_s = min(
                [job.submitted_s for job, _ in jobs_in[:1]] + [run.end_s for run in running]
            )
            for over in [run for run in running if run.end_s == now_s]:
                running.remove(over)
                give_back(over.held)
                self.refused.clear()
                self._charge(over.job, over.held, -1)
            while jobs_in and jobs_in[0][0].submitted_s == now_s:
                waiting.append(jobs_in.pop(0))
            while (found := self._next(waiting, now_s)) is not None:
                (job, length_s), held = found
                waiting.remove((job, length_s))
                starts[job.id] = now_s
                running.append(NaiveRun(job, held, length_s, now_s))
                self._charge(job, held, 1)
            while self._grow(running, now_s):
                pass
        return starts

    def _next(
        self, waiting: list[tuple[Job, float]], now_s: float
    ) -> tuple[tuple[Job, float], list[Held]] | None:
        """Return the first job in order that fits, and what it took."""
        for one in sorted(waiting, key=lambda one: self._urgency(one[0], now_s)):
            request = one[0].request
            if request in self.refused:
                continue
            held = first_fit(one[0], self.hosts, self.types)
            if held is not None:
                return one, held
            self.refused.add(request)
        return None

    def _grow(self, running: list[NaiveRun], now_s: float) -> bool:
        """Give every job once what one of its tasks lacks; return whether anybody grew."""
        left = [run for run in running if run.job.request.grows]
        anybody = False
        while left:
            left.sort(key=lambda run: self._urgency(run.job, now_s))
            run = next((run for run in left if self._grow_one(run, now_s)), None)
            if run is None:
                break
            left.remove(run)
            anybody = True
        return anybody

    def _grow_one(self, run: NaiveRun, now_s: float) -> bool:
        """Give the first task of a job that can get more as much as it can."""
        for task, seats in zip(run.job.request.tasks, run.held, strict=True):
            more: Held = []
            if task.grows:
                lacking = task.instances - len(seats)
                _up_to(lacking, task.demand, self.hosts, self.types, more)
            if more:
                run.settle(now_s)
                seats += more
                self._charge(run.job, [more], 1)
                self.grown.setdefault(run.job.id, []).append(now_s)
                return True
        return False

    def _urgency(self, job: Job, now_s: float) -> tuple[float, float, int]:
        value, slope = self.order.key(job, 0.0)
        share = 0.0
        if self.order.keeps_accounts:
            account = self.order.account(job)
            share = self.order.share(account, self.running_milli.get(account, 0))
        return share, value + slope * now_s, job.serial

    def _charge(self, job: Job, held: list[Held], sign: int) -> None:
        if self.order.keeps_accounts:
            account = self.order.account(job)
            milli = sum(seat.needs.gpu_milli_total for seats in held for seat in seats)
            running = self.running_milli.get(account, 0) + sign * milli
            self.running_milli[account] = running
