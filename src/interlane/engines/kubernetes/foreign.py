"""Pods that others schedule: daemon sets, other schedulers' work, whatever is just there."""

from collections.abc import Collection
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from interlane.engines.kubernetes.dialects import GpuAsk, gpus_of
from interlane.engines.kubernetes.pods import Pod
from interlane.engines.kubernetes.quantities import MIB
from interlane.engines.kubernetes.requests import asked_by
from interlane.model import MILLI, InterlaneError, Machine, Occupied, TakenGpu

GPUSHARE_INDEX: Final = "ALIYUN_COM_GPU_MEM_IDX"
"""The annotation by which gpushare says which GPU a pod has."""


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """What somebody else's pod has."""

    cpu_milli: int
    memory_mib: int
    gpu: GpuAsk
    index: int | None = None


@dataclass
class ForeignPods:
    """Somebody else's pods by node."""

    nodes: dict[str, dict[str, ForeignPod]] = field(default_factory=dict)
    _node_of: dict[str, str] = field(default_factory=dict)
    _gpus: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Which GPUs we count a pod on: nobody tells, so that it must not change."""

    def add(self, uid: str, pod: Pod) -> bool:
        """Count a pod; False if it is counted already."""
        if uid in self._node_of:
            return False
        node = pod["spec"]["nodeName"]
        self._node_of[uid] = node
        self.nodes.setdefault(node, {})[uid] = _read(pod)
        return True

    def remove(self, uid: str) -> str | None:
        """Count a pod no more; return the node that it was on."""
        node = self._node_of.pop(uid, None)
        self._gpus.pop(uid, None)
        if node is not None:
            self.nodes[node].pop(uid, None)
        return node

    def occupied(self, machine: Machine, ours: Collection[int]) -> Occupied:
        """Return what others have of a machine; GPUs that nobody names are the last free."""
        pods = self.nodes.get(machine.id) or {}
        taken: dict[int, list[int]] = {}
        for uid, pod in pods.items():
            for gpu in self._which(uid, pod, machine, {*ours, *taken}):
                used = taken.setdefault(gpu, [0, 0])
                used[0] = min(MILLI, used[0] + (MILLI if not pod.gpu.milli else pod.gpu.milli))
                used[1] += pod.gpu.memory_mib
        gpus = tuple(
            TakenGpu(index, milli, min(memory_mib, machine.device(index).memory_mib))
            for index, (milli, memory_mib) in sorted(taken.items())
        )
        return Occupied(
            machine.id,
            min(machine.cpu_milli, sum(one.cpu_milli for one in pods.values())),
            min(machine.memory_mib, sum(one.memory_mib for one in pods.values())),
            gpus,
        )

    def _which(
        self, uid: str, pod: ForeignPod, machine: Machine, used: Collection[int]
    ) -> tuple[int, ...]:
        """Return the GPUs of a pod, which stay the same while it is there."""
        known = self._gpus.get(uid)
        if known is None:
            known = self._gpus[uid] = _chosen(pod, machine, used)
        return tuple(one for one in known if one < machine.gpus)


def _chosen(pod: ForeignPod, machine: Machine, used: Collection[int]) -> tuple[int, ...]:
    if pod.index is not None:
        return (pod.index,)
    fit = [
        gpu
        for gpu in reversed(range(machine.gpus))
        if not pod.gpu.is_slice or machine.device(gpu).type in pod.gpu.types
    ]
    fit.sort(key=lambda gpu: gpu in used)
    return tuple(sorted(fit[: pod.gpu.count]))


def _read(pod: Pod) -> ForeignPod:
    """Return what a pod has; of one that cannot be understood, what can be."""
    try:
        asked = asked_by(pod)
    except InterlaneError:
        asked = {}
    try:
        gpu = gpus_of(pod, asked)
    except InterlaneError:
        gpu = GpuAsk(1)
    said = (pod["metadata"].get("annotations") or {}).get(GPUSHARE_INDEX, "")
    return ForeignPod(
        ceil(asked.get("cpu", 0) * 1000),
        ceil(asked.get("memory", 0) / MIB),
        gpu,
        int(said) if said.isdecimal() and len(said) < 3 else None,
    )
