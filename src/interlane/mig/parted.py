"""Plans as configuration of NVIDIA's mig-parted, one named configuration a node.

mig-parted takes counts of profiles and finds places for them itself, so starts are not
written; GPUs that are shared whole or kept spare have MIG switched off.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from interlane.mig.plan import GpuPlan, PartitionPlan

GPUS_A_NODE: Final = 8


def parted_document(plan: PartitionPlan, gpus_a_node: int = GPUS_A_NODE) -> dict[str, Any]:
    """Return a plan as a mig-parted document; nodes hold GPUs of one model, in order."""
    nodes = list(_nodes(plan, gpus_a_node))
    return {
        "version": "v1",
        "mig-configs": {
            f"node-{number}": list(_devices(gpus)) for number, gpus in enumerate(nodes)
        },
    }


def _nodes(plan: PartitionPlan, gpus_a_node: int) -> Iterator[list[GpuPlan]]:
    for model in plan.counts():
        same = [gpu for gpu in plan.gpus if gpu.model == model]
        for first in range(0, len(same), gpus_a_node):
            yield same[first : first + gpus_a_node]


def _devices(gpus: list[GpuPlan]) -> Iterator[dict[str, Any]]:
    """Yield an entry for each distinct cut, with the GPUs that have it."""
    alike: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for number, gpu in enumerate(gpus):
        counts: dict[str, int] = {}
        for instance in gpu.instances:
            counts[instance.profile] = counts.get(instance.profile, 0) + 1
        alike.setdefault(tuple(sorted(counts.items())), []).append(number)
    for cut, devices in alike.items():
        yield {"devices": devices, "mig-enabled": bool(cut), "mig-devices": dict(cut)}


def parted_stages(stages: Iterable[tuple[str, PartitionPlan]]) -> dict[str, Any]:
    """Return the cuts of some stages as one document, a named configuration a stage.

    MIG stays on where nothing is cut: switching it would need the GPU reset.
    """
    return {
        "version": "v1",
        "mig-configs": {
            name: [{**one, "mig-enabled": True} for one in _devices(list(plan.gpus))]
            for name, plan in stages
        },
    }
