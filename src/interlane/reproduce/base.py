"""What a reproduction is: a name, a claim, and rows that hold or do not."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: ours beside the published one."""

    what: str
    ours: float | int | str
    published: float | int | str | None
    holds: bool
    why_not: str = ""
    """Why a row that does not hold cannot, where that is known; it is shown beside the row."""
    decides: bool = True
    """Whether the run fails if it does not hold; if not, another row counts it."""


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
    """A published result that can be run by name."""

    name: str
    claim: str
    """What the paper shows, in a sentence."""
    if_not: str
    """What would be wrong with interlane if a row did not hold."""
    run: Callable[[Setting], list[Row]]
    needs_data: bool = True
    seed: int = 42
    variants: tuple[str, ...] = ()
    """What ``Setting.choice`` may be."""
