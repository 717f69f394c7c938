"""A scheduler that lends what training leaves over of its GPUs to functions.

Jobs are placed as ever; the books of functions follow what becomes of them.  A body asks
``lend`` where a function goes, reports its end and what was measured, and stops the functions
of ``take_evicted``, which must make way.  Training never does.
"""

from collections.abc import Iterator

from interlane.kernel.scheduler import Scheduler
from interlane.model import (
    MILLI,
    Cancelled,
    Cluster,
    Event,
    Finished,
    Grown,
    Job,
    JobId,
    MachineChanged,
    MachineId,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineReturned,
    Placement,
    Preempted,
    Recovered,
    Refusal,
    Started,
    Submitted,
)
from interlane.model.function import Function
from interlane.policy.colocate.gpus import Gpu, Gpus
from interlane.policy.colocate.place import Harvest, Site
from interlane.policy.policy import Policy

SEVERAL = ""
"""Workload of a GPU on which several jobs train: what they bear together is not known."""


def gpus_of(cluster: Cluster) -> Gpus:
    """Return the GPUs of a cluster, all of them idle; pooled machines lend nothing."""
    return Gpus(
        [
            Gpu(gpu_id(machine.id, number), device.type, device.memory_mib)
            for machine in cluster
            if not machine.pooled
            for number in range(machine.gpus)
            for device in (machine.device(number),)
        ]
    )


def gpu_id(machine: str, number: int) -> str:
    """Return the name of a GPU in the books of functions."""
    return f"{machine}/{number}"


class HarvestingScheduler(Scheduler):
    """A scheduler, and the books of functions beside it."""

    def __init__(
        self, cluster: Cluster, policy: Policy, harvest: Harvest, seed: int = 0
    ) -> None:
        super().__init__(cluster, policy, seed)
        self.harvest = harvest
        self._jobs: dict[JobId, Job] = {}
        self._training: dict[str, dict[JobId, tuple[str, int, float]]] = {}
        """GPU -> jobs that train there: workload, memory, use."""
        self._gpus: dict[JobId, dict[str, None]] = {}
        """Job -> GPUs that it trains on, in the order in which it came to them."""
        self._evicted: list[Function] = []
        self._away: dict[MachineId, dict[str, int]] = {}
        """Machines that are away -> their GPUs and the memory taken there meanwhile."""

    def learn(self, event: Event, now_s: float) -> None:
        """Take one fact into both books."""
        if isinstance(event, Submitted | Recovered):
            self._jobs[event.job.id] = event.job
        elif isinstance(event, Finished | Cancelled | Preempted):
            self._leave(event.job_id, now_s)
        super().learn(event, now_s)
        if isinstance(event, Started):
            self._enter(event.job_id, event.placement, now_s)
        elif isinstance(event, Grown):
            self._enter(event.job_id, event.more, now_s)
        elif isinstance(event, Recovered):
            placement = self.placement(event.job.id)
            if placement is not None:
                self._enter(event.job.id, placement, now_s)
        elif isinstance(event, MachineLost | MachineLeft):
            self._leave_machine(event.machine_id, now_s)
            self._take_away(event.machine_id, now_s)
        elif isinstance(event, MachineJoined | MachineChanged):
            self._leave_machine(event.machine.id, now_s)
            if isinstance(event, MachineJoined):
                self._bring_back(event.machine.id, now_s)
        elif isinstance(event, MachineReturned):
            self._bring_back(event.machine_id, now_s)
        elif isinstance(event, Finished | Cancelled):
            self._jobs.pop(event.job_id, None)

    def lend(self, function: Function, waiting: int, now_s: float) -> Site | Refusal:
        """Return where a function goes, and hold its place."""
        return self.harvest.place(function, waiting, now_s)

    def take_evicted(self) -> list[Function]:
        """Return the functions that had to make way since last asked."""
        evicted, self._evicted = self._evicted, []
        return evicted

    def _enter(self, job_id: JobId, placement: Placement, now_s: float) -> None:
        job = self._jobs[job_id]
        for spot in placement.spots:
            demand = job.request.tasks[spot.task].demand
            for number in spot.gpus:
                name = gpu_id(spot.machine, number)
                self._gpus.setdefault(job_id, {})[name] = None
                there = self._training.setdefault(name, {})
                self._end(name, now_s)
                workload, memory, use = there.get(job_id, (job.family or job.program, 0, 0.0))
                share = spot.instances * demand.gpu_milli / MILLI
                more_mib = spot.instances * demand.gpu_memory_mib
                there[job_id] = workload, memory + more_mib, use + share
                self._begin(name, now_s)

    def _leave(self, job_id: JobId, now_s: float) -> None:
        for name in self._gpus.pop(job_id, ()):
            self._end(name, now_s)
            del self._training[name][job_id]
            self._begin(name, now_s)

    def _begin(self, name: str, now_s: float) -> None:
        there = self._training[name]
        if not there:
            del self._training[name]
        elif name in self.harvest.gpus.by_id:
            self._evicted += self.harvest.begin_training(name, *_together(there), now_s)

    def _end(self, name: str, now_s: float) -> None:
        there = self._training[name]
        if there and name in self.harvest.gpus.by_id:
            _, memory_mib, use = _together(there)
            self.harvest.end_training(name, memory_mib, use, now_s)

    def _take_away(self, machine: MachineId, now_s: float) -> None:
        """Take a machine out of the books of functions: it is full while away."""
        if machine in self._away:
            return
        taken = self._away[machine] = {}
        for name, gpu in self.harvest.gpus.by_id.items():
            if name.rpartition("/")[0] == machine:
                lent_mib = sum(one.memory_mib for one in gpu.functions)
                taken[name] = gpu.memory_mib + lent_mib + 1
        for name, memory_mib in taken.items():
            self._evicted += self.harvest.begin_training(name, SEVERAL, memory_mib, 0.0, now_s)

    def _bring_back(self, machine: MachineId, now_s: float) -> None:
        """Let functions use a machine again."""
        for name, memory_mib in self._away.pop(machine, {}).items():
            self.harvest.end_training(name, memory_mib, 0.0, now_s)

    def _leave_machine(self, machine: MachineId, now_s: float) -> None:
        """Let jobs leave that a machine has put back into the queue."""
        for job_id in self._on_machine(machine):
            if self.placement(job_id) is None:
                self._leave(job_id, now_s)

    def _on_machine(self, machine: str) -> Iterator[JobId]:
        found = {
            job_id
            for name, there in self._training.items()
            if name.rpartition("/")[0] == machine
            for job_id in there
        }
        return iter(sorted(found))


def _together(there: dict[JobId, tuple[str, int, float]]) -> tuple[str, int, float]:
    """Return workload, memory and use of all jobs on a GPU."""
    workloads, memory_mib, use = zip(*there.values(), strict=True)
    return workloads[0] if len(workloads) == 1 else SEVERAL, sum(memory_mib), sum(use)
