"""Builders of co-runs for tests of predictors of slowdown."""

import numpy as np

from interlane.predict.slowdown.pairs import Pairs, Profiles
from interlane.traces.colocation.coruns import Corun, CoRuns, Way


def crowded(workloads: int = 12, *, seed: int = 0, noise: float = 0.02) -> CoRuns:
    """Return co-runs of a made-up GPU: who asks for more than there is slows the other down.

    Every workload has a sensitivity that its counters do not tell.
    """
    rng = np.random.default_rng(seed)
    shares = rng.uniform(0.1, 0.9, (workloads, 2))
    own = rng.uniform(0.5, 1.5, workloads)
    names = tuple(f"w{number}" for number in range(workloads))
    runs = []
    for victim in range(workloads):
        for aggressor in range(workloads):
            over = np.maximum(0.0, shares[victim] + shares[aggressor] - 1.0).sum()
            slowed = np.exp(own[victim] * over + noise * rng.standard_normal())
            runs.append(Corun("T4", names[victim], names[aggressor], float(1.0 / slowed)))
    return CoRuns(
        "made-up",
        names,
        tuple(f"f{number % 4}" for number in range(workloads)),
        ("T4",),
        ("sm_active", "dram_active"),
        shares[None],
        {Way("side-by-side", "training"): tuple(runs)},
    )


def crowded_pairs(workloads: int = 12, *, seed: int = 0, noise: float = 0.02) -> Pairs:
    """Return the same as columns."""
    made = crowded(workloads, seed=seed, noise=noise)
    profiles = Profiles(
        made.workloads, made.families, made.gpu_types, made.counters, made.values
    )
    (runs,) = made.coruns.values()
    numbers = {name: place for place, name in enumerate(made.workloads)}
    return Pairs(
        profiles,
        np.zeros(len(runs), np.int64),
        np.array([numbers[run.victim] for run in runs], np.int64),
        np.array([numbers[run.aggressor] for run in runs], np.int64),
        np.array([run.throughput for run in runs]),
    )
