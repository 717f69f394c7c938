"""When work is submitted, and how much it asks for."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from interlane.traces.report.figure import Number, Plot, PlotCurve, ReportFigure, absent, shown
from interlane.traces.report.spread import round_off
from interlane.traces.report.tables import HOUR_S, TraceTables

HOURS_OF_DAY: Final = 24
HOURS_OF_WEEK: Final = 7 * HOURS_OF_DAY
THURSDAY: Final = 3
"""Clocks count from a Thursday; Monday is day 0 of a week."""

WEEKEND: Final = 5

NO_CLOCK: Final = "the hour and weekday at which the trace's clock begins"

PAPER: Final = {"tasks": (280, 1310), "instances": (1300, 9800), "gpus": (500, 3100)}
"""Least and most in an hour of the week, read off figure 3."""

Floats = NDArray[np.float64]


def submissions(tables: TraceTables) -> ReportFigure:
    """Show submissions and requests by hour and weekday (figure 3)."""
    key, title = "submissions", "Submissions by hour and weekday"
    if missing := tables.lacks("job.start_time", "job.job_name"):
        return absent(key, title, missing)
    hourly = _hourly(tables)
    if hourly is None:
        return absent(key, title, ("job.start_time",))
    missing = () if tables.clock_s is not None else (NO_CLOCK,)
    week = _folded(hourly, HOURS_OF_WEEK)
    numbers = {}
    for name, (low, high) in PAPER.items():
        profile = week[name]
        unit = "GPUs asked/h" if name == "gpus" else f"{name}/h"
        numbers[f"{name}_per_hour_least"] = Number(float(profile.min()), unit, low, "read off")
        numbers[f"{name}_per_hour_most"] = Number(float(profile.max()), unit, high, "read off")
    day = _folded(hourly, HOURS_OF_DAY)
    numbers |= _rhythm(day["tasks"], week["tasks"]) if not missing else {}
    least, most = float(week["tasks"].min()), float(week["tasks"].max())
    sentence = (
        f"Between {shown(least)} and {shown(most)} tasks are submitted per hour of the week "
        f"(paper: 280 to 1,310)"
    )
    if "peak_hour" in numbers:
        peak = int(numbers["peak_hour"].value or 0)
        sentence += f"; the busiest hour of the day begins at {peak}:00"
    return ReportFigure(key, title, sentence + ".", numbers, _plots(day, week), missing)


@dataclass(frozen=True, slots=True)
class Hourly:
    """What was submitted in the hours in which anything was."""

    first: int
    last: int
    hours: NDArray[np.int64]
    columns: dict[str, Floats]


def _hourly(tables: TraceTables) -> Hourly | None:
    """Return what is submitted in each hour, from a Monday's midnight on."""
    clock_s = tables.clock_s if tables.clock_s is not None else 0.0
    hour = ((pl.col("submit_s") + clock_s) // HOUR_S).cast(pl.Int64)
    monday = THURSDAY * HOURS_OF_DAY if tables.clock_s is not None else 0
    by_hour = (
        tables.tasks.lazy()
        .filter(pl.col("submit_s").is_not_null())
        .group_by(hour.alias("hour") + monday)
        .agg(
            pl.len().alias("tasks"),
            pl.col("instances").sum(),
            (pl.col("instances") * pl.col("gpus")).sum().alias("gpus"),
        )
        .sort("hour")
        .collect()
    )
    if by_hour.is_empty():
        return None
    hours = by_hour["hour"].to_numpy()
    # The first and the last hour are cut off somewhere; a long trace does without them.
    cut = 1 if hours[-1] - hours[0] > 2 * HOURS_OF_DAY else 0
    first, last = int(hours[0]) + cut, int(hours[-1]) - cut
    inside = (hours >= first) & (hours <= last)
    columns = {name: by_hour[name].to_numpy()[inside].astype(np.float64) for name in PAPER}
    return Hourly(first, last, hours[inside], columns)


def _folded(hourly: Hourly, period: int) -> dict[str, Floats]:
    """Return the mean by hour of the period; hours that never came are left out."""
    place = hourly.hours % period
    every = np.arange(period)
    # How often each hour of the period came between the first and the last.
    times = (hourly.last - every) // period - (hourly.first - 1 - every) // period
    came = times > 0
    folded = {
        name: np.bincount(place, values, period)[came] / times[came]
        for name, values in hourly.columns.items()
    }
    return folded | {"hours": np.flatnonzero(came).astype(np.float64)}


def _rhythm(day: Floats, week: Floats) -> dict[str, Number]:
    if len(day) < HOURS_OF_DAY:
        return {}
    numbers = {"peak_hour": Number(float(np.argmax(day)), "o'clock")}
    beside = np.mean(day[[22, 23, 1, 2]])
    if beside:
        around = float(day[0] / beside)
        numbers["midnight_over_around"] = Number(around, "times", 1.0, "a small peak, above")
    if len(week) == HOURS_OF_WEEK:
        days = week.reshape(7, HOURS_OF_DAY).mean(axis=1)
        rest = float(days[WEEKEND:].mean())
        if rest:
            ratio = float(days[:WEEKEND].mean()) / rest
            numbers["weekday_over_weekend"] = Number(ratio, "times", 1.0, "a little above")
    return numbers


def _plots(day: dict[str, Floats], week: dict[str, Floats]) -> tuple[Plot, ...]:
    words = {"tasks": "tasks", "instances": "instances", "gpus": "GPUs asked"}
    return (
        Plot("hour of the day", "per hour", _curves(day, words)),
        Plot("hour of the week, from Monday", "per hour", _curves(week, words)),
    )


def _curves(profile: dict[str, Floats], words: dict[str, str]) -> tuple[PlotCurve, ...]:
    hours = [float(hour) for hour in profile["hours"]]
    return tuple(
        PlotCurve(word, hours, [round_off(float(value)) for value in profile[name]])
        for name, word in words.items()
    )
