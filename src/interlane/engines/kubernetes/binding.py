"""Binds pods: one call that decides where a pod runs and writes what its node must know.

Calls wait for each other in a queue of their own, so that a slow API server holds up no
decision.  What fails for the moment is tried again, with growing pauses; what came of a call
whose answer was lost is found out by looking at the pod.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from interlane.engines.kubernetes.annotations import SEAL
from interlane.engines.kubernetes.client import ApiError, Document, KubeClient
from interlane.engines.kubernetes.pods import PodName

AT_ONCE: Final = 32
AGAIN_S: Final = 0.1
AGAIN_S_MAX: Final = 5.0


@dataclass
class BindCounts:
    """What has come of bindings."""

    bound: int = 0
    again: int = 0
    refused: int = 0


@dataclass
class Binder:
    """See the module's text."""

    client: KubeClient
    may_write: Callable[[], bool]
    at_once: int = AT_ONCE
    counts: BindCounts = field(default_factory=BindCounts)
    _free: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.at_once)

    async def bind(
        self,
        pod: PodName,
        node: str,
        annotations: Mapping[str, str],
        is_wanted: Callable[[], bool],
    ) -> str | None:
        """Bind a pod and return None, or return why it will never be."""
        body = _binding(pod, node, annotations)
        for tries in range(1_000_000):
            if not is_wanted():
                return "It was stopped before."
            if self.may_write():
                async with self._free:
                    why, wait_s = await self._try(pod, body)
                if wait_s is None:
                    return why
            else:
                wait_s = AGAIN_S_MAX
            self.counts.again += 1
            pause_s = min(AGAIN_S_MAX, AGAIN_S * 2 ** min(tries, 10))
            await asyncio.sleep(max(wait_s, pause_s) * random.uniform(0.5, 1.0))
        return "The API server never answered."

    async def _try(self, pod: PodName, body: Document) -> tuple[str | None, float | None]:
        """Return why it was refused for good, or for how long to wait at least."""
        try:
            await self.client.post(f"{pod.path}/binding", body)
        except ApiError as error:
            if error.is_passing:
                return None, error.wait_s
            if error.is_conflict:
                return await self._conflict(pod, body)
            self.counts.refused += 1
            return error.said or f"{error}", None
        self.counts.bound += 1
        return None, None

    async def _conflict(self, pod: PodName, body: Document) -> tuple[str | None, float | None]:
        """Find out who bound a pod: perhaps we did, and the answer was lost."""
        try:
            now = await self.client.get(pod.path)
        except ApiError as error:
            if error.is_gone:
                return "The pod is gone.", None
            return None, error.wait_s
        node = now["spec"].get("nodeName")
        said = now["metadata"].get("annotations") or {}
        is_ours = (
            now["metadata"]["uid"] == pod.uid
            and node == body["target"]["name"]
            and said.get(SEAL) == body["metadata"]["annotations"][SEAL]
        )
        if is_ours:
            self.counts.bound += 1
            return None, None
        if not node and not now["metadata"].get("deletionTimestamp"):
            return None, 0.0  # it changed in between
        self.counts.refused += 1
        return (f"Somebody else bound it to {node}." if node else "The pod is going."), None


def _binding(pod: PodName, node: str, annotations: Mapping[str, str]) -> Document:
    """Return the object that binds; newer servers refuse it for another pod of the name."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "annotations": dict(annotations),
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
