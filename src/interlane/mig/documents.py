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

from collections.abc import Mapping
from typing import Any

from interlane.mig.layouts import broken_rule
from interlane.mig.plan import GpuPlan, Instance, Member, Outcome, Plan
from interlane.mig.profiles import gpu_model
from interlane.model import InvalidFile, InvalidInput


def plan_document(plan: Plan) -> list[dict[str, Any]]:
    """Return the GPUs of a plan as a document."""
    return [_gpu_document(gpu) for gpu in plan.gpus]


def outcome_document(outcome: Outcome) -> dict[str, Any]:
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


def read_state(document: object, file: str, default_model: str | None = None) -> Plan:
    """Read what is there now, or a plan; refuse what no GPU could be."""
    if not isinstance(document, Mapping) or not isinstance(document.get("gpus"), list):
        raise InvalidFile(file, "a state holds the key gpus, a list of GPUs; add it.")
    gpus = [
        _read_gpu(entry, number, file, default_model)
        for number, entry in enumerate(document["gpus"])
    ]
    names = [gpu.id for gpu in gpus]
    for name in names:
        if names.count(name) > 1:
            raise InvalidFile(file, f"GPU {name} is listed twice; list it once.")
    return Plan(tuple(gpus))


def _read_gpu(entry: object, number: int, file: str, default_model: str | None) -> GpuPlan:
    where = f"GPU entry {number + 1}"
    if not isinstance(entry, Mapping):
        raise InvalidFile(file, f"{where} is {entry!r}, but it must be keys with values.")
    name = entry.get("id", entry.get("index", number))
    named = name if isinstance(name, str) else f"gpu-{name}"
    model = entry.get("model", default_model)
    if not isinstance(model, str):
        raise InvalidFile(file, f"{where} has no model; add one, as in model: A100-80GB.")
    try:
        facts = gpu_model(model)
        instances = tuple(
            sorted(
                (_read_instance(one, f"{where} ({named})", file) for one in _list(entry, file)),
                key=lambda one: one.start,
            )
        )
        gpu = GpuPlan(named, model, instances, _members(entry, where, file))
        broken = broken_rule(facts, gpu.layout)
    except InvalidFile:
        raise
    except InvalidInput as error:
        raise InvalidFile(file, f"{where}: {error}") from None
    if broken is not None:
        raise InvalidFile(file, f"{named} is impossible on {model}: {broken}")
    return gpu


def _list(entry: Mapping[str, Any], file: str) -> list[object]:
    found = entry.get("instances", entry.get("mig_devices", []))
    if not isinstance(found, list):
        raise InvalidFile(file, f"instances is {found!r}, but it must be a list.")
    return found


def _read_instance(entry: object, where: str, file: str) -> Instance:
    if not isinstance(entry, Mapping):
        raise InvalidFile(
            file, f"{where}: an instance is {entry!r}; it must be keys with values."
        )
    name = entry.get("profile", entry.get("name"))
    if not isinstance(name, str):
        raise InvalidFile(file, f"{where}: an instance has no profile; add one, as 1g.10gb.")
    return Instance(
        name.removeprefix("MIG").strip(),
        _start(entry, where, file),
        _text(entry, "service", where, file),
        _whole(entry, "batch", where, file),
        _whole(entry, "processes", where, file),
        _amount(entry, "throughput_per_s", where, file),
        _amount(entry, "latency_ms", where, file),
    )


def _start(entry: Mapping[str, Any], where: str, file: str) -> int:
    place = entry.get("placement", entry.get("start"))
    if isinstance(place, Mapping):
        place = place.get("start")
    if isinstance(place, str):
        begin = place.partition(":")[0].strip()
        place = int(begin) if begin.isascii() and begin.isdigit() else place
    if isinstance(place, bool) or not isinstance(place, int):
        raise InvalidFile(
            file, f"{where}: placement is {place!r}, but it must read start:size, as in 4:4."
        )
    return place


def _text(entry: Mapping[str, Any], key: str, where: str, file: str) -> str:
    value = entry.get(key) or ""
    if not isinstance(value, str):
        raise InvalidFile(file, f"{where}: {key} is {value!r}, but it must be text.")
    return value


def _whole(entry: Mapping[str, Any], key: str, where: str, file: str) -> int:
    value = entry.get(key, 1)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidFile(file, f"{where}: {key} is {value!r}, but it must be 1 or more.")
    return value


def _amount(entry: Mapping[str, Any], key: str, where: str, file: str) -> float:
    value = entry.get(key, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidFile(file, f"{where}: {key} is {value!r}, but it must be 0 or more.")
    return float(value)


def _members(entry: Mapping[str, Any], where: str, file: str) -> tuple[Member, ...]:
    listed = entry.get("shared_by", [])
    if not isinstance(listed, list) or not all(isinstance(one, Mapping) for one in listed):
        raise InvalidFile(file, f"{where}: shared_by must be a list of services.")
    return tuple(
        Member(
            _text(one, "service", where, file),
            _amount(one, "throughput_per_s", where, file),
            _amount(one, "latency_ms", where, file),
        )
        for one in listed
    )
