"""Plans and states as documents: what goes out as JSON, and what is read back.

A state is written as ``nvidia-smi mig -lgi`` lists it, GPU by GPU::

    {"gpus": [{"id": "gpu-0", "model": "A100-80GB", "instances": [
        {"name": "MIG 3g.40gb", "placement": "4:4", "service": "bert"},
        {"profile": "1g.10gb", "start": 0, "service": "mobilenet", "batch": 8}]}]}

An instance is named by ``profile`` or by nvidia-smi's ``name`` (with or without ``MIG``), and
placed by ``start`` or by its ``placement``, ``start:size``.  What it serves may be left out;
keys that we do not know are passed over, so that our own plans and richer listings can be
read.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from interlane.mig.entries import MigFileSection
from interlane.mig.layouts import broken_rule
from interlane.mig.plan import GpuPlan, Instance, Member, PartitionPlan, SolvedPlan
from interlane.mig.profiles import gpu_model
from interlane.model import InvalidFile, UnknownName


def plan_document(plan: PartitionPlan) -> list[dict[str, Any]]:
    """Return the GPUs of a plan as a document."""
    return [_gpu_document(gpu) for gpu in plan.gpus]


def outcome_document(outcome: SolvedPlan) -> dict[str, Any]:
    """Return an outcome as a document, its plan last."""
    return {
        "optimiser": outcome.optimiser,
        "gpus_used": len(outcome.plan.gpus),
        "cost": outcome.cost,
        "lower_bound": outcome.lower_bound,
        "gap": outcome.gap,
        "optimal": outcome.is_optimal,
        "why_stopped": outcome.stopped.value,
        "seconds": round(outcome.seconds, 3),
        "notes": list(outcome.notes),
        "gpus": plan_document(outcome.plan),
    }


def _gpu_document(gpu: GpuPlan) -> dict[str, Any]:
    document: dict[str, Any] = {"id": gpu.id, "model": gpu.model}
    if gpu.members:
        document["shared_by"] = [_member_document(member) for member in gpu.members]
    else:
        document["instances"] = [_instance_document(gpu, one) for one in gpu.instances]
    return document


def _instance_document(gpu: GpuPlan, one: Instance) -> dict[str, Any]:
    size = gpu_model(gpu.model).profile(one.profile).size
    return {
        "profile": one.profile,
        "placement": f"{one.start}:{size}",
        **served_document(one),
    }


def served_document(one: Instance) -> dict[str, Any]:
    """Return whom an instance serves, how, and how well."""
    return {
        "service": one.service,
        "batch": one.batch,
        "processes": one.processes,
        "throughput_per_s": one.throughput_per_s,
        "latency_ms": one.latency_ms,
    }


def _member_document(member: Member) -> dict[str, Any]:
    return {
        "service": member.service,
        "throughput_per_s": member.throughput_per_s,
        "latency_ms": member.latency_ms,
    }


# -- reading --------------------------------------------------------------------------


def read_state(document: object, file: str, default_model: str | None = None) -> PartitionPlan:
    """Read what is there now, or a plan; refuse what no GPU could be."""
    whole = MigFileSection(file, "the file", document)
    if "gpus" not in whole:
        raise InvalidFile(file, "a state holds the key gpus, a list of GPUs; add it.")
    gpus = [
        _read_gpu(entry, number, default_model)
        for number, entry in enumerate(whole.entries("gpus"))
    ]
    for name, count in Counter(gpu.id for gpu in gpus).items():
        if count > 1:
            raise InvalidFile(file, f"GPU {name} is listed {count} times; list it once.")
    return PartitionPlan(tuple(gpus))


def _read_gpu(entry: MigFileSection, number: int, default_model: str | None) -> GpuPlan:
    name = entry.first(("id", "index"), number)
    named = name if isinstance(name, str) else f"gpu-{name}"
    model = entry.text("model", default_model)
    try:
        events = gpu_model(model)
    except UnknownName as error:
        raise entry.error(str(error)) from None
    instances = [_read_instance(one) for one in entry.entries("instances", "mig_devices")]
    members = [_read_member(one) for one in entry.entries("shared_by")]
    gpu = GpuPlan(
        named, model, tuple(sorted(instances, key=lambda one: one.start)), tuple(members)
    )
    broken = broken_rule(events, gpu.layout)
    if broken is not None:
        raise InvalidFile(entry.file, f"{named} is impossible on {model}: {broken}")
    return gpu


def _read_instance(entry: MigFileSection) -> Instance:
    name = entry.first(("profile", "name"))
    if not isinstance(name, str):
        raise entry.wrong("profile", "a profile, as in 1g.10gb")
    return Instance(
        name.removeprefix("MIG").strip(),
        _start(entry),
        entry.text("service", ""),
        entry.whole("batch", 1, least=1),
        entry.whole("processes", 1, least=1),
        entry.amount("throughput_per_s", 0.0, least=0),
        entry.amount("latency_ms", 0.0, least=0),
    )


def _start(entry: MigFileSection) -> int:
    place = entry.first(("placement", "start"))
    if isinstance(place, Mapping):
        place = place.get("start")
    if isinstance(place, str):
        begin = place.partition(":")[0].strip()
        place = int(begin) if begin.isascii() and begin.isdigit() else place
    if isinstance(place, bool) or not isinstance(place, int):
        raise entry.wrong("placement", "start:size, as in 4:4")
    return place


def _read_member(entry: MigFileSection) -> Member:
    return Member(
        entry.text("service"),
        entry.amount("throughput_per_s", least=0),
        entry.amount("latency_ms", least=0),
    )
