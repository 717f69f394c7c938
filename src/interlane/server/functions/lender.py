"""Where replicas go: on what jobs leave over of devices, by ``interlane.policy.colocate``.

The lender follows which jobs hold which devices.  A job that comes takes its memory, and
functions that are in its way leave; a job is never moved.  Of workloads that were never seen
together little is known, so that a guess is trusted until something is measured: two violations
in a row take a function away, and the pair is remembered.  A job that is exclusive, or bears
less slow-down than functions may cause, has no neighbours.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

import numpy as np

from interlane.kernel.harvesting import SEVERAL, gpu_id, gpus_of
from interlane.model import MILLI, Cluster, MachineId, Refusal
from interlane.model.function import Function
from interlane.policy.colocate.gpus import LIMIT
from interlane.policy.colocate.place import Bounded, Harvest
from interlane.policy.colocate.slowdown import Mode, Tolls
from interlane.predict.degradation.models import Guess
from interlane.predict.degradation.pairs import Profiles
from interlane.predict.degradation.table import Basis, Table
from interlane.server import spec
from interlane.server.devices import Devices
from interlane.server.functions.deployed import Device, Site
from interlane.server.record import Record
from interlane.server.spec import JobSpec


class Prior(NamedTuple):
    """A guess of what is retained, and how far it may be off, as a logarithm."""

    retained: float
    spread: float


SIDE_BY_SIDE: Final = "side-by-side"
TRAINING: Final = Prior(0.97, 0.05)
"""What a job is thought to retain beside a function before anything was measured."""
LATENCY: Final = Prior(0.99, 0.01)
"""The same of a function beside anybody: others are idle most of the time."""


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
    return job.share.mode is spec.Mode.EXCLUSIVE or (
        bound is not None and bound < 1.0 / (1.0 - LIMIT)
    )


class Lender:
    """Books of devices: what jobs hold, and which replicas are beside them."""

    def __init__(self, hardware: Devices) -> None:
        cluster = hardware.cluster
        self.devices = {
            gpu_id(machine.id, gpu): _device(hardware, machine.id, gpu)
            for machine in cluster
            for gpu in range(machine.gpus)
        }
        self._cluster = cluster
        self._names: tuple[str, ...] = (SEVERAL,)
        self._table = _table(self._names, cluster, TRAINING)
        self._held: dict[str, tuple[Held, ...]] = {}
        self._lent: dict[str, tuple[Function, str]] = {}
        """Replica -> what it needs, and the device that it is on."""
        tolls = self._tolls()
        self._harvest = Harvest(gpus_of(cluster), Bounded(tolls), tolls, dice=Random(0))

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
        self._know([function.workload])
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
                self._know([one.workload for one in new])
                evicted += self._harvest.begin_training(gpu, *_together(new), now_s)
        self._held = dict(holdings)
        return [function.id for function in evicted]

    def measured(self, slow_downs: Mapping[str, float], now_s: float) -> list[str]:
        """Learn how much jobs are slowed down; return the replicas that must leave."""
        leaving = []
        for gpu, held in self._held.items():
            found = [slow_downs[one.job_id] for one in held if one.job_id in slow_downs]
            beside = self._harvest.gpus.by_id[gpu].functions
            if not found or not beside:
                continue
            if len(held) == len(beside) == 1:
                self._remember(gpu, held[0].workload, beside[0].workload, found[0], now_s)
            function = self._harvest.measured(gpu, max(found), (), now_s)
            if function is not None:
                leaving.append(function.id)
        return leaving

    # -- what is known of pairs -------------------------------------------------------

    def _know(self, names: Sequence[str]) -> None:
        """Give workloads rows of their own, from the first time they are seen."""
        new = [name for name in dict.fromkeys(names) if name not in self._names]
        if new:
            self._names = (*self._names, *new)
            self._table = _grown(self._table, self._names, self._cluster)
            self._read_anew()

    def _remember(
        self, gpu: str, job: str, function: str, slow_down: float, now_s: float
    ) -> None:
        table = self._table
        at = table.gpu(self._harvest.gpus.by_id[gpu].gpu_type)
        cell = at, table.workload(job), table.workload(function)
        table.measured(*cell, 1.0 / max(1.0, slow_down), now_s)
        table.refresh(at, now_s)
        self._read_anew()

    def _read_anew(self) -> None:
        tolls = self._tolls()
        self._harvest.tolls, self._harvest.colocator = tolls, Bounded(tolls)

    def _tolls(self) -> Tolls:
        latency = _table(self._names, self._cluster, LATENCY)
        return Tolls({SIDE_BY_SIDE: Mode(self._table, latency)})


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


def _table(names: tuple[str, ...], cluster: Cluster, prior: Prior) -> Table:
    """Return a table of guesses."""
    gpu_types = tuple(sorted({machine.gpu_type for machine in cluster}))
    pairs = len(gpu_types) * len(names) ** 2
    return Table(
        Profiles(names, names, gpu_types, (), np.zeros((len(gpu_types), len(names), 0))),
        Guess(np.full(pairs, np.log(prior.retained)), np.full(pairs, prior.spread)),
        np.ones(len(gpu_types)),
        np.full(pairs, Basis.HINGE, np.int8),
    )


def _grown(old: Table, names: tuple[str, ...], cluster: Cluster) -> Table:
    """Return a table of more workloads that knows what was measured."""
    table, known = _table(names, cluster, TRAINING), len(old.profiles)
    for name in ("seen_mean", "seen_weight", "seen_at_s", "basis"):
        getattr(table, name)[:, :known, :known] = getattr(old, name)
    for gpu in range(len(table.profiles.gpu_types)):
        table.refresh(gpu)
    return table
