"""Requests of a trace as forecasters see them: counted by slot."""

from typing import Final

import numpy as np
import polars as pl

from interlane.predict.arrivals.series import Arrivals, counted
from interlane.traces.requests import RequestTrace

SLOT_S: Final = 60.0
"""The width of slots where neither the trace nor the user names one."""


def arrivals_of(requests: RequestTrace, slot_s: float | None = None) -> Arrivals:
    """Count requests in slots of the trace's own width, or of another."""
    names = requests.watched["function"].unique(maintain_order=True).to_list()
    places = {name: place for place, name in enumerate(names)}
    watched: list[list[tuple[float, float]]] = [[] for _ in names]
    for name, from_s, to_s in requests.watched.iter_rows():
        watched[places[name]].append((from_s, to_s))
    frame = requests.frame
    function = frame["function"].replace_strict(places, return_dtype=pl.Int64)
    return counted(
        names,
        function.to_numpy().astype(np.intp),
        frame["at_s"].to_numpy(),
        frame["count"].to_numpy().astype(np.float64),
        watched,
        slot_s or requests.slot_s or SLOT_S,
    )
