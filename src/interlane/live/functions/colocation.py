"""Where replicas go: on what jobs leave over of devices, by ``interlane.policy.colocate``.

The lender follows which devices there are, and which jobs hold them.  A job that comes takes
its memory, and functions that are in its way leave; a job is never moved.  Of workloads that
were never seen together little is known, so that an estimate is trusted until something is
measured.
What either side suffers is remembered, and two violations in a row take a function away.  A job
that is exclusive, or bears less slowdown than functions may cause, has no neighbours.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from interlane.live.driver.state import Snapshot
from interlane.live.files import job as spec
from interlane.live.files.job import JobSpec
from interlane.live.functions.measurements import SEVERAL, SIDE_BY_SIDE, Experience
from interlane.live.functions.replicas import FunctionDevice, ReplicaPlace
from interlane.live.functions.services import Place, Slowed
from interlane.live.measure.coruns import BESIDE, LATENCY, P99, CoRun, job_workload
from interlane.model import MILLI, GpuRef, JobId, Machine, Refusal, Workload
from interlane.model.function import Function
from interlane.policy.colocate.gpus import LIMIT, ColocatedGpu, Gpus, gpus_of
from interlane.policy.colocate.place import Bounded, Colocation

BORNE: Final = 1.0 / (1.0 - LIMIT)
"""Slowdown by functions that a job bears."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one job holds of one device."""

    job_id: JobId
    workload: Workload
    memory_mib: int
    use: float


Holdings = Mapping[GpuRef, tuple[Held, ...]]
"""Device -> jobs that hold some of it."""


def holdings_of(now: Snapshot) -> Holdings:
    """Return what jobs hold of every device; who says no memory has all of its share's."""
    found: dict[GpuRef, list[Held]] = {}
    machines = now.machines.known
    for record in now.records:
        if record.placement is None:
            continue
        job = record.job
        request = now.request_of(job)
        workload = job_workload(spec.program_of(job))
        for spot in record.placement.spots:
            if spot.machine not in machines:
                continue  # it is gone, and its jobs will be requeued
            demand = request.tasks[spot.task].demand
            share = min(1.0, spot.instances * demand.gpu_milli / MILLI)
            for number in spot.gpus:
                card_mib = machines[spot.machine].device(number).memory_mib
                mib = spot.instances * demand.gpu_memory_mib or int(share * card_mib)
                held = Held(record.id, workload, card_mib if _bears_nobody(job) else mib, share)
                found.setdefault(GpuRef(spot.machine, number), []).append(held)
    return {gpu: tuple(sorted(held, key=lambda one: one.job_id)) for gpu, held in found.items()}


def _bears_nobody(job: JobSpec) -> bool:
    """Tell whether a job wants its devices for itself, or bears less than is promised."""
    bound = job.share.max_slowdown
    return job.share.mode is spec.ShareMode.EXCLUSIVE or (bound is not None and bound < BORNE)


@dataclass(frozen=True, slots=True)
class MeasuredSlot:
    """What was measured in a slot."""

    jobs: Mapping[JobId, float]
    """Job -> by how much functions slowed it down."""
    functions: Mapping[Place, Slowed]
    called: frozenset[Place]
    """Functions that did something."""


@dataclass(frozen=True, slots=True)
class ComparedSlowdown:
    """What somebody suffered on a device, and what was predicted, as times what it is alone."""

    device: str
    """As ``device_name`` calls it."""
    beside: tuple[str, ...]
    """Ids of jobs, or workloads of functions."""
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
    jobs: dict[tuple[JobId, GpuRef], ComparedSlowdown] = field(default_factory=dict)
    """What jobs suffer, and where."""
    functions: dict[Place, ComparedSlowdown] = field(default_factory=dict)
    coruns: list[CoRun] = field(default_factory=list)
    """What was measured of two that had the device to themselves."""


@dataclass(frozen=True, slots=True)
class _Lent:
    """A replica, and where it is."""

    need: Function
    workload: Workload
    gpu: ColocatedGpu


Present = Mapping[GpuRef, frozenset[str]]
"""Who is where: ids of jobs, and workloads of functions."""


class Allocator:
    """Knows of each device what jobs hold, and which replicas are beside them."""

    def __init__(self) -> None:
        self.devices: dict[GpuRef, FunctionDevice] = {}
        self.gpu_types: dict[GpuRef, str] = {}
        """Of all devices that were ever there."""
        self._machines: tuple[Machine, ...] = ()
        self._cards: dict[GpuRef, tuple[str, int]] = {}
        """Type and memory of each device."""
        self._gpus = Gpus()
        self._experience = Experience()
        self._held: dict[GpuRef, tuple[Held, ...]] = {}
        self._lent: dict[str, _Lent] = {}
        """By the id of the replica."""
        self._leaving: set[str] = set()
        """Replicas that have lost their place, and have its memory until they are gone."""
        slowdowns = self._experience.slowdowns()
        self._colocation = Colocation(self._gpus, Bounded(slowdowns), slowdowns, rng=Random(0))

    @property
    def lendable_mib(self) -> int:
        """Memory that jobs leave over, of all devices."""
        lent_mib = sum(one.need.memory_mib for one in self._lent.values())
        return sum(self.free_mib().values()) + lent_mib

    def free_mib(self) -> dict[GpuRef, int]:
        """Return the memory of each device that neither jobs nor replicas have."""
        return {gpu.id: max(0, gpu.memory_mib) for gpu in self._gpus.order}

    def lend(
        self,
        replica: str,
        workload: Workload,
        memory_mib: int,
        now_s: float,
        *,
        p99_limit: float,
        waiting: int,
    ) -> ReplicaPlace | Refusal:
        """Return where a replica goes, and hold its place."""
        self._meet([workload])
        need = Function(replica, str(workload), memory_mib, p99_limit=p99_limit)
        found = self._colocation.place(need, waiting, now_s)
        if isinstance(found, Refusal):
            return found
        self._lent[replica] = _Lent(need, workload, found.gpu)
        return ReplicaPlace(replica, self.devices[found.gpu.id])

    def leave(self, replica: str, now_s: float) -> None:
        """Note that a replica is gone."""
        lent = self._lent.pop(replica)
        if replica in self._leaving:
            self._leaving.discard(replica)
            self._take(lent.gpu, -lent.need.memory_mib)
        elif lent.need in lent.gpu.functions:
            self._colocation.leave(lent.need, lent.gpu.id, now_s)

    def _evicted(self, functions: Iterable[Function]) -> list[str]:
        """Return replicas that must leave; nobody else gets their memory before they have."""
        found = [function.id for function in functions]
        for replica in found:
            lent = self._lent[replica]
            self._leaving.add(replica)
            self._take(lent.gpu, lent.need.memory_mib)
        return found

    def _take(self, gpu: ColocatedGpu, memory_mib: int) -> None:
        gpu.memory_mib -= memory_mib
        if self._gpus.by_id.get(gpu.id) is gpu:
            self._gpus.place_in_index(gpu)

    def follow(
        self, machines: tuple[Machine, ...], holdings: Holdings, now_s: float
    ) -> list[str]:
        """Learn what there is and what jobs hold; return the replicas that must leave."""
        evicted = [] if machines == self._machines else self._follow_devices(machines)
        for gpu in self._gpus.by_id:
            old, new = self._held.get(gpu, ()), holdings.get(gpu, ())
            if old == new:
                continue
            if old:
                self._colocation.end_training(gpu, *_together(old)[1:], now_s)
            if new:
                self._meet([one.workload for one in new])
                workload, memory_mib, use = _together(new)
                evicted += self._colocation.begin_training(
                    gpu, str(workload), memory_mib, use, now_s
                )
        self._held = {gpu: held for gpu, held in holdings.items() if gpu in self._gpus.by_id}
        return self._evicted(evicted)

    def _follow_devices(self, machines: tuple[Machine, ...]) -> list[Function]:
        """Learn which devices there are; return the replicas on those that are gone."""
        found = {gpu.id: gpu for gpu in gpus_of(machines)}
        cards = {ref: (gpu.gpu_type, gpu.memory_mib) for ref, gpu in found.items()}
        evicted: list[Function] = []
        for gpu in list(self._gpus.order):
            if cards.get(gpu.id) != self._cards[gpu.id]:
                evicted += gpu.functions
                gpu.functions = []
                self._gpus.remove(gpu)
                self._held.pop(gpu.id, None)
                del self.devices[gpu.id]
        for ref, gpu in found.items():
            if ref not in self._gpus.by_id:
                self._gpus.add(gpu)
                self._inherit(gpu)
                self.devices[ref] = FunctionDevice(ref)
                self.gpu_types[ref] = gpu.gpu_type
        self._machines, self._cards = machines, cards
        self._meet([], self.gpu_types.values())
        return evicted

    def _inherit(self, gpu: ColocatedGpu) -> None:
        """Count replicas that are still leaving where a device is back again."""
        for replica, lent in self._lent.items():
            if replica in self._leaving and lent.gpu.id == gpu.id:
                self._lent[replica] = replace(lent, gpu=gpu)
                self._take(gpu, lent.need.memory_mib)

    def measured(self, slot: MeasuredSlot, now_s: float) -> Verdict:
        """Learn what jobs and functions suffer from each other, and who must leave for it."""
        verdict = Verdict()
        for gpu, held in self._held.items():
            jobs = [one for one in held if one.job_id in slot.jobs]
            for job in jobs:
                self._compare_job(job, gpu, slot, verdict, now_s)
            slowed = self._slowed(gpu, slot)
            for name, found in slowed.items():
                self._compare_function(Place(name, gpu), found, verdict, now_s)
            leaving = self._colocation.measured(
                gpu,
                max((slot.jobs[one.job_id] for one in jobs), default=None),
                [_p99(one, slowed.get(one.workload)) for one in self._beside(gpu)],
                now_s,
            )
            if leaving is not None:
                verdict.leaving.extend(self._evicted([leaving]))
        return verdict

    def present(self) -> Present:
        """Return who is where, jobs and functions."""
        jobs = [(gpu, str(one.job_id)) for gpu, held in self._held.items() for one in held]
        functions = [(one.gpu.id, str(one.workload)) for one in self._lent.values()]
        found: dict[GpuRef, frozenset[str]] = {}
        for gpu, name in jobs + functions:
            found[gpu] = found.get(gpu, frozenset()) | {name}
        return found

    def _beside(self, gpu: GpuRef) -> list[_Lent]:
        return [self._lent[one.id] for one in self._gpus.by_id[gpu].functions]

    def _slowed(self, gpu: GpuRef, slot: MeasuredSlot) -> dict[Workload, Slowed]:
        """Return what functions on a device suffer from jobs that are still there."""
        there = {Place(one.workload, gpu) for one in self._beside(gpu)}
        jobs = {one.job_id for one in self._held[gpu]}
        return {
            place.function: one
            for place, one in slot.functions.items()
            if place in there and one.jobs <= jobs
        }

    def _compare_job(
        self, job: Held, gpu: GpuRef, slot: MeasuredSlot, verdict: Verdict, now_s: float
    ) -> None:
        beside = {
            one.workload: one
            for one in self._beside(gpu)
            if Place(one.workload, gpu) in slot.called
        }
        if not beside:
            return
        *others, newest = (one.need for one in beside.values())
        slowdown = self._colocation.slowdowns.slowdown(
            SIDE_BY_SIDE, self.gpu_types[gpu], str(job.workload), others, newest, estimated=True
        )
        slower = slot.jobs[job.job_id]
        names = tuple(map(str, beside))
        verdict.jobs[job.job_id, gpu] = ComparedSlowdown(
            device_name(gpu), names, slower, slower, slowdown.training, BORNE, now_s
        )
        if len(self._held[gpu]) == len(beside) == 1:
            (function,) = beside
            corun = CoRun(BESIDE, job.workload, function, slower)
            verdict.coruns.append(corun)
            self._remember(gpu, corun, now_s)

    def _compare_function(
        self, place: Place, slowed: Slowed, verdict: Verdict, now_s: float
    ) -> None:
        jobs = [one for one in self._held[place.gpu] if one.job_id in slowed.jobs]
        workload, _, _ = _together(jobs)
        corun = CoRun(P99, place.function, workload, slowed.p99)
        predicted = self._experience.predicted(self.gpu_types[place.gpu], corun)
        verdict.functions[place] = ComparedSlowdown(
            device_name(place.gpu),
            tuple(one.job_id for one in jobs),
            slowed.p99,
            slowed.mean,
            predicted,
            slowed.limit,
            now_s,
        )
        if len(jobs) == 1:
            verdict.coruns.append(CoRun(LATENCY, place.function, workload, slowed.mean))
            if slowed.is_p99:
                verdict.coruns.append(corun)
        self._remember(place.gpu, corun, now_s)

    # -- what is known of pairs -------------------------------------------------------

    def _meet(self, workloads: Iterable[Workload], gpu_types: Iterable[str] = ()) -> None:
        if self._experience.meet(workloads, gpu_types):
            self._read_anew()

    def _remember(self, gpu: GpuRef, corun: CoRun, now_s: float) -> None:
        self._experience.remember(self.gpu_types[gpu], corun, now_s)
        self._read_anew()

    def _read_anew(self) -> None:
        slowdowns = self._experience.slowdowns()
        self._colocation.slowdowns, self._colocation.colocator = slowdowns, Bounded(slowdowns)


def device_name(gpu: GpuRef) -> str:
    """Return what users see of the device of a function."""
    return f"{gpu.machine}/{gpu.index}"


def _together(held: Sequence[Held]) -> tuple[Workload, int, float]:
    """Return workload, memory and use of all jobs on a device."""
    workload = held[0].workload if len(held) == 1 else SEVERAL
    return workload, sum(one.memory_mib for one in held), sum(one.use for one in held)


def _p99(replica: _Lent, slowed: Slowed | None) -> float | None:
    """Return what a replica suffers; a limit that was found since it was placed holds too."""
    return None if slowed is None else slowed.p99 * replica.need.p99_limit / slowed.limit
