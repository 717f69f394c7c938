"""Usage: who had how much of the GPUs, and what of it was for nothing."""

from typing import Final
from urllib.parse import urlencode

from markupsafe import Markup

from interlane.metrics.usage import GpuUsage, UsageBy, in_all
from interlane.pages import words
from interlane.pages.frame import card, links, live, table, title
from interlane.pages.site import Visit

DAY_S: Final = 86_400.0
SPANS: Final = {"day": 1.0, "week": 7.0, "30 days": 30.0, "year": 365.0}
EVERY_S: Final = 30.0
"""All of the log is read for it."""


async def usage(visit: Visit) -> None:
    """Show GPU-hours by user or by queue: held, used, wasted."""
    title("Usage", "GPU-hours: held, used in iterations, and held for nothing.")
    span = visit.asked("span", "week")
    span = span if span in SPANS else "week"
    by = UsageBy.QUEUE if visit.asked("by") == UsageBy.QUEUE else UsageBy.USER
    service = visit.site.service

    async def shown() -> Markup:
        since_s = service.view.now_s() - SPANS[span] * DAY_S
        rows = await service.desk.answer(
            "usage", (SPANS[span], by), lambda: service.view.usage(since_s, by)
        )
        return _shown(rows, span, by)

    await live(visit, shown, EVERY_S)


def _shown(rows: list[GpuUsage], span: str, by: UsageBy) -> Markup:
    def path(**change: str) -> str:
        return f"/usage?{urlencode({'span': span, 'by': by.value, **change})}"

    choices = links({name: path(span=name) for name in SPANS}, span, "Range") + links(
        {f"by {one.value}": path(by=one.value) for one in UsageBy}, f"by {by.value}", "By"
    )
    empty = f"Nobody held a GPU in the last {span}."
    told = [*rows, in_all(rows)] if len(rows) > 1 else rows
    most_h = max((one.held_h for one in rows), default=0.0)
    cells = [
        (
            one.account,
            f"{one.jobs:,}",
            f"{one.held_h:,.2f}",
            f"{one.used_h:,.2f}" if one.measured_h else words.UNKNOWN,
            words.percent(one.used_h / one.measured_h if one.measured_h else None),
            f"{one.wasted_h:,.2f}",
            f"{one.waited_h:,.2f}",
            _bar(one, most_h) if at < len(rows) else "",
        )
        for at, one in enumerate(told)
    ]
    head = (by.value, "jobs", "held GPU-h", "used GPU-h", "busy", "wasted GPU-h", "waited h")
    made = table((*head, "held"), cells, f"Use by {by.value}", empty, range(1, 7))
    return card(f"The last {span}", choices + made + _LEGEND)


def _bar(one: GpuUsage, most_h: float) -> Markup:
    """Return what was held, to scale: used, wasted and the rest."""
    whole = most_h or 1.0
    wasted = min(one.wasted_h, one.held_h)
    used = min(one.used_h, one.held_h - wasted)
    told = (
        f"{one.held_h:,.2f} GPU-hours held, {one.used_h:,.2f} used, {one.wasted_h:,.2f} wasted"
    )
    return Markup(
        '<svg class="held" height="12" role="img" aria-label="{}"><title>{}</title>'
        '<rect class="rest" width="{:.2f}%" height="12"/>'
        '<rect class="used" width="{:.2f}%" height="12"/>'
        '<rect class="wasted" x="{:.2f}%" width="{:.2f}%" height="12"/></svg>'
    ).format(
        told,
        told,
        100 * one.held_h / whole,
        100 * used / whole,
        100 * (one.held_h - wasted) / whole,
        100 * wasted / whole,
    )


_LEGEND: Final = Markup(
    '<p class="soft keys"><span class="key used">used</span><span class="key rest">held</span>'
    '<span class="key wasted">wasted: failed, cancelled, or lost since the last checkpoint'
    '</span></p><p class="soft">Used is known of jobs that a device daemon measured, once '
    "they have ended. <code>interlane usage</code> prints the same.</p>"
)
