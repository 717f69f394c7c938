"""Jobs that came in by ``sbatch``, as jobs of ours."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from interlane.engines.slurm.gres import GPU, PINNED, SHARD, Gres, asked, read_gres
from interlane.engines.slurm.reading import WAITING, SlurmJob
from interlane.live.files.job import JobSpec, read_spec
from interlane.model import MILLI, InvalidInput

TASKS_AHEAD: Final = 200
"""Tasks of one array that wait here at a time; the others wait for these."""
_NOT_NAMES: Final = re.compile(r"[^a-z0-9._-]+")
_ENDS: Final = "._-"
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_NUMBERED: Final = re.compile(r"[._-]?\d+$")


def spec_of(job: SlurmJob, parts: int) -> JobSpec:
    """Return what a job of Slurm's asks for, on each of its nodes.

    Args:
        job: the job; ``InvalidInput`` if nothing like it can be ours.
        parts: into how many shards a GPU is cut, at most.
    """
    name = name_of(job.name)
    resources: dict[str, Any] = {"cpu": -(-job.cpus // job.node_count)}
    if job.memory_mib:
        resources["memory"] = f"{job.memory_mib}MiB"
    gpu = _gpu(job, parts)
    if gpu is not None:
        resources["gpu"] = gpu
    said: dict[str, Any] = {
        "name": name,
        "group": _NUMBERED.sub("", name) or name,
        "queue": name_of(job.partition),
        "run": _printable(job.command) or name,
        "resources": resources,
        "gang": {"nodes": job.node_count},
    }
    if job.node_count > 1:
        said["topology"] = {"spread": "machine"}
    if job.limit_s is not None:
        said["time"] = {"limit": job.limit_s}
    return read_spec(said)


def _gpu(job: SlurmJob, parts: int) -> dict[str, Any] | None:
    """Return the GPUs that a job asks for on each node."""
    entries = list(_asked(job))
    gpus, shards = asked(entries, GPU), asked(entries, SHARD)
    types = sorted({_model(one.type) for one in entries if one.type})
    kind = {"type": types} if types else {}
    if gpus and shards:
        raise InvalidInput(
            f"Job {job.id} asks for GPUs and for shards; it must be one of them."
        )
    if gpus:
        return {"count": gpus, **kind}
    if not shards:
        return None
    if shards > parts:
        raise InvalidInput(f"Job {job.id} asks for {shards} shards; a GPU has {parts}.")
    return {"count": 1, "compute": f"{-(-shards * MILLI // parts)}m", **kind}


def _asked(job: SlurmJob) -> Iterator[Gres]:
    """Yield what a job's user asked for on each node."""
    asks = job.held_claim.asks
    if asks:
        yield from read_gres(asks)
    else:
        yield from job.asked
        yield from _shared_out(job.asked_in_all, job.node_count)


def asks_of(job: SlurmJob) -> str:
    """Return what a job's user asked for, whatever we have written over it."""
    return job.held_claim.asks or job.tres_per_node or job.tres_per_job


def _shared_out(entries: Iterable[Gres], nodes: int) -> Iterator[Gres]:
    """Yield what of a job's total is on each node; it does not say where more would be."""
    for one in entries:
        yield Gres(one.name, one.type, -(-one.count // nodes))


def _model(gpu_type: str) -> str:
    found = PINNED.fullmatch(gpu_type)
    return gpu_type if found is None else found["model"]


def name_of(text: str) -> str:
    """Return a name of ours that is like one of Slurm's, where anything is allowed."""
    return _NOT_NAMES.sub("-", text.lower())[:60].strip(_ENDS) or "job"


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()[:1_000]


def tasks_of(job: SlurmJob) -> Iterator[SlurmJob]:
    """Yield a job, or the next tasks of an array that have no record of their own."""
    if job.task is not None or not job.array or job.state not in WAITING or not job.tasks:
        yield job
        return
    for task, _ in zip(_numbers(job.tasks), range(TASKS_AHEAD), strict=False):
        yield replace(job, task=task, tasks="")


def _numbers(text: str) -> Iterator[int]:
    """Yield the tasks of ``0-3,7,10-20:2%4``; what cannot be read ends it."""
    for part in text.partition("%")[0].split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            return
        first = int(found[1])
        yield from range(first, int(found[2] or first) + 1, int(found[3] or 1))
