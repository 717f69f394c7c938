"""A job over time: how much of it ran in iterations, its memory, and how fast it got on."""

from collections.abc import Sequence

from markupsafe import Markup

from interlane.live.measure.job_series import JobSeries
from interlane.pages import charts, words
from interlane.pages.frame import card

MIB_BYTES = 1 << 20


def over_time(series: JobSeries | None) -> Markup:
    """Return charts of what a job was seen to do; nothing if it was not seen."""
    if series is None or len(series.looks) < 2:
        return Markup("")
    steps = list(series.steps())
    at_s = [after.at_s for _, after in steps]
    seconds = [max(1e-9, after.at_s - before.at_s) for before, after in steps]
    busy = [
        min(1.0, max(0.0, after.busy_s - before.busy_s) / span_s)
        for (before, after), span_s in zip(steps, seconds, strict=True)
    ]
    speed = [
        (after.iterations - before.iterations) / span_s
        for (before, after), span_s in zip(steps, seconds, strict=True)
    ]
    memory = [
        None if after.used_bytes is None else after.used_bytes / MIB_BYTES for _, after in steps
    ]
    drawn = [
        _chart("first", "in iterations", at_s, busy, words.percent, 1.0),
        _chart("third", "memory of its devices", at_s, memory, words.memory),
        _chart("second", "iterations a second", at_s, speed, _per_s),
    ]
    return card(
        "Over time",
        Markup('<div class="columns">{}</div>{}').format(
            Markup("").join(drawn), _memory_over_iterations(series)
        ),
    )


def _memory_over_iterations(series: JobSeries) -> Markup:
    """Return what was in use between iterations, and at most in them, by their number."""
    seen = [one for one in series.looks if one.peak_bytes is not None]
    if len(seen) < 2 or seen[0].iterations == seen[-1].iterations:
        return Markup("")
    at = [float(one.iterations) for one in seen]
    peak = [(one.peak_bytes or 0) / MIB_BYTES for one in seen]
    between = [(one.between_bytes or 0) / MIB_BYTES for one in seen]
    return charts.chart(
        [
            charts.ChartLine("third", "memory in iterations, at most", at, peak, words.memory),
            charts.ChartLine("first", "between iterations", at, between, words.memory),
        ],
        "Memory of the job over its iterations",
        x_ticks=[(at[0], f"{at[0]:,.0f}"), (at[-1], f"{at[-1]:,.0f} iterations")],
        y_ticks=charts.value_ticks(max(*peak, *between), words.memory),
        height=140,
    )


def _chart(
    kind: str,
    label: str,
    at_s: Sequence[float],
    values: Sequence[float | None],
    told: "charts.Told",
    top: float | None = None,
) -> Markup:
    most = top or max((one for one in values if one is not None), default=1.0)
    return charts.chart(
        [charts.ChartLine(kind, label, at_s, values, told)],
        f"The job's {label} over time",
        x_ticks=charts.time_ticks(at_s[0], max(at_s[-1], at_s[0] + 1), 2),
        y_ticks=charts.value_ticks(most, told),
        height=110,
        moments=True,
    )


def _per_s(value: float) -> str:
    return f"{value:.3g} /s"
