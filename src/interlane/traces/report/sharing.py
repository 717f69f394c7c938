"""How many GPUs the work would need if nobody shared one."""

import numpy as np
from numpy.typing import NDArray

from interlane.traces.report.figure import (
    CURVE_POINTS,
    Number,
    Plot,
    PlotCurve,
    ReportFigure,
    absent,
    shown,
)
from interlane.traces.report.sampling import step_s, under_way
from interlane.traces.report.spread import PERCENT, round_off
from interlane.traces.report.tables import DAY_S, HOUR_S, TraceTables

Floats = NDArray[np.float64]


def gpus_needed(tables: TraceTables) -> ReportFigure:
    """Show the GPUs needed over time with and without sharing (figure 8)."""
    key, title = "sharing", "GPUs needed, with and without sharing"
    missing = tables.lacks("instance.start_time", "instance.end_time")
    asked = tables.of_task("gpus") * tables.instances["count"]
    alone = tables.of_task("gpus").ceil() * tables.instances["count"]
    every_s = step_s(tables.instances)
    moments_s, shared = under_way(tables.instances, asked, every_s)
    _, whole = under_way(tables.instances, alone, every_s)
    if not len(whole) or not whole.any():
        return absent(key, title, missing or ("instances with GPUs",))
    saved = float(PERCENT * (1 - shared.sum() / whole.sum()))
    clock_s = tables.clock_s or 0.0
    hours = ((moments_s + clock_s) // HOUR_S % 24).astype(np.int64)
    by_hour = {int(hour): _means(hours == hour, whole, shared) for hour in np.unique(hours)}
    peak = max(by_hour, key=lambda hour: by_hour[hour][0])
    peak_whole, peak_shared = by_hour[peak]
    numbers = {
        "saved_mean": Number(saved, "% of GPUs", 50),
        "peak_hour": Number(peak, "o'clock", 10),
        "peak_without": Number(peak_whole, "GPUs", 5150, "read off"),
        "peak_with": Number(peak_shared, "GPUs", 2650, "read off"),
        "peak_saved": Number(peak_whole - peak_shared, "GPUs", 2500, "about"),
    }
    sentence = (
        f"Sharing saves {shown(saved)} % of the GPUs on average and "
        f"{shown(peak_whole - peak_shared)} in the busiest hour of the day (paper: 50 % and "
        "about 2,500)"
    )
    if missing:
        sentence += "; counted as if nobody had waited, because the trace has no starts"
    plots = (_day(by_hour), _over_time(moments_s, whole, shared))
    return ReportFigure(key, title, sentence + ".", numbers, plots, missing)


def _means(rows: NDArray[np.bool_], whole: Floats, shared: Floats) -> tuple[float, float]:
    return float(whole[rows].mean()), float(shared[rows].mean())


def _day(by_hour: dict[int, tuple[float, float]]) -> Plot:
    hours = [float(hour) for hour in by_hour]
    without = [round_off(one[0]) for one in by_hour.values()]
    shared = [round_off(one[1]) for one in by_hour.values()]
    curves = (
        PlotCurve("without sharing", hours, without),
        PlotCurve("with sharing", hours, shared),
    )
    return Plot("hour of the day", "GPUs needed", curves)


def _over_time(moments_s: Floats, whole: Floats, shared: Floats) -> Plot:
    places = np.arange(0, len(moments_s), max(1, -(-len(moments_s) // CURVE_POINTS)))
    days = [round_off(moments_s[place] / DAY_S) for place in places]
    curves = tuple(
        PlotCurve(name, days, [round_off(float(values[place])) for place in places])
        for name, values in (("without sharing", whole), ("with sharing", shared))
    )
    return Plot("day of the trace", "GPUs needed", curves)
