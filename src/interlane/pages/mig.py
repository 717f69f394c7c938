"""The MIG planner: services in, GPUs cut to scale and the way there out."""

from typing import Final

from markupsafe import Markup
from nicegui import ui

from interlane.live.auth import Caller
from interlane.mig.draw import Alike, Segment, alike, segments
from interlane.mig.plan import PartitionPlan
from interlane.mig.profiles import gpu_model, gpu_models
from interlane.pages.devices import hue
from interlane.pages.frame import LiveMarkup, button, card, table, title, worked
from interlane.pages.planner import PastedDemand, Planned, planned
from interlane.pages.site import Visit

SOLVE_S: Final = 10.0
LIMIT_S: Final = 60.0
PASTED_MAX: Final = 256 * 1024
BAR_H: Final = 44
GPUS_DRAWN: Final = 40
THE_FILES: Final = "as the file says"
EXAMPLE: Final = """\
gpus:
  - {model: A100-80GB}
services:
  - {name: search, model: synth-encoder, rate_per_s: 9000, latency_ms: 60}
  - {name: thumbs, model: synth-mobile, rate_per_s: 6000, latency_ms: 50}
  - {name: chat, model: synth-llm, rate_per_s: 700, latency_ms: 80}
"""


async def mig(visit: Visit) -> None:
    """Plan GPUs for services, and the way there."""
    title("MIG planner", "The fewest GPUs that meet every service's rate and latency.")
    with ui.element("section").classes("card form"):
        services = _pasted("Services (YAML)", EXAMPLE, 9)
        with ui.element("div").classes("columns"):
            current = _pasted("What runs now (JSON), for the way from there", "", 4)
            measured = _pasted("Performance table (CSV), if models are not synthetic", "", 4)
        with ui.element("div").classes("line"):
            gpu = ui.select([THE_FILES, *gpu_models()], value=THE_FILES, label="GPU")
            gpu.props("dense outlined")

            async def plan(_: Caller) -> Markup:
                asked = PastedDemand(
                    services.value or "",
                    None if gpu.value == THE_FILES else gpu.value,
                    measured.value or "",
                    current.value or "",
                    SOLVE_S,
                )
                found = await visit.site.away.run(LIMIT_S, planned, asked)
                kept[:] = [found.document]
                return _result(found)

            def take() -> None:
                current.value = kept[0] if kept else ""

            kept: list[str] = []
            planner = button("Plan")
            taker = ui.button("Take the plan as what runs now", on_click=take)
            taker.props("dense no-caps flat")
    shown = LiveMarkup(Markup(""))
    planner.on_click(worked(visit, shown, "Planning ...", plan))


def _pasted(label: str, value: str, rows: int) -> ui.textarea:
    area = ui.textarea(label, value=value).classes("code")
    return area.props(f"outlined dense rows={rows} maxlength={PASTED_MAX} spellcheck=false")


def _result(found: Planned) -> Markup:
    told = Markup("").join(Markup("<p>{}</p>").format(line) for line in found.told)
    parts = [
        card("Plan", told + table(found.head, found.rows, "Services", "", range(2, 6))),
        card("GPUs", _gpus(found.plan)),
    ]
    if found.actions is not None:
        rows = [(number, what) for number, what in found.actions]
        steps = table(("wave", "action"), rows, "Steps", "Nothing has to change.", (0,))
        parts.append(card("Steps, those of a wave at a time", steps))
    return Markup('<div class="stack">{}</div>').format(Markup("").join(parts))


def _gpus(plan: PartitionPlan) -> Markup:
    groups = alike(plan)
    drawn = Markup("").join(_group(group) for group in groups[:GPUS_DRAWN])
    rest = len(groups) - GPUS_DRAWN
    more = f"... and {rest} more kinds of GPUs" if rest > 0 else ""
    return Markup('{}<p class="soft">{}</p>').format(drawn, more)


def _group(group: Alike) -> Markup:
    """Return GPUs that hold the same, as one bar to scale."""
    grid = gpu_model(group.gpu.model).grid
    parts = Markup("").join(_segment(part, grid) for part in segments(group.gpu))
    return Markup(
        '<div class="device"><div class="label">{}</div><svg class="gpu" height="{}" '
        'role="img" aria-label="{}">{}</svg></div>'
    ).format(group.title, BAR_H, group.title, parts)


def _segment(part: Segment, grid: int) -> Markup:
    x, width = 100 * part.start / grid, 100 * part.size / grid
    kind = hue(part.service) if part.service else "free"
    told = " ".join(part.lines) or "free"
    lines = Markup("").join(
        Markup('<text x="{:.2f}%" y="{}" dx="6">{}</text>').format(
            x, 17 + 15 * at, line[: max(2, int(width * 1.2))]
        )
        for at, line in enumerate(part.lines[:2])
    )
    return Markup(
        '<g><title>{}</title><rect class="{}" x="{:.2f}%" width="{:.2f}%" height="{}"/>{}</g>'
    ).format(told, kind, x, width, BAR_H, lines)
