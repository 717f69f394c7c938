"""The overview: what is allocated, what waits and for how long."""

import asyncio
from typing import Final
from urllib.parse import urlencode

from markupsafe import Markup

from interlane.live.questions.levels import LiveLevels
from interlane.live.store.record import JobRecord
from interlane.model.lifecycle import JobState
from interlane.pages import charts, words
from interlane.pages.frame import card, job_link, links, live, state_word, table, title
from interlane.pages.functions import cold_ratio
from interlane.pages.site import Site, Visit

HOUR_S: Final = 3_600.0
DAY_S: Final = 86_400.0


SPANS: Final = {
    "10 minutes": 600.0,
    "hour": HOUR_S,
    "6 hours": 6 * HOUR_S,
    "day": DAY_S,
    "week": 7 * DAY_S,
}
"""Stretches of the past that can be shown, in seconds."""

POINTS: Final = 121
SHOWN: Final = 8


async def overview(visit: Visit) -> None:
    """Show how the machine stands."""
    view = visit.site.view
    kind = "emulated " if view.traits.emulated else ""
    title(
        "Overview",
        f"{words.count(view.cluster().gpus, f'{kind}GPU')}, policy {visit.site.policy}",
    )
    span = visit.asked("span")

    async def shown() -> Markup:
        # Functions live on the server's loop; everything else is read in a thread.
        cold = cold_ratio(visit.site.view.functions.statuses())
        return await asyncio.to_thread(_shown, visit.site, cold, span)

    await live(visit, shown)


def _shown(site: Site, cold: float | None, asked: str) -> Markup:
    span = asked if asked in SPANS else _usual_span(site)
    levels = site.view.history.levels(SPANS[span], POINTS)
    records = site.view.open_jobs()
    now_s = site.view.now_s()
    running = [one for one in records if one.state.holds]
    waiting = [one for one in records if one.state is JobState.QUEUED]
    ranges = links({name: f"/?{urlencode({'span': name})}" for name in SPANS}, span, "Range")
    return Markup(
        '<div class="stack"><div class="tiles">{}</div>{}'
        '<div class="columns">{}{}{}</div></div>'
    ).format(
        Markup("").join(_tiles(site, levels, span, waiting, cold)),
        card(f"The last {span}", ranges + _levels(site, levels)),
        card("Running", _running(running, now_s)),
        card("Waiting longest", _waiting(waiting, now_s)),
        card("Ended lately", _ended(site, now_s)),
    )


def _usual_span(site: Site) -> str:
    """Return the shortest stretch that holds all that is known."""
    age_s = site.view.history.age_s()
    return next((name for name, span_s in SPANS.items() if span_s >= age_s), "day")


# -- tiles ----------------------------------------------------------------------------


def _tiles(
    site: Site, levels: LiveLevels, span: str, waiting: list[JobRecord], cold: float | None
) -> list[Markup]:
    used = [value for _, value in _used(site, levels)]
    waits = site.view.history.waits(DAY_S)
    now_s = site.view.now_s()
    longest_s = max((now_s - one.submitted_s for one in waiting), default=None)
    pending_h = (
        sum(
            site.view.asked_milli(one) / 1_000 * max(0.0, one.estimate_s - one.ran_s)
            for one in waiting
        )
        / HOUR_S
    )
    return [
        _tile(
            "Allocated",
            words.percent(levels.held_ratio[-1]),
            "of all GPUs now",
            "/devices",
            charts.spark(levels.held_ratio, f"Allocated share over the last {span}", top=1.0),
        ),
        _tile(
            "Used",
            words.percent(site.service.uses.now),
            "of their time, in iterations",
            "/devices",
            charts.spark(used, f"Used share over the last {span}", top=1.0),
        ),
        _tile(
            "Waiting",
            f"{len(waiting):,}",
            f"{pending_h:,.3g} GPU-hours, as estimated",
            "/queue",
            charts.spark(levels.waiting, f"Waiting jobs over the last {span}"),
        ),
        _tile(
            "Longest wait now",
            words.UNKNOWN if longest_s is None else words.coarse_span(longest_s),
            "of those that wait for a place",
            "/queue?sort=waited",
        ),
        _tile(
            "Waited, median",
            words.span(waits.median_s),
            f"P95 {words.span(waits.p95_s)}; {words.count(waits.starts, 'start')} in 24 h",
            "/queue?show=running",
        ),
        _tile("Cold starts", words.percent(cold), "of all calls of functions", "/functions"),
    ]


def _tile(
    name: str, figure: str, about: str, path: str, picture: Markup | None = None
) -> Markup:
    return Markup(
        '<a class="tile" href="{}"><span class="name">{}</span><span class="figure">{}</span>'
        '<span class="soft">{}</span>{}</a>'
    ).format(path, name, figure, about, picture or "")


# -- the past ---------------------------------------------------------------------------


def _used(site: Site, levels: LiveLevels) -> list[tuple[float, float | None]]:
    """Return what was used: as seen while the server ran, and before by what has ended."""
    seen_s, seen = site.service.uses.since(levels.at_s[0])
    first_s = seen_s[0] if seen_s else levels.at_s[-1]
    before = [
        (at_s, used)
        for at_s, used in zip(levels.at_s, levels.used_ratio, strict=True)
        if at_s < first_s
    ]
    every = max(1, len(seen_s) // POINTS)
    return [*before, *list(zip(seen_s, seen, strict=True))[::every]]


def _levels(site: Site, levels: LiveLevels) -> Markup:
    used = _used(site, levels)
    most = max((one for one in levels.waiting if one is not None), default=0)
    ticks = charts.time_ticks(levels.at_s[0], levels.at_s[-1])
    shares = charts.chart(
        [
            charts.ChartLine(
                "first", "allocated", levels.at_s, levels.held_ratio, words.percent
            ),
            charts.ChartLine(
                "second",
                "used",
                [at_s for at_s, _ in used],
                [value for _, value in used],
                words.percent,
            ),
        ],
        "Share of the GPUs that was allocated, and used",
        x_ticks=ticks,
        y_ticks=[(0, "0 %"), (0.5, "50 %"), (1, "100 %")],
        moments=True,
    )
    waiting = charts.chart(
        [charts.ChartLine("third", "waiting jobs", levels.at_s, levels.waiting, _count)],
        "Jobs that waited",
        x_ticks=ticks,
        y_ticks=charts.value_ticks(max(2, most), _count),
        height=90,
        moments=True,
    )
    return shares + waiting


def _count(value: float) -> str:
    return f"{value:,.0f}"


# -- lists ----------------------------------------------------------------------------


_NOTHING: Final = Markup('Nothing runs. <a href="/submit">Submit a job</a>.')


def _running(records: list[JobRecord], now_s: float) -> Markup:
    newest = sorted(records, key=lambda one: -one.serial)[:SHOWN]
    rows = [
        (job_link(one.id), one.user, words.coarse_span(now_s - (one.started_s or now_s)))
        for one in newest
    ]
    return table(("job", "user", "ran"), rows, "Running jobs", _NOTHING, (2,))


def _waiting(records: list[JobRecord], now_s: float) -> Markup:
    oldest = sorted(records, key=lambda one: one.submitted_s)[:SHOWN]
    rows = [
        (job_link(one.id), one.user, words.coarse_span(now_s - one.submitted_s))
        for one in oldest
    ]
    return table(("job", "user", "waited"), rows, "Waiting jobs", "Nobody waits.", (2,))


def _ended(site: Site, now_s: float) -> Markup:
    found = site.view.lately_ended(SHOWN)
    rows = [
        (
            job_link(one.id),
            state_word(one.state),
            words.coarse_span(now_s - (one.ended_s or now_s)),
        )
        for one in found
    ]
    empty = "Nothing has ended yet."
    return table(("job", "state", "ago"), rows, "Ended jobs", empty, (2,))
