"""Clusters by name or from a file.

Cluster files are YAML (``cluster_file``).  The node list of openb and the machine table of
PAI v2020 (CSV) are cluster files too.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from interlane.model import (
    MILLI,
    Cluster,
    InvalidField,
    InvalidFile,
    InvalidInput,
    Machine,
    MachineId,
    UnknownName,
)
from interlane.model.gpu import GPU_MEMORY_MIB, NO_GPU
from interlane.model.units import MIB_PER_GIB
from interlane.traces.cluster_file import ClusterScenario, read_scenario
from interlane.traces.data import VARIABLE

if TYPE_CHECKING:
    from interlane.traces.checks import Rows

POOL: Final = "pool:"
"""``pool:G`` is the published simulator's cluster of G GPUs."""

POOL_CPUS_PER_GPU: Final = 23.22
"""156,576 CPUs for 6,742 GPUs, as the published simulator rounds it."""

ENDLESS_MIB: Final = 2**50
"""Main memory of machines in the published simulator, which does not count it."""

ENDLESS_GPU_MIB: Final = 2**40
"""Memory of the GPUs there."""

ANY_TYPE: Final = "ANY"
"""GPU type of a pool."""

WEAKEST_FIRST: Final = (NO_GPU, "MISC", "T4", "P100", "V100", "V100M32")
"""PAI's types in the order in which its machines are numbered."""

BUILT_IN: Final = ("openb", "openb-all", "pai2020", "pai2020-1to5", "spot2026", "pool:GPUS")
"""Clusters that need no file of the user's."""

_FIFTH: Final = (
    (16, NO_GPU, 0, 96),
    (56, "MISC", 8, 96),
    (100, "T4", 2, 96),
    (160, "P100", 2, 64),
    (48, "V100", 8, 96),
)

# Machines, type, GPUs, CPUs, GB: the table of PAI v2020, V100 in two memory sizes.
_WHOLE: Final = (
    (83, NO_GPU, 0, 96, 512),
    (280, "MISC", 8, 96, 512),
    (497, "T4", 2, 96, 512),
    (798, "P100", 2, 64, 512),
    (45, "V100", 8, 96, 384),
    (59, "V100", 8, 96, 512),
    (135, "V100M32", 8, 96, 384),
)

_FILES: Final = {
    "openb": "pai-v2023/openb_node_list_gpu_node.csv",
    "openb-all": "pai-v2023/openb_node_list_all_node.csv",
    "spot2026": "pai-v2026-spot/node_info_df.csv",
}
_SPOT_COLUMNS: Final = ("gpu_model", "gpu_capacity_num", "cpu_num", "node_name")
_OPENB_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_SPEC_COLUMNS: Final = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")


def load_cluster(spec: str, *, data: Path | None = None) -> Cluster:
    """Return the cluster of this name or file; ``data`` is the directory of traces."""
    return load_scenario(spec, data=data).cluster


def load_scenario(spec: str, *, data: Path | None = None) -> ClusterScenario:
    """Return the cluster of this name or file, and what happens to its machines."""
    built_in = _built_in(spec, data)
    if built_in is not None:
        return ClusterScenario(built_in)
    path = Path(spec)
    if path.is_file():
        is_table = path.name.endswith((".csv", ".csv.gz"))
        return ClusterScenario(_from_csv(path)) if is_table else read_scenario(path)
    if path.suffix:
        raise InvalidFile(spec, "there is no such cluster file; check the path.")
    raise UnknownName("cluster", spec, BUILT_IN)


def _built_in(spec: str, data: Path | None) -> Cluster | None:
    if spec.startswith(POOL):
        return _pool(spec)
    if spec == "pai2020-1to5":
        return _fifth()
    if spec == "pai2020":
        return _whole()
    return _from_data(spec, data) if spec in _FILES else None


def _pool(spec: str) -> Cluster:
    given = spec.removeprefix(POOL)
    gpus = int(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0
    if gpus < 1:
        raise InvalidField("pool", given, "it must be a whole number of GPUs, as in pool:6500")
    machine = Machine(
        MachineId("pool"),
        ANY_TYPE,
        gpus,
        MILLI * round(POOL_CPUS_PER_GPU * gpus),
        ENDLESS_MIB,
        ENDLESS_GPU_MIB,
        pooled=True,
    )
    return Cluster(spec, (machine,), clips_requests=True)


def _fifth() -> Cluster:
    machines = [
        Machine(
            MachineId(""), kind, gpus, cpus * MILLI, ENDLESS_MIB, ENDLESS_GPU_MIB, pooled=True
        )
        for count, kind, gpus, cpus in _FIFTH
        for _ in range(count)
    ]
    return Cluster("pai2020-1to5", _numbered("node", machines))


def _whole() -> Cluster:
    machines = [
        _pai_machine(MachineId(""), kind, gpus, cpus, gib)
        for count, kind, gpus, cpus, gib in _WHOLE
        for _ in range(count)
    ]
    return Cluster("pai2020", _numbered("pai", machines))


def _pai_machine(name: MachineId, kind: str, gpus: int, cpus: int, gib: int) -> Machine:
    card_mib = GPU_MEMORY_MIB.get(kind, 0)
    return Machine(name, kind, gpus, cpus * MILLI, gib * MIB_PER_GIB, card_mib)


def _numbered(prefix: str, machines: Iterable[Machine]) -> tuple[Machine, ...]:
    """Return the machines with names whose order is their order."""
    listed = list(machines)
    digits = len(str(len(listed) - 1))
    return tuple(
        replace(machine, id=MachineId(f"{prefix}-{number:0{digits}d}"))
        for number, machine in enumerate(listed)
    )


def _from_data(spec: str, data: Path | None) -> Cluster:
    path = None if data is None else data / _FILES[spec]
    if path is None or not path.is_file():
        raise InvalidInput(
            f"Cluster {spec} is read from {path or _FILES[spec]}, which is not there; "
            f"name the directory of traces with --data or {VARIABLE}."
        )
    return replace(_from_csv(path), name=spec)


def _from_csv(path: Path) -> Cluster:
    """Read a node list of openb or of the spot trace, or PAI's machine table."""
    from interlane.traces.checks import Rows
    from interlane.traces.read.source import Source

    source = Source(path)
    if frozenset(source.header).issuperset(_OPENB_COLUMNS):
        machines = _openb_machines(Rows(source.table()))
    elif frozenset(source.header).issuperset(_SPOT_COLUMNS):
        machines = _spot_machines(Rows(source.table()))
    elif len(source.header) == len(_SPEC_COLUMNS):
        machines = _spec_machines(Rows(source.table(_SPEC_COLUMNS)))
    else:
        raise InvalidFile(
            str(path),
            f"this is neither a node list ({','.join(_OPENB_COLUMNS)}) nor a machine table "
            f"({','.join(_SPEC_COLUMNS)}); write the cluster as YAML.",
        )
    if not machines:
        raise InvalidFile(str(path), "the file has no machines; it needs at least one row.")
    return Cluster(source.name, tuple(machines))


def _openb_machines(rows: "Rows") -> list[Machine]:
    names, kinds = rows.text("sn", missing=None), rows.text("model")
    cpus_milli, memory_mib = rows.whole("cpu_milli"), rows.whole("memory_mib")
    gpus = rows.whole("gpu", most=62)
    rows.each_once("sn")
    rows.settle(skip_bad=False)
    listed = sorted(zip(names, kinds, gpus, cpus_milli, memory_mib, strict=True))
    return [
        Machine(name, kind or NO_GPU, cards, cpu, memory, GPU_MEMORY_MIB.get(kind, 0))
        for name, kind, cards, cpu, memory in listed
    ]


def _spot_machines(rows: "Rows") -> list[Machine]:
    """Return the nodes of the spot trace, which tells no main memory: it never runs out."""
    names, kinds = rows.text("node_name", missing=None), rows.text("gpu_model", missing=None)
    gpus, cpus = rows.whole("gpu_capacity_num", most=62), rows.whole("cpu_num")
    rows.each_once("node_name")
    rows.settle(skip_bad=False)
    return [
        Machine(
            MachineId(f"node-{int(name):04}"),
            kind,
            cards,
            cpu * MILLI,
            ENDLESS_MIB,
            GPU_MEMORY_MIB.get(kind, ENDLESS_GPU_MIB),
        )
        for name, kind, cards, cpu in zip(names, kinds, gpus, cpus, strict=True)
    ]


def _spec_machines(rows: "Rows") -> list[Machine]:
    names, kinds = rows.text("machine", missing=None), rows.text("gpu_type", missing=None)
    cpus, gib = rows.whole("cap_cpu"), rows.whole("cap_mem")
    gpus = rows.whole("cap_gpu", most=62)
    rows.each_once("machine")
    rows.settle(skip_bad=False)
    machines = [
        _pai_machine(name, kind, cards, cpu, memory)
        for name, kind, cards, cpu, memory in zip(names, kinds, gpus, cpus, gib, strict=True)
    ]
    rank = {kind: place for place, kind in enumerate(WEAKEST_FIRST)}
    return sorted(machines, key=lambda machine: rank.get(machine.gpu_type, len(rank)))
