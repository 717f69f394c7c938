"""What is asked for: services with targets, the GPUs on offer, and which instances would do.

Instances do not disturb one another, so of all batch sizes and process counts only the one
with the highest throughput within the latency target matters for a service on a profile.
``problem_of`` finds it and refuses, with a sentence, whatever no plan could ever serve.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import Final

from interlane.mig.layouts import PLAIN, Rules, broken_rule
from interlane.mig.plan import GpuPlan, Member
from interlane.mig.profiles import GpuModel, MigProfile, gpu_model
from interlane.mig.table import Measurement, PerformanceTable
from interlane.model import InvalidField, InvalidInput, UnknownName

MOST_PROCESSES: Final = 48
"""MPS clients that one GPU takes."""


@dataclass(frozen=True, slots=True)
class Service:
    """A model that must be served at a rate, each answer within a time."""

    name: str
    model: str
    """Under which the performance table knows it."""
    rate_per_s: float
    latency_ms: float
    min_replicas: int = 1
    profiles: tuple[str, ...] = ()
    """Profiles or kinds of profiles that it may use; empty for all."""
    max_processes: int | None = None
    """Copies that may share one instance; None leaves that to the plan."""

    def __post_init__(self) -> None:
        for field, value in (("rate_per_s", self.rate_per_s), ("latency_ms", self.latency_ms)):
            if not (isfinite(value) and value > 0):
                raise InvalidField(
                    f"{field} of service {self.name}", value, "it must be above 0"
                )
        if self.min_replicas < 1:
            raise InvalidField(
                f"min_replicas of service {self.name}",
                self.min_replicas,
                "it must be 1 or more",
            )

    def may_use(self, profile: MigProfile) -> bool:
        """Tell whether a profile is among those it may use."""
        return not self.profiles or bool({profile.name, profile.kind.value} & {*self.profiles})


@dataclass(frozen=True, slots=True)
class GpuOffer:
    """A GPU model that a plan may use."""

    model: str
    price: float = 1.0
    limit: int | None = None
    """GPUs of this model that there are; None for as many as it takes."""
    spare: int = 0
    """GPUs of this model kept empty, to take a failed one's place."""

    def __post_init__(self) -> None:
        gpu_model(self.model)
        if not (isfinite(self.price) and self.price > 0):
            raise InvalidField(f"price of {self.model}", self.price, "it must be above 0")
        if self.limit is not None and self.limit < 0:
            raise InvalidField(f"limit of {self.model}", self.limit, "it must be 0 or more")
        if self.spare < 0:
            raise InvalidField(f"spare of {self.model}", self.spare, "it must be 0 or more")


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """A whole GPU that some services share without MIG, with what each is predicted to get."""

    name: str
    gpu: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class LatencyRule:
    """Which share of a service's target a batch may take.

    A request waits for its batch to fill and for the batch before it, so tables that hold the
    time of a batch alone want a share below 1.
    """

    share: float = 1.0
    strict: bool = False
    """Whether to be at the limit is too much."""

    def __post_init__(self) -> None:
        if not (isfinite(self.share) and 0 < self.share <= 1):
            raise InvalidField("latency_share", self.share, "it must be above 0 and at most 1")

    def most_ms(self, service: Service) -> float:
        """Return the latency that a measurement may have."""
        return self.share * service.latency_ms

    def admits(self, latency_ms: float, service: Service) -> bool:
        """Tell whether a measured latency is within a service's target."""
        most_ms = self.most_ms(service)
        return latency_ms < most_ms if self.strict else latency_ms <= most_ms


ALL_OF_IT: Final = LatencyRule()
"""A batch may take all of the target."""

Place = tuple[str, str, str]
"""Service, GPU model, profile."""


@dataclass(frozen=True, slots=True)
class Problem:
    """All that an optimiser needs to know; every service can be served by something."""

    services: tuple[Service, ...]
    offers: tuple[GpuOffer, ...]
    serving: Mapping[Place, Measurement]
    """What one instance gives; a place that is missing cannot serve."""
    rules: Rules = PLAIN
    shared: tuple[SharedGpu, ...] = ()
    pinned: tuple[GpuPlan, ...] = ()
    """GPUs whose instances must stay as they are; the rest of each may be used."""
    survive_gpu_loss: bool = False
    """Whether targets must still be met when any one GPU is gone."""
    notes: tuple[str, ...] = ()

    @property
    def prices(self) -> dict[str, float]:
        """What a GPU of each model costs."""
        return {offer.model: offer.price for offer in self.offers}

    @property
    def spare_cost(self) -> float:
        """What the GPUs kept empty cost."""
        return sum(offer.price * offer.spare for offer in self.offers)


def problem_of(
    services: Sequence[Service],
    offers: Sequence[GpuOffer],
    table: PerformanceTable,
    *,
    rules: Rules = PLAIN,
    latency: LatencyRule = ALL_OF_IT,
    max_processes: int = 1,
    shared: Iterable[SharedGpu] = (),
    pinned: Iterable[GpuPlan] = (),
    survive_gpu_loss: bool = False,
) -> Problem:
    """Return the problem of serving some services; refuse what cannot be served at all."""
    _each_once("service", [service.name for service in services])
    _each_once("GPU model", [offer.model for offer in offers])
    if not services:
        raise InvalidInput("There is no service to plan for; name at least one.")
    if not offers:
        raise InvalidInput("There is no GPU model to plan with; name at least one.")
    if not 1 <= max_processes <= MOST_PROCESSES:
        raise InvalidField("max_processes", max_processes, f"it must be 1 to {MOST_PROCESSES}")
    models = [gpu_model(offer.model) for offer in offers]
    columns = tuple(shared)
    _check_shared(columns, services, models, latency)
    serving: dict[Place, Measurement] = {}
    holes: dict[str, list[str]] = {}
    for service in services:
        found, unmeasured = _best_of(service, models, table, rules, latency, max_processes)
        if not found and not _is_member(service, columns):
            raise InvalidInput(
                _why_unserved(service, models, table, rules, latency, max_processes)
            )
        serving |= found
        for hole in unmeasured:
            holes.setdefault(hole, []).append(service.name)
    held = tuple(pinned)
    _check_pinned(held, services, offers)
    return Problem(
        tuple(services),
        tuple(offers),
        MappingProxyType(serving),
        rules,
        columns,
        held,
        survive_gpu_loss,
        tuple(f"{hole}; {_not_placed(names)} there." for hole, names in holes.items()),
    )


def _not_placed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"service {names[0]} is not placed"
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"services {shown} are not placed"


def best_measurement(
    rows: Iterable[Measurement], service: Service, latency: LatencyRule, max_processes: int
) -> Measurement | None:
    """Return the highest throughput within a service's target; the quicker one of equals."""
    most = min(max_processes, service.max_processes or max_processes)
    fit = [
        row for row in rows if row.processes <= most and latency.admits(row.latency_ms, service)
    ]
    if not fit:
        return None
    return max(fit, key=lambda row: (row.throughput_per_s, -row.latency_ms, -row.processes))


def _best_of(
    service: Service,
    models: Sequence[GpuModel],
    table: PerformanceTable,
    rules: Rules,
    latency: LatencyRule,
    max_processes: int,
) -> tuple[dict[Place, Measurement], list[str]]:
    """Return the best measurement of each profile, and what was not measured."""
    table.gpus_of(service.model)
    found: dict[Place, Measurement] = {}
    notes = []
    for gpu in models:
        usable = [one for one in gpu.of_kinds(rules.kinds) if service.may_use(one)]
        unmeasured = []
        for profile in usable:
            rows = table.rows(service.model, gpu, profile)
            best = best_measurement(rows, service, latency, max_processes)
            if best is not None:
                found[service.name, gpu.name, profile.name] = best
            if not rows:
                unmeasured.append(profile.name)
        if unmeasured and len(unmeasured) < len(usable):
            notes.append(
                f"{table.name} has no row of {service.model} on {gpu.name} "
                f"{', '.join(unmeasured)}"
            )
    return found, notes


def _why_unserved(
    service: Service,
    models: Sequence[GpuModel],
    table: PerformanceTable,
    rules: Rules,
    latency: LatencyRule,
    max_processes: int,
) -> str:
    names = ", ".join(model.name for model in models)
    usable = [
        (gpu, profile)
        for gpu in models
        for profile in gpu.of_kinds(rules.kinds)
        if service.may_use(profile)
    ]
    if not usable:
        return (
            f"Service {service.name} may use {', '.join(service.profiles)}, and {names} offers "
            "none of these; name other profiles, or allow their kinds."
        )
    rows = [row for place in usable for row in table.rows(service.model, *place)]
    if not rows:
        measured = ", ".join(table.gpus_of(service.model))
        return (
            f"Service {service.name}: {table.name} has no row of {service.model} on {names}; "
            f"measure it there, or plan for {measured}."
        )
    most = min(max_processes, service.max_processes or max_processes)
    quickest = min(rows, key=lambda row: (row.processes > most, row.latency_ms))
    return (
        f"Service {service.name} fits no profile of {names} within its latency_ms of "
        f"{service.latency_ms:g}: a batch may take {latency.most_ms(service):g} ms, and the "
        f"quickest of {service.model} takes {quickest.latency_ms:g} ms ({quickest.profile}, "
        f"batch {quickest.batch}); raise latency_ms or offer a faster GPU."
    )


def _is_member(service: Service, shared: Iterable[SharedGpu]) -> bool:
    return any(member.service == service.name for one in shared for member in one.members)


def _check_shared(
    shared: Sequence[SharedGpu],
    services: Sequence[Service],
    models: Sequence[GpuModel],
    latency: LatencyRule,
) -> None:
    _each_once("shared GPU", [one.name for one in shared])
    by_name = {service.name: service for service in services}
    for one in shared:
        if one.gpu not in {model.name for model in models}:
            raise UnknownName(
                f"GPU model of shared GPU {one.name}", one.gpu, [gpu.name for gpu in models]
            )
        if not one.members:
            raise InvalidInput(f"Shared GPU {one.name} has no members; name its services.")
        _each_once(f"member of shared GPU {one.name}", [each.service for each in one.members])
        for member in one.members:
            where = f"of {member.service} on shared GPU {one.name}"
            if member.service not in by_name:
                raise UnknownName(f"service {where}", member.service, by_name)
            if not (isfinite(member.throughput_per_s) and member.throughput_per_s > 0):
                raise InvalidField(
                    f"throughput_per_s {where}", member.throughput_per_s, "it must be above 0"
                )
            service = by_name[member.service]
            if not latency.admits(member.latency_ms, service):
                raise InvalidField(
                    f"latency_ms {where}",
                    member.latency_ms,
                    f"the service's target leaves {latency.most_ms(service):g}; "
                    "leave this column out",
                )


def _check_pinned(
    pinned: Sequence[GpuPlan], services: Sequence[Service], offers: Sequence[GpuOffer]
) -> None:
    _each_once("pinned GPU", [gpu.id for gpu in pinned])
    offered = {offer.model: offer for offer in offers}
    names = {service.name for service in services}
    for gpu in pinned:
        if gpu.model not in offered:
            raise UnknownName(f"GPU model of pinned GPU {gpu.id}", gpu.model, offered)
        broken = broken_rule(gpu_model(gpu.model), gpu.layout)
        if broken is not None:
            raise InvalidInput(f"Pinned GPU {gpu.id} is impossible on {gpu.model}: {broken}")
        for instance in gpu.instances:
            if instance.service and instance.service not in names:
                raise UnknownName(f"service pinned on {gpu.id}", instance.service, names)
    for offer in offers:
        count = sum(gpu.model == offer.model for gpu in pinned)
        if offer.limit is not None and count + offer.spare > offer.limit:
            raise InvalidField(
                f"limit of {offer.model}",
                offer.limit,
                f"{count} pinned and {offer.spare} spare GPUs need more",
            )


def _each_once(what: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInput(
                f"{what[0].upper()}{what[1:]} {name} is named twice; name it once."
            )
        seen.add(name)
