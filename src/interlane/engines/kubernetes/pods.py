"""Pods as jobs: what one that asks for us wants, in the words of a job file."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, log10
from typing import Any, Final

from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.affinity import FitRules, tolerations_of
from interlane.engines.kubernetes.dialects import GpuAsk, gpus_of
from interlane.engines.kubernetes.quantities import MIB
from interlane.engines.kubernetes.requests import asked_by
from interlane.live.files.job import DEFAULT_PRIORITY, GRACE_S, GRACE_S_MAX, JobSpec, read_spec
from interlane.model import InvalidField

NAME_MAX: Final = 63
KAI_QUEUE: Final = "kai.scheduler/queue"
OWN_COMMAND: Final = "(the image's own command)"
PRIORITY_STEP: Final = 5.5
"""Steps of our priorities, from 50 up, for each digit of a priority class."""
OVER: Final = ("Succeeded", "Failed")

Pod = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodName:
    """What tells a pod apart from all others, now and ever."""

    namespace: str
    name: str
    uid: str

    @property
    def path(self) -> str:
        """Where it is on the API server."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


def name_of(pod: Pod) -> PodName:
    """Return what a pod is called."""
    meta = pod["metadata"]
    return PodName(meta["namespace"], meta["name"], meta["uid"])


def is_over(pod: Pod) -> bool:
    """Tell whether all its containers have ended for good."""
    return (pod.get("status") or {}).get("phase") in OVER


def is_bound(pod: Pod) -> bool:
    """Tell whether it has a node."""
    return bool(pod["spec"].get("nodeName"))


def is_going(pod: Pod) -> bool:
    """Tell whether it is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def asks_for_us(pod: Pod) -> bool:
    """Tell whether a pod is ours to place; one that is gated is not yet."""
    spec = pod["spec"]
    return spec.get("schedulerName") == words.SCHEDULER and not spec.get("schedulingGates")


def owner_of(pod: Pod) -> str | None:
    """Return the uid of what made a pod and will make it again."""
    for one in pod["metadata"].get("ownerReferences") or ():
        if one.get("controller"):
            found: str = one["uid"]
            return found
    return None


@dataclass(frozen=True)
class PodAsk:
    """What one pod asks for: the part of a job that all alike pods of a gang share."""

    gpu: GpuAsk
    cpu_milli: int
    memory_mib: int
    selectors: tuple[tuple[str, str], ...]
    tolerations: tuple[tuple[str, str], ...]

    @cached_property
    def resources(self) -> dict[str, Any]:
        """What a job file says of it."""
        cores, rest = divmod(self.cpu_milli, 1000)
        said: dict[str, Any] = {"cpu": f"{self.cpu_milli}m" if rest else cores}
        if self.memory_mib:
            said["memory"] = f"{self.memory_mib}MiB"
        if self.gpu.count:
            gpu: dict[str, Any] = {"count": self.gpu.count, "type": list(self.gpu.types)}
            if self.gpu.milli is not None:
                gpu["compute"] = f"{self.gpu.milli}m"
            if self.gpu.memory_mib:
                gpu["memory"] = f"{self.gpu.memory_mib}MiB"
            said["gpu"] = gpu
        return said


def ask_of(pod: Pod, rules: FitRules, taints: Iterable[tuple[str, str]]) -> PodAsk:
    """Return what a pod asks for, or raise what is wrong with it in one sentence."""
    asked = asked_by(pod)
    return PodAsk(
        gpus_of(pod, asked),
        ceil(asked.get("cpu", 0) * 1000),
        ceil(asked.get("memory", 0) / MIB),
        tuple(sorted(rules.selectors_of(pod).items())),
        tuple(sorted(tolerations_of(pod, taints).items())),
    )


def job_of(pods: Iterable[tuple[Pod, PodAsk]], name: str) -> JobSpec:
    """Return the job of a pod, or of the pods of a gang; alike ones are one task."""
    listed = list(pods)
    first, ask = listed[0]
    tasks = tasks_of(one for _, one in listed)
    for other in tasks:
        if (other.selectors, other.tolerations) != (ask.selectors, ask.tolerations):
            raise InvalidField(
                "node selector or tolerations of a gang",
                name,
                "all its pods must have the same",
            )
    said = first["metadata"].get("annotations") or {}
    document: dict[str, Any] = {
        "name": _shortened(name),
        "queue": _queue(first, said),
        "priority": _priority(first, said),
        "selectors": dict(ask.selectors),
        "tolerations": dict(ask.tolerations),
        "image": _image(first),
        "run": _command(first),
        **_group(first, said),
    }
    if words.EXPECTED in said:
        document["time"] = {"expected": said[words.EXPECTED]}
    document["checkpoint"] = _checkpoint(first, said)
    if document["checkpoint"] is None:
        del document["checkpoint"]
    if len(tasks) == 1:
        document["resources"] = ask.resources
        document["gang"] = {"nodes": len(listed)}
    else:
        document["tasks"] = [
            {"role": f"role-{at}", "count": count, "resources": one.resources}
            for at, (one, count) in enumerate(tasks.items())
        ]
    return read_spec(document)


def tasks_of(asks: Iterable[PodAsk]) -> dict[PodAsk, int]:
    """Return alike pods together, in the order in which they first come."""
    found: dict[PodAsk, int] = {}
    for one in asks:
        found[one] = found.get(one, 0) + 1
    return found


def without_place(ask: PodAsk) -> PodAsk:
    """Return what is asked for, wherever it may be."""
    return replace(ask, selectors=(), tolerations=())


def _shortened(name: str) -> str:
    return name[:NAME_MAX].rstrip("-.")


def _queue(pod: Pod, said: Mapping[str, str]) -> str:
    labels = pod["metadata"].get("labels") or {}
    found = said.get(words.QUEUE) or labels.get(words.QUEUE) or labels.get(KAI_QUEUE)
    return found or "default"


def _priority(pod: Pod, said: Mapping[str, str]) -> int:
    """Return a priority from 0 to 100: as it is said, or by the digits of its class's value.

    The values of classes go up to a billion and differ by powers of ten.
    """
    if words.PRIORITY in said:
        if not said[words.PRIORITY].isdecimal() or int(said[words.PRIORITY][:4]) > 100:
            raise InvalidField(words.PRIORITY, said[words.PRIORITY], "it must be 0 to 100")
        return int(said[words.PRIORITY])
    value = pod["spec"].get("priority") or 0
    if value == 0:
        return DEFAULT_PRIORITY
    steps = min(50, ceil(log10(1 + abs(value)) * PRIORITY_STEP))
    return DEFAULT_PRIORITY + (steps if value > 0 else -steps)


def _image(pod: Pod) -> str:
    image: str = pod["spec"]["containers"][0].get("image") or "none"
    return image[:200]


def _command(pod: Pod) -> str:
    first = pod["spec"]["containers"][0]
    said = [*(first.get("command") or ()), *(first.get("args") or ())]
    return shlex.join(said).replace("\0", "")[:2000] or OWN_COMMAND


def _group(pod: Pod, said: Mapping[str, str]) -> dict[str, str]:
    """Return what recurs; pods without a command are known by their image."""
    if words.GROUP in said:
        return {"group": said[words.GROUP]}
    return {"group": _image(pod)} if _command(pod) == OWN_COMMAND else {}


def _checkpoint(pod: Pod, said: Mapping[str, str]) -> dict[str, Any] | None:
    grace_s = pod["spec"].get("terminationGracePeriodSeconds")
    if words.CHECKPOINT not in said:
        return None
    kept_s = min(GRACE_S_MAX, GRACE_S if grace_s is None else grace_s)
    return {"interval": said[words.CHECKPOINT], "grace": f"{kept_s}s"}
