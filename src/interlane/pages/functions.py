"""Functions: how often they are called, what was forecast, and how they answer."""

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from interlane.live.functions.status import FunctionStatus
from interlane.pages import charts, words
from interlane.pages.devices import beside_table
from interlane.pages.frame import as_yaml, live, state_word, table, title
from interlane.pages.site import Site, Visit

SLOTS: Final = 60


async def functions(visit: Visit) -> None:
    """Show every function."""
    title("Functions", "Calls against what was forecast, replicas, latency against deadline.")

    async def shown() -> Markup:
        return _all(visit.site)

    await live(visit, shown)


def _all(site: Site) -> Markup:
    statuses = site.view.functions.statuses()
    if not statuses:
        return Markup(
            '<p class="soft">Nothing is deployed; <code>interlane function deploy -f FILE'
            "</code> does it.</p>"
        )
    cards = Markup("").join(map(_function, statuses))
    return Markup('<div class="stack">{}</div>').format(cards)


def _function(one: FunctionStatus) -> Markup:
    deadline_s = one.terms.deadline_s
    why = Markup('<p class="alert">{}</p>').format(one.reason) if one.reason else ""
    return Markup(
        '<section class="card"><h2>{} {} <span class="soft">by {}, version {}</span></h2>{}'
        '<dl class="details">{}</dl><div class="columns">{}{}</div>{}'
        "<details><summary>As deployed</summary>{}</details></section>"
    ).format(
        one.name,
        state_word(one.state),
        one.user,
        one.version,
        why,
        _events(one, deadline_s),
        _calls(one),
        _latencies(one, deadline_s),
        _replicas(one) + beside_table(one.beside_jobs, "jobs"),
        as_yaml(one.spec),
    )


def cold_ratio(statuses: Sequence[FunctionStatus]) -> float | None:
    """Return the share of calls that waited for a replica to load."""
    asked = sum(one.requests for one in statuses)
    return sum(one.cold_starts for one in statuses) / asked if asked else None


def _events(one: FunctionStatus, deadline_s: float) -> Markup:
    idle = sum(replica.state == "idle" for replica in one.replicas)
    busy = sum(replica.state == "busy" for replica in one.replicas)
    events = [
        ("calls", f"{one.rate_per_s:.3g} /s"),
        ("warm", f"{idle + busy}, {busy} of them busy"),
        ("waiting", f"{one.waiting:,}"),
        ("cold starts", f"{one.cold_starts:,} ({words.percent(cold_ratio([one]))})"),
        ("P50", words.short_span(one.p50_s)),
        ("P99", words.short_span(one.p99_s)),
        ("deadline", words.short_span(deadline_s)),
        ("late", f"{one.deadline_misses:,} of {one.requests:,}"),
        ("failed", f"{one.raised + one.lost + one.refused:,}"),
        ("load", words.short_span(one.load_s)),
    ]
    return Markup("").join(
        Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(*event) for event in events
    )


# -- pictures -------------------------------------------------------------------------


def _calls(one: FunctionStatus) -> Markup:
    """Return the calls of the newest slots over what was forecast for them."""
    count, told = len(one.slots), [*one.bands, one.forecast]
    ages = [float(at - count) for at in range(count)]
    # A band before its slot: no call as likely as not, and nine times in ten not more.
    low = [band.p50 if band.chance >= 0.5 else 0.0 for band in told]
    high = [band.p90 if band.chance >= 0.1 else 0.0 for band in told]
    most = max([2.0, *one.slots, *high])
    at = [*ages, 0.0] if len(told) == count + 1 else [0.0]
    span = words.span(SLOTS * one.slot_s)
    return charts.chart(
        [
            charts.ChartLine(
                "first",
                f"calls in {one.slot_s:g} s",
                ages,
                [float(calls) for calls in one.slots],
            )
        ],
        f"Calls of {one.name} in slots of {one.slot_s:g} s",
        x_ticks=[(-SLOTS, f"-{span}"), (0, "next")],
        y_ticks=charts.value_ticks(most, lambda value: f"{value:.3g}"),
        band=(
            charts.ChartLine(
                "band", "forecast before the slot, P50 to P90", at, low[-len(at) :]
            ),
            charts.ChartLine("band", "forecast, P90", at, high[-len(at) :]),
        ),
    )


def _latencies(one: FunctionStatus, deadline_s: float) -> Markup:
    """Return how many answers took how long, to the deadline and beyond."""
    total = max(1, sum(one.latency_buckets))
    edges = one.latency_edges_s
    first = next((at for at, count in enumerate(one.latency_buckets) if count), 0)
    last = max([at for at, count in enumerate(one.latency_buckets) if count], default=0)
    rows = [
        Markup(
            '<div class="bucket"><span>{}</span><svg height="12" role="img" aria-label="{}">'
            '<rect class="{}" width="{:.1f}%" height="12"/></svg><span>{}</span></div>'
        ).format(
            "longer" if edge is None else f"≤ {words.short_span(edge)}",
            words.percent(count / total),
            "late" if edge is None or edge > deadline_s else "good",
            100 * count / total,
            words.percent(count / total),
        )
        for edge, count in list(zip(edges, one.latency_buckets, strict=True))[first : last + 1]
    ]
    return Markup('<div><div class="keys">Latency of {}</div>{}</div>').format(
        words.count(one.answered, "answer"), Markup("").join(rows)
    )


def _replicas(function: FunctionStatus) -> Markup:
    rows = [
        (
            one.number,
            one.state,
            one.device,
            words.coarse_span(one.age_s),
            one.calls,
            words.memory(one.memory_mib) if one.memory_mib else words.UNKNOWN,
        )
        for one in function.replicas
    ]
    head = ("replica", "state", "device", "age", "calls now", "memory")
    return table(head, rows, "Replicas", "No replica is loaded.", (0, 3, 4, 5))
