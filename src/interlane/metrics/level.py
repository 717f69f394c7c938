"""How unequally machines of a kind are allocated, over time."""

from collections.abc import Collection

import numpy as np

from interlane.metrics.attempts import attempts
from interlane.metrics.log import EventLog
from interlane.metrics.replay import (
    CPU,
    FIRST,
    GPUS,
    INSTANCES,
    LAST,
    MACHINE,
    SHARE,
    holdings_at,
)
from interlane.metrics.replay import SAMPLES as MOMENTS
from interlane.model import MILLI


def allocation_spread(
    log: EventLog, gpu_types: Collection[str], *, begin_s: float, end_s: float
) -> float:
    """Return the standard deviation of allocation among machines of these types.

    A machine's allocation is the mean of its CPU and GPU rates; the deviation is taken at a
    hundred moments, the middles of equal parts of the time, and the answer is their mean.
    """
    chosen = [n for n, one in enumerate(log.cluster) if one.gpu_type in gpu_types and one.gpus]
    if not chosen or end_s <= begin_s:
        return 0.0
    moments_s = begin_s + (np.arange(MOMENTS) + 0.5) / MOMENTS * (end_s - begin_s)
    held = holdings_at(log, attempts(log), moments_s)
    machines = log.cluster.machines
    cpu = np.array([max(machine.cpu_milli, 1) for machine in machines])
    gpu = np.array([max(machine.gpus * MILLI, 1) for machine in machines])
    at, instances = held[:, MACHINE], held[:, INSTANCES]
    rate = instances * held[:, CPU] / cpu[at]
    rate = (rate + instances * held[:, GPUS] * held[:, SHARE] / gpu[at]) / 2
    change = np.zeros((MOMENTS + 1, len(machines)))
    np.add.at(change, (held[:, FIRST], at), rate)
    np.add.at(change, (held[:, LAST], at), -rate)
    return float(np.cumsum(change, axis=0)[:MOMENTS, chosen].std(axis=1).mean())
