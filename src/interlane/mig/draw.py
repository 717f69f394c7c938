"""Pictures of plans: every GPU as a bar, its slices to scale.

GPUs that hold the same are drawn once, with their number.  Units that no instance takes are
hatched; the eighth unit of an A100 cut into seven, for one, serves nobody.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from interlane.mig.demand import Service
from interlane.mig.plan import GpuPlan, Instance, PartitionPlan, SolvedPlan
from interlane.mig.profiles import gpu_model

FREE: Final = "░"
WIDTH: Final = 72
"""Characters of a bar in a terminal; divides by 4, 8 and 12."""


@dataclass(frozen=True, slots=True)
class Alike:
    """GPUs that hold the same."""

    names: tuple[str, ...]
    gpu: GpuPlan
    """One of them."""

    @property
    def title(self) -> str:
        """Their names and number, in a few words."""
        first, last, count = self.names[0], self.names[-1], len(self.names)
        if count == 1:
            return f"{first}  {self.gpu.model}"
        return f"{first} .. {last}  {count} x {self.gpu.model}"


def alike(plan: PartitionPlan) -> list[Alike]:
    """Return GPUs that hold the same, the most frequent first."""
    found: dict[tuple[object, ...], list[GpuPlan]] = {}
    for gpu in plan.gpus:
        found.setdefault((gpu.model, gpu.instances, gpu.members), []).append(gpu)
    groups = [Alike(tuple(gpu.id for gpu in gpus), gpus[0]) for gpus in found.values()]
    return sorted(groups, key=lambda group: -len(group.names))


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar: units and what stands there."""

    start: int
    size: int
    lines: tuple[str, ...]
    """What to write in it, nothing if it is free."""
    service: str = ""


def segments(gpu: GpuPlan) -> list[Segment]:
    """Return a GPU's bar from left to right, free units included."""
    model = gpu_model(gpu.model)
    if gpu.members:
        names = " + ".join(member.service for member in gpu.members)
        return [Segment(0, model.grid, ("shared whole", names), gpu.members[0].service)]
    found, at = [], 0
    for one in sorted(gpu.instances, key=lambda instance: instance.start):
        if one.start > at:
            found.append(Segment(at, one.start - at, ()))
        size = model.profile(one.profile).size
        found.append(Segment(one.start, size, _words(one), one.service))
        at = one.start + size
    if at < model.grid:
        found.append(Segment(at, model.grid - at, ()))
    return found


def _words(one: Instance) -> tuple[str, ...]:
    batch = f"b{one.batch}" + (f" x{one.processes}" if one.processes > 1 else "")
    return one.profile, one.service or "idle", batch if one.service else ""


# -- services --------------------------------------------------------------------------


def service_table(
    services: Sequence[Service], plan: PartitionPlan
) -> tuple[list[str], list[list[str]]]:
    """Return what every service asks for and gets, as the head and rows of a table."""
    given = plan.throughputs()
    used: dict[str, dict[str, int]] = {service.name: {} for service in services}
    slowest: dict[str, float] = {}
    for gpu in plan.gpus:
        for one in gpu.instances:
            if one.service in used:
                counts = used[one.service]
                counts[one.profile] = counts.get(one.profile, 0) + 1
                slowest[one.service] = max(slowest.get(one.service, 0.0), one.latency_ms)
        for member in gpu.members:
            counts = used[member.service]
            counts["shared GPU"] = counts.get("shared GPU", 0) + 1
            slowest[member.service] = max(slowest.get(member.service, 0.0), member.latency_ms)
    rows = [
        [
            service.name,
            " + ".join(
                f"{count} x {name}" for name, count in sorted(used[service.name].items())
            ),
            f"{service.rate_per_s:,.10g}",
            f"{given.get(service.name, 0.0):,.1f}",
            f"{service.latency_ms:g}",
            f"{slowest.get(service.name, 0.0):g}",
        ]
        for service in services
    ]
    return ["service", "instances", "asked /s", "gets /s", "target ms", "slowest ms"], rows


# -- terminal -------------------------------------------------------------------------


def terminal(plan: PartitionPlan, shown: int = 12, width: int = WIDTH) -> str:
    """Return a picture in characters; of many different GPUs, the most frequent ones."""
    groups = alike(plan)
    pictures = ["\n".join(_bar(group, width)) for group in groups[:shown]]
    rest = groups[shown:]
    if rest:
        count = sum(len(group.names) for group in rest)
        pictures.append(f"... and {count} more GPUs, cut in {len(rest)} other ways")
    return "\n".join(pictures)


def _bar(group: Alike, width: int) -> Iterator[str]:
    parts = segments(group.gpu)
    grid = gpu_model(group.gpu.model).grid
    # Each segment loses one character to the line on its left.
    widths = [part.size * width // grid - 1 for part in parts]
    yield group.title
    yield _rule("┌", "┬", "┐", widths)
    for line in range(max(len(part.lines) for part in parts) or 1):
        cells = [_cell(part, line, room) for part, room in zip(parts, widths, strict=True)]
        yield "│" + "│".join(cells) + "│"
    yield _rule("└", "┴", "┘", widths)


def _rule(left: str, middle: str, right: str, widths: Iterable[int]) -> str:
    return left + middle.join("─" * room for room in widths) + right


def _cell(part: Segment, line: int, room: int) -> str:
    if not part.lines:
        return FREE * room
    text = part.lines[line] if line < len(part.lines) else ""
    return (text if len(text) <= room else text[: room - 1] + "…").ljust(room)


# -- SVG and HTML ---------------------------------------------------------------------

_BAR_W, _BAR_H, _LEFT, _ROW = 720, 44, 230, 56


def svg(plan: PartitionPlan) -> str:
    """Return a picture of all GPUs as SVG; every slice tells its figures when pointed at."""
    groups = alike(plan)
    colours = _colours(plan)
    height = _ROW * len(groups) + 12
    rows = "\n".join(
        _svg_row(group, 8 + _ROW * number, colours) for number, group in enumerate(groups)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _BAR_W + 12}" '
        f'height="{height}" font-family="sans-serif" font-size="12">\n'
        '<defs><pattern id="free" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="6" height="6" fill="#f4f4f4"/>'
        '<rect width="2" height="6" fill="#d0d0d0"/></pattern></defs>\n'
        f"{rows}\n</svg>"
    )


def _svg_row(group: Alike, top: int, colours: dict[str, str]) -> str:
    grid = gpu_model(group.gpu.model).grid
    names = (
        group.names[0] if len(group.names) == 1 else f"{group.names[0]} .. {group.names[-1]}"
    )
    count = (
        group.gpu.model if len(group.names) == 1 else f"{len(group.names)} x {group.gpu.model}"
    )
    lines = [
        f'<text x="4" y="{top + 18}">{escape(names)}</text>',
        f'<text x="4" y="{top + 34}" fill="#666">{escape(count)}</text>',
    ]
    for part in segments(group.gpu):
        x, w = _LEFT + part.start * _BAR_W // grid, part.size * _BAR_W // grid
        fill = colours.get(part.service, "#e8e8e8") if part.lines else "url(#free)"
        title = escape(" ".join(part.lines) if part.lines else "free")
        lines.append(
            f'<g><title>{title}</title><rect x="{x}" y="{top}" width="{w}" height="{_BAR_H}" '
            f'fill="{fill}" stroke="#333"/>{_svg_words(part, x, top, w)}</g>'
        )
    return "\n".join(lines)


def _svg_words(part: Segment, x: int, top: int, w: int) -> str:
    room = max(1, (w - 8) // 7)
    return "".join(
        f'<text x="{x + 4}" y="{top + 14 + 13 * at}">{escape(text[:room])}</text>'
        for at, text in enumerate(part.lines)
        if text
    )


def _colours(plan: PartitionPlan) -> dict[str, str]:
    """Return a colour for each service, far apart for neighbours in the alphabet."""
    names = sorted(plan.throughputs())
    # Steps of the golden angle never come round to a hue that is close to the last ones.
    return {name: f"hsl({at * 137.508 % 360:.0f} 65% 78%)" for at, name in enumerate(names)}


def page(outcome: SolvedPlan, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a page with the figures of an outcome, a table and the picture."""
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    proof = (
        "proven optimal"
        if outcome.is_optimal
        else f"no plan costs less than {outcome.lower_bound:g}; {outcome.stopped.value}"
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>MIG plan</title><style>
body {{ font-family: sans-serif; margin: 2em; }} table {{ border-collapse: collapse; }}
td, th {{ padding: .25em .8em; border-bottom: 1px solid #ccc; text-align: left; }}
</style></head><body>
<h1>{len(outcome.plan.gpus)} GPUs</h1>
<p>Cost {outcome.cost:g}, {escape(proof)}. Optimiser: {escape(outcome.optimiser)}.</p>
<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>
<h2>GPUs</h2>
{svg(outcome.plan)}
</body></html>
"""
