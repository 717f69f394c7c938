"""Finds the pod that a kubelet asks devices for.

A kubelet does not say which it is.  It takes in pods in the order in which they are bound to
its node, and asks at once for what each wants; so the pod is the first that wants so much and
has nothing yet.  What is written on it, with the scheduler's seal, says which devices it owns.
Before a container starts the kubelet can say who holds what, and then the answer is checked: a
container never starts on a device that its pod does not own.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.node.offers import device_of
from interlane.engines.kubernetes.sealing import is_sealed
from interlane.model import MILLI, InterlaneError

Pod = Mapping[str, Any]
OVER = ("Succeeded", "Failed")


class NotOwned(InterlaneError):
    """Devices were asked for that no pod here may have; what the pod's owner reads."""


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """What a pod that is bound to this node owns here."""

    uid: str
    namespace: str
    name: str
    resource: str
    gpus: tuple[int, ...]
    each: int
    """Units of each of them."""
    share_milli: int
    memory_mib: int
    """Of each of them; 0 if nobody said."""
    job: str
    """The scheduler's name of the job that the pod is part of."""
    takes_turns: bool
    """Whether it is one process on one device that others may share."""

    @property
    def units(self) -> int:
        """How many units it owns."""
        return len(self.gpus) * self.each

    @property
    def pod(self) -> tuple[str, str]:
        """Its namespace and name."""
        return self.namespace, self.name


def claim_of(pod: Pod, node: str, key: bytes) -> DeviceClaim | None:
    """Return what a pod owns on a node; None if it owns nothing that its scheduler sealed."""
    meta = pod["metadata"]
    said: Mapping[str, str] = meta.get("annotations") or {}
    if not said.get(words.GPU_INDEX) or not is_sealed(key, meta["uid"], node, said):
        return None
    gpus = tuple(int(one) for one in said[words.GPU_INDEX].split(","))
    share_milli, profile = int(said[words.GPU_MILLI]), said[words.SLICE]
    attempt = json.loads(said[words.ATTEMPT])
    resource = f"{words.NVIDIA_MIG}{profile}" if profile else words.SHARE
    each = 1 if profile else -(-share_milli * words.SHARES_PER_GPU // MILLI)
    return DeviceClaim(
        meta["uid"],
        meta["namespace"],
        meta["name"],
        resource,
        gpus,
        each,
        share_milli,
        int(said[words.GPU_MEMORY_MIB]),
        attempt["job"],
        # Processes that wait for each other cannot take turns with others.
        takes_turns=len(gpus) == 1 and not profile and attempt["size"] == 1,
    )


@dataclass
class DeviceClaims:
    """The claims of a node's pods, in the order in which they came, and who has devices."""

    node: str
    key: bytes
    _claims: dict[str, DeviceClaim] = field(default_factory=dict)
    """By uid, in order of arrival."""
    _given: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Units that were handed out, by the uid of the pod."""

    def changed(self, before: Pod | None, now: Pod | None) -> None:
        """Take in a pod as it is now; None if it is no more."""
        pod = now or before
        assert pod is not None
        uid = pod["metadata"]["uid"]
        if now is None or (now.get("status") or {}).get("phase") in OVER:
            self._claims.pop(uid, None)
            self._given.pop(uid, None)
        elif uid not in self._claims:
            claim = claim_of(now, self.node, self.key)
            if claim is not None:
                self._claims[uid] = claim

    def in_order_of(self, pods: Iterable[Pod]) -> None:
        """Put claims that were there from the beginning in the order that a kubelet keeps."""
        ages = {
            pod["metadata"]["uid"]: pod["metadata"].get("creationTimestamp") or ""
            for pod in pods
        }
        ordered = sorted(self._claims, key=lambda uid: ages.get(uid, ""))
        self._claims = {uid: self._claims[uid] for uid in ordered}

    def next(self, resource: str, units: int) -> DeviceClaim | None:
        """Return the first pod that owns so many units and has none yet."""
        for uid, claim in self._claims.items():
            if (claim.resource, claim.units) == (resource, units) and uid not in self._given:
                return claim
        return None

    def give(self, claim: DeviceClaim, units: Iterable[str]) -> None:
        """Note that a pod has got units; they must be on its devices."""
        got = tuple(units)
        counts = dict.fromkeys(claim.gpus, 0)
        for unit in got:
            counts[device_of(unit)] = counts.get(device_of(unit), 0) + 1
        if counts != dict.fromkeys(claim.gpus, claim.each):
            where = ", ".join(map(str, sorted(counts)))
            own = ", ".join(map(str, claim.gpus))
            raise NotOwned(
                f"Pod {'/'.join(claim.pod)} owns GPU {own} of {self.node}, but the kubelet "
                f"booked it on {where}; others hold what is its own. Delete it, so that it is "
                "placed anew."
            )
        self._given[claim.uid] = got

    def holds(self, pod: tuple[str, str], units: Iterable[str]) -> None:
        """Learn from the kubelet who holds units, as after a restart."""
        for uid, claim in self._claims.items():
            if claim.pod == pod and uid not in self._given:
                self._given[uid] = tuple(units)

    def check(self, pod: tuple[str, str], units: Iterable[str]) -> None:
        """Raise why a pod may not start with units, if it may not."""
        got = {device_of(unit) for unit in units}
        owned = [claim for claim in self._claims.values() if claim.pod == pod]
        if not any(got == set(claim.gpus) for claim in owned):
            where = ", ".join(map(str, sorted(got)))
            own = ", ".join(str(one) for claim in owned for one in claim.gpus) or "none"
            raise NotOwned(
                f"Pod {'/'.join(pod)} was given GPU {where} of {self.node} and owns {own}; "
                "delete it, so that it is placed anew."
            )

    @property
    def given(self) -> Mapping[str, DeviceClaim]:
        """Claims of pods that have got their devices, by uid."""
        return {uid: self._claims[uid] for uid in self._given if uid in self._claims}
