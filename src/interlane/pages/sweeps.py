"""Sweeps: how their trials do, curve by curve, and which is best."""

import asyncio
from collections.abc import Sequence
from math import isfinite
from typing import Final
from urllib.parse import quote

from markupsafe import Markup

from interlane.pages import charts, words
from interlane.pages.frame import card, job_link, live, state_word, table, title
from interlane.pages.site import Visit
from interlane.pages.sweep_index import Sweeps
from interlane.sweep.board import SweepStatus
from interlane.sweep.decide import TrialRun

EVERY_S: Final = 3.0
CURVES_MAX: Final = 60
"""Curves that are drawn, the best first; more would be one dark patch."""
POINTS_MAX: Final = 120
ROWS_MAX: Final = 200


async def sweeps(visit: Visit) -> None:
    """Show every sweep."""
    title("Sweeps", "Trials of one command with other parameters, and the best of each.")

    def shown() -> Markup:
        return all_markup(visit.site.sweeps)

    await live(visit, shown, EVERY_S)


async def sweep(visit: Visit) -> None:
    """Show one sweep."""
    name = visit.request.path_params["name"]
    found = visit.site.sweeps
    first = await asyncio.to_thread(found.status, name)
    title(name, f"{first.sweep.goal.value} {first.sweep.metric}, {_how(first)}")

    def shown() -> Markup:
        return one_markup(found.status(name))

    await live(visit, shown, EVERY_S)


# -- all of them ----------------------------------------------------------------------


def all_markup(found: Sweeps) -> Markup:
    """Return a row for every sweep."""
    rows = [(_link(name), user, *_row(found.status(name))) for name, user in found.names()]
    empty = Markup(
        "No sweep was begun; <code>interlane sweep --set lr=0.1,0.01 --metric loss -- python "
        "train.py --lr {{lr}}</code> begins one."
    ).format()
    head = ("sweep", "user", "trials", "over", "metric", "best", "values")
    return table(head, rows, "All sweeps, the newest first", empty, (2, 3, 5))


def _row(status: SweepStatus) -> tuple[object, ...]:
    best = status.best
    closed = sum(not run.state.is_open for run in status.runs.values())
    return (
        f"{len(status.sweep.trials):,}",
        f"{closed:,} of {len(status.runs):,}",
        status.sweep.metric,
        words.UNKNOWN if best is None else f"{best.value:.6g}",
        "" if best is None else status.values(best),
    )


def _link(name: str) -> Markup:
    return Markup('<a class="job" href="/sweeps/{}">{}</a>').format(quote(name, safe=""), name)


def _how(status: SweepStatus) -> str:
    sweep = status.sweep
    how = "a grid" if sweep.draws is None else f"drawn with seed {sweep.draws[1]}"
    halved = "" if sweep.halving is None else f", halved over {sweep.halving}"
    return f"{words.count(len(sweep.trials), 'trial')}, {how}{halved}"


# -- one of them ----------------------------------------------------------------------


def one_markup(status: SweepStatus) -> Markup:
    """Return a sweep: its best, its curves, its trials."""
    problem = Markup('<p class="alert">{}</p>').format(status.problem) if status.problem else ""
    return Markup('<div class="stack">{}{}{}{}</div>').format(
        problem,
        _best(status),
        card(status.sweep.metric, _curves(status)),
        card("Trials", _trials(status)),
    )


def _best(status: SweepStatus) -> Markup:
    counts = [(state, str(count)) for state, count in status.counts().items() if count]
    shown = Markup("").join(
        Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(*one) for one in counts
    )
    best = status.best
    if best is None:
        return Markup('<dl class="details">{}</dl>').format(shown)
    return Markup('<dl class="details">{}</dl>{}').format(
        shown,
        card(
            "Best so far" if not status.is_over else "Best",
            Markup(
                "<p>Trial {}, {}: <strong>{} {:.6g}</strong> ({})</p><p><code>{}</code></p>"
            ).format(
                best.trial,
                job_link(best.job_id),
                status.sweep.metric,
                best.value or 0.0,
                status.values(best),
                status.sweep.command(best.trial, best.rung),
            ),
        ),
    )


def _curves(status: SweepStatus) -> Markup:
    """Return the metric of each trial over its reports; that of the best is marked."""
    drawn = [run for run in status.ordered() if _finite(run)][:CURVES_MAX]
    if not drawn:
        return Markup('<p class="soft">No trial has printed {} yet.</p>').format(
            status.sweep.metric
        )
    best = status.best or drawn[0]
    values = [value for run in drawn for value in run.reports if isfinite(value)]
    longest = max(len(run.reports) for run in drawn)
    ticks = charts.span_ticks(min(values), max(values), lambda value: f"{value:.3g}")
    note = ""
    if len(status.runs) > len(drawn):
        note = Markup('<p class="soft">The {} best of {} runs.</p>').format(
            len(drawn), len(status.runs)
        )
    return note + charts.chart(
        [_line(best, "first", f"trial {best.trial}, the best")],
        f"{status.sweep.metric} of every trial over its reports",
        x_ticks=[(1, "1"), (max(2, longest), f"{max(2, longest):,} reports")],
        y_ticks=ticks,
        faint=[_line(run, "faint", "") for run in drawn if run is not best],
    )


def _line(run: TrialRun, kind: str, label: str) -> charts.ChartLine:
    at = _thinned(len(run.reports))
    found = [run.reports[one] for one in at]
    y = [value if isfinite(value) else None for value in found]
    return charts.ChartLine(kind, label, [float(one + 1) for one in at], y)


def _thinned(count: int) -> Sequence[int]:
    if count <= POINTS_MAX:
        return range(count)
    return sorted({round(at * (count - 1) / (POINTS_MAX - 1)) for at in range(POINTS_MAX)})


def _finite(run: TrialRun) -> bool:
    return any(map(isfinite, run.reports))


def _trials(status: SweepStatus) -> Markup:
    sweep = status.sweep
    names = [one.name for one in sweep.parameters]
    rows = [
        (
            run.trial,
            *(sweep.trials[run.trial].values[name] for name in names),
            words.UNKNOWN if run.value is None else f"{run.value:.6g}",
            len(run.reports),
            state_word(run.state),
            job_link(run.job_id),
            "" if status.told(run) == run.state else status.told(run),
        )
        for run in status.ordered()[:ROWS_MAX]
    ]
    head = ("trial", *names, sweep.metric, "reports", "state", "job", "why")
    caption = "Trials, the best first"
    return table(head, rows, caption, "No trial is on record.", range(len(names) + 3))
