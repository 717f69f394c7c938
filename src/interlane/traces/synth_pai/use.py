"""What instances used of what they asked for."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.traces.synth_pai import shares as of
from interlane.traces.synth_pai.deal import Flags, Floats, Ints, Rng, by_weight, portion
from interlane.traces.synth_pai.population import Groups

CPU_AT: Final = (0.0, 0.05, 0.25, 0.50, 0.81, 0.95, 0.99, 1.0)
CPU_PART: Final = (0.004, 0.02, 0.07, 0.175, 1.0, 2.1, 3.6, 6.0)
"""CPUs used, of those asked for; 19 % use more than they asked for (figure 5d)."""

GPU_IDLE: Final = 0.32
"""Programs that ask for a GPU and never touch it, by instances."""
SMALL, HALF, WHOLE = 25, 50, 100
GPU_AT: Final = (0.0, 0.20, 0.40, 0.60, 0.80, 0.92, 0.97, 1.0)
GPU_PART: Final = {
    # Least percent asked for -> quantiles of the part of it that is used, where any is.
    1: (0.004, 0.06, 0.22, 0.42, 0.65, 1.0, 1.06, 1.12),
    SMALL + 1: (0.004, 0.06, 0.22, 0.38, 0.50, 0.56, 0.60, 0.64),
    WHOLE: (0.004, 0.06, 0.22, 0.47, 0.90, 0.97, 0.99, 1.0),
}
"""3 % of instances use more than they asked for, which only who asked for little can."""
LONG_USE: Final = 0.50

MEMORY_AT: Final = (0.0, 0.05, 0.50, 0.90, 0.96, 0.99, 1.0)
MEMORY_PART: Final = (0.004, 0.025, 0.16, 0.62, 1.0, 1.5, 2.5)

NLP_BUSY: Final = (0.45, 0.93)
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
    gang = np.minimum(np.log(groups.instances), 4.0)
    card = np.clip(0.15 + 0.6 * rng.beta(1.5, 2.0, count), 0.02, 0.9)
    return Habits(
        by_weight(rng.standard_normal(count) + 0.12 * gang, load, CPU_AT, CPU_PART),
        _gpu_habits(rng, groups, load),
        by_weight(rng.standard_normal(count), load, MEMORY_AT, MEMORY_PART),
        np.where(groups.needs_card, rng.uniform(0.52, 0.92, count), card),
    )


def _gpu_habits(rng: Rng, groups: Groups, load: Floats) -> Floats:
    """Return the part of the GPU asked for that each program uses; long ones use more."""
    count = groups.count
    rank = rng.standard_normal(count) + LONG_USE * np.log(groups.typical_s / 1400.0)
    part = np.zeros(count)
    step = np.searchsorted(sorted(GPU_PART), groups.asks.gpu, side="right")
    for number, least in enumerate(sorted(GPU_PART), 1):
        some = step == number
        if some.any():
            part[some] = by_weight(rank[some], load[some], GPU_AT, GPU_PART[least])
    part = np.where(portion(rng, load, GPU_IDLE, groups.asks.gpu > 0), 0.0, part)
    share = groups.asks.gpu / 100
    nlp = np.isin(groups.workload, of.NLP) & (rng.random(count) < 0.85)
    part = np.where(nlp, rng.uniform(*NLP_BUSY, count), part)
    light, heavy = rng.uniform(0.002, 0.08, count), rng.uniform(0.12, 0.5, count)
    ctr = np.where(rng.random(count) < CTR_BUSY, heavy, light) / np.maximum(share, 0.05)
    part = np.where(groups.workload == of.CTR, np.minimum(ctr, 0.95), part)
    return np.where(share > 0, part, 0.0)


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
