"""Bands around estimates: between their edges lie eight jobs in ten.

Everything here is in logarithms of seconds.  A predictor brings edges of its own, or none
(then both are its estimate); what is added to them is learned from jobs that it had not seen,
for each basis by itself, and may go on being adjusted as jobs end.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from interlane.predict import compiled
from interlane.predict.estimates import HIGH, LOW, DurationEstimates, EstimateBasis
from interlane.predict.runs import Floats, Ints

STEP: Final = 0.01
"""How far one job moves an edge, in logarithms: a percent of the estimate."""

ENOUGH: Final = 50
"""Jobs of a basis from which its own edges are learned; with fewer, those of all serve."""

Bases = NDArray[np.int8]


def no_offsets() -> Floats:
    """Return offsets that change nothing: one row per basis, lower and upper."""
    return np.zeros((len(EstimateBasis), 2))


def offsets(log_s: Floats, low: Floats, high: Floats, basis: Bases) -> Floats:
    """Return what must be added to the edges so that they hold for these jobs."""
    found = no_offsets()
    if not len(log_s):
        return found
    found[:] = _edges(log_s - low, log_s - high)
    for kind in EstimateBasis:
        here = basis == kind
        if here.sum() >= ENOUGH:
            found[kind] = _edges((log_s - low)[here], (log_s - high)[here])
    return found


def _edges(from_low: Floats, from_high: Floats) -> tuple[float, float]:
    """Return the conformal quantiles: a little outside, for there are only so many jobs."""
    count = len(from_low)
    low = max(0.0, np.floor((count + 1) * LOW) - 1) / max(1, count - 1)
    high = min(1.0, (np.ceil((count + 1) * HIGH) - 1) / max(1, count - 1))
    return (
        float(np.quantile(from_low, min(low, 1.0))),
        float(np.quantile(from_high, max(high, 0.0))),
    )


def followed(
    events: Ints, log_s: Floats, low: Floats, high: Floats, basis: Bases, moving: Floats
) -> tuple[Floats, Floats]:
    """Return the edges told at each submission while ends adjust ``moving``, in place."""
    told = np.empty((len(log_s), 2))
    compiled.follow_bands(events, basis, log_s, low, high, moving, STEP, LOW, told)
    return told[:, 0], told[:, 1]


def estimates(middle: Floats, low: Floats, high: Floats, basis: Bases) -> DurationEstimates:
    """Return estimates in seconds; a band holds its estimate even where its edges cross."""
    return DurationEstimates(
        np.exp(middle),
        np.exp(np.minimum(low, middle)),
        np.exp(np.maximum(high, middle)),
        basis,
    )
