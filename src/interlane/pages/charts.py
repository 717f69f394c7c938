"""Small pictures as SVG: drawn to scale, coloured by the style sheet, told in words too."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

WIDTH: Final = 600
"""Units across; pictures stretch to the room that they get."""


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A series of values, drawn as a line; its kind is what the style sheet colours."""

    kind: str
    label: str
    x: Sequence[float]
    y: Sequence[float]


def spark(
    values: Sequence[float], label: str, top: float | None = None, height: int = 36
) -> Markup:
    """Return a line without axes."""
    most = top or max(values, default=0.0) or 1.0
    steps = max(1, len(values) - 1)
    points = [
        (WIDTH * at / steps, height - 1 - (height - 2) * value / most)
        for at, value in enumerate(values)
    ]
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><title>{}</title><path class="area" d="{}"/>'
        '<path class="line" d="{}"/></svg>'
    ).format(WIDTH, height, label, label, _area(points, height), _path(points))


def chart(
    lines: Sequence[ChartLine],
    label: str,
    *,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    band: tuple[ChartLine, ChartLine] | None = None,
    height: int = 180,
) -> Markup:
    """Return lines over axes; the first and last ticks are the ends of each axis.

    Words stand beside the picture, not in it, so that stretching does not bend them.
    """
    frame = _Frame(x_ticks[0][0], x_ticks[-1][0], y_ticks[0][0], y_ticks[-1][0], height)
    parts = [_grid(frame, [at for at, _ in y_ticks])]
    if band is not None:
        parts.append(_band(frame, *band))
    for line in lines:
        path = _path([frame.at(x, y) for x, y in zip(line.x, line.y, strict=True)])
        drawn = Markup('<path class="line {}" d="{}"><title>{}</title></path>')
        parts.append(drawn.format(line.kind, path, line.label))
    keys = [*lines, *(() if band is None else band[:1])]
    legend = Markup("").join(
        Markup('<span class="key {}">{}</span>').format(one.kind, one.label) for one in keys
    )
    return Markup(
        '<figure class="chart"><figcaption>{}</figcaption><div class="plot">'
        '<div class="y-axis">{}</div><svg viewBox="0 0 {} {}" preserveAspectRatio="none" '
        'role="img" aria-label="{}">{}</svg><div class="x-axis">{}</div></div></figure>'
    ).format(
        legend,
        _ticks(y_ticks, frame.y_part, "bottom"),
        WIDTH,
        height,
        label,
        Markup("").join(parts),
        _ticks(x_ticks, frame.x_part, "left"),
    )


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
    ticks: Sequence[tuple[float, str]], part: Callable[[float], float], side: str
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
    there = [frame.at(x, y) for x, y in zip(low.x, low.y, strict=True)]
    back = [frame.at(x, y) for x, y in zip(high.x, high.y, strict=True)]
    return Markup('<path class="band" d="{}Z"/>').format(_path([*there, *reversed(back)]))


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{'L' if at else 'M'}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(points))


def _area(points: Sequence[tuple[float, float]], height: int) -> str:
    return f"{_path(points)} L{WIDTH} {height} L0 {height}Z" if points else ""
