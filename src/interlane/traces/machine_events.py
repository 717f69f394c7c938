"""What happens to the machines of a cluster file, and when.

::

    events:
      - {at: 1h, drain: a100-0}
      - {at: 90m, undrain: a100-0}
      - {at: 2h, lose: a100-1}
      - {at: 3h, return: a100-1}
      - {at: 4h, lose_device: {machine: a100-2, gpu: 3}}
      - {at: 5h, return_device: {machine: a100-2, gpu: 3}}
      - {at: 6h, occupy: {machine: a100-0, cpus: 8, memory_gib: 32, gpus: {0: 500m}}}
      - {at: 1d, leave: a100-3}
      - {at: 1d, join: {name: new, gpu_type: H100, gpus: 8, cpus: 96, memory_gib: 512}}
      - {at: 2d, change: {name: new, taints: {dedicated: team-a}}}

They are read in the order of their times, each against the machines that are there then.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from interlane.model import (
    Cluster,
    Device,
    InvalidFile,
    InvalidInput,
    Machine,
    MachineChanged,
    MachineDrained,
    MachineEvent,
    MachineId,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineReturned,
    MachineUndrained,
    Occupied,
    TakenGpu,
    amounts,
    with_devices,
)
from interlane.model.cluster import check_topology
from interlane.model.units import MIB_PER_GIB, MILLI
from interlane.traces.entries import FileSection
from interlane.traces.machine_entry import ALIKE_KEYS, KEYS, compute_of, entry_of, machines_of

_OCCUPY_KEYS: Final = ("machine", "cpus", "memory_gib", "gpus")
_DEVICE_KEYS: Final = ("machine", "gpu")
_TAKEN_KEYS: Final = ("compute", "memory_gib")


@dataclass(frozen=True, slots=True)
class TimedEvent:
    """What happens to a machine, and when."""

    at_s: float
    event: MachineEvent


def machine_in(event: MachineEvent) -> Machine | None:
    """Return the machine that an event describes; None if it only names one."""
    return event.machine if isinstance(event, MachineJoined | MachineChanged) else None


# -- reading --------------------------------------------------------------------------


def events_of(file: str, cluster: Cluster, listed: list[object]) -> tuple[TimedEvent, ...]:
    """Return what happens to a cluster, in order of time."""
    entries = [
        FileSection(file, f"event {number}", values, ("at", *_READERS))
        for number, values in enumerate(listed, 1)
    ]
    timed = sorted(((_at_s(entry), entry) for entry in entries), key=lambda one: one[0])
    there = _There(cluster)
    return tuple(
        TimedEvent(at_s, event) for at_s, entry in timed for event in _read(entry, there)
    )


def _at_s(entry: FileSection) -> float:
    value = entry.values.get("at")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not isfinite(value) or value < 0:
            raise entry.wrong("at", "0 or later")
        return float(value)
    try:
        return amounts.seconds("at", entry.text("at"))
    except InvalidFile:
        raise
    except InvalidInput:
        raise entry.wrong(
            "at", "a time from the beginning on, like 90s, 10m, 2h or 1d"
        ) from None


@dataclass
class _There:
    """The machines that are there, as the events so far have left them."""

    cluster: Cluster
    machines: dict[MachineId, Machine] = field(init=False)
    lost: set[MachineId] = field(default_factory=set)
    drained: set[MachineId] = field(default_factory=set)
    devices: dict[tuple[MachineId, int], Device] = field(default_factory=dict)
    """What devices were before they were lost."""

    def __post_init__(self) -> None:
        self.machines = {machine.id: machine for machine in self.cluster}

    def named(self, entry: FileSection, name: str) -> Machine:
        """Return a machine that is there."""
        machine = self.machines.get(MachineId(name))
        if machine is None:
            raise entry.fault(f"machine {name!r} is not there at that time; name one that is.")
        return machine

    def put(self, entry: FileSection, machine: Machine) -> None:
        """Note what a machine is from now on."""
        self.machines[machine.id] = machine
        entry.made(lambda: check_topology(self.cluster.topology, self.machines.values()))

    def forget(self, machine_id: MachineId) -> None:
        """Forget what happened to a machine and its devices."""
        self.lost.discard(machine_id)
        self.drained.discard(machine_id)
        self.forget_devices(machine_id)

    def forget_devices(self, machine_id: MachineId) -> None:
        """Forget what a machine's devices were before they were lost."""
        for key in [key for key in self.devices if key[0] == machine_id]:
            del self.devices[key]


def _read(entry: FileSection, there: _There) -> list[MachineEvent]:
    verbs = [key for key in entry.values if key != "at"]
    if len(verbs) != 1:
        raise entry.fault(
            f"it needs exactly one of {', '.join(_READERS)}, and has {len(verbs)}."
        )
    return _READERS[verbs[0]](entry, there)


def _join(entry: FileSection, there: _There) -> list[MachineEvent]:
    machines = machines_of(entry.file, f"{entry.where}, join", entry.values["join"])
    for machine in machines:
        if machine.id in there.machines:
            raise entry.fault(f"machine {machine.id!r} joins, but it is there already.")
        there.forget(machine.id)
        there.put(entry, machine)
    return [MachineJoined(machine) for machine in machines]


def _change(entry: FileSection, there: _There) -> list[MachineEvent]:
    """Read a change: what the entry does not say stays as it is."""
    given = FileSection(entry.file, f"{entry.where}, change", entry.values["change"], KEYS)
    if "count" in given:
        raise given.fault("it has a count, but changes are said machine by machine.")
    before = entry_of(there.named(entry, given.text("name")))
    if any(key in given for key in ALIKE_KEYS):
        before.pop("devices", None)
    if "devices" in given:
        before = {key: value for key, value in before.items() if key not in ALIKE_KEYS}
    (machine,) = machines_of(given.file, given.where, before | dict(given.values))
    there.forget_devices(machine.id)
    there.put(entry, machine)
    return [MachineChanged(machine)]


def _leave(entry: FileSection, there: _There) -> list[MachineEvent]:
    machine_id = there.named(entry, entry.text("leave")).id
    del there.machines[machine_id]
    there.forget(machine_id)
    return [MachineLeft(machine_id)]


def _lose(entry: FileSection, there: _There) -> list[MachineEvent]:
    machine_id = there.named(entry, entry.text("lose")).id
    if machine_id in there.lost:
        raise entry.fault(f"machine {machine_id!r} is lost, but it was lost before.")
    there.lost.add(machine_id)
    return [MachineLost(machine_id)]


def _return(entry: FileSection, there: _There) -> list[MachineEvent]:
    machine_id = there.named(entry, entry.text("return")).id
    if machine_id not in there.lost:
        raise entry.fault(f"machine {machine_id!r} returns, but it was not lost.")
    there.lost.discard(machine_id)
    return [MachineReturned(machine_id)]


def _drain(entry: FileSection, there: _There) -> list[MachineEvent]:
    machine_id = there.named(entry, entry.text("drain")).id
    if machine_id in there.drained:
        raise entry.fault(f"machine {machine_id!r} is drained, but it was drained before.")
    there.drained.add(machine_id)
    return [MachineDrained(machine_id)]


def _undrain(entry: FileSection, there: _There) -> list[MachineEvent]:
    machine_id = there.named(entry, entry.text("undrain")).id
    if machine_id not in there.drained:
        raise entry.fault(f"machine {machine_id!r} is undrained, but it was not drained.")
    there.drained.discard(machine_id)
    return [MachineUndrained(machine_id)]


def _lose_device(entry: FileSection, there: _There) -> list[MachineEvent]:
    machine, gpu = _device_named(entry, "lose_device", there)
    if (machine.id, gpu) in there.devices:
        raise entry.fault(f"GPU {gpu} of {machine.id} is lost, but it was lost before.")
    there.devices[machine.id, gpu] = machine.device(gpu)
    lost = Device(machine.device(gpu).type, machine.device(gpu).memory_mib, 0)
    return _with_device(entry, there, machine, gpu, lost)


def _return_device(entry: FileSection, there: _There) -> list[MachineEvent]:
    machine, gpu = _device_named(entry, "return_device", there)
    device = there.devices.pop((machine.id, gpu), None)
    if device is None:
        raise entry.fault(f"GPU {gpu} of {machine.id} returns, but it was not lost.")
    return _with_device(entry, there, machine, gpu, device)


def _device_named(entry: FileSection, verb: str, there: _There) -> tuple[Machine, int]:
    inner = FileSection(entry.file, f"{entry.where}, {verb}", entry.values[verb], _DEVICE_KEYS)
    machine, gpu = there.named(entry, inner.text("machine")), inner.whole("gpu")
    if machine.pooled:
        raise inner.fault(f"machine {machine.id!r} is pooled: its GPUs are not told apart.")
    _must_have_gpu(inner, machine, gpu)
    return machine, gpu


def _must_have_gpu(entry: FileSection, machine: Machine, gpu: int) -> None:
    if gpu >= machine.gpus:
        raise entry.fault(f"machine {machine.id!r} has no GPU {gpu}; it has {machine.gpus}.")


def _with_device(
    entry: FileSection, there: _There, machine: Machine, gpu: int, device: Device
) -> list[MachineEvent]:
    devices = [
        device if number == gpu else machine.device(number) for number in range(machine.gpus)
    ]
    changed = with_devices(
        machine.id,
        devices,
        cpu_milli=machine.cpu_milli,
        memory_mib=machine.memory_mib,
        labels=machine.labels,
        taints=machine.taints,
    )
    there.put(entry, changed)
    return [MachineChanged(changed)]


def _occupy(entry: FileSection, there: _There) -> list[MachineEvent]:
    inner = FileSection(
        entry.file, f"{entry.where}, occupy", entry.values["occupy"], _OCCUPY_KEYS
    )
    machine = there.named(entry, inner.text("machine"))
    cpu_milli = round(inner.amount("cpus", default=0) * MILLI)
    memory_mib = round(inner.amount("memory_gib", default=0) * MIB_PER_GIB)
    if cpu_milli > machine.cpu_milli:
        raise inner.wrong("cpus", f"at most the {machine.cpu_milli / MILLI:g} of {machine.id}")
    if memory_mib > machine.memory_mib:
        most_gib = machine.memory_mib / MIB_PER_GIB
        raise inner.wrong("memory_gib", f"at most the {most_gib:g} of {machine.id}")
    return [Occupied(machine.id, cpu_milli, memory_mib, _taken(inner, machine))]


def _taken(entry: FileSection, machine: Machine) -> tuple[TakenGpu, ...]:
    given = entry.values.get("gpus", {})
    if not isinstance(given, Mapping):
        raise entry.wrong("gpus", "numbers of GPUs with shares, as in {0: 500m}")
    if given and machine.pooled:
        raise entry.fault(f"machine {machine.id!r} is pooled: its GPUs are not told apart.")
    taken = [_taken_gpu(entry, machine, number, share) for number, share in given.items()]
    return tuple(sorted(taken, key=lambda one: one.index))


def _taken_gpu(entry: FileSection, machine: Machine, number: object, share: object) -> TakenGpu:
    digits = str(number)
    if isinstance(number, bool) or not (digits.isascii() and digits.isdigit()):
        raise entry.wrong("gpus", "numbers of GPUs with shares, as in {0: 500m}")
    gpu = int(digits)
    _must_have_gpu(entry, machine, gpu)
    values = share if isinstance(share, Mapping) else {"compute": share}
    inner = entry.inside(f"GPU {gpu}", values, _TAKEN_KEYS)
    memory_mib = round(inner.amount("memory_gib", default=0) * MIB_PER_GIB)
    milli, device = compute_of(inner, "compute"), machine.device(gpu)
    if milli > device.compute_milli:
        raise inner.wrong("compute", f"at most the {device.compute_milli}m that it has")
    if memory_mib > device.memory_mib:
        raise inner.wrong(
            "memory_gib", f"at most the {device.memory_mib / MIB_PER_GIB:g} it has"
        )
    return TakenGpu(gpu, milli, memory_mib)


_READERS: Final[Mapping[str, Callable[[FileSection, _There], list[MachineEvent]]]] = {
    "join": _join,
    "change": _change,
    "leave": _leave,
    "drain": _drain,
    "undrain": _undrain,
    "lose": _lose,
    "return": _return,
    "lose_device": _lose_device,
    "return_device": _return_device,
    "occupy": _occupy,
}


# -- writing --------------------------------------------------------------------------


def event_entry(timed: TimedEvent) -> dict[str, object]:
    """Return an event as an entry of which ``events_of`` makes the same."""
    return {"at": timed.at_s, **_written(timed.event)}


def _written(event: MachineEvent) -> dict[str, object]:
    match event:
        case MachineJoined(machine):
            return {"join": entry_of(machine)}
        case MachineChanged(machine):
            # All that a change may leave out, because what it leaves out stays as it is.
            return {"change": {"labels": {}, "taints": [], **entry_of(machine)}}
        case MachineLeft(machine_id):
            return {"leave": machine_id}
        case MachineLost(machine_id):
            return {"lose": machine_id}
        case MachineReturned(machine_id):
            return {"return": machine_id}
        case MachineDrained(machine_id):
            return {"drain": machine_id}
        case MachineUndrained(machine_id):
            return {"undrain": machine_id}
        case Occupied():
            return {"occupy": _occupied(event)}


def _occupied(event: Occupied) -> dict[str, object]:
    return {
        "machine": event.machine_id,
        "cpus": event.cpu_milli / MILLI,
        "memory_gib": event.memory_mib / MIB_PER_GIB,
        "gpus": {
            one.index: {"compute": f"{one.milli}m", "memory_gib": one.memory_mib / MIB_PER_GIB}
            for one in event.gpus
        },
    }
