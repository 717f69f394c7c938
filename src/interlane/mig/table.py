"""What instances were measured to give: throughput and latency by profile, batch, processes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType

from interlane.mig.profiles import GpuModel, MigProfile, ProfileKind, gpu_models
from interlane.model import InvalidField, UnknownName


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one instance gives one model at one batch size, with some processes sharing it."""

    model: str
    """The neural network, as services name it; not the GPU's."""
    gpu: str
    profile: str
    batch: int
    processes: int
    """Copies of the server inside the instance, sharing it by MPS."""
    throughput_per_s: float
    """Requests a second, of all processes together."""
    latency_ms: float
    """From the start of a batch to its end."""
    interpolated: bool = False
    """Whether it was concluded from other sizes, and not measured."""

    def __post_init__(self) -> None:
        where = f"of {self.model} on {self.gpu} {self.profile}"
        for field, value in (("batch", self.batch), ("processes", self.processes)):
            if value < 1:
                raise InvalidField(f"{field} {where}", value, "it must be 1 or more")
        for field, amount in (
            ("throughput_per_s", self.throughput_per_s),
            ("latency_ms", self.latency_ms),
        ):
            if not (isfinite(amount) and amount > 0):
                raise InvalidField(
                    f"{field} {where}",
                    amount,
                    "it must be more than 0; leave out what did not run",
                )


class PerformanceTable:
    """Measurements, looked up by model, GPU model and profile."""

    def __init__(self, rows: Iterable[Measurement], name: str = "the table") -> None:
        self.name = name
        by_place: dict[tuple[str, str, str], list[Measurement]] = {}
        for row in rows:
            by_place.setdefault((row.model, row.gpu, row.profile), []).append(row)
        self._rows: Mapping[tuple[str, str, str], tuple[Measurement, ...]] = MappingProxyType(
            {place: tuple(found) for place, found in by_place.items()}
        )
        self.models = tuple(dict.fromkeys(model for model, _, _ in self._rows))
        for model, gpu, profile in self._rows:
            _known_profile(model, gpu, profile)

    def __iter__(self) -> Iterator[Measurement]:
        return (row for rows in self._rows.values() for row in rows)

    def gpus_of(self, model: str) -> tuple[str, ...]:
        """Return the GPU models on which a model was measured."""
        if model not in self.models:
            raise UnknownName(f"model of {self.name}", model, self.models)
        return tuple(dict.fromkeys(gpu for one, gpu, _ in self._rows if one == model))

    def measured(self, model: str, gpu: str, profile: str) -> tuple[Measurement, ...]:
        """Return exactly what was measured on a profile, nothing if it was not."""
        return self._rows.get((model, gpu, profile), ())

    def rows(self, model: str, gpu: GpuModel, profile: MigProfile) -> tuple[Measurement, ...]:
        """Return what is known of a profile.

        A variant that was not measured is at least as fast as the plain profile with the same
        compute slices (it has no fewer SMs and no less memory), so it is known by that one.
        """
        found = self.measured(model, gpu.name, profile.name)
        if found or profile.kind is ProfileKind.BASE:
            return found
        plain = next(
            one
            for one in gpu.profiles
            if one.kind is ProfileKind.BASE and one.compute_slices == profile.compute_slices
        )
        return self.measured(model, gpu.name, plain.name)


def _known_profile(model: str, gpu: str, profile: str) -> None:
    known = gpu_models()
    if gpu not in known:
        raise UnknownName(f"GPU model of the measurements of {model}", gpu, known)
    known[gpu].profile(profile)
