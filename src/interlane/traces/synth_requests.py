"""Requests like those of real functions, where there is no trace of them.

Functions have habits that published traces show: some are asked all day with a tide, some in
office hours, some every few minutes by a timer, some in bursts, some seldom.  How often they
are asked differs by orders of magnitude.
"""

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from interlane.model import InvalidField
from interlane.traces.requests import DAY_S, RequestTrace

SLOT_S: Final = 60.0
FUNCTIONS_MAX: Final = 10_000
RATES: Final = (0.5, 500.0)
"""The least and most requests a minute that a function has while it is asked."""


def synthesize_requests(functions: int, days: int, seed: int = 0) -> RequestTrace:
    """Return requests of so many functions, minute by minute."""
    if not 1 <= functions <= FUNCTIONS_MAX:
        raise InvalidField("functions", functions, f"it must be 1 to {FUNCTIONS_MAX:,}")
    if days < 1:
        raise InvalidField("days", days, "it must be 1 or more")
    rng = np.random.default_rng(seed)
    minutes = np.arange(days * 1440)
    frames, names = [], [f"f{place:04}" for place in range(functions)]
    for place, name in enumerate(names):
        low, high = np.log(RATES)
        mean = np.exp(rng.uniform(low, high)) * _habit(place % 5, minutes, rng)
        counts = rng.poisson(mean)
        slot = np.flatnonzero(counts)
        frames.append(
            pl.DataFrame(
                {
                    "function": [name] * len(slot),
                    "at_s": slot * SLOT_S,
                    "count": counts[slot].astype(np.int64),
                },
                schema={"function": pl.String, "at_s": pl.Float64, "count": pl.Int64},
            )
        )
    watched = pl.DataFrame(
        {"function": names, "from_s": [0.0] * functions, "to_s": [days * DAY_S] * functions}
    )
    frame = pl.concat(frames).sort("at_s", maintain_order=True)
    return RequestTrace(f"generated-{functions}", frame, watched, SLOT_S)


def _habit(
    kind: int, minutes: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return by how much a function is asked in each minute, 1 while it is asked most."""
    of_day = minutes % 1440 / 1440
    if kind == 0:  # all day, with a tide
        return np.asarray(0.55 + 0.45 * np.sin(2 * np.pi * (of_day - rng.random())))
    if kind == 1:  # office hours
        begin = rng.uniform(0.3, 0.4)
        return np.where((of_day > begin) & (of_day < begin + 0.4), 1.0, 0.02)
    if kind == 2:  # a timer
        every = int(rng.integers(5, 60))
        return np.asarray(minutes % every == int(rng.integers(every)), np.float64)
    if kind == 3:  # bursts of a quarter of an hour
        begins = rng.random(len(minutes)) < 1 / 360
        return np.asarray(np.minimum(1.0, np.convolve(begins, np.ones(15))[: len(minutes)]))
    return np.asarray(rng.random(len(minutes)) < 0.01, np.float64)  # seldom
