"""A public curve of more than two: n equal inference engines on one RTX 5090 under MPS."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from interlane.traces.checks import Rows
from interlane.traces.read.source import Source

FOLDER: Final = "multiway-mps-5090"
FILE: Final = "multiway.csv"


@dataclass(frozen=True, slots=True)
class MultiwayCurve:
    """How much slower one engine is when n run, and what one uses alone."""

    name: str
    engines: tuple[int, ...]
    slow_down: tuple[float, ...]
    """Time per token over that of a single engine."""
    sm_active: float
    """Of one engine alone."""


def read(folder: Path) -> tuple[MultiwayCurve, ...]:
    """Read one curve for each model and place of its cache."""
    rows = Rows(Source(folder / FILE).table())
    rows.require(("model", "cell", "n", "tpot_ms", "sm_active"))
    frame = pl.DataFrame(
        {
            "name": rows.text("model", missing=None) + "/" + rows.text("cell", missing=None),
            "n": rows.whole("n", least=1),
            "ms": rows.number("tpot_ms", above=0),
            "sm": rows.number("sm_active", most=1),
        }
    )
    rows.settle(skip_bad=False)
    return tuple(
        _curve(str(name), group.sort("n"))
        for (name,), group in frame.group_by("name", maintain_order=True)
    )


def _curve(name: str, rows: pl.DataFrame) -> MultiwayCurve:
    ms = rows["ms"].to_list()
    return MultiwayCurve(
        name,
        tuple(rows["n"].to_list()),
        tuple(one / ms[0] for one in ms),
        float(rows["sm"][0]),
    )
