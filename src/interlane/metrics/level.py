"""How unequally machines of a kind are allocated, over time."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from interlane import tables
from interlane.metrics.attempts import attempts
from interlane.metrics.log import EventLog
from interlane.metrics.machines import seen
from interlane.metrics.replay import SAMPLES, holdings_at
from interlane.model import Machine


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
    if end_s <= begin_s:
        return 0.0
    moments_s = begin_s + (np.arange(moments) + 0.5) / moments * (end_s - begin_s)
    found = seen(log, moments_s)
    machines = [period.machine for period in found.periods]
    chosen = [
        n for n, one in enumerate(machines) if one.gpus and one.gpu_types & set(gpu_types)
    ]
    if not chosen:
        return 0.0
    held = holdings_at(log, attempts(log), moments_s, found)
    asks = held.asks
    amounts = [
        asks[:, tables.ASK_CPU],
        asks[:, tables.ASK_MEMORY],
        asks[:, tables.ASK_GPUS] * asks[:, tables.ASK_MILLI],
    ]
    asked = np.stack(amounts, axis=1)[held.rows[:, tables.AT_ASK]]
    at = held.rows[:, tables.AT_MACHINE]
    rate = held.rows[:, tables.AT_INSTANCES] * (asked * _parts(machines)[at]).sum(axis=1)
    change = np.zeros((moments + 1, len(machines)))
    np.add.at(change, (held.first, at), rate)
    np.add.at(change, (held.last, at), -rate)
    rates = np.cumsum(change, axis=0)[:moments, chosen]
    there = found.there(moments, drained=True)[:, chosen]
    return _mean_spread(rates, there)


def _mean_spread(rates: NDArray[np.float64], there: NDArray[np.bool_]) -> float:
    """Return the mean over moments of the deviation among the machines that are there."""
    if there.all():
        return float(rates.std(axis=1).mean())
    spreads = [
        float(row[up].std()) if up.any() else 0.0 for row, up in zip(rates, there, strict=True)
    ]
    return float(np.mean(spreads))


def _parts(machines: list[Machine]) -> NDArray[np.float64]:
    """Return what one unit of CPU, memory and GPU adds to each machine's allocation."""
    has = np.array([(m.cpu_milli, m.memory_mib, m.gpu_milli) for m in machines], np.float64)
    kinds = np.maximum((has > 0).sum(axis=1, keepdims=True), 1)
    return np.asarray((has > 0) / np.maximum(has, 1.0) / kinds)
