"""The services file: what an operator writes, read from parsed YAML.

Its keys are on the page ``docs/reference/services-file.md``.  Values are checked here one by
one, with the entry named; what only makes sense together is checked by ``problem_of``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from interlane.mig.check import PlanTerms
from interlane.mig.demand import (
    ALL_OF_IT,
    MOST_PROCESSES,
    GpuOffer,
    LatencyRule,
    Problem,
    Service,
    SharedGpu,
    best_measurement,
    problem_of,
)
from interlane.mig.entries import MigFileSection
from interlane.mig.layouts import PLAIN, Rules
from interlane.mig.plan import GpuPlan, Instance, Member
from interlane.mig.profiles import ProfileKind, gpu_model
from interlane.mig.table import Measurement, PerformanceTable
from interlane.mig.tables.synthetic import FAMILIES
from interlane.mig.tables.synthetic import table_of as synthetic_table
from interlane.model import InvalidFile, InvalidInput, UnknownName

Made = TypeVar("Made")

DEFAULT_GPU: Final = "A100-80GB"

_FILE: Final = ("services", "gpus", "table", "options", "pinned", "shared")
_SERVICE: Final = (
    "name",
    "model",
    "rate_per_s",
    "latency_ms",
    "min_replicas",
    "profiles",
    "max_processes",
)
_GPU: Final = ("model", "price", "limit", "spare")
_OPTIONS: Final = (
    "max_processes",
    "latency_share",
    "kinds",
    "forbid_4g3g",
    "survive_gpu_loss",
)
_PIN: Final = ("gpu", "model", "profile", "start", "service")
_SHARED: Final = ("name", "gpu", "services")
_MEMBER: Final = ("service", "throughput_per_s", "latency_ms")


@dataclass(frozen=True, slots=True)
class Pin:
    """An instance that must stay where it is."""

    gpu: str
    """Name of the GPU."""
    model: str
    profile: str
    start: int
    service: str = ""


@dataclass(frozen=True, slots=True)
class ServicesFile:
    """What a services file asks for."""

    services: tuple[Service, ...]
    offers: tuple[GpuOffer, ...]
    table: str | None = None
    """File of the performance table, as written; None if every model is synthetic."""
    rules: Rules = PLAIN
    latency: LatencyRule = ALL_OF_IT
    max_processes: int = 1
    survive_gpu_loss: bool = False
    pins: tuple[Pin, ...] = ()
    shared: tuple[SharedGpu, ...] = ()


def read_services(document: object, file: str) -> ServicesFile:
    """Read a services file."""
    whole = MigFileSection(file, "the file", document)
    whole.only(_FILE)
    services = [_service(entry) for entry in whole.entries("services")]
    if not services:
        raise InvalidFile(file, "services must be a list with at least one entry; add one.")
    offers = [_offer(entry) for entry in whole.entries("gpus")] or [GpuOffer(DEFAULT_GPU)]
    options = MigFileSection(file, "options", whole.first(("options",)) or {})
    options.only(_OPTIONS)
    asked = ServicesFile(
        tuple(services),
        tuple(offers),
        whole.text("table") if "table" in whole else None,
        Rules(_kinds(options), options.claim("forbid_4g3g")),
        _named(options, LatencyRule, options.amount("latency_share", 1.0)),
        options.whole("max_processes", 1, least=1),
        options.claim("survive_gpu_loss"),
        tuple(_pin(entry, offers[0].model) for entry in whole.entries("pinned")),
        tuple(_shared(entry, offers[0].model) for entry in whole.entries("shared")),
    )
    if asked.max_processes > MOST_PROCESSES:
        raise options.wrong("max_processes", f"a whole number, 1 to {MOST_PROCESSES}")
    return asked


def _named(entry: MigFileSection, make: Callable[..., Made], *values: object) -> Made:
    """Make something of an entry; an error names the entry."""
    try:
        return make(*values)
    except InvalidInput as error:
        raise entry.error(str(error)) from None


def _service(entry: MigFileSection) -> Service:
    entry.only(_SERVICE)
    if "profiles" in entry and not entry.texts("profiles"):
        raise entry.wrong("profiles", "a list with at least one profile; leave it out for all")
    return _named(
        entry,
        Service,
        entry.text("name"),
        entry.text("model"),
        entry.amount("rate_per_s"),
        entry.amount("latency_ms"),
        entry.whole("min_replicas", 1, least=1),
        entry.texts("profiles"),
        entry.whole("max_processes", least=1) if "max_processes" in entry else None,
    )


def _offer(entry: MigFileSection) -> GpuOffer:
    entry.only(_GPU)
    return _named(
        entry,
        GpuOffer,
        entry.text("model"),
        entry.amount("price", 1.0),
        entry.whole("limit") if "limit" in entry else None,
        entry.whole("spare", 0),
    )


def kinds_of(names: Iterable[str]) -> frozenset[ProfileKind]:
    """Return kinds of profiles by name; the base is always among them."""
    known = [kind.value for kind in ProfileKind]
    for name in names:
        if name not in known:
            raise UnknownName("kind of profile", name, known)
    return frozenset({ProfileKind.BASE, *(ProfileKind(name) for name in names)})


def _kinds(options: MigFileSection) -> frozenset[ProfileKind]:
    try:
        return kinds_of(options.texts("kinds"))
    except UnknownName as error:
        raise options.error(str(error)) from None


def _pin(entry: MigFileSection, default_model: str) -> Pin:
    entry.only(_PIN)
    return Pin(
        entry.text("gpu"),
        entry.text("model", default_model),
        entry.text("profile"),
        entry.whole("start"),
        entry.text("service", ""),
    )


def _shared(entry: MigFileSection, default_model: str) -> SharedGpu:
    entry.only(_SHARED)
    members = []
    for one in entry.entries("services"):
        one.only(_MEMBER)
        members.append(
            Member(
                one.text("service"), one.amount("throughput_per_s"), one.amount("latency_ms")
            )
        )
    return SharedGpu(entry.text("name"), entry.text("gpu", default_model), tuple(members))


# -- what it comes to -----------------------------------------------------------------


def with_gpu(asked: ServicesFile, model: str) -> ServicesFile:
    """Return the same services for one GPU model, under its terms if it was offered."""
    offered = {offer.model: offer for offer in asked.offers}
    return replace(asked, offers=(offered.get(model, GpuOffer(model)),))


def full_table(asked: ServicesFile, measured: PerformanceTable | None) -> PerformanceTable:
    """Return what was measured, and synthetic rows for models that were not but have a name."""
    known = measured.models if measured is not None else ()
    models = list(dict.fromkeys(service.model for service in asked.services))
    synthetic = [model for model in models if model not in known and model in FAMILIES]
    if measured is None:
        for service in asked.services:
            if service.model not in FAMILIES:
                raise InvalidInput(
                    f"Service {service.name} has the model {service.model!r}, which no table "
                    "measures; name a table, or take a synthetic model: "
                    f"{', '.join(FAMILIES)}."
                )
    made = synthetic_table(
        [FAMILIES[name] for name in synthetic], [offer.model for offer in asked.offers]
    )
    if measured is None:
        return made
    return PerformanceTable([*measured, *made], measured.name)


def problem_from(asked: ServicesFile, table: PerformanceTable) -> tuple[Problem, PlanTerms]:
    """Return the problem of a services file, and its terms for the checker."""
    pinned = _pinned(asked, table)
    problem = problem_of(
        asked.services,
        asked.offers,
        table,
        rules=asked.rules,
        latency=asked.latency,
        max_processes=asked.max_processes,
        shared=asked.shared,
        pinned=pinned,
        survive_gpu_loss=asked.survive_gpu_loss,
    )
    problem = replace(problem, notes=(*problem.notes, *_too_slow(pinned)))
    terms = PlanTerms(
        asked.services,
        asked.offers,
        tuple(table),
        asked.latency,
        asked.max_processes,
        asked.rules.forbid_4g3g,
        asked.shared,
        pinned,
        asked.survive_gpu_loss,
    )
    return problem, terms


def _pinned(asked: ServicesFile, table: PerformanceTable) -> tuple[GpuPlan, ...]:
    """Return the pinned GPUs, each instance with the best that its profile can give."""
    held: dict[tuple[str, str], list[Instance]] = {}
    for pin in asked.pins:
        held.setdefault((pin.gpu, pin.model), []).append(_pinned_instance(pin, asked, table))
    return tuple(
        GpuPlan(gpu, model, tuple(sorted(instances, key=lambda one: one.start)))
        for (gpu, model), instances in held.items()
    )


def _too_slow(pinned: Iterable[GpuPlan]) -> Iterator[str]:
    """Yield a note on each pinned instance that stays and counts for nothing."""
    for gpu in pinned:
        for one in gpu.instances:
            if one.service and not one.throughput_per_s:
                yield (
                    f"{one.service} stays on {gpu.id}, {one.profile} at {one.start}, where no "
                    "measurement keeps its target; it counts for nothing there."
                )


def _pinned_instance(pin: Pin, asked: ServicesFile, table: PerformanceTable) -> Instance:
    if not pin.service:
        return Instance(pin.profile, pin.start)
    services = {service.name: service for service in asked.services}
    if pin.service not in services:
        raise UnknownName(f"service pinned on {pin.gpu}", pin.service, services)
    best = best_measurement(
        _rows(pin, services[pin.service], table),
        services[pin.service],
        asked.latency,
        asked.max_processes,
    )
    if best is None:
        # It stays, and is too slow to count.
        return Instance(pin.profile, pin.start, pin.service)
    return Instance(
        pin.profile,
        pin.start,
        pin.service,
        best.batch,
        best.processes,
        best.throughput_per_s,
        best.latency_ms,
    )


def _rows(pin: Pin, service: Service, table: PerformanceTable) -> Sequence[Measurement]:
    gpu = gpu_model(pin.model)
    return table.rows(service.model, gpu, gpu.profile(pin.profile))
