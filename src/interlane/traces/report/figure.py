"""What a figure of the report is: numbers with stable names, curves, and a sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

CURVE_POINTS: Final = 201
"""Points to which a curve is thinned out."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number of this trace, with the paper's beside it where there is one."""

    value: float | None
    """None where the trace has the columns but no rows to count."""
    unit: str = ""
    paper: float | None = None
    paper_says: str = ""
    """How the paper words its number where it is a bound or a reading, as in "over"."""

    def as_dict(self) -> dict[str, object]:
        """Return the number as the JSON has it."""
        told: dict[str, object] = {"value": _finite(self.value), "unit": self.unit}
        if self.paper is not None:
            told["paper"] = self.paper
        if self.paper_says:
            told["paper_says"] = self.paper_says
        return told


@dataclass(frozen=True, slots=True)
class PlotCurve:
    """One line, or one set of bars, of a plot."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves that share their axes."""

    x_title: str
    y_title: str
    curves: tuple[PlotCurve, ...]
    bars: bool = False
    x_log: bool = False
    y_log: bool = False


@dataclass(frozen=True, slots=True)
class ReportFigure:
    """One subject of the report."""

    key: str
    title: str
    sentence: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    plots: tuple[Plot, ...] = ()
    missing: tuple[str, ...] = ()
    """Columns that the figure would need and the trace lacks."""

    def as_dict(self) -> dict[str, object]:
        """Return the figure as the JSON has it."""
        return {
            "key": self.key,
            "title": self.title,
            "sentence": self.sentence,
            "numbers": {name: number.as_dict() for name, number in self.numbers.items()},
            "missing": list(self.missing),
        }


def _finite(value: float | None) -> float | None:
    """Return a number that JSON can hold."""
    return value if value is not None and isfinite(value) else None


def absent(key: str, title: str, missing: tuple[str, ...]) -> ReportFigure:
    """Return the figure that cannot be drawn, naming what the trace lacks."""
    return ReportFigure(
        key, title, f"This trace does not tell: it lacks {', '.join(missing)}.", {}, (), missing
    )


def shown(value: float | None, unit: str = "") -> str:
    """Return a number as a sentence says it."""
    if value is None:
        return "n/a"
    text = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return f"{text} %" if unit == "%" else f"{text} {unit}".rstrip()
