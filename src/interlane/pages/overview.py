"""The overview: what is allocated, what waits and for how long."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from interlane.live.questions.levels import LiveLevels
from interlane.live.store.record import JobRecord
from interlane.model.lifecycle import JobState
from interlane.pages import charts, words
from interlane.pages.frame import card, job_link, live, state_word, table, title
from interlane.pages.functions import cold_ratio
from interlane.pages.site import Site, Visit

HOUR_S: Final = 3_600.0
DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class PastSpan:
    """A stretch of the past that can be shown."""

    name: str
    seconds: float
    unit: str
    unit_s: float


SPANS: Final = (
    PastSpan("10 minutes", 600.0, "min", 60.0),
    PastSpan("hour", HOUR_S, "min", 60.0),
    PastSpan("day", DAY_S, "h", HOUR_S),
)
"""The shortest that holds all that is known is shown."""

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

    async def shown() -> Markup:
        # Functions live on the server's loop; everything else is read in a thread.
        cold = cold_ratio(visit.site.view.functions.statuses())
        return await asyncio.to_thread(_shown, visit.site, cold)

    await live(visit, shown)


def _shown(site: Site, cold: float | None) -> Markup:
    span = next((one for one in SPANS if one.seconds >= site.view.history.age_s()), SPANS[-1])
    levels = site.view.history.levels(span.seconds, POINTS)
    records = site.view.open_jobs()
    now_s = site.view.now_s()
    running = [one for one in records if one.state.holds]
    waiting = [one for one in records if one.state is JobState.QUEUED]
    return Markup(
        '<div class="stack"><div class="tiles">{}</div>{}'
        '<div class="columns">{}{}{}</div></div>'
    ).format(
        Markup("").join(_tiles(site, levels, span, waiting, cold)),
        card(f"The last {span.name}", _levels(site, levels, span)),
        card("Running", _running(running, now_s)),
        card("Waiting longest", _waiting(waiting, now_s)),
        card("Ended lately", _ended(site, now_s)),
    )


# -- tiles ----------------------------------------------------------------------------


def _tiles(
    site: Site, levels: LiveLevels, span: PastSpan, waiting: list[JobRecord], cold: float | None
) -> list[Markup]:
    used = site.usage.since(levels.at_s[0])[1]
    waits = site.view.history.waits(DAY_S)
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
            f"of all GPUs, last {span.name}",
            "/devices",
            charts.spark(
                levels.held_ratio, f"Allocated share over the last {span.name}", top=1.0
            ),
        ),
        _tile(
            "Used",
            words.percent(site.usage.now),
            "of their time, in iterations",
            "/devices",
            charts.spark(used, f"Used share over the last {span.name}", top=1.0)
            if used
            else None,
        ),
        _tile(
            "Waiting",
            f"{len(waiting):,}",
            f"{pending_h:,.3g} GPU-hours, as estimated",
            "/queue",
            charts.spark(levels.waiting, f"Waiting jobs over the last {span.name}"),
        ),
        _tile(
            "Wait, median",
            words.span(waits.median_s),
            f"{words.count(waits.starts, 'start')} in 24 h",
            "/queue?show=running",
        ),
        _tile(
            "Wait, P95",
            words.span(waits.p95_s),
            "19 of 20 jobs waited less",
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


def _levels(site: Site, levels: LiveLevels, span: PastSpan) -> Markup:
    def ages(moments_s: Sequence[float]) -> list[float]:
        return [(at_s - levels.at_s[-1]) / span.unit_s for at_s in moments_s]

    seen_s, used = site.usage.since(levels.at_s[0])
    whole = span.seconds / span.unit_s
    return charts.chart(
        [
            charts.ChartLine("first", "allocated", ages(levels.at_s), levels.held_ratio),
            charts.ChartLine("second", "used", ages(seen_s), used),
        ],
        f"Share of the GPUs that was allocated, and used, over the last {span.name}",
        x_ticks=[
            (-whole, f"-{whole:g} {span.unit}"),
            *((-whole * part / 4, f"-{whole * part / 4:g}") for part in (3, 2, 1)),
            (0, "now"),
        ],
        y_ticks=[(0, "0 %"), (0.5, "50 %"), (1, "100 %")],
    )


# -- lists ----------------------------------------------------------------------------


def _running(records: list[JobRecord], now_s: float) -> Markup:
    newest = sorted(records, key=lambda one: -one.serial)[:SHOWN]
    rows = [
        (job_link(one.id), one.user, words.coarse_span(now_s - (one.started_s or now_s)))
        for one in newest
    ]
    return table(("job", "user", "ran"), rows, "Running jobs", "Nothing runs.", (2,))


def _waiting(records: list[JobRecord], now_s: float) -> Markup:
    oldest = sorted(records, key=lambda one: one.submitted_s)[:SHOWN]
    rows = [
        (job_link(one.id), one.user, words.coarse_span(now_s - one.submitted_s))
        for one in oldest
    ]
    return table(("job", "user", "waited"), rows, "Waiting jobs", "Nobody waits.", (2,))


def _ended(site: Site, now_s: float) -> Markup:
    found = site.view.ended_jobs(SHOWN)
    rows = [
        (
            job_link(one.id),
            state_word(one.state),
            words.coarse_span(now_s - (one.ended_s or now_s)),
        )
        for one in found
    ]
    return table(("job", "state", "ago"), rows, "Ended jobs", "Nothing has ended yet.", (2,))
