"""Where replicas go: on what jobs leave over of devices, by ``interlane.policy.colocate``.

The lender follows which jobs hold which devices.  A job that comes takes its memory, and
functions that are in its way leave; a job is never moved.  Of workloads that were never seen
together little is known, so that a guess is trusted until something is measured.  What either
side suffers is remembered, and two violations in a row take a function away.  A job that is
exclusive, or bears less slow-down than functions may cause, has no neighbours.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from interlane.model import MILLI, Cluster, MachineId, Refusal
from interlane.model.function import Function
from interlane.policy.colocate.gpus import LIMIT, SEVERAL, gpu_id, gpus_of
from interlane.policy.colocate.place import Bounded, Harvest
from interlane.server import spec
from interlane.server.coruns import BESIDE, LATENCY, P99, CoRun
from interlane.server.devices import Devices
from interlane.server.functions.experience import SIDE_BY_SIDE, Experience
from interlane.server.functions.replicas import Device, Site
from interlane.server.functions.services import Place, Slowed
from interlane.server.record import Record
from interlane.server.spec import JobSpec

BORNE: Final = 1.0 / (1.0 - LIMIT)
"""Slow-down by functions that a job bears."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one job holds of one device."""

    job_id: str
    workload: str
    memory_mib: int
    use: float


Holdings = Mapping[str, tuple[Held, ...]]
"""Device -> jobs that hold some of it."""


def holdings_of(records: Iterable[Record], cluster: Cluster) -> Holdings:
    """Return what jobs hold of every device; who says no memory has all of its share's."""
    found: dict[str, list[Held]] = {}
    memory_mib = {machine.id: machine.gpu_memory_mib for machine in cluster}
    for record in records:
        if record.place is None:
            continue
        job = JobSpec.model_validate(record.spec)
        request = spec.request_of(job, cluster)
        for spot in record.place.spots:
            demand = request.tasks[spot.task].demand
            share = min(1.0, spot.instances * demand.gpu_milli / MILLI)
            card_mib = memory_mib[spot.machine]
            mib = spot.instances * demand.gpu_memory_mib or int(share * card_mib)
            if _bears_nobody(job):
                mib = card_mib
            held = Held(record.id, spec.program_of(job), mib, share)
            for number in spot.gpus:
                found.setdefault(gpu_id(spot.machine, number), []).append(held)
    return {
        name: tuple(sorted(held, key=lambda one: one.job_id)) for name, held in found.items()
    }


def _bears_nobody(job: JobSpec) -> bool:
    """Tell whether a job wants its devices for itself, or bears less than is promised."""
    bound = job.share.max_slowdown
    return job.share.mode is spec.Mode.EXCLUSIVE or (bound is not None and bound < BORNE)


@dataclass(frozen=True, slots=True)
class Slot:
    """What was measured in a slot."""

    jobs: Mapping[str, float]
    """Job -> by how much functions slowed it down."""
    functions: Mapping[Place, Slowed]
    called: frozenset[Place]
    """Functions that did something."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What somebody suffered on a device, and what was predicted, as times what it is alone."""

    device: str
    beside: tuple[str, ...]
    """Jobs, or functions as ``function_name`` calls them."""
    measured: float
    """Of a job's iterations the mean, of a function's calls the 99th percentile."""
    mean: float
    predicted: float
    """What was thought of the former before it was measured."""
    limit: float
    """What it may be."""
    at_s: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from a slot."""

    leaving: list[str] = field(default_factory=list)
    """Replicas that must leave."""
    compared: dict[Place, Compared] = field(default_factory=dict)
    """By who suffers, and where."""
    coruns: list[CoRun] = field(default_factory=list)
    """What was measured of two that had the device to themselves."""


class Lender:
    """Books of devices: what jobs hold, and which replicas are beside them."""

    def __init__(self, hardware: Devices) -> None:
        cluster = hardware.cluster
        self.devices = {
            gpu_id(machine.id, gpu): _device(hardware, machine.id, gpu)
            for machine in cluster
            for gpu in range(machine.gpus)
        }
        gpus = gpus_of(cluster)
        self.gpu_types = {gpu.id: gpu.gpu_type for gpu in gpus.order}
        self._experience = Experience(cluster)
        self._held: dict[str, tuple[Held, ...]] = {}
        self._lent: dict[str, tuple[Function, str]] = {}
        """Replica -> what it needs, and the device that it is on."""
        tolls = self._experience.tolls()
        self._harvest = Harvest(gpus, Bounded(tolls), tolls, dice=Random(0))

    @property
    def lendable_mib(self) -> int:
        """Memory that jobs leave over, of all devices."""
        lent_mib = sum(function.memory_mib for function, _ in self._lent.values())
        return sum(self.free_mib().values()) + lent_mib

    def free_mib(self) -> dict[str, int]:
        """Return the memory of each device that neither jobs nor replicas have."""
        return {gpu.id: max(0, gpu.memory_mib) for gpu in self._harvest.gpus.order}

    def lend(self, function: Function, waiting: int, now_s: float) -> Site | Refusal:
        """Return where a replica goes, and hold its place."""
        self._meet([function.workload])
        found = self._harvest.place(function, waiting, now_s)
        if isinstance(found, Refusal):
            return found
        self._lent[function.id] = function, found.gpu.id
        return Site(function.id, self.devices[found.gpu.id])

    def leave(self, replica: str, now_s: float) -> None:
        """Note that a replica is gone."""
        function, gpu = self._lent.pop(replica)
        if function in self._harvest.gpus.by_id[gpu].functions:
            self._harvest.leave(function, gpu, now_s)

    def follow(self, holdings: Holdings, now_s: float) -> list[str]:
        """Learn what jobs hold now; return the replicas that must leave at once."""
        evicted: list[Function] = []
        for gpu in self._harvest.gpus.by_id:
            old, new = self._held.get(gpu, ()), holdings.get(gpu, ())
            if old == new:
                continue
            if old:
                self._harvest.end_training(gpu, *_together(old)[1:], now_s)
            if new:
                self._meet([one.workload for one in new])
                evicted += self._harvest.begin_training(gpu, *_together(new), now_s)
        self._held = dict(holdings)
        return [function.id for function in evicted]

    def measured(self, slot: Slot, now_s: float) -> Verdict:
        """Learn what jobs and functions suffer from each other, and who must leave for it."""
        verdict = Verdict()
        for gpu, held in self._held.items():
            jobs = [one for one in held if one.job_id in slot.jobs]
            for job in jobs:
                self._compare_job(job, gpu, slot, verdict, now_s)
            slowed = self._slowed(gpu, slot)
            for name, found in slowed.items():
                self._compare_function(Place(name, gpu), found, verdict, now_s)
            leaving = self._harvest.measured(
                gpu,
                max((slot.jobs[one.job_id] for one in jobs), default=None),
                [_p99(one, slowed.get(one.workload)) for one in self._beside(gpu)],
                now_s,
            )
            if leaving is not None:
                verdict.leaving.append(leaving.id)
        return verdict

    def present(self) -> set[Place]:
        """Return who is where, jobs and functions."""
        jobs = {Place(one.job_id, gpu) for gpu, held in self._held.items() for one in held}
        return jobs | {Place(one.workload, gpu) for one, gpu in self._lent.values()}

    def _beside(self, gpu: str) -> list[Function]:
        return self._harvest.gpus.by_id[gpu].functions

    def _slowed(self, gpu: str, slot: Slot) -> dict[str, Slowed]:
        """Return what functions on a device suffer from jobs that are still there."""
        there = {Place(one.workload, gpu) for one in self._beside(gpu)}
        jobs = {one.job_id for one in self._held[gpu]}
        return {
            place.name: one
            for place, one in slot.functions.items()
            if place in there and one.jobs <= jobs
        }

    def _compare_job(
        self, job: Held, gpu: str, slot: Slot, verdict: Verdict, now_s: float
    ) -> None:
        beside = {
            one.workload: one
            for one in self._beside(gpu)
            if Place(one.workload, gpu) in slot.called
        }
        if not beside:
            return
        *others, newest = beside.values()
        toll = self._harvest.tolls.toll(
            SIDE_BY_SIDE, self.gpu_types[gpu], job.workload, others, newest, guessed=True
        )
        slower = slot.jobs[job.job_id]
        verdict.compared[Place(job.job_id, gpu)] = Compared(
            gpu, tuple(beside), slower, slower, toll.training, BORNE, now_s
        )
        if len(self._held[gpu]) == len(beside) == 1:
            corun = CoRun(BESIDE, job.workload, newest.workload, slower)
            verdict.coruns.append(corun)
            self._remember(gpu, corun, now_s)

    def _compare_function(
        self, place: Place, slowed: Slowed, verdict: Verdict, now_s: float
    ) -> None:
        jobs = [one for one in self._held[place.gpu] if one.job_id in slowed.jobs]
        workload, _, _ = _together(jobs)
        corun = CoRun(P99, place.name, workload, slowed.p99)
        predicted = self._experience.predicted(self.gpu_types[place.gpu], corun)
        verdict.compared[place] = Compared(
            place.gpu,
            tuple(one.job_id for one in jobs),
            slowed.p99,
            slowed.mean,
            predicted,
            slowed.limit,
            now_s,
        )
        if len(jobs) == 1:
            verdict.coruns.append(CoRun(LATENCY, place.name, workload, slowed.mean))
            if slowed.is_p99:
                verdict.coruns.append(corun)
        self._remember(place.gpu, corun, now_s)

    # -- what is known of pairs -------------------------------------------------------

    def _meet(self, names: Iterable[str]) -> None:
        if self._experience.meet(names):
            self._read_anew()

    def _remember(self, gpu: str, corun: CoRun, now_s: float) -> None:
        self._experience.remember(self.gpu_types[gpu], corun, now_s)
        self._read_anew()

    def _read_anew(self) -> None:
        tolls = self._experience.tolls()
        self._harvest.tolls, self._harvest.colocator = tolls, Bounded(tolls)


def _device(hardware: Devices, machine: MachineId, gpu: int) -> Device:
    number = hardware.number(machine, gpu)
    cores = hardware.shared[number].cores if hardware.emulated else ()
    return Device(
        gpu_id(machine, gpu), number, hardware.visible([number]), tuple(sorted(cores))
    )


def _together(held: Sequence[Held]) -> tuple[str, int, float]:
    """Return workload, memory and use of all jobs on a device."""
    workload = held[0].workload if len(held) == 1 else SEVERAL
    return workload, sum(one.memory_mib for one in held), sum(one.use for one in held)


def _p99(replica: Function, slowed: Slowed | None) -> float | None:
    """Return what a replica suffers; a limit that was found since it was placed holds too."""
    return None if slowed is None else slowed.p99 * replica.p99_limit / slowed.limit
