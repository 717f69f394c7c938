"""Where a pod may go and should go, as the same scheduler places jobs.

The cluster's own scheduler keeps the queue; what is asked of ours is its ledger and its placer.
Selectors, taints and affinity are the other's business, and are not looked at here.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from random import Random

from interlane.kernel.scheduler import Scheduler
from interlane.model import (
    Cancelled,
    Demand,
    Finished,
    Job,
    JobId,
    Machine,
    MachineChanged,
    MachineDrained,
    MachineId,
    MachineJoined,
    MachineLeft,
    MachineUndrained,
    Occupied,
    Placement,
    Recovered,
    Refusal,
    one_task,
)
from interlane.model.lifecycle import JobState


@dataclass
class ExtenderLedger:
    """What is free, and who holds what; keeps no clock."""

    scheduler: Scheduler
    _drained: set[MachineId] = field(default_factory=set)
    _held: dict[str, JobId] = field(default_factory=dict)
    """By the uid of the pod."""
    _serial: int = 0

    # -- what there is ----------------------------------------------------------------

    def see(self, machine: Machine, *, drained: bool) -> None:
        """Count a node as it is now."""
        bare = replace(machine, labels=(), taints=())
        known = {one.id: one for one in self.scheduler.cluster.machines}.get(bare.id)
        if known is None:
            self.scheduler.learn(MachineJoined(bare), 0.0)
            self._drained.discard(bare.id)
        elif known != bare:
            self.scheduler.learn(MachineChanged(bare), 0.0)
        if drained != (bare.id in self._drained):
            event = MachineDrained(bare.id) if drained else MachineUndrained(bare.id)
            self.scheduler.learn(event, 0.0)
            (self._drained.add if drained else self._drained.discard)(bare.id)

    def lose(self, machine_id: MachineId) -> None:
        """Count a node no more."""
        if any(one.id == machine_id for one in self.scheduler.cluster.machines):
            self.scheduler.learn(MachineLeft(machine_id), 0.0)
            self._drained.discard(machine_id)

    def occupy(self, taken: Occupied) -> None:
        """Count what others have of a node."""
        if any(one.id == taken.machine_id for one in self.scheduler.cluster.machines):
            self.scheduler.learn(taken, 0.0)

    def hold(self, uid: str, demand: Demand, placement: Placement) -> None:
        """Count what a pod has, unless it is counted already."""
        if uid in self._held:
            return
        job = self._job(demand)
        self.scheduler.learn(Recovered(job, placement=placement), 0.0)
        self._held[uid] = job.id

    def release(self, uid: str) -> None:
        """Count a pod no more."""
        job_id = self._held.pop(uid, None)
        state = None if job_id is None else self.scheduler.state(job_id)
        if job_id is not None and state is not None:
            # One whose node is gone waits to be placed again, which its owner sees to.
            ended = Cancelled(job_id) if state is JobState.QUEUED else Finished(job_id)
            self.scheduler.learn(ended, 0.0)

    # -- what is asked ----------------------------------------------------------------

    def fitting(self, demand: Demand, among: Collection[str]) -> set[str]:
        """Return the nodes, of those named, that a pod fits on now."""
        view, (task,) = self.scheduler.view, one_task(demand).tasks
        found: set[str] = {view.free(at).id for at in view.candidates(task)}
        return found & set(among)

    def place(self, demand: Demand, among: Collection[str]) -> Placement | Refusal:
        """Return where the placer would put a pod, of the nodes named."""
        known = [one.id for one in self.scheduler.cluster.machines if one.id in among]
        view = self.scheduler.view.only(known)
        return self.scheduler.policy.placer.place(self._job(demand), view, Random(0))

    def _job(self, demand: Demand) -> Job:
        self._serial += 1
        return Job(JobId(f"pod-{self._serial}"), one_task(demand), 0.0, self._serial)
