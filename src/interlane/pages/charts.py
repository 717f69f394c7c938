"""Small pictures as SVG: drawn to scale, coloured by the style sheet, told in words too."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import floor, log10
from typing import Final

from markupsafe import Markup

WIDTH: Final = 600
"""Units across; pictures stretch to the room that they get."""


Told = Callable[[float], str]
"""Says a value as people read it."""


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A series of values, drawn as a line; its kind is what the style sheet colours."""

    kind: str
    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    """None where nothing is known: the line has a gap there."""
    told: Told = field(default=lambda value: f"{value:.3g}")


def spark(
    values: Sequence[float | None], label: str, top: float | None = None, height: int = 36
) -> Markup:
    """Return a line without axes."""
    known = [value for value in values if value is not None]
    most = top or max(known, default=0.0) or 1.0
    steps = max(1, len(values) - 1)
    points = [
        None
        if value is None
        else (WIDTH * at / steps, height - 1 - (height - 2) * min(value, most) / most)
        for at, value in enumerate(values)
    ]
    area = Markup("").join(
        Markup('<path class="area" d="{}"/>').format(_area(run, height))
        for run in _runs(points)
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><title>{}</title>{}<path class="line" d="{}"/></svg>'
    ).format(WIDTH, height, label, label, area, _path(points))


def chart(
    lines: Sequence[ChartLine],
    label: str,
    *,
    x_ticks: Sequence[tuple[float, str | Markup]],
    y_ticks: Sequence[tuple[float, str]],
    band: tuple[ChartLine, ChartLine] | None = None,
    faint: Sequence[ChartLine] = (),
    height: int = 180,
    moments: bool = False,
) -> Markup:
    """Return lines over axes; the first and last ticks are the ends of each axis.

    Words stand beside the picture, not in it, so that stretching does not bend them.  Where
    one points, the browser says the values; ``moments`` tells that x is a time of day.  Faint
    lines are behind the others, and nothing is said of each.
    """
    frame = _Frame(x_ticks[0][0], x_ticks[-1][0], y_ticks[0][0], y_ticks[-1][0], height)
    parts = [_grid(frame, [at for at, _ in y_ticks])]
    if band is not None:
        parts.append(_band(frame, *band))
    for line in (*faint, *lines):
        points = [
            None if y is None else frame.at(x, y) for x, y in zip(line.x, line.y, strict=True)
        ]
        drawn = Markup('<path class="line {}" d="{}"/>')
        parts.append(drawn.format(line.kind, _path(points)))
    keys = [*lines, *(() if band is None else band[:1])]
    legend = Markup("").join(
        Markup('<span class="key {}">{}</span>').format(one.kind, one.label) for one in keys
    )
    return Markup(
        '<figure class="chart"><figcaption>{}</figcaption><div class="plot" data-hover="{}">'
        '<div class="y-axis">{}</div><svg viewBox="0 0 {} {}" preserveAspectRatio="none" '
        'role="img" aria-label="{}">{}</svg><div class="x-axis">{}</div></div></figure>'
    ).format(
        legend,
        _hover([*lines, *(band or ())], frame, moments=moments),
        _ticks(y_ticks, frame.y_part, "bottom"),
        WIDTH,
        height,
        label,
        Markup("").join(parts),
        _ticks(x_ticks, frame.x_part, "left"),
    )


def _hover(lines: Sequence[ChartLine], frame: "_Frame", *, moments: bool) -> str:
    """Return what the browser says of a chart where one points."""
    told = []
    for line in lines:
        known = [
            (frame.x_part(x), line.told(y))
            for x, y in zip(line.x, line.y, strict=True)
            if y is not None
        ]
        xs, values = [round(x, 4) for x, _ in known], [value for _, value in known]
        told.append({"label": line.label, "x": xs, "v": values})
    ends = [frame.x_low, frame.x_high]
    return json.dumps({"lines": told, "ends": ends, "moments": moments})


def clock(at_s: float, span_s: float | None = None) -> Markup:
    """Return a moment that the browser tells by the reader's clock.

    ``span_s`` is how long a time it is one of, which says what of it must be told.
    """
    span = "" if span_s is None else Markup(' data-span="{:.0f}"').format(span_s)
    return Markup('<time data-s="{:.3f}"{}></time>').format(at_s, span)


def time_ticks(begin_s: float, end_s: float, parts: int = 4) -> list[tuple[float, Markup]]:
    """Return evenly spaced moments of a span, by the reader's clock."""
    span_s = end_s - begin_s
    moments = [begin_s + span_s * at / parts for at in range(parts + 1)]
    return [(at_s, clock(at_s, span_s)) for at_s in moments]


def value_ticks(most: float, told: Told, parts: int = 2) -> list[tuple[float, str]]:
    """Return round values from nothing to at least the most."""
    top = most or 1.0
    power = 10.0 ** floor(log10(top / parts))
    step = next(power * one for one in (1, 2, 5, 10) if power * one * parts >= top * 0.999)
    return [(step * at, told(step * at)) for at in range(parts + 1)]


def span_ticks(low: float, high: float, told: Told, parts: int = 2) -> list[tuple[float, str]]:
    """Return evenly spaced values from the least to the most, wherever these are."""
    high = high if high > low else low + (abs(low) or 1.0) * 0.1
    values = [low + (high - low) * at / parts for at in range(parts + 1)]
    return [(value, told(value)) for value in values]


@dataclass(frozen=True, slots=True)
class _Frame:
    x_low: float
    x_high: float
    y_low: float
    y_high: float
    height: int

    def x_part(self, x: float) -> float:
        return (x - self.x_low) / ((self.x_high - self.x_low) or 1.0)

    def y_part(self, y: float) -> float:
        return (y - self.y_low) / ((self.y_high - self.y_low) or 1.0)

    def at(self, x: float, y: float) -> tuple[float, float]:
        inside = min(1.0, max(0.0, self.y_part(y)))
        return WIDTH * self.x_part(x), self.height * (1 - inside)


def _ticks(
    ticks: Sequence[tuple[float, str | Markup]] | Sequence[tuple[float, str]],
    part: Callable[[float], float],
    side: str,
) -> Markup:
    return Markup("").join(
        Markup('<span style="{}:{:.2f}%">{}</span>').format(side, 100 * part(at), word)
        for at, word in ticks
    )


def _grid(frame: _Frame, levels: Sequence[float]) -> Markup:
    return Markup("").join(
        Markup('<line class="grid" x1="0" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
            WIDTH, frame.at(0, level)[1], frame.at(0, level)[1]
        )
        for level in levels
    )


def _band(frame: _Frame, low: ChartLine, high: ChartLine) -> Markup:
    there = [frame.at(x, y or 0.0) for x, y in zip(low.x, low.y, strict=True)]
    back = [frame.at(x, y or 0.0) for x, y in zip(high.x, high.y, strict=True)]
    return Markup('<path class="band" d="{}Z"/>').format(_path([*there, *reversed(back)]))


_Point = tuple[float, float]


def _path(points: Sequence[_Point | None]) -> str:
    return " ".join(
        f"{'L' if at else 'M'}{x:.1f} {y:.1f}"
        for run in _runs(points)
        for at, (x, y) in enumerate(run)
    )


def _runs(points: Sequence[_Point | None]) -> list[list[_Point]]:
    """Return points in the parts that gaps leave of them."""
    found: list[list[_Point]] = [[]]
    for point in points:
        if point is not None:
            found[-1].append(point)
        elif found[-1]:
            found.append([])
    return [run for run in found if run]


def _area(points: Sequence[_Point], height: int) -> str:
    last, first = points[-1][0], points[0][0]
    return f"{_path(points)} L{last:.1f} {height} L{first:.1f} {height}Z"
