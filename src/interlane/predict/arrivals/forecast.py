"""What the slots after a trace will bring.

The first is told from what was seen.  Those after it are told from many futures: in each, the
slots before are drawn as they are told, and learned as if they had been.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from interlane.predict.arrivals.live import OnlineForecaster, Trees
from interlane.predict.arrivals.lslstm import LsLstm
from interlane.predict.arrivals.lslstm_live import LiveLsLstm
from interlane.predict.arrivals.series import Arrivals, Series

FUTURES: Final = 100
"""Futures that are drawn of each function."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is expected of one function in one slot."""

    function: str
    chance: float
    """The probability of a request."""
    count: float
    """Requests, if there are any: as likely more as fewer."""


def next_slots(
    forecaster: Trees | LsLstm, arrivals: Arrivals, slots: int = 1, seed: int = 0
) -> list[list[Told]]:
    """Tell of every function what comes in the slots after its last."""
    rng = np.random.default_rng(seed)
    spans: dict[tuple[int, int], list[Series]] = {}
    for one in arrivals:
        spans.setdefault((one.first, len(one)), []).append(one)
    told = {}
    for watched in spans.values():
        live = _seen(forecaster, watched, arrivals.slot_s)
        for place, one in enumerate(watched):
            told[one.name] = list(_told(live, place, one.name, slots, rng))
    return [told[one.name] for one in arrivals]


def _seen(
    forecaster: Trees | LsLstm, watched: list[Series], slot_s: float
) -> OnlineForecaster | LiveLsLstm:
    """Return a forecast that has seen functions that were watched over the same slots."""
    live: OnlineForecaster | LiveLsLstm
    functions, first = len(watched), watched[0].first
    if isinstance(forecaster, LsLstm):
        live = LiveLsLstm(
            forecaster, functions=functions, slot_s=slot_s, slot=first, updates=False
        )
    else:
        live = OnlineForecaster(forecaster, functions=functions, slot_s=slot_s, slot=first)
    for counts in np.column_stack([one.counts for one in watched]):
        live.passed(counts)
    return live


def _told(
    live: OnlineForecaster | LiveLsLstm,
    place: int,
    name: str,
    slots: int,
    rng: np.random.Generator,
) -> Iterator[Told]:
    futures = live.copies(place, FUTURES if slots > 1 else 1)
    for _ in range(slots):
        chances = futures.chances()
        sizes = futures.quantiles(np.full(len(chances), 0.5))
        yield Told(name, float(chances.mean()), max(1.0, float(np.median(sizes))))
        drawn = np.maximum(1.0, np.round(futures.quantiles(rng.random(len(chances)))))
        futures.passed(np.where(rng.random(len(chances)) < chances, drawn, 0.0))
