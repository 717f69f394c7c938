"""What is written on pods and Jobs, so that another server takes up what runs.

A Binding carries whose attempt the pod is of; a Job that we make carries the whole launch.
Both are sealed: what users write there themselves is not believed.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.pods import Pod, PodName
from interlane.engines.kubernetes.sealing import is_sealed, seal_of
from interlane.live.files.job import JobSpec, Origin, read_spec
from interlane.live.port import Attempt, Launch
from interlane.live.store.record import document_placement, placement_document
from interlane.model import InterlaneError, JobId, MachineId, Placement, Spot

LISTED_MAX: Final = 64
"""Members of a gang up to which each carries where all of them go."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one pod of an attempt goes."""

    node: MachineId
    gpus: tuple[int, ...]
    task: int
    rank: int
    """Among all pods of the attempt."""

    @property
    def spot(self) -> Spot:
        """The same as a part of a placement."""
        return Spot(self.node, self.gpus, task=self.task)


def slots_of(placement: Placement) -> list[Slot]:
    """Return one slot for each instance, by task."""
    each = sorted(
        (spot for spot in placement.spots for _ in range(spot.instances)),
        key=lambda spot: spot.task,
    )
    return [Slot(spot.machine, spot.gpus, spot.task, rank) for rank, spot in enumerate(each)]


@dataclass(frozen=True, slots=True)
class GangMember:
    """A pod of a gang and where it goes, as the others know it."""

    pod: PodName
    slot: Slot


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose attempt a pod or a Job is of."""

    attempt: Attempt
    origin: Origin
    started_s: float
    size: int
    """Pods of the attempt."""
    slot: Slot | None = None
    """Of a pod."""
    members: tuple[GangMember, ...] = ()
    """All pods of a gang that came in through the engine, if there are not too many."""
    job: JobSpec | None = None
    """Of a Job that we made."""
    placement: Placement | None = None


def bound_annotations(
    key: bytes,
    pod: PodName,
    claim: Claim,
    *,
    gpu_milli: int,
    gpu_memory_mib: int,
    profile: str = "",
) -> dict[str, str]:
    """Return all that a Binding writes on a pod, sealed."""
    slot = claim.slot
    assert slot is not None
    said = {
        words.GPU_INDEX: ",".join(map(str, slot.gpus)),
        words.GPU_MILLI: f"{gpu_milli}" if slot.gpus else "0",
        words.GPU_MEMORY_MIB: f"{gpu_memory_mib}" if slot.gpus else "0",
        words.SLICE: profile,
        words.RANK: f"{slot.rank}",
        words.ATTEMPT: json.dumps(_plain(claim), separators=(",", ":")),
    }
    return {**said, words.SEAL: seal_of(key, pod.uid, slot.node, said)}


def claim_on_pod(key: bytes, pod: Pod) -> Claim | None:
    """Return what a Binding of ours wrote on a pod; None if it was not us."""
    said = pod["metadata"].get("annotations") or {}
    node = pod["spec"].get("nodeName") or ""
    if words.ATTEMPT not in said or not node:
        return None
    if not is_sealed(key, pod["metadata"]["uid"], node, said):
        return None
    try:
        return _claim(json.loads(said[words.ATTEMPT]))
    except (ValueError, KeyError, TypeError):  # of a version that wrote it otherwise
        return None


def launch_annotations(
    key: bytes, namespace: str, name: str, launch: Launch, started_s: float
) -> dict[str, str]:
    """Return what a Job carries, sealed for its name."""
    claim = Claim(
        launch.attempt, launch.origin, started_s, launch.placement.instances, job=launch.job
    )
    said = {**_plain(claim), "placement": placement_document(launch.placement)}
    text = json.dumps(said, separators=(",", ":"))
    return {words.LAUNCH: text, words.SEAL: _job_seal(key, namespace, name, text)}


def claim_on_job(key: bytes, job: Mapping[str, Any]) -> Claim | None:
    """Return what a Job of ours was made for; None if somebody else made it."""
    meta = job["metadata"]
    said = meta.get("annotations") or {}
    text = said.get(words.LAUNCH, "")
    seal = _job_seal(key, meta["namespace"], meta["name"], text)
    if not text or not hmac.compare_digest(said.get(words.SEAL, ""), seal):
        return None
    try:
        return _claim(json.loads(text))
    except (ValueError, KeyError, TypeError, InterlaneError):
        return None


def _job_seal(key: bytes, namespace: str, name: str, text: str) -> str:
    return hmac.new(key, f"{namespace}/{name}\0{text}".encode(), hashlib.sha256).hexdigest()


def _plain(claim: Claim) -> dict[str, Any]:
    attempt, origin, slot = claim.attempt, claim.origin, claim.slot
    said: dict[str, Any] = {
        "job": attempt.job_id,
        "number": attempt.number,
        "uid": attempt.uid,
        "serial": origin.serial,
        "user": origin.user,
        "submitted_s": origin.submitted_s,
        "started_s": claim.started_s,
        "size": claim.size,
    }
    if origin.key is not None:
        said["key"] = origin.key
    if slot is not None:
        said["slot"] = _slot_plain(slot)
    if claim.members:
        said["members"] = [
            [one.pod.namespace, one.pod.name, one.pod.uid, _slot_plain(one.slot)]
            for one in claim.members
        ]
    if claim.job is not None:
        said["spec"] = claim.job.document
    return said


def _claim(said: Mapping[str, Any]) -> Claim:
    attempt = Attempt(JobId(said["job"]), said["number"], said["uid"])
    origin = Origin(said["serial"], said["user"], said["submitted_s"], said.get("key"))
    members = tuple(
        GangMember(PodName(namespace, name, uid), _slot(slot))
        for namespace, name, uid, slot in said.get("members") or ()
    )
    return Claim(
        attempt,
        origin,
        said["started_s"],
        said["size"],
        _slot(said["slot"]) if "slot" in said else None,
        members,
        read_spec(said["spec"]) if "spec" in said else None,
        document_placement(said["placement"]) if "placement" in said else None,
    )


def _slot_plain(slot: Slot) -> list[Any]:
    return [slot.node, list(slot.gpus), slot.task, slot.rank]


def _slot(said: list[Any]) -> Slot:
    node, gpus, task, rank = said
    return Slot(MachineId(node), tuple(gpus), task, rank)
