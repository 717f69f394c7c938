"""Kubelets that run nothing: they play what pods report, and remember what would run.

What runs is what these say runs: a pod from the moment at which its node has seen it until it
has ended, or until its node has let it go.
"""

import json
import logging
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final

from interlane.live.port import Attempt
from interlane.model import JobId, MachineId, Placement, Spot
from interlane.testing.kube_api import STRATEGIC, Document, KubeApi, KubeRefused

PODS: Final = "/api/v1/pods"
OVER: Final = ("Succeeded", "Failed")
SIGTERM_CODE: Final = 143

log = logging.getLogger(__name__)


@dataclass
class PlayedPod:
    """A pod that a node has."""

    path: str
    uid: str
    node: str
    attempt: Attempt | None
    gpus: tuple[int, ...]
    rank: int
    size: int
    """Pods of the attempt."""
    document: Document = field(repr=False)


@dataclass
class PlayedKubelets:
    """All kubelets of a cluster whose nodes are only objects."""

    api: KubeApi
    lets_go: bool = True
    """Whether pods that are deleted end at once."""
    running: dict[str, PlayedPod] = field(default_factory=dict)
    """By uid."""
    starts: "Counter[tuple[Attempt, int]]" = field(default_factory=Counter)
    exits: dict[Attempt, int | None] = field(default_factory=dict)
    """Codes with which attempts ended by themselves."""
    hit: set[Attempt] = field(default_factory=set)
    """Attempts of which others deleted a pod, or took a node away."""
    gone: set[str] = field(default_factory=set)
    """Pods that are no more, or are going, by uid."""
    nodes: set[str] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _closing: bool = False
    _known: dict[str, Document] = field(default_factory=dict)
    _started: set[str] = field(default_factory=set)

    def start(self) -> None:
        """Begin to watch."""
        self._thread = threading.Thread(target=self._run, name="kubelets", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; a watch that is quiet ends with its thread, which nobody waits for."""
        self._closing = True

    def _run(self) -> None:
        while not self._closing:
            try:
                self._follow()
            except (KubeRefused, OSError, HTTPException, ValueError) as error:
                log.debug("Kubelets look again: %s", error)

    def _follow(self) -> None:
        listed = self.api.get(PODS)
        now = {one["metadata"]["uid"]: one for one in listed["items"]}
        for uid in self._known.keys() - now.keys():
            self._deleted(uid)
        for one in now.values():
            self._seen(one)
        version = listed["metadata"]["resourceVersion"]
        for event in self.api.watch(PODS, version, timeoutSeconds="600"):
            if self._closing or event["type"] == "ERROR":
                return
            if event["type"] == "DELETED":
                self._deleted(event["object"]["metadata"]["uid"])
            else:
                self._seen(event["object"])

    def _deleted(self, uid: str) -> None:
        with self.lock:
            self._known.pop(uid, None)
            self.running.pop(uid, None)
            self.gone.add(uid)

    def _seen(self, pod: Document) -> None:
        meta, node = pod["metadata"], pod["spec"].get("nodeName")
        uid = meta["uid"]
        with self.lock:
            self._known[uid] = pod
            if meta.get("deletionTimestamp"):
                self.gone.add(uid)
        if not node or node not in self.nodes:
            return
        if meta.get("deletionTimestamp"):
            if self.lets_go:
                self._let_go(pod)
        elif (pod.get("status") or {}).get("phase") not in OVER:
            self._start(pod)

    def _let_go(self, pod: Document) -> None:
        """Let a pod end that is deleted, and say so."""
        uid = pod["metadata"]["uid"]
        with self.lock:
            played = self.running.pop(uid, None)
            if played is not None and played.attempt is not None and self._is_part(played):
                self.hit.add(played.attempt)
        with suppress(KubeRefused):
            self.api.delete(
                _path(pod), {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
            )

    def _is_part(self, pod: PlayedPod) -> bool:
        """Tell whether a pod is of a gang that never was complete."""
        return sum(one == pod.attempt for one, _ in self.starts) < pod.size

    def _start(self, pod: Document) -> None:
        uid = pod["metadata"]["uid"]
        with self.lock:
            if uid in self._started or pod["spec"]["nodeName"] not in self.nodes:
                return  # a node that returns does not run anew what it ran
            self._started.add(uid)
            played = _played(pod)
            self.running[uid] = played
            if played.attempt is not None:
                self.starts[played.attempt, played.rank] += 1
        self._report(played, "Running", {"running": {}})

    def _report(self, pod: PlayedPod, phase: str, state: Mapping[str, Any]) -> None:
        names = [one["name"] for one in pod.document["spec"]["containers"]]
        status = {
            "phase": phase,
            "containerStatuses": [
                {"name": one, "image": "played", "imageID": "", "ready": phase == "Running"}
                | {"restartCount": 0, "state": state}
                for one in names
            ],
        }
        with suppress(KubeRefused):
            body = {"metadata": {"uid": pod.uid}, "status": status}
            self.api.patch(f"{pod.path}/status", body, STRATEGIC)

    # -- what happens to pods ---------------------------------------------------------

    def finish(self, attempt: Attempt, exit_code: int) -> None:
        """Let all pods of an attempt end by themselves; the first word counts."""
        with self.lock:
            pods = [one for one in self.running.values() if one.attempt == attempt]
            if not pods:
                return
            self.exits.setdefault(attempt, exit_code)
            for one in pods:
                self.running.pop(one.uid)
        for one in pods:
            self._ended(one, self.exits[attempt] or 0)

    def kill(self, uid: str, exit_code: int = 137) -> None:
        """Let one pod fail."""
        with self.lock:
            pod = self.running.pop(uid, None)
            if pod is None:
                return
            if pod.attempt is not None:
                exit_code = self.exits.setdefault(pod.attempt, exit_code) or 0
        self._ended(pod, exit_code)

    def _ended(self, pod: PlayedPod, exit_code: int) -> None:
        phase = "Failed" if exit_code else "Succeeded"
        ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
        self._report(pod, phase, {"terminated": ended})

    def lose_node(self, node: str) -> None:
        """Let a node go with all that runs there."""
        with self.lock:
            self.nodes.discard(node)
            for pod in [one for one in self.running.values() if one.node == node]:
                self._lose(pod)

    def lose_pod(self, path: str) -> None:
        """Let a pod end that somebody has deleted and not waited for."""
        with self.lock:
            self._started |= {uid for uid, one in self._known.items() if _path(one) == path}
            for pod in [one for one in self.running.values() if one.path == path]:
                self._lose(pod)

    def _lose(self, pod: PlayedPod) -> None:
        del self.running[pod.uid]
        if pod.attempt is not None:
            self.hit.add(pod.attempt)

    def add_node(self, node: str) -> None:
        """Let a node join; pods that are bound to it start."""
        with self.lock:
            self.nodes.add(node)
            known = [one for one in self._known.values() if one["spec"].get("nodeName") == node]
        for one in known:
            self._seen(one)

    def placements(self) -> dict[Attempt, Placement]:
        """Return what runs for attempts, and where."""
        found: dict[Attempt, list[Spot]] = {}
        with self.lock:
            for one in self.running.values():
                if one.attempt is not None:
                    spot = Spot(MachineId(one.node), one.gpus)
                    found.setdefault(one.attempt, []).append(spot)
        return {attempt: Placement(tuple(spots)) for attempt, spots in found.items()}

    def begun(self) -> dict[Attempt, int]:
        """Return how often the most often begun pod of each attempt has begun."""
        found: dict[Attempt, int] = {}
        with self.lock:
            for (attempt, _), times in self.starts.items():
                found[attempt] = max(times, found.get(attempt, 0))
        return found


def _path(pod: Document) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def _played(pod: Document) -> PlayedPod:
    said = pod["metadata"].get("annotations") or {}
    whose = json.loads(said.get("interlane.dev/attempt", "null"))
    attempt = None
    if whose is not None:
        attempt = Attempt(JobId(whose["job"]), whose["number"], whose["uid"])
    gpus = tuple(int(one) for one in said.get("interlane.dev/gpu-index", "").split(",") if one)
    rank = int(said.get("interlane.dev/rank") or 0)
    uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
    size = 1 if whose is None else whose["size"]
    return PlayedPod(_path(pod), uid, node, attempt, gpus, rank, size, pod)
