"""Nodes of Slurm's as machines, and where a job is on them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from interlane.engines.slurm.gres import GPU, PINNED, SHARD, Gres
from interlane.engines.slurm.reading import SlurmJob, SlurmNode
from interlane.model import (
    MILLI,
    Device,
    Machine,
    MachineId,
    Occupied,
    Placement,
    Spot,
    TakenGpu,
    with_devices,
)
from interlane.model.machine import GPUS_PER_MACHINE_MAX

UNTYPED: Final = "GPU"


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of a node, by number."""

    models: tuple[str, ...]
    types: tuple[str, ...]
    """As Slurm calls each; several may be called the same, and cannot be told apart then."""
    shards: tuple[int, ...]
    """Into how many parts each can be cut; 0 if it cannot."""

    @property
    def pinned(self) -> bool:
        """Whether each can be asked for by itself."""
        return len(set(self.types)) == len(self.types)


def gpus_of(gres: Iterable[Gres]) -> NodeGpus:
    """Return the GPUs that a node's resources are."""
    whole = [one for one in gres if one.name == GPU]
    types = [one.type or UNTYPED for one in whole for _ in range(one.count)]
    types = types[:GPUS_PER_MACHINE_MAX]
    named = {one.type: one.count for one in gres if one.name == SHARD}
    of_all = named.get("", 0) // max(1, len(types))
    by_number = sorted(range(len(types)), key=lambda at: _number(types[at], at))
    return NodeGpus(
        tuple(_model(types[at]) for at in by_number),
        tuple(types[at] for at in by_number),
        tuple(_parts(named, types, at) or of_all for at in by_number),
    )


def _parts(named: Mapping[str, int], types: list[str], at: int) -> int:
    return named.get(types[at], 0) // types.count(types[at])


def _number(gpu_type: str, at: int) -> int:
    found = PINNED.fullmatch(gpu_type)
    return at if found is None else int(found["index"])


def _model(gpu_type: str) -> str:
    found = PINNED.fullmatch(gpu_type)
    return gpu_type if found is None else found["model"]


def machine_of(node: SlurmNode) -> Machine:
    """Return what a node offers."""
    features = sorted({(f"feature/{one}", "yes") for one in node.features if one.isprintable()})
    return with_devices(
        MachineId(node.name),
        [Device(model) for model in gpus_of(node.gres).models],
        cpu_milli=node.cpus * MILLI,
        memory_mib=node.memory_mib,
        labels=tuple(features),
    )


@dataclass(frozen=True, slots=True)
class HeldPart:
    """What a job has of one node."""

    cpus: int
    memory_mib: int
    gpus: Mapping[int, int]
    """Thousandths of each GPU, by number."""


def held_by(job: SlurmJob, at: int, gpus: NodeGpus) -> HeldPart:
    """Return what a job has of one of its nodes, which has these GPUs."""
    entries = job.gres[at] if at < len(job.gres) else ()
    milli: Counter[int] = Counter()
    for one in entries:
        numbers = [number for number in one.indexes if number < len(gpus.models)]
        if one.name == GPU:
            milli.update(dict.fromkeys(numbers, MILLI))
        elif one.name == SHARD and numbers:
            parts = sum(gpus.shards[number] for number in numbers) or MILLI
            share = -(-one.count * MILLI // parts)
            milli.update(dict.fromkeys(numbers, min(MILLI, share)))
    cpus = -(-job.cpus // max(1, len(job.nodes)))
    taken = {number: min(MILLI, amount) for number, amount in milli.items()}
    return HeldPart(cpus, job.memory_mib, taken)


def placement_of(job: SlurmJob, nodes: Mapping[str, NodeGpus]) -> Placement:
    """Return where a job runs: one instance on each of its nodes."""
    return Placement(
        tuple(
            Spot(
                MachineId(node),
                tuple(sorted(held_by(job, at, nodes[node]).gpus)) if node in nodes else (),
            )
            for at, node in enumerate(job.nodes)
        )
    )


def occupied_by(
    jobs: Iterable[SlurmJob], machines: Mapping[MachineId, NodeGpus]
) -> dict[MachineId, Occupied]:
    """Return what jobs that are not ours have of each machine."""
    cpus: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    gpus: dict[str, Counter[int]] = {}
    for job in jobs:
        for at, name in enumerate(job.nodes):
            node = machines.get(MachineId(name))
            if node is None:
                continue
            held = held_by(job, at, node)
            cpus[name] += held.cpus * MILLI
            memory[name] += held.memory_mib
            gpus.setdefault(name, Counter()).update(held.gpus)
    return {
        MachineId(name): Occupied(
            MachineId(name),
            cpus[name],
            memory[name],
            tuple(
                TakenGpu(number, min(MILLI, milli))
                for number, milli in sorted(gpus.get(name, Counter()).items())
            ),
        )
        for name in cpus
    }
