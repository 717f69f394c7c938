"""Machines as a cluster file writes them: one entry for each, or for several that are alike.

``docs/reference/cluster-file.md`` lists the keys.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Final

from interlane.model import (
    MILLI,
    Device,
    InvalidInput,
    Label,
    Machine,
    MachineId,
    amounts,
    with_devices,
)
from interlane.model.gpu import NO_GPU
from interlane.model.units import MIB_PER_GIB
from interlane.traces.entries import FileSection

KEYS: Final = (
    "count", "name", "gpu_type", "gpus", "cpus", "memory_gib", "gpu_memory_gib", "pooled",
    "devices", "labels", "taints",
)  # fmt: skip
ALIKE_KEYS: Final = ("gpu_type", "gpus", "gpu_memory_gib", "pooled")
"""What an entry says of its GPUs where it does not list them as ``devices``."""

_DEVICE_KEYS: Final = ("type", "memory_gib", "compute", "count")
_DOMAIN_KEYS: Final = ("prefix", "size", "first")


# -- reading --------------------------------------------------------------------------


def machines_of(file: str, where: str, values: object) -> list[Machine]:
    """Return the machines that one entry stands for."""
    entry = FileSection(file, where, values, KEYS)
    count = entry.whole("count", default=1, least=1)
    machine = entry.made(lambda: replace(_machine(entry), taints=_taints(entry)))
    if count == 1:
        return [_placed(entry, machine, machine.id, 0)]
    return [_placed(entry, machine, f"{machine.id}-{one}", one) for one in range(count)]


def _placed(entry: FileSection, machine: Machine, name: str, number: int) -> Machine:
    """Return one of an entry's machines with the labels that it has."""
    labels = _labels(entry, number)
    return entry.made(lambda: replace(machine, id=MachineId(name), labels=labels))


def _machine(entry: FileSection) -> Machine:
    """Return the machine but for its labels and taints."""
    cpu_milli = round(entry.amount("cpus") * MILLI)
    memory_mib = round(entry.amount("memory_gib") * MIB_PER_GIB)
    if "devices" in entry:
        return _with_listed_devices(entry, cpu_milli, memory_mib)
    gpus = entry.whole("gpus", default=0)
    kind = entry.text("gpu_type", default=NO_GPU if not gpus else None)
    return Machine(
        MachineId(entry.text("name", default=kind.lower())),
        kind,
        gpus,
        cpu_milli,
        memory_mib,
        entry.card_mib("gpu_memory_gib", kind) if gpus else 0,
        pooled=entry.claim("pooled"),
    )


def _with_listed_devices(entry: FileSection, cpu_milli: int, memory_mib: int) -> Machine:
    for key in ALIKE_KEYS:
        if key in entry:
            raise entry.fault(f"it has both devices and {key}; give one of them.")
    listed = entry.listed("devices")
    devices = [
        one for number, given in enumerate(listed) for one in _devices(entry, number, given)
    ]
    if not devices:
        raise entry.wrong("devices", "a list with at least one device")
    made = with_devices(MachineId(""), devices, cpu_milli=cpu_milli, memory_mib=memory_mib)
    return replace(made, id=MachineId(entry.text("name", default=made.gpu_type.lower())))


def _devices(machine: FileSection, number: int, values: object) -> list[Device]:
    entry = machine.inside(f"device entry {number + 1}", values, _DEVICE_KEYS)
    kind = entry.text("type")
    device = Device(kind, entry.card_mib("memory_gib", kind), compute_of(entry, "compute"))
    return [device] * entry.whole("count", default=1, least=1)


def compute_of(entry: FileSection, key: str) -> int:
    """Return a share of one GPU in thousandths: ``300m``, or 0.3; all where nothing is said."""
    value = entry.values.get(key, 1)
    rule = "a share of one GPU, as in 300m or 0.3"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise entry.wrong(key, rule)
    try:
        milli = amounts.milli(key, value)
    except InvalidInput:
        raise entry.wrong(key, rule) from None
    if milli > MILLI:
        raise entry.wrong(key, rule)
    return milli


def _labels(entry: FileSection, number: int) -> tuple[Label, ...]:
    """Return the labels of one of an entry's machines."""
    given = entry.values.get("labels", {})
    if not isinstance(given, Mapping):
        raise entry.wrong("labels", "keys with values, as in {zone: a, rack: r1}")
    pairs = [(key, _label_value(entry, key, value, number)) for key, value in given.items()]
    return tuple(sorted(pairs))


def _label_value(entry: FileSection, key: object, value: object, number: int) -> str:
    _must_be_key(entry, "labels", key)
    if isinstance(value, Mapping):
        domain = entry.inside(f"label {key}", value, _DOMAIN_KEYS)
        prefix, size = domain.text("prefix"), domain.whole("size", least=1)
        return f"{prefix}{domain.whole('first', default=0) + number // size}"
    return _plain(entry, f"label {key}", value)


def _taints(entry: FileSection) -> tuple[Label, ...]:
    """Return the taints: keys with values, or a list of ``key=value``."""
    given = entry.values.get("taints", {})
    if isinstance(given, Mapping):
        pairs = [(key, _taint_value(entry, key, value)) for key, value in given.items()]
    elif isinstance(given, list):
        pairs = [_taint(entry, text) for text in given]
    else:
        raise entry.wrong("taints", "keys with values, or a list of key=value")
    if len(set(pairs)) != len(pairs):
        raise entry.wrong("taints", "a list in which each is there once")
    return tuple(sorted(pairs))


def _taint_value(entry: FileSection, key: object, value: object) -> str:
    _must_be_key(entry, "taints", key)
    return _plain(entry, f"taint {key}", value)


def _taint(entry: FileSection, text: object) -> Label:
    key, equals, value = text.partition("=") if isinstance(text, str) else ("", "", "")
    if not key or not equals or not value:
        raise entry.fault(f"taint {text!r} must have a value, as in dedicated=team-a.")
    return key, value


def _must_be_key(entry: FileSection, what: str, key: object) -> None:
    if not isinstance(key, str) or not key:
        raise entry.fault(f"{what} has the key {key!r}, but a key must be text; quote it.")


def _plain(entry: FileSection, what: str, value: object) -> str:
    """Return the value of a label or taint; a whole number will do for text."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        given = "missing" if value in (None, "") else repr(value)
        raise entry.fault(f"{what} is {given}, but it must be text; put it in quotes.")
    return str(value)


# -- writing --------------------------------------------------------------------------


def entry_of(machine: Machine) -> dict[str, object]:
    """Return a machine as an entry, of which ``machines_of`` makes the same machine."""
    entry: dict[str, object] = {"name": machine.id}
    if machine.devices:
        entry["devices"] = [
            _device_entry(one, len(list(run))) for one, run in groupby(machine.devices)
        ]
    else:
        entry |= {
            "gpu_type": machine.gpu_type,
            "gpus": machine.gpus,
            "gpu_memory_gib": machine.gpu_memory_mib / MIB_PER_GIB,
        }
    entry |= {
        "cpus": machine.cpu_milli / MILLI,
        "memory_gib": machine.memory_mib / MIB_PER_GIB,
    }
    if machine.pooled:
        entry["pooled"] = True
    if machine.labels:
        entry["labels"] = dict(machine.labels)
    if machine.taints:
        entry["taints"] = [f"{key}={value}" for key, value in machine.taints]
    return entry


def _device_entry(device: Device, count: int) -> dict[str, object]:
    return {
        "type": device.type,
        "memory_gib": device.memory_mib / MIB_PER_GIB,
        "compute": f"{device.compute_milli}m",
        "count": count,
    }
