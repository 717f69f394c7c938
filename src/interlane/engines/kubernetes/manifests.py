"""The objects of a job that came in through our API: a Job for each of its tasks."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import ceil
from typing import Final

from interlane.engines.kubernetes import annotations as words
from interlane.engines.kubernetes.claims import launch_annotations
from interlane.engines.kubernetes.client import Document
from interlane.engines.kubernetes.dialects import SLICE
from interlane.live.files.job import (
    ANY_VALUE,
    JobSpec,
    limit_s,
    memory_bytes_max,
    stop_of,
)
from interlane.live.port import Attempt, Launch
from interlane.model import MILLI, Demand, InvalidInput

NAME_MAX: Final = 63
TAG: Final = 10
MANAGED: Final = {"app.kubernetes.io/managed-by": "interlane"}
CONTAINER: Final = "main"
PORT: Final = 29_500
"""Where the first process of a gang waits for the others."""
JOBS: Final = "/apis/batch/v1/namespaces/{}/jobs"
SERVICES: Final = "/api/v1/namespaces/{}/services"


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What pods of jobs from our API have in common."""

    namespace: str = "default"
    home: str = ""
    """Of our lease, our key and our agents' reports, which jobs need not see; the namespace of
    jobs, if empty."""
    image: str | None = None
    """Of jobs that name none."""
    account: str | None = None
    """The service account that they run as."""

    @property
    def own_namespace(self) -> str:
        """Where our own objects are."""
        return self.home or self.namespace

    def check(self, job: JobSpec) -> None:
        """Refuse a job that no pod could be made of."""
        if job.image is None and self.image is None:
            raise InvalidInput(
                "image is missing; on Kubernetes a job runs in a container: name an image in "
                "the job file, or start the server with --image."
            )


def labels_of(attempt: Attempt) -> dict[str, str]:
    """Return the labels of all objects of an attempt."""
    return {**MANAGED, words.JOB_UID: attempt.uid, words.JOB_ATTEMPT: f"{attempt.number}"}


def job_name(attempt: Attempt, role: str) -> str:
    """Return the name of the Job of a task, which no other attempt has."""
    said = f"{attempt.job_id}/{attempt.uid}/{attempt.number}/{role}"
    tag = sha256(said.encode()).hexdigest()[:TAG]
    plain = re.sub(r"[^a-z0-9-]+", "-", f"{attempt.job_id}-{role}")
    return f"{plain[: NAME_MAX - TAG - 1].strip('-')}-{tag}"


def jobs_for(
    launch: Launch,
    settings: PodSettings,
    seal: bytes,
    offers: Mapping[str, Mapping[str, object]],
    now_s: float,
) -> list[Document]:
    """Return the Jobs of an attempt.

    Args:
        launch: what is to begin, and where.
        settings: what all pods have in common.
        seal: the key of seals.
        offers: what nodes advertise, by name.
        now_s: the moment that goes on record as its start.
    """
    made = []
    for at, task in enumerate(launch.job.roles):
        spots = [spot for spot in launch.placement.spots if spot.task == at]
        count = sum(spot.instances for spot in spots)
        if not count:
            continue
        name = job_name(launch.attempt, task.role)
        node = spots[0].machine
        gpus = _gpu_resources(launch.request.tasks[at].demand, offers.get(node) or {})
        template = _template(launch, settings, at, gpus)
        meta = {
            "name": name,
            "namespace": settings.namespace,
            "labels": {**labels_of(launch.attempt), words.ROLE: task.role},
            "annotations": launch_annotations(seal, settings.namespace, name, launch, now_s),
        }
        spec = {"parallelism": count, "completions": count, "backoffLimit": 0}
        made.append(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": meta,
                "spec": {**spec, "template": template},
            }
        )
    return made


def _gpu_resources(demand: Demand, offer: Mapping[str, object]) -> dict[str, str]:
    """Return what a pod must ask the kubelet for, so that its device plugin hands it over."""
    if not demand.gpus:
        return {}
    slices = [one.removeprefix(SLICE) for one in demand.gpu_types if one.startswith(SLICE)]
    if slices:
        return {f"{words.NVIDIA_MIG}{slices[0]}": f"{demand.gpus}"}
    if words.SHARE in offer:
        each = ceil(demand.gpu_milli * words.SHARES_PER_GPU / MILLI)
        return {words.SHARE: f"{demand.gpus * each}"}
    if demand.gpu_milli == MILLI and words.NVIDIA_GPU in offer:
        return {words.NVIDIA_GPU: f"{demand.gpus}"}
    return {}


def _template(
    launch: Launch, settings: PodSettings, at: int, gpus: Mapping[str, str]
) -> Document:
    job, task = launch.job, launch.job.roles[at]
    demand = launch.request.tasks[at].demand
    requests = {"cpu": f"{demand.cpu_milli}m", "memory": f"{demand.memory_mib}Mi", **gpus}
    limits = dict(gpus)
    most = memory_bytes_max(job, at)
    if most is not None:
        limits["memory"] = f"{most}"
    container = {
        "name": CONTAINER,
        "image": job.image or settings.image,
        "command": ["/bin/sh", "-c", job.command(task)],
        "env": _environment(launch, settings, at, has_plugin=bool(gpus)),
        "resources": {"requests": requests, "limits": limits},
        **({"workingDir": job.workdir} if job.workdir else {}),
    }
    spec: Document = {
        "schedulerName": words.SCHEDULER,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": ceil(stop_of(job).grace_s),
        "containers": [container],
        "tolerations": [_toleration(*one) for one in job.tolerations.items()],
    }
    if settings.account is not None:
        spec["serviceAccountName"] = settings.account
    limit = limit_s(job)
    if limit is not None:
        spec["activeDeadlineSeconds"] = ceil(limit)
    labels = {**labels_of(launch.attempt), words.ROLE: task.role}
    return {"metadata": {"labels": labels}, "spec": spec}


def _toleration(key: str, value: str) -> dict[str, str]:
    if value == ANY_VALUE:
        return {"key": key, "operator": "Exists"}
    return {"key": key, "operator": "Equal", "value": value}


def _environment(
    launch: Launch, settings: PodSettings, at: int, *, has_plugin: bool
) -> list[Document]:
    """Return the variables of a pod; what only the Binding knows is read from annotations."""
    job, attempt = launch.job, launch.attempt
    task = job.roles[at]
    size = launch.placement.instances
    plain = {
        **job.env,
        **task.env,
        "INTERLANE_JOB_ID": attempt.job_id,
        "INTERLANE_JOB_UID": attempt.uid,
        "INTERLANE_ATTEMPT": f"{attempt.number}",
        "INTERLANE_ROLE": task.role,
        "INTERLANE_NUM_NODES": f"{size}",
        "WORLD_SIZE": f"{size}",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": service_name(attempt) if size > 1 else "127.0.0.1",
        "MASTER_PORT": f"{PORT}",
    }
    bound = {
        "RANK": words.RANK,
        "INTERLANE_NODE_RANK": words.RANK,
        "INTERLANE_DEVICES": words.GPU_INDEX,
    }
    if not has_plugin:
        bound["NVIDIA_VISIBLE_DEVICES"] = bound["CUDA_VISIBLE_DEVICES"] = words.GPU_INDEX
    return [
        *({"name": name, "value": value} for name, value in plain.items()),
        *({"name": name, "valueFrom": _annotation(which)} for name, which in bound.items()),
        *({"name": name, "valueFrom": _secret(name, launch)} for name in job.secrets),
    ]


def _annotation(name: str) -> Document:
    return {"fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}


def _secret(name: str, launch: Launch) -> Document:
    """Return where the value of a secret is: each user has a Secret of their own."""
    user = re.sub(r"[^a-z0-9-]+", "-", launch.origin.user.lower()).strip("-")
    return {"secretKeyRef": {"name": f"interlane-secrets-{user}", "key": name}}


def service_name(attempt: Attempt) -> str:
    """Return the name by which the pods of a gang find the first of them."""
    return f"il-{sha256(f'{attempt.uid}/{attempt.number}'.encode()).hexdigest()[:20]}"


def service_for(launch: Launch, settings: PodSettings, owner: Document) -> Document:
    """Return a service without an address of its own that leads to the first pod of a gang."""
    attempt = launch.attempt
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(attempt),
            "namespace": settings.namespace,
            "labels": labels_of(attempt),
            "ownerReferences": [reference],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {**labels_of(attempt), words.RANK: "0"},
            "ports": [{"name": "rendezvous", "port": PORT}],
        },
    }
