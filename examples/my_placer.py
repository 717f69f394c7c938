"""A placer in plain Python: spare the GPUs that others will need.

Jobs that accept any GPU go to ordinary ones first; those of the types in ``spare`` are used
last.  Among equals the machine with the least free GPU share wins, so that large holes stay
whole.  Run this file to play ``jobs.csv`` on ``lab.yaml`` with it:

    python my_placer.py
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random

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


@dataclass(frozen=True, slots=True)
class Thrifty:
    """Use GPUs of the types in ``spare`` last, and the fullest machine first."""

    spare: str = "A100"
    """Types separated by ``|``."""
    types: TypeRule = TypeRule.EXACT

    def place(self, job: Job, view: ClusterView, rng: Random) -> Placement | Refusal:
        """Return where every instance goes, or why the job cannot be placed now."""
        sketches: dict[int, Sketch] = {}
        spots: list[Spot] = []
        for number, task in enumerate(job.request.tasks):
            found = self._place_task(number, task, view, sketches)
            if found is None:
                return view.why_not(job, self.types)
            spots += found
        return Placement(tuple(spots))

    def _place_task(
        self, number: int, task: Task, view: ClusterView, sketches: dict[int, Sketch]
    ) -> list[Spot] | None:
        """Return the spots of one task; None if fewer than it needs would fit."""
        for index in view.candidates(task, self.types):
            if index not in sketches:
                sketches[index] = Sketch(view.free(index))
        able = [sketches[index] for index in view.candidates(task, self.types)]
        able.sort(key=self._reluctance)
        wanted = task.least if task.same_machine else task.instances
        spots: list[Spot] = []
        for sketch in able:
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

    def _reluctance(self, sketch: Sketch) -> tuple[bool, int, int]:
        machine = sketch.machine
        return machine.gpu_type in self.spare.split("|"), sum(sketch.gpu_milli), machine.index


def main() -> None:
    """Play the example under the default placer and under this one."""
    from interlane import wiring
    from interlane.policy.catalogue import PlacerRecipe, placer_recipe
    from interlane.policy.order import Fifo
    from interlane.sim.experiment import Choice, Experiment, run

    cluster = wiring.cluster_of("lab.yaml")
    trace = wiring.trace_of(Path("jobs.csv"), cluster)
    for recipe in (placer_recipe("balance"), PlacerRecipe("thrifty", Thrifty)):
        result = run(Experiment(trace, cluster, Choice("fifo", Fifo(), recipe)))
        mean_wait_s = result.summary["mean_wait_s"]
        print(f"{result.summary['policy']}: mean wait {mean_wait_s:,.0f} s")


if __name__ == "__main__":
    main()
