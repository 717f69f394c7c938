"""Clusters by name or from a file.

A cluster file is YAML::

    name: lab
    machines:
      - {count: 4, name: a100, gpu_type: A100, gpus: 8, cpus: 96, memory_gib: 512}
      - {count: 2, name: old, gpu_type: K40, gpus: 4, cpus: 32, memory_gib: 128,
         gpu_memory_gib: 12}

Each entry of ``machines`` stands for ``count`` (default 1) equal machines; ``cpus`` and
``memory_gib`` are needed.  A machine without GPUs leaves out ``gpus`` and ``gpu_type``.
``gpu_memory_gib`` may be left out for GPU types that interlane knows.  ``pooled: true``
counts the GPUs as one divisible amount.  The order in the file is the order of machines.

The node list of openb and the machine table of PAI v2020 (CSV) are cluster files too.
"""

from collections.abc import Iterable, Mapping
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

BUILT_IN: Final = ("openb", "openb-all", "pai2020", "pai2020-1to5", "pool:GPUS")
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

_OPENB_FILES: Final = {
    "openb": "pai-v2023/openb_node_list_gpu_node.csv",
    "openb-all": "pai-v2023/openb_node_list_all_node.csv",
}
_OPENB_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_SPEC_COLUMNS: Final = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")


def load_cluster(spec: str, *, data: Path | None = None) -> Cluster:
    """Return the cluster of this name or file; ``data`` is the directory of traces."""
    if spec.startswith(POOL):
        return _pool(spec)
    if spec == "pai2020-1to5":
        return _fifth()
    if spec == "pai2020":
        return _whole()
    if spec in _OPENB_FILES:
        return _openb(spec, data)
    path = Path(spec)
    if path.is_file():
        return _from_file(path)
    if path.suffix:
        raise InvalidFile(spec, "there is no such cluster file; check the path.")
    raise UnknownName("cluster", spec, BUILT_IN)


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


def _openb(spec: str, data: Path | None) -> Cluster:
    path = None if data is None else data / _OPENB_FILES[spec]
    if path is None or not path.is_file():
        raise InvalidInput(
            f"Cluster {spec} is read from {path or _OPENB_FILES[spec]}, which is not there; "
            f"name the directory of traces with --data or {VARIABLE}."
        )
    return replace(_from_file(path), name=spec)


def _from_file(path: Path) -> Cluster:
    if path.name.endswith((".csv", ".csv.gz")):
        return _from_csv(path)
    return _from_yaml(path)


def _from_csv(path: Path) -> Cluster:
    """Read openb's node list, or PAI's machine table with or without its header."""
    from interlane.traces.checks import Rows
    from interlane.traces.read.source import Source

    source = Source(path)
    if frozenset(source.header).issuperset(_OPENB_COLUMNS):
        machines = _openb_machines(Rows(source.table()))
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


def _from_yaml(path: Path) -> Cluster:
    import yaml

    try:
        contents = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "unreadable"
        raise InvalidFile(
            str(path),
            f"this is not YAML ({problem}); mend it.",
            mark.line + 1 if mark else None,
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(str(path), f"the file cannot be read ({error}).") from None
    return _cluster(str(path), path.stem, contents)


def _cluster(file: str, stem: str, contents: object) -> Cluster:
    if not isinstance(contents, Mapping):
        raise InvalidFile(file, "a cluster file holds the keys name and machines; add them.")
    _refuse_strangers(file, "the file", contents, ("name", "machines"))
    entries = contents.get("machines")
    if not isinstance(entries, list) or not entries:
        raise InvalidFile(file, "machines must be a list with at least one entry; add one.")
    name = contents.get("name", stem)
    if not isinstance(name, str):
        raise InvalidFile(file, f"name is {name!r}, but it must be text; put it in quotes.")
    groups = [_group(file, number, entry) for number, entry in enumerate(entries, 1)]
    try:
        return Cluster(name, tuple(machine for group in groups for machine in group))
    except InvalidInput as error:
        raise InvalidFile(file, str(error)) from None


_KEYS: Final = (
    "count",
    "name",
    "gpu_type",
    "gpus",
    "cpus",
    "memory_gib",
    "gpu_memory_gib",
    "pooled",
)


def _group(file: str, number: int, entry: object) -> list[Machine]:
    where = f"machine entry {number}"
    if not isinstance(entry, Mapping):
        raise InvalidFile(file, f"{where} is {entry!r}, but it must be keys with values.")
    _refuse_strangers(file, where, entry, _KEYS)
    take = _Entry(file, where, entry)
    count = take.whole("count", default=1, least=1)
    gpus = take.whole("gpus", default=0)
    kind = take.text("gpu_type", default=NO_GPU if not gpus else None)
    name = take.text("name", default=kind.lower())
    machine = Machine(
        MachineId(name),
        kind,
        0,
        round(take.amount("cpus") * MILLI),
        round(take.amount("memory_gib") * MIB_PER_GIB),
        take.card_mib(kind) if gpus else 0,
        pooled=take.claim("pooled"),
    )
    try:
        machine = replace(machine, gpus=gpus)
    except InvalidField as error:
        raise InvalidFile(file, f"{where}: {error}") from None
    if count == 1:
        return [machine]
    return [replace(machine, id=MachineId(f"{name}-{one}")) for one in range(count)]


def _refuse_strangers(
    file: str, where: str, given: Mapping[object, object], known: tuple[str, ...]
) -> None:
    for key in given:
        if key not in known:
            raise InvalidFile(
                file, f"{where} has the key {key!r}; known are {', '.join(known)}."
            )


class _Entry:
    """One entry of ``machines``, whose values are taken with their types checked."""

    def __init__(self, file: str, where: str, values: Mapping[str, object]) -> None:
        self._file = file
        self._where = where
        self._values = values

    def whole(self, key: str, *, default: int, least: int = 0) -> int:
        value = self._values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 10**5:
            raise self._wrong(key, f"a whole number from {least} to 100000")
        return value

    def amount(self, key: str) -> float:
        value = self._values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "a number")
        if not 0 <= value < 10**9:
            raise self._wrong(key, "0 or more")
        return float(value)

    def text(self, key: str, *, default: str | None) -> str:
        value = self._values.get(key, default)
        if not isinstance(value, str) or not value:
            raise self._wrong(key, "text")
        return value

    def claim(self, key: str) -> bool:
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def card_mib(self, kind: str) -> int:
        if "gpu_memory_gib" not in self._values and kind in GPU_MEMORY_MIB:
            return GPU_MEMORY_MIB[kind]
        return round(self.amount("gpu_memory_gib") * MIB_PER_GIB)

    def _wrong(self, key: str, rule: str) -> InvalidFile:
        value = self._values.get(key)
        given = "missing" if value is None else repr(value)
        return InvalidFile(
            self._file, f"{self._where}: {key} is {given}, but it must be {rule}."
        )
