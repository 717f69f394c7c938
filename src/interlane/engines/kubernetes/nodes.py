"""Nodes as machines: what they offer, where they are, and whether they take anything new."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from interlane.engines.kubernetes import quantities
from interlane.engines.kubernetes.affinity import taints_of
from interlane.engines.kubernetes.annotations import (
    NVIDIA_GPU,
    NVIDIA_MEMORY,
    NVIDIA_MIG,
    NVIDIA_PRODUCT,
    SHARE,
    SHARES_PER_GPU,
)
from interlane.engines.kubernetes.dialects import (
    GPUSHARE_COUNT,
    GPUSHARE_MEMORY,
    OPENB_MODEL,
    SLICE,
)
from interlane.engines.kubernetes.reports import NodeReport
from interlane.model import MILLI, Device, Machine, MachineId, with_devices

GPU: Final = "GPU"
"""The type of a GPU that nobody has named."""
TOPOLOGY: Final = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
LEVELS_MORE: Final = ("topology.kubernetes.io/rack", "interlane.dev/rack")


@dataclass(frozen=True, slots=True)
class NodeSight:
    """A node as the scheduler sees it."""

    machine: Machine
    drained: bool


def sight_of(
    node: Mapping[str, Any], more: Mapping[str, str], told: NodeReport | None = None
) -> NodeSight:
    """Return what a node offers; raises ``InvalidField`` if it says what cannot be.

    Args:
        node: the object.
        more: labels of our own that it has.
        told: what our agent there tells: a kubelet counts devices, and does not say which of
            them are lost, nor how they differ.
    """
    meta = node["metadata"]
    labels = {**(meta.get("labels") or {}), **more}
    offered = (node.get("status") or {}).get("allocatable") or {}
    machine = with_devices(
        MachineId(meta["name"]),
        devices_of(offered, labels) if told is None else told.devices,
        cpu_milli=quantities.count({"cpu": _milli(offered)}, "cpu"),
        memory_mib=quantities.mib_offered(offered, "memory"),
        labels=tuple(sorted(labels.items())),
        taints=taints_of(node),
    )
    return NodeSight(machine, is_drained(node))


def _milli(offered: Mapping[str, object]) -> int:
    return int(quantities.number("cpu", offered.get("cpu", 0)) * MILLI)


def devices_of(offered: Mapping[str, object], labels: Mapping[str, str]) -> Iterable[Device]:
    """Return the GPUs of a node by number: whole ones first, then slices by profile."""
    kind = labels.get(NVIDIA_PRODUCT) or labels.get(OPENB_MODEL) or GPU
    memory_mib = _memory_mib(offered, labels)
    whole = max(
        quantities.count(offered, NVIDIA_GPU),
        quantities.count(offered, GPUSHARE_COUNT),
        quantities.count(offered, SHARE) // SHARES_PER_GPU,
    )
    devices = [Device(kind, memory_mib)] * whole
    for name in sorted(offered):
        if name.startswith(NVIDIA_MIG):
            profile = name.removeprefix(NVIDIA_MIG)
            found = Device(f"{SLICE}{profile}", _slice_mib(profile))
            devices += [found] * quantities.count(offered, name)
    return devices


def _memory_mib(offered: Mapping[str, object], labels: Mapping[str, str]) -> int:
    """Return the memory of each GPU, where a label or a device plugin says so."""
    said = labels.get(NVIDIA_MEMORY, "")
    if said.isdecimal():
        return int(said[:9])
    cards = quantities.count(offered, GPUSHARE_COUNT)
    return quantities.count(offered, GPUSHARE_MEMORY) * 1024 // cards if cards else 0


def _slice_mib(profile: str) -> int:
    """Return the memory of a slice, which its profile names: ``1g.5gb``."""
    _, _, memory = profile.partition(".")
    digits = memory.split("gb")[0]
    return int(digits) * 1024 if digits.isdecimal() and len(digits) < 5 else 0


def is_drained(node: Mapping[str, Any]) -> bool:
    """Tell whether a node takes nothing new: cordoned, not ready, or about to go."""
    if (node.get("spec") or {}).get("unschedulable") or node["metadata"].get(
        "deletionTimestamp"
    ):
        return True
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = [one.get("status") for one in conditions if one.get("type") == "Ready"]
    return bool(ready) and ready[0] != "True"
