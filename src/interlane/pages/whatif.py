"""What if: recent jobs under other policies, played by the simulator."""

import asyncio
from collections.abc import Sequence
from math import log10
from typing import Final

from markupsafe import Markup
from nicegui import ui

from interlane.live.auth import Caller
from interlane.model import InvalidInput
from interlane.pages import charts, words
from interlane.pages.frame import LiveMarkup, button, card, table, title, worked
from interlane.pages.site import Site, Visit
from interlane.usecases.whatif import (
    SYNTHETIC_JOBS,
    PlayedPolicy,
    played_live,
    played_synthetic,
)

DAY_S: Final = 86_400.0
LIMIT_S: Final = 120.0
LIVE: Final = "live"
SYNTHETIC: Final = "synthetic"
KINDS: Final = ("first", "second", "third", "fourth")
"""How curves are drawn; no more policies than this at a time."""

POLICIES: Final = {
    "order=fifo,placer=pack,queue=strict": "first come, first served, strictly",
    "order=fifo,placer=pack,queue=skip": "first come, others may pass",
    "order=fifo,placer=pack,queue=easy": "first come, with backfilling",
    "order=sjf,placer=pack,queue=skip": "shortest estimate first",
    "order=srtf,placer=pack,queue=skip": "shortest rest first, preempting",
    "order=las,placer=pack,queue=skip": "least served first, preempting",
    "order=sjf,placer=fgd,queue=skip": "shortest first, little fragmentation",
}
FIGURES: Final = {
    "jobs": "jobs",
    "mean_wait_s": "mean wait",
    "p99_wait_s": "P99 wait",
    "mean_jct_s": "mean completion",
    "makespan_s": "makespan",
    "gpu_allocated_ratio": "allocated",
    "preemptions": "preemptions",
}
TICKS_S: Final = ((1, "1 s"), (60, "1 min"), (3_600, "1 h"), (86_400, "1 d"), (864_000, "10 d"))


async def whatif(visit: Visit) -> None:
    """Compare policies on what this machine ran, or on synthetic jobs."""
    title("What if", "The same jobs on the same devices under other policies, simulated.")
    sources = {
        LIVE: "This machine's jobs of late",
        SYNTHETIC: f"{SYNTHETIC_JOBS} synthetic jobs, PAI-like",
    }
    with ui.element("section").classes("card"), ui.element("div").classes("line"):
        source = ui.select(sources, value=LIVE, label="Jobs").props("dense outlined")
        days = ui.number("Days back", value=7, min=0.01, max=365).props("dense outlined")
        days.bind_visibility_from(source, "value", value=LIVE)
        seed = ui.number("Seed", value=0, min=0, precision=0).props("dense outlined")
        seed.bind_visibility_from(source, "value", value=SYNTHETIC)
        chosen = (
            ui.select(
                {
                    policy: f"{short_name(policy)}: {about}"
                    for policy, about in POLICIES.items()
                },
                value=list(POLICIES)[1:4],
                label="Policies, up to four",
                multiple=True,
            )
            .props("dense outlined use-chips")
            .classes("grow")
        )

        async def compare(_: Caller) -> Markup:
            policies = _checked(chosen.value)
            if source.value == LIVE:
                return _results(await _live(visit.site, float(days.value or 0), policies))
            return _results(await _synthetic(visit.site, int(seed.value or 0), policies))

        comparer = button("Compare")
    shown = LiveMarkup(Markup(""))
    comparer.on_click(worked(visit, shown, "Playing ...", compare))


def short_name(policy: str) -> str:
    """Return a policy in a word, as summaries name it."""
    return "/".join(part.partition("=")[2] for part in policy.split(","))


def _checked(chosen: Sequence[str]) -> list[str]:
    if not 0 < len(chosen) <= len(KINDS):
        raise InvalidInput(f"{len(chosen)} policies are chosen; choose one to {len(KINDS)}.")
    return [policy for policy in POLICIES if policy in chosen]


async def _live(site: Site, days: float, policies: Sequence[str]) -> list[PlayedPolicy]:
    view = site.view
    text = await asyncio.to_thread(view.trace, view.now_s() - days * DAY_S)
    if text.count("\n") < 2:
        raise InvalidInput(
            f"No job was submitted within the last {days:g} days; look further back, or take "
            "synthetic jobs."
        )
    return await site.away.run(LIMIT_S, played_live, text, view.cluster(), policies)


async def _synthetic(site: Site, seed: int, policies: Sequence[str]) -> list[PlayedPolicy]:
    cluster = site.view.cluster()
    return await site.away.run(LIMIT_S, played_synthetic, cluster, seed, policies)


# -- results --------------------------------------------------------------------------


def _results(found: Sequence[PlayedPolicy]) -> Markup:
    return Markup('<div class="stack">{}<div class="columns">{}{}</div></div>').format(
        card("Figures", _figures(found)),
        card("Share of jobs that waited at most", _curves(found, "waits_s")),
        card("Share of jobs that were done within", _curves(found, "jcts_s")),
    )


def _figures(found: Sequence[PlayedPolicy]) -> Markup:
    rows = [
        (
            Markup('<span class="key {}">{}</span>').format(kind, short_name(one.policy)),
            *(_cell(one, figure) for figure in FIGURES),
        )
        for kind, one in zip(KINDS, found, strict=False)
    ]
    head = ("policy", *FIGURES.values())
    numbers = range(1, len(head))
    return table(head, rows, "Figures of every policy", "", numbers) + Markup(
        '<p class="soft">Bold: none of the others is better.</p>'
    )


def _cell(one: PlayedPolicy, figure: str) -> Markup:
    value = one.summary[figure]
    if not isinstance(value, int | float):
        text = words.UNKNOWN
    elif figure.endswith("_s"):
        text = words.span(value)
    elif figure.endswith("_ratio"):
        text = words.percent(value)
    else:
        text = f"{value:,}"
    wanted = Markup("<strong>{}</strong>") if figure in one.is_best else Markup("{}")
    return wanted.format(text)


def _curves(found: Sequence[PlayedPolicy], times: str) -> Markup:
    longest_s = max(max(getattr(one, times)) for one in found)
    ticks = [(log10(at_s), word) for at_s, word in TICKS_S]
    shown = next(
        (at for at, (x, _) in enumerate(ticks) if x >= _log(longest_s)), len(ticks) - 1
    )
    lines = []
    for kind, one in zip(KINDS, found, strict=False):
        values = getattr(one, times)
        shares = [at / (len(values) - 1) for at in range(len(values))]
        lines.append(
            charts.ChartLine(
                kind, short_name(one.policy), [_log(value) for value in values], shares
            )
        )
    return charts.chart(
        lines,
        "Share of jobs over time, one line per policy",
        x_ticks=ticks[: max(2, shown + 1)],
        y_ticks=[(0, "0 %"), (0.5, "50 %"), (1, "100 %")],
    )


def _log(seconds: float) -> float:
    """Return where a time stands; all below a second stand at the left end."""
    return min(log10(max(1.0, seconds)), log10(TICKS_S[-1][0]))
