"""Which kinds of instances a workload consists of, by how many there are."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from interlane.model import Demand, Request

COVERED: Final = 0.95
"""The share of instances whose kinds count as typical ("Beware of Fragmentation", ATC'23)."""

Kinds = tuple[tuple[Demand, float], ...]
"""Kinds of instances with their weights, which sum to 1; the most frequent first."""


def typical_kinds(counts: Iterable[tuple[Request, int]], covered: float = COVERED) -> Kinds:
    """Return the most frequent kinds of instances, until they cover a share of all.

    ``counts`` says how many jobs make each request.  Memory does not tell kinds apart, and
    instances without GPUs count, as the authors of FGD count.
    """
    instances: Counter[Demand] = Counter()
    for request, jobs in counts:
        for task in request.tasks:
            kind = replace(task.demand, memory_mib=0, gpu_memory_mib=0)
            instances[kind] += jobs * task.instances
    wanted = covered * instances.total()
    kept: list[tuple[Demand, int]] = []
    for kind, count in sorted(instances.items(), key=_by_falling_count):
        if wanted <= 0:
            break
        kept.append((kind, count))
        wanted -= count
    total = sum(count for _, count in kept)
    return tuple((kind, count / total) for kind, count in kept)


def _by_falling_count(item: tuple[Demand, int]) -> tuple[object, ...]:
    kind, count = item
    names = sorted(kind.gpu_types)
    return (-count, kind.gpus, kind.gpu_milli, kind.cpu_milli, names)
