"""What placers in plain Python need: a machine's free room to plan on, and filling by rank.

    class Thrifty:
        types = TypeRule.EXACT

        def place(self, job, view, rng):
            return place_by(job, view, lambda sketch: sum(sketch.gpu_milli))

That is a whole placer: the fullest machine first.  It is right for gangs, roles, pooled
machines and GPUs that differ; what is decided is only the order of the machines.
"""

from collections.abc import Callable
from typing import Any

from interlane.model import Job, Placement, Refusal, Spot, Task
from interlane.policy.base import ClusterView, FreeMachine, TypeRule


class Sketch:
    """A private copy of what one machine has free, to plan on."""

    def __init__(self, machine: FreeMachine) -> None:
        self.machine = machine
        self.cpu_milli = machine.cpu_milli
        self.memory_mib = machine.memory_mib
        self.gpu_milli = list(machine.gpu_milli)
        self.gpu_memory_mib = list(machine.gpu_memory_mib)

    def take(self, task: Task) -> tuple[int, ...] | None:
        """Take one instance; return the numbers of its GPUs, or None if it does not fit."""
        needs = task.demand
        if self.cpu_milli < needs.cpu_milli or self.memory_mib < needs.memory_mib:
            return None
        gpus = self._gpus(task)
        if gpus is None:
            return None
        self.cpu_milli -= needs.cpu_milli
        self.memory_mib -= needs.memory_mib
        return gpus

    def _gpus(self, task: Task) -> tuple[int, ...] | None:
        needs, types = task.demand, self.machine.gpu_types
        if not needs.gpus:
            return ()
        if self.machine.pooled:  # one divisible amount: there are no GPUs to number
            if self.gpu_milli[0] < needs.gpu_milli_total:
                return None
            self.gpu_milli[0] -= needs.gpu_milli_total
            return ()
        able = [
            gpu
            for gpu, milli in enumerate(self.gpu_milli)
            if milli >= needs.gpu_milli
            and self.gpu_memory_mib[gpu] >= needs.gpu_memory_mib
            # GPUs of one machine may differ; a wildcard machine is a pool.
            and types[gpu] in (needs.gpu_types or types)
        ]
        if len(able) < needs.gpus:
            return None
        # One GPU: the tightest.  Several: the emptiest, or a later instance may be stranded.
        able.sort(key=lambda gpu: self.gpu_milli[gpu] * (1 if needs.gpus == 1 else -1))
        gpus = tuple(sorted(able[: needs.gpus]))
        for gpu in gpus:
            self.gpu_milli[gpu] -= needs.gpu_milli
            self.gpu_memory_mib[gpu] -= needs.gpu_memory_mib
        return gpus


Rank = Callable[[Sketch], Any]
"""What machines are sorted by; the lowest is filled first, and the first in cluster order."""


def place_by(
    job: Job, view: ClusterView, rank: Rank, types: TypeRule = TypeRule.EXACT
) -> Placement | Refusal:
    """Fill machines in the order of a rank; return where every instance goes, or why not.

    Machines are ranked once per task, as they are when its first instance is placed.
    """
    sketches: dict[int, Sketch] = {}
    spots: list[Spot] = []
    for number, task in enumerate(job.request.tasks):
        found = _place_task(number, task, view, rank, types, sketches)
        if found is None:
            return view.why_not(job, types)
        spots += found
    return Placement(tuple(spots))


def _place_task(
    number: int,
    task: Task,
    view: ClusterView,
    rank: Rank,
    types: TypeRule,
    sketches: dict[int, Sketch],
) -> list[Spot] | None:
    """Return the spots of one task; None if fewer than it needs would fit."""
    candidates = tuple(view.candidates(task, types))
    for index in candidates:
        if index not in sketches:
            sketches[index] = Sketch(view.free(index))
    wanted = task.least if task.same_machine else task.instances
    spots: list[Spot] = []
    for sketch in sorted((sketches[index] for index in candidates), key=rank):
        here: list[Spot] = []
        while len(spots) + len(here) < wanted:
            gpus = sketch.take(task)
            if gpus is None:
                break
            here.append(Spot(sketch.machine.id, gpus, 1, number))
        if task.same_machine and len(here) < wanted:
            continue
        spots += here
    return spots if len(spots) >= task.least else None
