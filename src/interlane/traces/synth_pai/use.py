"""What instances used of what they asked for."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.traces.synth_pai import shares as of
from interlane.traces.synth_pai.deal import Flags, Floats, Ints, Rng, by_weight
from interlane.traces.synth_pai.population import Groups

CPU_AT: Final = (0.0, 0.05, 0.25, 0.50, 0.81, 0.95, 0.99, 1.0)
CPU_PART: Final = (0.004, 0.02, 0.09, 0.235, 1.0, 2.3, 4.0, 7.0)
"""CPUs used, of those asked for; 19 % use more than they asked for (figure 5d)."""

GPU_IDLE: Final = 0.22
"""Programs with GPUs that never touch them, by instances."""
GPU_AT: Final = (0.0, GPU_IDLE, 0.40, 0.50, 0.65, 0.80, 0.90, 0.97, 0.99, 1.0)
GPU_PART: Final = (1e-4, 2e-3, 0.03, 0.095, 0.22, 0.42, 0.65, 1.0, 1.3, 1.9)
"""GPU used, of what was asked for; 3 % use more."""

MEMORY_AT: Final = (0.0, 0.05, 0.50, 0.90, 0.96, 0.99, 1.0)
MEMORY_PART: Final = (0.004, 0.02, 0.125, 0.60, 1.0, 1.5, 2.5)

NLP_BUSY: Final = (0.45, 0.97)
CTR_BUSY: Final = 0.22
"""Ctr programs that use more than a tenth of a GPU."""

CORES_MOST: Final = 6000


@dataclass(frozen=True)
class Habits:
    """What each group uses of what it asks for."""

    cpu: Floats
    gpu: Floats
    memory: Floats
    card: Floats
    """Part of a card's memory."""


@dataclass(frozen=True)
class Uses:
    """What each instance used: percents of a core and of a GPU, and GB."""

    cpu: Floats
    gpu: Floats
    memory: Floats
    memory_max: Floats
    card: Floats
    card_max: Floats


def draw_habits(rng: Rng, groups: Groups) -> Habits:
    """Draw the habits of all groups, with the published quantiles by instances."""
    load = (groups.runs * groups.instances).astype(float)
    count = groups.count
    gpu = by_weight(rng.standard_normal(count), load, GPU_AT, GPU_PART)
    gpu = np.where(gpu <= GPU_PART[1], 0.0, gpu)
    nlp = np.isin(groups.workload, of.NLP)
    busy = nlp & (rng.random(count) < 0.85)
    gpu = np.where(busy, rng.uniform(*NLP_BUSY, count), gpu)
    share = groups.asks.gpu / 100
    light = rng.uniform(0.002, 0.08, count) / np.maximum(share, 0.05)
    heavy = rng.uniform(0.12, 0.6, count) / np.maximum(share, 0.25)
    infers = groups.workload == of.CTR
    ctr = np.where(rng.random(count) < CTR_BUSY, heavy, light)
    gpu = np.where(infers, np.minimum(ctr, 0.95), gpu)
    card = np.clip(0.15 + 0.6 * rng.beta(1.5, 2.0, count), 0.02, 0.9)
    return Habits(
        by_weight(rng.standard_normal(count), load, CPU_AT, CPU_PART),
        np.where(groups.asks.gpu > 0, gpu, 0.0),
        by_weight(rng.standard_normal(count), load, MEMORY_AT, MEMORY_PART),
        np.where(groups.needs_card, rng.uniform(0.52, 0.92, count), card),
    )


def draw_uses(
    rng: Rng,
    habits: Habits,
    group: Ints,
    task: Ints,
    gpu: Ints,
    cpu: Ints,
    memory_gib: Floats,
    kind: Ints,
    needs_card: Flags,
) -> Uses:
    """Draw what instances used; instances of a task (numbered from 0) are much alike."""
    tasks = int(task.max()) + 1 if len(task) else 0

    def about(by_task: float, by_instance: float) -> Floats:
        run = by_task * rng.standard_normal(tasks)
        return np.exp(run[task] + by_instance * rng.standard_normal(len(task)))

    cpu_used = np.minimum(cpu * habits.cpu[group] * about(0.2, 0.15), CORES_MOST)
    gpu_used = np.minimum(gpu * habits.gpu[group] * about(0.15, 0.1), np.maximum(gpu, 100))
    memory = memory_gib * habits.memory[group] * about(0.1, 0.05)
    size = np.array(of.CARD_GIB)[kind]
    # A share of a card is a share of its memory, too; what is needed is needed in any case.
    part = np.where(needs_card, 1.0, np.clip(gpu / 100, 0.0, 1.0))
    card = size * part * habits.card[group]
    return Uses(
        cpu_used,
        gpu_used,
        memory,
        memory * rng.uniform(1.02, 1.8, len(task)),
        card,
        np.minimum(card * rng.uniform(1.0, 1.08, len(task)), size),
    )
