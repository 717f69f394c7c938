"""What users read with kubectl: conditions and events on pods that wait, and on bad nodes.

Written in the background and at leisure; whatever is lost here is only said later.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from interlane.engines.kubernetes.annotations import SCHEDULER
from interlane.engines.kubernetes.client import ApiError, Document, KubeClient
from interlane.engines.kubernetes.pods import PodName

WAITING_MAX: Final = 5_000
KNOWN_MAX: Final = 20_000
SAID_MAX: Final = 1_000
"""Characters of an event; the API server takes 1,024."""
UNSCHEDULABLE: Final = "Unschedulable"

log = logging.getLogger("interlane.engines.kubernetes")


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to say about a pod or a node."""

    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    said: str
    sets_condition: bool = False


@dataclass
class Notices:
    """See the module's text."""

    client: KubeClient
    may_write: Callable[[], bool]
    _waiting: "OrderedDict[tuple[str, str], Notice]" = field(default_factory=OrderedDict)
    _said: "OrderedDict[tuple[str, str], str]" = field(default_factory=OrderedDict)
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    def refuse(self, pod: PodName, said: str) -> None:
        """Say on a pod why it is not scheduled."""
        self._put(_on_pod(pod, "FailedScheduling", said, sets_condition=True))

    def tell(self, pod: PodName, reason: str, said: str) -> None:
        """Say something on a pod."""
        self._put(_on_pod(pod, reason, said))

    def refuse_node(self, node: Document, said: str) -> None:
        """Say on a node why nothing is placed there."""
        meta = node["metadata"]
        self._put(Notice("Node", "", meta["name"], meta["name"], "InvalidNode", said))

    def _put(self, notice: Notice) -> None:
        """Say it soon, unless that was said last."""
        key = notice.uid, notice.reason
        if self._said.get(key) == notice.said:
            return
        self._said[key] = notice.said
        self._waiting[key] = notice
        while len(self._said) > KNOWN_MAX:
            self._said.popitem(last=False)
        while len(self._waiting) > WAITING_MAX:
            self._waiting.popitem(last=False)
        self._came.set()

    async def run(self) -> None:
        """Say what there is to say until cancelled."""
        while True:
            await self._came.wait()
            self._came.clear()
            while self._waiting and self.may_write():
                _, notice = self._waiting.popitem(last=False)
                try:
                    await self._write(notice)
                except ApiError as error:
                    if not error.is_gone:
                        log.debug("%s could not be said: %s", notice, error)

    async def _write(self, notice: Notice) -> None:
        if notice.sets_condition:
            path = f"/api/v1/namespaces/{notice.namespace}/pods/{notice.name}/status"
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": UNSCHEDULABLE,
                "message": notice.said,
            }
            meta = {"uid": notice.uid}  # of this pod, and no later one of its name
            body = {"metadata": meta, "status": {"conditions": [condition]}}
            await self.client.patch(path, body)
        where = notice.namespace or "default"
        await self.client.post(f"/api/v1/namespaces/{where}/events", _event(notice, where))


def _on_pod(pod: PodName, reason: str, said: str, *, sets_condition: bool = False) -> Notice:
    return Notice("Pod", pod.namespace, pod.name, pod.uid, reason, said, sets_condition)


def _event(notice: Notice, namespace: str) -> Document:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    involved = {"apiVersion": "v1", "kind": notice.kind, "name": notice.name}
    if notice.namespace:
        involved["namespace"] = notice.namespace
    return {
        "metadata": {"name": f"{notice.name[:200]}.{uuid4().hex[:16]}", "namespace": namespace},
        "involvedObject": {**involved, "uid": notice.uid},
        "type": "Warning",
        "reason": notice.reason,
        "message": notice.said[:SAID_MAX],
        "source": {"component": SCHEDULER},
        "reportingComponent": SCHEDULER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
