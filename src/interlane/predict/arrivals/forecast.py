"""What the slot after a trace will bring."""

from dataclasses import dataclass

import numpy as np

from interlane.predict.arrivals.live import Trees
from interlane.predict.arrivals.lslstm import LsLstm
from interlane.predict.arrivals.series import Arrivals, Floats, Series


@dataclass(frozen=True, slots=True)
class Told:
    """What is expected of one function in one slot."""

    function: str
    chance: float
    """The probability of a request."""
    count: float
    """Requests, if there are any: as likely more as fewer."""


def next_slot(forecaster: Trees | LsLstm, arrivals: Arrivals) -> list[Told]:
    """Tell of every function what comes in the slot after its last."""
    return [_told(forecaster, one, arrivals) for one in arrivals]


def _told(forecaster: Trees | LsLstm, series: Series, arrivals: Arrivals) -> Told:
    longer = Series(series.name, np.append(series.counts, np.nan), series.first)
    chance, count = _all_slots(forecaster, longer, arrivals)
    return Told(series.name, float(chance[-1]), float(max(1.0, count[-1])))


def _all_slots(
    forecaster: Trees | LsLstm, series: Series, arrivals: Arrivals
) -> tuple[Floats, Floats]:
    if isinstance(forecaster, LsLstm):
        return forecaster.predict(series, arrivals)
    middle = np.full(len(series), 0.5)
    return (
        forecaster.chance.predict(series, arrivals),
        forecaster.size.quantiles(series, arrivals, middle),
    )
