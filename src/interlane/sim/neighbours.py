"""Who shares what with whom, for worlds in which that matters."""

from collections import Counter
from collections.abc import Sequence

from interlane.model import Cluster, Job, Machine, MachineId, Placement, Spot
from interlane.sim.world import Neighbourhood, World


class Neighbours:
    """Which jobs are on which GPUs, and how fast each runs there."""

    def __init__(self, cluster: Cluster, jobs: Sequence[Job], world: World) -> None:
        self._machines = {machine.id: machine for machine in cluster}
        self._jobs = jobs
        self._world = world
        self._at: dict[MachineId, set[int]] = {machine.id: set() for machine in cluster}
        """Jobs on each machine; agrees with ``_placements``."""
        self._on_gpu: dict[tuple[MachineId, int], Counter[int]] = {}
        """Spots of each job on each GPU."""
        self._cpu_milli: Counter[MachineId] = Counter()
        self._placements: dict[int, Placement] = {}

    def put(self, machine: Machine) -> list[int]:
        """Note what a machine is from now on; return the jobs whose speed may change."""
        self._machines[machine.id] = machine
        return sorted(self._at.setdefault(machine.id, set()))

    def enter(self, number: int, placement: Placement) -> list[int]:
        """Note that a job started; return the jobs whose speed may change, itself included."""
        self._placements[number] = placement
        return self._settle_in(number, placement)

    def grow(self, number: int, more: Placement) -> list[int]:
        """Note that a job got more instances; return the jobs whose speed may change."""
        self._placements[number] += more
        return self._settle_in(number, more)

    def _settle_in(self, number: int, placement: Placement) -> list[int]:
        self._count(number, placement, 1)
        for machine in placement.machines:
            self._at[machine].add(number)
        return self._around(placement)

    def leave(self, number: int) -> list[int]:
        """Note that a job is gone; return the jobs whose speed may change."""
        placement = self._placements.pop(number)
        self._count(number, placement, -1)
        for machine in placement.machines:
            self._at[machine].discard(number)
        return self._around(placement)

    def speed(self, number: int) -> float:
        """Return how fast a job runs: as fast as its slowest spot."""
        job = self._jobs[number]
        placement = self._placements[number]
        return min(
            self._world.speed(job, self._neighbourhood(number, spot))
            for spot in placement.spots
        )

    def _neighbourhood(self, number: int, spot: Spot) -> Neighbourhood:
        machine = self._machines[spot.machine]
        others = {
            other
            for gpu in spot.gpus
            for other in self._on_gpu.get((spot.machine, gpu), ())
            if other != number
        }
        ratio = self._cpu_milli[spot.machine] / machine.cpu_milli if machine.cpu_milli else 0.0
        sharers = tuple(self._jobs[other] for other in sorted(others))
        return Neighbourhood(machine, spot, sharers, ratio)

    def _around(self, placement: Placement) -> list[int]:
        return sorted({job for machine in placement.machines for job in self._at[machine]})

    def _count(self, number: int, placement: Placement, sign: int) -> None:
        tasks = self._jobs[number].request.tasks
        for spot in placement.spots:
            demand = tasks[spot.task].demand
            self._cpu_milli[spot.machine] += sign * spot.instances * demand.cpu_milli
            for gpu in spot.gpus:
                there = self._on_gpu.setdefault((spot.machine, gpu), Counter())
                there[number] += sign
                if there[number] == 0:
                    del there[number]
