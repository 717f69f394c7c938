"""Looks through a whole cluster for what must never be; shares no code with the scheduler.

It reads pods and nodes as any client does, and adds up by itself.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from http.client import HTTPException
from typing import Any, Final

from interlane.testing.kube_api import KubeApi, KubeRefused

OVER: Final = ("Succeeded", "Failed")
UNITS: Final[dict[str, Decimal]] = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(1000),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
}
PREFIX: Final = "interlane.dev/"
STREAM_S: Final = 5
"""Seconds after which the server ends a stream, so that whoever looks can end, too."""


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod that has a node, and what it was told there."""

    name: str
    uid: str
    node: str
    gpus: tuple[int, ...]
    milli: int
    job: str | None
    """The id of the job whose attempt it is."""


def bound_pods(api: KubeApi) -> list[BoundPod]:
    """Return all pods that have a node and have not ended."""
    return [_bound(one) for one in _there(api) if one["spec"].get("nodeName")]


def _there(api: KubeApi) -> list[dict[str, Any]]:
    pods = api.items("/api/v1/pods")
    return [one for one in pods if (one.get("status") or {}).get("phase") not in OVER]


def findings(api: KubeApi) -> list[str]:
    """Return everything that is wrong, one sentence each."""
    pods = _there(api)
    nodes = {one["metadata"]["name"]: one for one in api.items("/api/v1/nodes")}
    bound = [one for one in pods if one["spec"].get("nodeName")]
    return [
        *_overfull_nodes(bound, nodes),
        *_overfull_gpus(map(_bound, bound), nodes),
        *_halved_gangs(pods),
    ]


@dataclass
class Witness:
    """Sees every change of every pod, in a thread, and notes what must not be at any moment."""

    api: KubeApi
    wrong: list[str] = field(default_factory=list)
    bound: dict[str, str] = field(default_factory=dict)
    """Where pods were bound, by uid, whatever became of them."""
    _there: dict[str, BoundPod] = field(default_factory=dict)
    _closing: bool = False

    def start(self) -> None:
        """Begin to look."""
        listed = self.api.get("/api/v1/pods")
        for pod in listed["items"]:
            self._see("ADDED", pod)
        version = listed["metadata"]["resourceVersion"]
        self._thread = threading.Thread(target=self._run, args=(version,), daemon=True)
        self._thread.start()

    def close(self) -> list[str]:
        """Look no more; return what was wrong."""
        self._closing = True
        self._thread.join(STREAM_S * 10)
        return self.wrong

    def _run(self, version: str) -> None:
        while not self._closing:
            with suppress(KubeRefused, OSError, HTTPException, ValueError):
                stream = self.api.watch("/api/v1/pods", version, timeoutSeconds=f"{STREAM_S}")
                for event in stream:
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._see(event["type"], event["object"])

    def _see(self, kind: str, pod: Mapping[str, Any]) -> None:
        now = _bound(pod)
        is_over = kind == "DELETED" or (pod.get("status") or {}).get("phase") in OVER
        if not now.node:
            return
        before = self.bound.setdefault(now.uid, now.node)
        if before != now.node:
            self.wrong.append(f"Pod {now.name} was bound to {before} and then to {now.node}.")
        if is_over:
            self._there.pop(now.uid, None)
            return
        self._there[now.uid] = now
        for gpu in now.gpus:
            beside = [one for one in self._there.values() if one.node == now.node]
            milli = sum(one.milli for one in beside if gpu in one.gpus)
            if milli > 1000:
                self.wrong.append(f"GPU {gpu} of {now.node} was given away {milli}/1000.")


def _overfull_nodes(
    pods: Iterable[Mapping[str, Any]], nodes: Mapping[str, Mapping[str, Any]]
) -> Iterable[str]:
    used: dict[str, Counter[str]] = {}
    for pod in pods:
        name = pod["spec"]["nodeName"]
        for container in pod["spec"]["containers"]:
            asked = (container.get("resources") or {}).get("requests") or {}
            for what, text in asked.items():
                used.setdefault(name, Counter())[what] += _number(text)  # type: ignore[assignment]
    for name, amounts in used.items():
        if name not in nodes:
            yield f"Pods are bound to {name}, which is not there."
            continue
        has = nodes[name]["status"]["allocatable"]
        for what, amount in amounts.items():
            if amount > _number(has.get(what, "0")):
                yield f"Pods on {name} ask for {amount} of {what}; it has {has.get(what, 0)}."


def _overfull_gpus(
    pods: Iterable[BoundPod], nodes: Mapping[str, Mapping[str, Any]]
) -> Iterable[str]:
    used: Counter[tuple[str, int]] = Counter()
    for pod in pods:
        for gpu in pod.gpus:
            used[pod.node, gpu] += pod.milli
    for (node, gpu), milli in used.items():
        if node in nodes:
            has = int(nodes[node]["status"]["allocatable"].get("nvidia.com/gpu", "0"))
            if gpu >= has:
                yield f"Node {node} has {has} GPUs, and a pod has number {gpu}."
        if milli > 1000:
            yield f"GPU {gpu} of {node} is given away {milli} thousandths over."


def _halved_gangs(pods: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Yield gangs of which some pods have a node and others wait."""
    found: dict[tuple[str, str], list[bool]] = {}
    sizes: dict[tuple[str, str], int] = {}
    for pod in pods:
        said = pod["metadata"].get("annotations") or {}
        if f"{PREFIX}gang" in said:
            gang = pod["metadata"]["namespace"], said[f"{PREFIX}gang"]
            found.setdefault(gang, []).append(bool(pod["spec"].get("nodeName")))
            sizes[gang] = int(said[f"{PREFIX}gang-size"])
    for gang, members in found.items():
        if any(members) and sum(members) < min(sizes[gang], len(members)):
            yield f"Gang {gang} has {sum(members)} of {sizes[gang]} pods bound."


def _bound(pod: Mapping[str, Any]) -> BoundPod:
    meta = pod["metadata"]
    said = meta.get("annotations") or {}
    whose = json.loads(said.get(f"{PREFIX}attempt") or "null")
    gpus = tuple(int(one) for one in said.get(f"{PREFIX}gpu-index", "").split(",") if one)
    return BoundPod(
        meta["name"],
        meta["uid"],
        pod["spec"].get("nodeName") or "",
        gpus,
        int(said.get(f"{PREFIX}gpu-milli") or 0),
        None if whose is None else whose["job"],
    )


def _number(text: str) -> Decimal:
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    assert found is not None, text
    return Decimal(found[1]) * UNITS[found[2]]
