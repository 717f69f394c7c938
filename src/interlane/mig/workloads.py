"""Demand of known shapes, for experiments: so many services that need about so many GPUs.

Each service is a model of the table with a latency target drawn over a decade and a half;
targets that a whole GPU cannot meet are drawn again.  Rates are drawn from the shape and
scaled, so that the services together need about the GPUs that were named if every one of them
ran on its most efficient profile.  The shapes are those of MIG-serving's simulated workloads;
its rates were not published, so these are our own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from interlane.mig.covering import Floats
from interlane.mig.demand import LatencyRule, Service, best_measurement
from interlane.mig.profiles import BASE_ONLY, gpu_model
from interlane.mig.table import PerformanceTable
from interlane.model import UnknownName

Shape = Callable[[np.random.Generator, int], Floats]

HALF: Final = LatencyRule(share=0.5)
"""A batch may take half of the target: as long again a request may wait for it."""

_FILLED: Final = 0.97
"""Of the GPUs that are named; the rest is lost to whole numbers."""


def _normal(rng: np.random.Generator, count: int) -> Floats:
    return np.clip(rng.normal(1.0, 0.4, count), 0.1, None)


def _lognormal(rng: np.random.Generator, count: int) -> Floats:
    return rng.lognormal(0.0, 1.0, count)


SHAPES: Final[Mapping[str, Shape]] = MappingProxyType(
    {"normal": _normal, "lognormal": _lognormal}
)
"""Shapes of demand: much alike, or a few large among many small."""


def drawn_services(
    table: PerformanceTable,
    *,
    gpu: str,
    count: int,
    gpus: int,
    shape: str = "normal",
    seed: int = 0,
    latency: LatencyRule = HALF,
    max_processes: int = 1,
) -> tuple[Service, ...]:
    """Draw services that need about ``gpus`` GPUs of one model."""
    if shape not in SHAPES:
        raise UnknownName("shape of demand", shape, SHAPES)
    rng = np.random.default_rng(seed)
    drawn: list[Service] = []
    best: list[float] = []
    while len(drawn) < count:
        model = sorted(table.models)[int(rng.integers(len(table.models)))]
        target_ms = round(float(10 ** rng.uniform(1.2, 2.7)), 1)
        service = Service(f"s{len(drawn)}", model, 1.0, target_ms)
        rates = _rates(service, table, gpu, latency, max_processes)
        if rates[-1] > 0:
            drawn.append(service)
            best.append(_most_a_slice(gpu, rates))
    weights = SHAPES[shape](np.random.default_rng(1000 + seed), count)
    slices = weights / weights.sum() * gpus * _FILLED * gpu_model(gpu).compute_slices
    return tuple(
        replace(service, rate_per_s=round(float(rate), 3))
        for service, rate in zip(drawn, slices * np.array(best), strict=True)
    )


def _rates(
    service: Service,
    table: PerformanceTable,
    gpu: str,
    latency: LatencyRule,
    max_processes: int,
) -> list[float]:
    """Return what each base profile gives within the target, the whole GPU last."""
    events = gpu_model(gpu)
    rates = []
    for profile in sorted(events.of_kinds(BASE_ONLY), key=lambda one: one.compute_slices):
        rows = table.rows(service.model, events, profile)
        best = best_measurement(rows, service, latency, max_processes)
        rates.append(0.0 if best is None else best.throughput_per_s)
    return rates


def _most_a_slice(gpu: str, rates: Sequence[float]) -> float:
    profiles = sorted(gpu_model(gpu).of_kinds(BASE_ONLY), key=lambda one: one.compute_slices)
    return max(
        rate / profile.compute_slices for rate, profile in zip(rates, profiles, strict=True)
    )
