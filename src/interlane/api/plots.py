"""Plots of runs, by plotly."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from interlane.metrics.levels import levels
from interlane.metrics.log import EventLog
from interlane.model import MILLI, InvalidInput

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def over_time(log: EventLog, gpus: int) -> "Figure":
    """Draw GPUs that are held and jobs that wait."""
    figure = _figure()
    moments_s = np.unique(log.columns()[0])
    seen = levels(log, moments_s.tolist())
    name = f"GPUs in use (of {gpus})"
    figure.add_scatter(x=moments_s, y=seen.held_milli / MILLI, name=name, line_shape="hv")
    figure.add_scatter(x=moments_s, y=seen.waiting, name="jobs that wait", line_shape="hv")
    figure.update_layout(xaxis_title="s", hovermode="x unified")
    return figure


def waits(frames: Mapping[str, pl.DataFrame]) -> "Figure":
    """Draw how many jobs waited at most so long, a curve per policy."""
    figure = _figure()
    for policy, frame in frames.items():
        waited = np.sort(frame["wait_s"].drop_nulls().to_numpy())
        part = np.arange(1, len(waited) + 1) / max(1, len(waited))
        figure.add_scatter(x=waited, y=part, name=policy, line_shape="hv")
    figure.update_layout(
        xaxis_title="waited at most, s", yaxis_title="share of jobs", yaxis_tickformat=".0%"
    )
    return figure


def _figure() -> "Figure":
    try:
        from plotly.graph_objects import Figure
    except ModuleNotFoundError:
        raise InvalidInput(
            "Plots need plotly; install it with 'pip install interlane[report]'."
        ) from None
    return Figure(layout={"template": "plotly_white"})
