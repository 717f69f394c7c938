"""Plain twins of the kernel: slow, short, and obviously right.

The kernel decides by shape, with a compiled index; these walk over every waiting job and
every GPU.  Tests compare the two, start for start.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from interlane.kernel.ledger import Ledger
from interlane.model import MILLI, Cluster, Demand, Job, Machine, Request, Task
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
    def idle(cls, machine: Machine) -> "Host":
        """Return a machine on which nothing runs."""
        milli = [machine.gpu_milli] if machine.pooled else [MILLI] * machine.gpus
        return cls(
            machine,
            machine.cpu_milli,
            machine.memory_mib,
            milli,
            [machine.gpu_memory_mib] * len(milli),
        )

    def gpus_for(self, needs: Demand, types: TypeRule) -> tuple[int, ...] | None:
        """Return the GPUs that an instance would use, or None if it does not fit."""
        if self.cpu_milli < needs.cpu_milli or self.memory_mib < needs.memory_mib:
            return None
        if needs.gpus == 0:
            return ()
        allowed = types.binding(needs)
        if allowed and self.machine.gpu_type not in allowed | {Ledger.wildcard}:
            return None
        if self.machine.pooled:
            fits = self.gpu_milli[0] >= needs.gpu_milli_total
            return () if fits and self.gpu_memory_mib[0] >= needs.gpu_memory_mib else None
        able = [gpu for gpu in range(self.machine.gpus) if self._shares(gpu, needs)]
        if needs.gpus == 1:
            able.sort(key=lambda gpu: self.gpu_milli[gpu])
        elif needs.gpu_milli < MILLI:
            able.sort(key=lambda gpu: -self._shares(gpu, needs))
        return tuple(sorted(able[: needs.gpus])) if len(able) >= needs.gpus else None

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


Held = list[tuple[Host, Demand, tuple[int, ...]]]


def first_fit(job: Job, hosts: Sequence[Host], types: TypeRule) -> Held | None:
    """Take every instance in machine order, or nothing and return None."""
    held: Held = []
    for task in job.request.tasks:
        begin = len(held)
        if task.same_machine:
            _together(task, hosts, types, held)
        else:
            for _ in range(task.instances):
                if not _one(task.demand, hosts, types, held):
                    break
        if len(held) - begin < task.least:
            give_back(held)
            return None
    return held


def _one(needs: Demand, hosts: Sequence[Host], types: TypeRule, held: Held) -> bool:
    for host in hosts:
        gpus = host.gpus_for(needs, types)
        if gpus is not None:
            host.change(needs, gpus, 1)
            held.append((host, needs, gpus))
            return True
    return False


def _together(task: Task, hosts: Sequence[Host], types: TypeRule, held: Held) -> None:
    for host in hosts:
        here: Held = []
        while len(here) < task.least and _one(task.demand, [host], types, here):
            pass
        if len(here) == task.least:
            held += here
            return
        give_back(here)


def give_back(held: Held) -> None:
    """Undo what was taken."""
    for host, needs, gpus in held:
        host.change(needs, gpus, -1)


@dataclass
class Naive:
    """Greedy skip, job by job: whoever fits starts, in order; lengths are known."""

    cluster: Cluster
    order: Order
    types: TypeRule
    hosts: list[Host] = field(init=False)
    running_milli: dict[str, int] = field(default_factory=dict)
    refused: set[Request] = field(default_factory=set)
    """Requests that did not fit since something was last given back; a walk passes once."""

    def __post_init__(self) -> None:
        self.hosts = [Host.idle(machine) for machine in self.cluster]

    def run(self, jobs: Sequence[Job], true_s: Sequence[float]) -> dict[str, float]:
        """Return when each job starts; those that never do are left out."""
        jobs_in = list(zip(jobs, true_s, strict=True))
        waiting: list[tuple[Job, float]] = []
        running: list[tuple[float, Job, Held]] = []
        starts: dict[str, float] = {}
        while jobs_in or running:
            now_s = min(
                [job.submitted_s for job, _ in jobs_in[:1]] + [end_s for end_s, _, _ in running]
            )
            for over in [run for run in running if run[0] == now_s]:
                running.remove(over)
                give_back(over[2])
                self.refused.clear()
                self._charge(over[1], -1)
            while jobs_in and jobs_in[0][0].submitted_s == now_s:
                waiting.append(jobs_in.pop(0))
            while (found := self._next(waiting, now_s)) is not None:
                (job, length_s), held = found
                waiting.remove((job, length_s))
                starts[job.id] = now_s
                got = len(held) / job.request.instances if job.request.is_elastic else 1.0
                running.append((now_s + length_s / got, job, held))
                self._charge(job, 1)
        return starts

    def _next(
        self, waiting: list[tuple[Job, float]], now_s: float
    ) -> tuple[tuple[Job, float], Held] | None:
        """Return the first job in order that fits, and what it took."""

        def place(one: tuple[Job, float]) -> tuple[float, float, int]:
            value, slope = self.order.key(one[0], 0.0)
            share = 0.0
            if self.order.keeps_accounts:
                account = self.order.account(one[0])
                share = self.order.share(account, self.running_milli.get(account, 0))
            return share, value + slope * now_s, one[0].serial

        for one in sorted(waiting, key=place):
            request = one[0].request
            if request in self.refused:
                continue
            held = first_fit(one[0], self.hosts, self.types)
            if held is not None:
                return one, held
            self.refused.add(request)
        return None

    def _charge(self, job: Job, sign: int) -> None:
        if self.order.keeps_accounts:
            account = self.order.account(job)
            running = self.running_milli.get(account, 0) + sign * job.request.gpu_milli
            self.running_milli[account] = running
