"""What a reproduction is: a name, a claim, and rows of three kinds.

A *checked* row could fail, and says what would be wrong then.  A *figure* is shown and never
counted.  A *calibrated* row is near the published number because a constant was set from it;
it names the constant and is never counted as evidence either.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

Value = float | int | str


class Kind(StrEnum):
    """What a row is worth."""

    CHECKED = "checked"
    FIGURE = "figure"
    CALIBRATED = "calibrated"


class Basis(StrEnum):
    """What a row rests on; the order is that in which results are shown."""

    REAL = "real trace"
    MEASURED = "public measurements"
    MACHINE = "this machine"
    DRAWN = "drawn"
    FITTED = "fitted"


@dataclass(frozen=True, slots=True)
class Excuse:
    """Why a row is known to miss, and how far it may: outside of the range it is a failure."""

    why: str
    low: float
    high: float

    def covers(self, ours: Value) -> bool:
        """Tell whether this value is the miss that is known."""
        return not isinstance(ours, str) and self.low <= ours <= self.high


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: ours beside the published one; made by the three functions below."""

    what: str
    ours: Value
    published: Value | None
    kind: Kind
    holds: bool | None = None
    """Whether it is as it should be; None for a figure."""
    if_not: str = ""
    """What would be wrong if a checked row did not hold; empty where the entry says it."""
    constant: str = ""
    """What was set from the published number, for a calibrated row."""
    excuse: Excuse | None = None
    decides: bool = True
    """Whether the run fails with it; if not, another row counts it."""
    basis: Basis | None = None
    """What it rests on, where that is not what the entry rests on."""

    @property
    def is_excused(self) -> bool:
        """Whether it misses as far as is known and no further."""
        return self.holds is False and self.excuse is not None and self.excuse.covers(self.ours)

    @property
    def fails(self) -> bool:
        """Whether the run fails with this row."""
        return self.decides and self.holds is False and not self.is_excused


def checked(
    what: str,
    ours: Value,
    published: Value | None,
    holds: bool,  # noqa: FBT001 - reads as the row is shown
    if_not: str = "",
    excuse: Excuse | None = None,
) -> Row:
    """Return a row that could fail."""
    return Row(what, ours, published, Kind.CHECKED, bool(holds), if_not, excuse=excuse)


def claim(what: str, holds: bool, if_not: str = "") -> Row:  # noqa: FBT001 - as above
    """Return a checked row that is a sentence: what must be so, whatever the numbers are."""
    return checked(what, "yes" if holds else "no", "yes", holds, if_not)


def figure(what: str, ours: Value, published: Value | None = None) -> Row:
    """Return a row that is shown beside the published number; nothing hinges on it."""
    return Row(what, ours, published, Kind.FIGURE)


def calibrated(
    what: str,
    ours: Value,
    published: Value | None,
    near: bool,  # noqa: FBT001 - as above
    constant: str,
    excuse: Excuse | None = None,
) -> Row:
    """Return a row that is near because this constant was set from the published number."""
    return Row(
        what, ours, published, Kind.CALIBRATED, bool(near), constant=constant, excuse=excuse
    )


class Progress(Protocol):
    """Told how far a long reproduction has come."""

    def __call__(self, done: int, total: int, what: str) -> None:
        """Note that ``done`` of ``total`` steps are over."""
        ...


def silent(done: int, total: int, what: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What every reproduction is given."""

    data: Path | None
    """Where the public data sets are; None when they are not at hand."""
    seed: int
    processes: int = 1
    progress: Progress = silent
    choice: str | None = None
    """A variant of the entry, where it has several (``--list`` names them)."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A published result, or a question to public data, that can be run by name."""

    name: str
    claim: str
    """What is shown, in a sentence."""
    if_not: str
    """What would be wrong with interlane if a checked row did not hold."""
    run: Callable[[Setting], list[Row]]
    needs_data: bool = True
    seed: int = 42
    variants: tuple[str, ...] = ()
    """What ``Setting.choice`` may be."""
    basis: Basis = Basis.REAL
    teaches: str = ""
    """What one learns from it that the papers do not say, in a sentence."""
    published: tuple[str, ...] = ()
    """Where published numbers stand that ours are compared with, as ``module:NAME``.

    A test changes each: ours must stay as it was."""
    fitted: tuple[str, ...] = ()
    """Constants that were set from published results, as ``module:NAME``.

    A test changes each: ours of every checked row must stay as it was."""
