"""Figures of sizes that were not measured, from those on both sides of them.

Throughput grows with compute, but not in proportion, so it is interpolated between the nearest
smaller and larger slice that were measured with the same batch, and never beyond them.
"""

from collections.abc import Iterable
from itertools import pairwise

from interlane.mig.profiles import BASE_ONLY, GpuModel, MigProfile, gpu_model
from interlane.mig.table import Measurement


def compute_share(model: GpuModel, profile: MigProfile) -> float:
    """Return the part of a GPU's compute that a slice has: by SMs, where these are known."""
    whole = model.whole
    if profile.sm and whole.sm:
        return profile.sm / whole.sm
    return profile.compute_slices / model.compute_slices


def completed(rows: Iterable[Measurement]) -> list[Measurement]:
    """Return measurements, with rows for the sizes between those that were measured."""
    measured = [row for row in rows if not row.interpolated]
    groups: dict[tuple[str, str, int, int], dict[str, Measurement]] = {}
    for row in measured:
        key = (row.model, row.gpu, row.batch, row.processes)
        groups.setdefault(key, {})[row.profile] = row
    found = [row for group in groups.values() for row in _between(group)]
    return [*measured, *found]


def _between(group: dict[str, Measurement]) -> list[Measurement]:
    """Return rows for profiles that lie between two that were measured."""
    first = next(iter(group.values()))
    model = gpu_model(first.gpu)
    sizes = sorted(model.of_kinds(BASE_ONLY), key=lambda one: compute_share(model, one))
    known = [one for one in sizes if one.name in group]
    found = []
    for low, high in pairwise(known):
        for one in sizes[sizes.index(low) + 1 : sizes.index(high)]:
            found.append(_mixed(model, one, (low, group[low.name]), (high, group[high.name])))
    return found


def _mixed(
    model: GpuModel,
    profile: MigProfile,
    low: tuple[MigProfile, Measurement],
    high: tuple[MigProfile, Measurement],
) -> Measurement:
    begin, end = compute_share(model, low[0]), compute_share(model, high[0])
    at = (compute_share(model, profile) - begin) / (end - begin)
    smaller, larger = low[1], high[1]
    throughput = smaller.throughput_per_s * (1 - at) + larger.throughput_per_s * at
    return Measurement(
        smaller.model,
        smaller.gpu,
        profile.name,
        smaller.batch,
        smaller.processes,
        throughput,
        # All processes together answer so many batches in a second.
        1e3 * smaller.batch * smaller.processes / throughput,
        interpolated=True,
    )
