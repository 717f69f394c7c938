"""An independent checker: what is wrong with a plan, in sentences.

It shares no code with what makes plans.  It reads the profiles for itself, counts units in its
own way, looks every instance up in the performance table, and adds up what services get.  A
plan with which it finds nothing wrong can be carried out and meets every target.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from interlane.mig.demand import GpuOffer, LatencyRule, Service, SharedGpu
from interlane.mig.plan import GpuPlan, PartitionPlan
from interlane.mig.table import Measurement

SLACK = 1e-6
"""Share of a target by which sums of floating-point numbers may fall short."""


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """What a plan must keep to, as it was asked for: not as the optimiser understood it."""

    services: Sequence[Service]
    offers: Sequence[GpuOffer]
    measurements: Iterable[Measurement]
    latency: LatencyRule
    max_processes: int = 1
    forbid_4g3g: bool = False
    shared: Sequence[SharedGpu] = ()
    pinned: Sequence[GpuPlan] = ()
    survive_gpu_loss: bool = False


def faults(plan: PartitionPlan, terms: PlanTerms) -> list[str]:
    """Return everything that is wrong with a plan; an empty list if nothing is."""
    found = [
        *_names_twice(plan),
        *(fault for gpu in plan.gpus for fault in layout_faults(gpu)),
        *_forbidden_pairs(plan, terms),
        *_wrong_instances(plan, terms),
        *_wrong_members(plan, terms),
        *_unserved(plan, terms),
        *_limits(plan, terms),
        *_moved_pins(plan, terms),
    ]
    if terms.survive_gpu_loss:
        found += _lost(plan, terms)
    return found


@cache
def _events() -> dict[str, Any]:
    text = files("interlane.mig").joinpath("data/profiles.json").read_text(encoding="utf-8")
    gpus: dict[str, Any] = json.loads(text)["gpus"]
    return gpus


def _events_of(gpu: GpuPlan) -> tuple[int, dict[str, Mapping[str, Any]]]:
    model = _events().get(gpu.model)
    if model is None:
        return 0, {}
    return model["grid"], {profile["name"]: profile for profile in model["profiles"]}


def layout_faults(gpu: GpuPlan) -> Iterator[str]:
    """Yield what is impossible about the instances of one GPU."""
    grid, known = _events_of(gpu)
    if not known:
        yield f"{gpu.id}: there is no GPU model {gpu.model}."
        return
    holders: dict[int, str] = {}
    counts: Counter[str] = Counter()
    for instance in gpu.instances:
        events = known.get(instance.profile)
        name = f"{instance.profile} at {instance.start}"
        if events is None:
            yield f"{gpu.id}: {gpu.model} has no profile {instance.profile}."
            continue
        counts[instance.profile] += 1
        if instance.start not in events["starts"]:
            yield f"{gpu.id}: {name} breaks the rule of starts {events['starts']}."
        for unit in range(instance.start, instance.start + events["size"]):
            if unit in holders:
                yield f"{gpu.id}: {name} overlaps {holders[unit]} in unit {unit}."
            if not 0 <= unit < grid:
                yield f"{gpu.id}: {name} leaves the grid of {grid} units."
            holders[unit] = name
    for profile, count in counts.items():
        if count > known[profile]["max_count"]:
            yield f"{gpu.id}: {count} x {profile} are more than {known[profile]['max_count']}."
    yield from _media_faults(gpu, counts, known)


def _media_faults(
    gpu: GpuPlan, counts: Counter[str], known: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    kinds = Counter[str]()
    for profile, count in counts.items():
        kinds[known[profile]["kind"]] += count
    if kinds["media"] + kinds["media-all"] > 1:
        yield f"{gpu.id}: more than one instance has the media extension."
    elif kinds["media-all"] and kinds.total() > kinds["media-all"] + kinds["no-media"]:
        yield f"{gpu.id}: an instance has every media engine, and another one needs some."


def _names_twice(plan: PartitionPlan) -> Iterator[str]:
    for name, count in Counter(gpu.id for gpu in plan.gpus).items():
        if count > 1:
            yield f"{name}: {count} GPUs have this name."


def _forbidden_pairs(plan: PartitionPlan, terms: PlanTerms) -> Iterator[str]:
    kept = {
        (gpu.id, instance.profile, instance.start)
        for gpu in terms.pinned
        for instance in gpu.instances
    }
    for gpu in plan.gpus if terms.forbid_4g3g else ():
        new = [
            instance.profile[:3]
            for instance in gpu.instances
            if (gpu.id, instance.profile, instance.start) not in kept
        ]
        sizes = {instance.profile[:3] for instance in gpu.instances}
        if {"3g.", "4g."} <= sizes and {"3g.", "4g."} & {*new}:
            yield f"{gpu.id}: 4g stands beside 3g, which was forbidden."


def _wrong_instances(plan: PartitionPlan, terms: PlanTerms) -> Iterator[str]:
    services = {service.name: service for service in terms.services}
    rows = {
        (row.model, row.gpu, row.profile, row.batch, row.processes): row
        for row in terms.measurements
    }
    kept = {(gpu.id, instance) for gpu in terms.pinned for instance in gpu.instances}
    for gpu in plan.gpus:
        known = _events_of(gpu)[1]
        for one in gpu.instances:
            name = f"{gpu.id}: {one.profile} at {one.start}"
            if (gpu.id, one) in kept:
                continue
            service = services.get(one.service)
            if service is None:
                yield f"{name} serves {one.service!r}, which nobody asked for."
                continue
            row = None
            for profile in _measured_as(one.profile, known):
                key = (service.model, gpu.model, profile, one.batch, one.processes)
                row = row or rows.get(key)
            if row is None:
                yield (
                    f"{name} serves {service.name} at batch {one.batch} with {one.processes} "
                    "processes, which was never measured."
                )
                continue
            claimed = (one.throughput_per_s, one.latency_ms)
            if claimed != (row.throughput_per_s, row.latency_ms):
                yield f"{name} claims other figures than were measured."
            yield from _broken_target(name, service, one.latency_ms, terms)
            yield from _broken_actions(name, service, one.profile, one.processes, known, terms)


def _measured_as(profile: str, known: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a profile, and the plain one of its size if it is a variant."""
    yield profile
    events = known.get(profile)
    if events is not None and events["kind"] != "base":
        for name, other in known.items():
            plain = other["kind"] == "base"
            if plain and other["compute_slices"] == events["compute_slices"]:
                yield name


def _broken_target(
    name: str, service: Service, latency_ms: float, terms: PlanTerms
) -> Iterator[str]:
    most_ms = terms.latency.share * service.latency_ms
    if latency_ms > most_ms or (terms.latency.strict and latency_ms >= most_ms):
        yield f"{name}: {latency_ms:g} ms is too slow for {service.name}, {most_ms:g} ms."


def _broken_actions(
    name: str,
    service: Service,
    profile: str,
    processes: int,
    known: Mapping[str, Mapping[str, Any]],
    terms: PlanTerms,
) -> Iterator[str]:
    most = service.max_processes or terms.max_processes
    if processes > most or processes > terms.max_processes:
        yield f"{name}: {processes} processes are more than {most}."
    kind = known[profile]["kind"] if profile in known else ""
    if service.profiles and profile not in service.profiles and kind not in service.profiles:
        yield f"{name}: {service.name} may not use {profile}."


def _wrong_members(plan: PartitionPlan, terms: PlanTerms) -> Iterator[str]:
    predicted = {
        (one.gpu, frozenset(member.service for member in one.members)): one.members
        for one in terms.shared
    }
    services = {service.name: service for service in terms.services}
    for gpu in plan.gpus:
        if not gpu.members:
            continue
        if gpu.instances:
            yield f"{gpu.id} is both cut into instances and shared whole."
        fits = [
            members
            for (model, _), members in predicted.items()
            if model == gpu.model and {*gpu.members} <= {*members}
        ]
        if not fits:
            yield f"{gpu.id} is shared by services for whom nothing was predicted."
        for member in gpu.members:
            service = services.get(member.service)
            if service is not None:
                yield from _broken_target(gpu.id, service, member.latency_ms, terms)


def _unserved(plan: PartitionPlan, terms: PlanTerms, without: str = "") -> Iterator[str]:
    given: Counter[str] = Counter()
    rates: dict[str, float] = {}
    for gpu in plan.gpus:
        if gpu.id == without:
            continue
        for one in gpu.instances:
            given[one.service] += 1
            rates[one.service] = rates.get(one.service, 0.0) + one.throughput_per_s
        for member in gpu.members:
            given[member.service] += 1
            rates[member.service] = rates.get(member.service, 0.0) + member.throughput_per_s
    loss = f" without {without}" if without else ""
    for service in terms.services:
        rate = rates.get(service.name, 0.0)
        if rate < service.rate_per_s * (1 - SLACK):
            yield f"{service.name} gets {rate:g} of {service.rate_per_s:g} per second{loss}."
        if not without and given[service.name] < service.min_replicas:
            count = given[service.name]
            yield f"{service.name} has {count} of {service.min_replicas} replicas."


def _lost(plan: PartitionPlan, terms: PlanTerms) -> Iterator[str]:
    for gpu in plan.gpus:
        if gpu.instances or gpu.members:
            yield from _unserved(plan, terms, without=gpu.id)


def _limits(plan: PartitionPlan, terms: PlanTerms) -> Iterator[str]:
    counts = Counter(gpu.model for gpu in plan.gpus)
    empty = Counter(gpu.model for gpu in plan.gpus if not gpu.instances and not gpu.members)
    offered = {offer.model: offer for offer in terms.offers}
    for model, count in counts.items():
        if model not in offered:
            yield f"{count} GPUs are {model}, which nobody offered."
    for model, offer in offered.items():
        if offer.limit is not None and counts[model] > offer.limit:
            yield f"{counts[model]} GPUs are {model}, of which there are {offer.limit}."
        if empty[model] < offer.spare:
            yield f"{empty[model]} GPUs of {model} are spare, not {offer.spare}."


def _moved_pins(plan: PartitionPlan, terms: PlanTerms) -> Iterator[str]:
    there = {gpu.id: gpu for gpu in plan.gpus}
    for pinned in terms.pinned:
        gpu = there.get(pinned.id)
        for one in pinned.instances:
            if gpu is None or gpu.model != pinned.model or one not in gpu.instances:
                yield f"{pinned.id}: {one.profile} at {one.start} was pinned and is gone."
