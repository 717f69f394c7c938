"""Builders of arrivals for tests of forecasters."""

from collections.abc import Sequence

import numpy as np

from interlane.predict.arrivals.series import Arrivals, Series


def series(counts: Sequence[float], *, name: str = "f", first: int = 0) -> Series:
    """Return a function with these counts."""
    return Series(name, np.array(counts, float), first)


def arrivals(*counts: Sequence[float], slot_s: float = 600.0) -> Arrivals:
    """Return functions f0, f1, ... with these counts."""
    return Arrivals(slot_s, tuple(series(one, name=f"f{at}") for at, one in enumerate(counts)))


def habits(days: int, *, seed: int, slot_s: float = 600.0) -> Arrivals:
    """Return functions with habits: every hour, office hours, bursts, seldom and never."""
    rng = np.random.default_rng(seed)
    day = round(86_400 / slot_s)
    slots = np.arange(days * day)
    hour = max(1, day // 24)
    office = (slots % day > day // 3) & (slots % day < 3 * day // 4)
    bursting = np.repeat(rng.random(days * 24) < 0.2, hour)[: len(slots)]
    return arrivals(
        np.where(slots % hour == 2 % hour, 5.0, 0.0).tolist(),
        np.where(office, rng.poisson(3.0, len(slots)), 0.0).tolist(),
        np.where(bursting, rng.poisson(8.0, len(slots)), 0.0).tolist(),
        rng.poisson(0.02, len(slots)).astype(float).tolist(),
        np.zeros(len(slots)).tolist(),
        slot_s=slot_s,
    )
