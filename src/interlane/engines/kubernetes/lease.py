"""Who leads: one server of many holds a Lease, and only that one writes.

Whoever waits goes by its own clock: a lease is over when it has not changed for as long as it
lasts, whatever times are written in it, so that clocks which differ do no harm.  Whoever leads
stops writing well before that: ``may_write`` is false once no renewal has been answered for two
thirds of the time, and no request lasts longer than the rest.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from interlane.engines.kubernetes.client import ApiError, Document, KubeClient

LEASE_S: Final = 10.0
"""Seconds; with these somebody else serves within twenty after a leader was killed."""
HOLDS: Final = 2 / 3
"""The part of a lease for which its holder writes without a renewal."""
RENEWS: Final = 1 / 8
"""The part of it after which it is renewed, or looked at."""

log = logging.getLogger("interlane.engines.kubernetes")


@dataclass
class Leadership:
    """See the module's text; belongs to one event loop."""

    client: KubeClient
    namespace: str
    name: str
    identity: str
    lease_s: float = LEASE_S
    lost: Callable[[str], None] = lambda why: None
    """Told once why somebody else may lead now."""
    note: Callable[[], dict[str, str]] = dict
    """Returns annotations that each renewal writes."""
    epoch: int = 0
    """How often the lease has changed hands: later leaders have higher ones."""
    annotations: dict[str, str] = field(default_factory=dict)
    """What the leader before had written."""
    clock: Callable[[], float] = time.monotonic
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once we led, and no longer do: whoever lost the lease never leads again."""
    _until_s: float = 0.0
    _seen: tuple[str, str] = ("", "")
    _seen_s: float = 0.0

    @property
    def may_write(self) -> bool:
        """Whether nobody else can lead for as long as a request lasts."""
        return self.clock() < self._until_s

    @property
    def _path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    async def acquire(self, waits: Callable[[str], None] = lambda holder: None) -> None:
        """Wait until we lead; whoever leads meanwhile is told once."""
        told = ""
        while True:
            try:
                holder = await self._try()
            except ApiError as error:
                if error.status in (401, 403):
                    raise
                log.warning("The lease %s cannot be looked at: %s", self.name, error)
                holder = told
            if holder is None:
                return
            if holder != told:
                waits(holder)
                told = holder
            await asyncio.sleep(self.lease_s * RENEWS * random.uniform(0.8, 1.2))

    async def _try(self) -> str | None:
        """Take the lease if it is free or over; return who has it else."""
        now_s = self.clock()
        try:
            lease = await self.client.get(f"{self._path}/{self.name}")
        except ApiError as error:
            if not error.is_gone:
                raise
            return await self._take(self.client.post, self._path, self._made({}), now_s)
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        seen = holder, str(lease["metadata"]["resourceVersion"])
        if seen != self._seen:
            self._seen, self._seen_s = seen, now_s
        lasts_s = float(spec.get("leaseDurationSeconds") or self.lease_s)
        if holder and holder != self.identity and now_s - self._seen_s < lasts_s:
            return holder
        path = f"{self._path}/{self.name}"
        return await self._take(self.client.put, path, self._made(lease), now_s)

    async def _take(
        self, write: Callable[..., object], path: str, body: Document, now_s: float
    ) -> str | None:
        """Write the lease at the version that was seen; somebody else may be faster."""
        try:
            await write(path, body)  # type: ignore[misc]
        except ApiError as error:
            if error.is_conflict:
                return "another server"
            raise
        self.epoch = body["spec"]["leaseTransitions"]
        self._until_s = now_s + self.lease_s * HOLDS
        return None

    def _made(self, before: Document) -> Document:
        """Return the lease as ours; it changes hands even if its name is the same."""
        spec = before.get("spec") or {}
        self.annotations = dict((before.get("metadata") or {}).get("annotations") or {})
        now = _now()
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                **(before.get("metadata") or {}),
                "name": self.name,
                "namespace": self.namespace,
            },
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": max(1, round(self.lease_s)),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1,
            },
        }

    async def keep(self) -> None:
        """Renew the lease until cancelled, or until somebody else has it."""
        while True:
            await asyncio.sleep(self.lease_s * RENEWS)
            try:
                await self._renew()
            except ApiError as error:
                log.warning("The lease %s could not be renewed: %s", self.name, error)
            if not self.may_write:
                self.is_over.set()
                self.lost(
                    f"The lease {self.namespace}/{self.name} was not renewed in time; another "
                    "server may lead now."
                )
                return

    async def _renew(self) -> None:
        now_s = self.clock()
        lease = await self.client.get(f"{self._path}/{self.name}")
        spec = lease["spec"]
        if (
            spec.get("holderIdentity") != self.identity
            or spec.get("leaseTransitions") != self.epoch
        ):
            self._until_s = 0.0
            return
        lease["metadata"].setdefault("annotations", {}).update(self.note())
        spec["renewTime"] = _now()
        await self.client.put(f"{self._path}/{self.name}", lease)
        self._until_s = now_s + self.lease_s * HOLDS

    async def release(self) -> None:
        """Let another server lead at once."""
        if not self.may_write:
            return
        self._until_s = 0.0
        try:
            lease = await self.client.get(f"{self._path}/{self.name}")
            if lease["spec"].get("leaseTransitions") == self.epoch:
                lease["spec"]["holderIdentity"] = ""
                lease["metadata"].setdefault("annotations", {}).update(self.note())
                await self.client.put(f"{self._path}/{self.name}", lease)
        except ApiError as error:
            log.warning("The lease %s could not be released: %s", self.name, error)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
