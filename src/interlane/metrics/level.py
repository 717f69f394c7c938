"""How unequally machines of a kind are allocated, over time."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from interlane.metrics.attempts import attempts
from interlane.metrics.log import EventLog
from interlane.metrics.replay import (
    CPU,
    FIRST,
    GPUS,
    INSTANCES,
    LAST,
    MACHINE,
    MEMORY,
    SAMPLES,
    SHARE,
    holdings_at,
)
from interlane.model import MILLI, Cluster


def allocation_spread(
    log: EventLog,
    gpu_types: Collection[str],
    *,
    begin_s: float,
    end_s: float,
    moments: int = SAMPLES,
) -> float:
    """Return the standard deviation of allocation among machines of these types.

    A machine's allocation is what load balancing levels: the mean rate of CPU, memory and
    GPU.  The deviation is taken at so many moments, the middles of equal parts of the time,
    and the answer is their mean.
    """
    chosen = [n for n, one in enumerate(log.cluster) if one.gpu_type in gpu_types and one.gpus]
    if not chosen or end_s <= begin_s:
        return 0.0
    moments_s = begin_s + (np.arange(moments) + 0.5) / moments * (end_s - begin_s)
    held = holdings_at(log, attempts(log), moments_s)
    asked = np.stack([held[:, CPU], held[:, MEMORY], held[:, GPUS] * held[:, SHARE]], axis=1)
    at = held[:, MACHINE]
    rate = held[:, INSTANCES] * (asked * _parts(log.cluster)[at]).sum(axis=1)
    change = np.zeros((moments + 1, len(log.cluster)))
    np.add.at(change, (held[:, FIRST], at), rate)
    np.add.at(change, (held[:, LAST], at), -rate)
    return float(np.cumsum(change, axis=0)[:moments, chosen].std(axis=1).mean())


def _parts(cluster: Cluster) -> NDArray[np.float64]:
    """Return what one unit of CPU, memory and GPU adds to each machine's allocation."""
    has = np.array([(m.cpu_milli, m.memory_mib, m.gpus * MILLI) for m in cluster], np.float64)
    kinds = np.maximum((has > 0).sum(axis=1, keepdims=True), 1)
    return np.asarray((has > 0) / np.maximum(has, 1.0) / kinds)
