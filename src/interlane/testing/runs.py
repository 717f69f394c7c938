"""Builders of runs for tests of predictors."""

from collections.abc import Sequence

import numpy as np

from interlane.predict.runs import Runs


def runs(
    seconds: Sequence[float],
    *,
    at: Sequence[float] | None = None,
    group: Sequence[str] | str = "g",
    user: Sequence[str] | str = "u",
    gpus: Sequence[float] | float = 1.0,
    instances: Sequence[int] | int = 1,
) -> Runs:
    """Return runs of these lengths, one submitted after the last has ended unless ``at``."""
    count = len(seconds)
    lengths_s = np.array(seconds, float)
    starts_s = np.concatenate([[0.0], np.cumsum(np.nan_to_num(lengths_s))[:-1]])
    return Runs(
        starts_s[:count] if at is None else np.array(at, float),
        lengths_s,
        (group,) * count if isinstance(group, str) else tuple(group),
        (user,) * count if isinstance(user, str) else tuple(user),
        np.broadcast_to(np.array(gpus, float), count).copy(),
        np.full(count, 4.0),
        np.full(count, 16.0),
        np.broadcast_to(np.array(instances, np.int64), count).copy(),
        ("",) * count,
    )


def recurring(count: int, *, seed: int, groups: int = 40, spread: float = 0.3) -> Runs:
    """Return runs of recurring groups with a length each and lognormal noise.

    One run in ten belongs to a group of its own, as in real clusters.
    """
    rng = np.random.default_rng(seed)
    which = np.where(
        rng.random(count) < 0.1, groups + np.arange(count), rng.integers(0, groups, count)
    )
    middles = rng.normal(6.0, 1.5, groups + count)
    lengths_s = np.exp(middles[which] + rng.normal(0.0, spread, count))
    return runs(
        lengths_s.tolist(),
        at=np.sort(rng.uniform(0, 30.0 * count, count)).tolist(),
        group=[f"g{number}" for number in which.tolist()],
        user=[f"u{number % 7}" for number in which.tolist()],
        gpus=(which % 3 + 1).astype(float).tolist(),
        instances=(which % 4 + 1).tolist(),
    )
