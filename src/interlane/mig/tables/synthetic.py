"""Synthetic performance tables with the shapes that measurements have.

A batch takes the time to launch it, which no slice shortens, plus the time of its work, which
is compute spread over SMs and traffic spread over memory slices:

    busy_ms = batch * (compute_ms / SMs + traffic_ms / memory slices)

From that follow the shapes of published tables:

* at batch 1 small slices are as fast as large ones, since launching takes most of the time;
* at large batches throughput follows the slice;
* 3g is the sweet spot of models bound by memory: half of the memory for 3/7 of the SMs;
* a model that does not fit a slice's memory, weights and batch, has no row there;
* several processes hide each other's launches, until the slice is busy.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from interlane.mig.profiles import GpuModel, MigProfile, gpu_model
from interlane.mig.table import Measurement, PerformanceTable
from interlane.model import UnknownName

BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
MOST_PROCESSES: Final = 3

SM_OF_A100_SLICE: Final = 14
"""SMs a compute slice where a GPU model's are not public."""


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of neural network."""

    name: str
    about: str
    launch_ms: float
    """Time of a batch that no slice shortens."""
    compute_ms: float
    """Work of one request on one SM."""
    traffic_ms: float
    """Work of one request on one memory slice."""
    weights_mib: int
    request_mib: int
    """Memory that each request of a batch needs."""


FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        family.name: family
        for family in (
            Family("synth-mobile", "small CNN, mostly launching", 6.0, 4.0, 0.4, 600, 10),
            Family("synth-resnet", "middling CNN", 7.0, 14.0, 1.6, 900, 24),
            Family("synth-vgg", "large CNN bound by memory", 5.0, 26.0, 5.2, 1_700, 48),
            Family("synth-encoder", "small text encoder", 10.0, 8.0, 0.5, 1_200, 18),
            Family("synth-bert", "large text encoder", 21.0, 42.0, 1.5, 2_600, 60),
            Family("synth-detector", "detector on large images", 14.0, 95.0, 9.0, 2_200, 260),
            Family("synth-llm", "language model, one token", 9.0, 6.0, 6.5, 15_500, 220),
        )
    }
)
"""Built-in families by name; a services file may name them as models."""


def family(name: str) -> Family:
    """Return the family of this name."""
    if name not in FAMILIES:
        raise UnknownName("synthetic model", name, FAMILIES)
    return FAMILIES[name]


def table_of(families: Iterable[Family], gpus: Iterable[str]) -> PerformanceTable:
    """Return a table of some families on some GPU models."""
    models = [gpu_model(name) for name in gpus]
    return PerformanceTable(
        (row for one in families for gpu in models for row in _rows(one, gpu)),
        "the synthetic table",
    )


def drawn(count: int, seed: int) -> list[Family]:
    """Return families like the built-in ones, each with numbers of its own."""
    rng = np.random.default_rng(seed)
    kinds = list(FAMILIES.values())
    made = []
    for number in range(count):
        base = kinds[int(rng.integers(len(kinds)))]
        factors = rng.lognormal(0.0, 0.35, 3)
        made.append(
            replace(
                base,
                name=f"{base.name}-{number}",
                launch_ms=round(base.launch_ms * factors[0], 3),
                compute_ms=round(base.compute_ms * factors[1], 3),
                traffic_ms=round(base.traffic_ms * factors[2], 3),
            )
        )
    return made


def _rows(one: Family, gpu: GpuModel) -> Iterator[Measurement]:
    for profile in gpu.profiles:
        for batch in BATCHES:
            for processes in range(1, MOST_PROCESSES + 1):
                if (
                    processes * (one.weights_mib + batch * one.request_mib)
                    <= profile.memory_mib
                ):
                    yield _row(one, gpu, profile, batch, processes)


def _row(
    one: Family, gpu: GpuModel, profile: MigProfile, batch: int, processes: int
) -> Measurement:
    slice_ms = one.compute_ms / _sm(profile) + one.traffic_ms / _memory_share(gpu, profile)
    busy_ms = batch * slice_ms
    # Processes take turns on the slice, and launch while others are at work.
    latency_ms = max(one.launch_ms + busy_ms, processes * busy_ms)
    throughput = processes * batch / latency_ms * 1e3
    return Measurement(
        one.name,
        gpu.name,
        profile.name,
        batch,
        processes,
        round(throughput, 3),
        round(latency_ms, 3),
    )


def _sm(profile: MigProfile) -> int:
    return profile.sm or profile.compute_slices * SM_OF_A100_SLICE


def _memory_share(gpu: GpuModel, profile: MigProfile) -> float:
    """Return the memory slices of a profile, on the scale of GPUs that have eight."""
    return 8 * profile.size / gpu.grid
